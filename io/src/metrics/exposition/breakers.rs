//! Families of the circuit breakers.

use smg_core::breaker::{BreakerView, Transition};
use smg_core::fleet::WorkerId;

use super::families::Page;
use super::{Family, Text};
use crate::metrics::workers::WorkerCells;
use crate::runtime::clock;

type ViewValue = fn(&BreakerView) -> f64;

/// Writes them.
pub(super) fn write(text: &mut Text, page: &Page<'_>) {
    let now_ms = clock::now_ms();
    let view = |worker: WorkerId| page.shared.breakers.view(worker, now_ms);
    let gauges: [(&str, &str, ViewValue); 3] = [
        ("smg_worker_cb_state", "Circuit breaker: 0 closed, 1 open, 2 half-open.", |view| {
            f64::from(view.state as u8)
        }),
        (
            "smg_worker_cb_consecutive_failures",
            "Failures of a worker since its last success.",
            |view| f64::from(view.consecutive_failures),
        ),
        (
            "smg_worker_cb_consecutive_successes",
            "Successful probes of a half-open breaker in a row.",
            |view| f64::from(view.consecutive_successes),
        ),
    ];
    for (name, help, value) in gauges {
        text.family(name, Family::Gauge, help);
        for worker in page.fleet.iter() {
            text.sample(name, &[("worker", worker.url.as_str())], value(&view(worker.id)));
        }
    }
    let name = "smg_worker_cb_transitions_total";
    text.family(name, Family::Counter, "Changes of a worker's circuit breaker.");
    for worker in page.fleet.iter() {
        for (change, &count) in Transition::ALL.iter().zip(&view(worker.id).transitions) {
            if count > 0 {
                let (from, to) = (change.from.as_str(), change.to.as_str());
                let labels = [("worker", worker.url.as_str()), ("from", from), ("to", to)];
                text.sample(name, &labels, f64::from(count));
            }
        }
    }
    let name = "smg_worker_cb_outcomes_total";
    text.family(name, Family::Counter, "Attempts at a worker, by how its breaker judges them.");
    for worker in page.fleet.iter() {
        for (at, outcome) in WorkerCells::OUTCOMES.into_iter().enumerate() {
            let count = page.sum(|cells| cells.workers.outcomes(worker.id)[at]);
            let labels = [("worker", worker.url.as_str()), ("outcome", outcome.as_str())];
            text.sample(name, &labels, count as f64);
        }
    }
}
