//! Families of the concurrency limit.

use super::{Family, Text};
use crate::metrics::ShardCells;
use crate::shared::Shared;

/// Writes them; nothing when there is no limit.
pub fn write(text: &mut Text, shared: &Shared) {
    let admission = &shared.admission;
    if !admission.is_limited() {
        return;
    }
    let sum = |cell: fn(&ShardCells) -> u64| -> f64 {
        shared.cells.shards.iter().map(cell).sum::<u64>() as f64
    };
    text.family("smg_admission_inflight", Family::Gauge, "Requests that hold a permit.");
    text.sample("smg_admission_inflight", &[], admission.running() as f64);
    text.family("smg_admission_queue_depth", Family::Gauge, "Requests that wait for a permit.");
    text.sample("smg_admission_queue_depth", &[], admission.waiting() as f64);
    let name = "smg_admission_queue_rejected_total";
    text.family(name, Family::Counter, "Requests refused a permit, by reason.");
    text.sample(name, &[("reason", "full")], sum(|cells| cells.admission_rejected[0].get()));
    text.sample(name, &[("reason", "timeout")], sum(|cells| cells.admission_rejected[1].get()));
    let name = "smg_http_rate_limit_total";
    text.family(name, Family::Counter, "Inference requests let in or refused.");
    text.sample(name, &[("result", "allowed")], sum(|cells| cells.admission[0].get()));
    text.sample(name, &[("result", "rejected")], sum(|cells| cells.admission[1].get()));
}
