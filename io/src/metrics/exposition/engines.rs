//! What the engines say about themselves: their load reports, and the verdicts of overload protection.

use smg_core::policy::LoadTable;
use smg_core::policy::load_report::RankLoad;

use super::{Family, Text};
use crate::fleet::Fleet;

type Field = fn(&RankLoad) -> Option<f64>;

/// Name, help and field of each gauge.
const GAUGES: [(&str, &str, Field); 9] = [
    ("smg_engine_running_requests", "Requests running in an engine.", |rank| {
        Some(rank.running_requests)
    }),
    ("smg_engine_waiting_requests", "Requests waiting in an engine.", |rank| {
        Some(rank.waiting_requests)
    }),
    ("smg_engine_token_usage", "Share of an engine's KV cache in use.", |rank| {
        Some(rank.token_usage)
    }),
    ("smg_engine_gen_throughput", "Tokens an engine generates per second.", |rank| {
        Some(rank.gen_throughput)
    }),
    ("smg_engine_cache_hit_rate", "Prefix cache hit rate of an engine.", |rank| {
        Some(rank.cache_hit_rate)
    }),
    ("smg_engine_pd_kv_transfer_latency_ms", "Latency of KV transfers.", |rank| {
        rank.kv_transfer_latency_ms
    }),
    ("smg_engine_pd_kv_transfer_speed_gb_s", "Speed of KV transfers.", |rank| {
        rank.kv_transfer_speed_gb_s
    }),
    ("smg_engine_pd_prefill_queue_reqs", "Requests queued for prefill.", |rank| {
        rank.prefill_queue_requests
    }),
    ("smg_engine_pd_decode_queue_reqs", "Requests queued for decode.", |rank| {
        rank.decode_queue_requests
    }),
];

/// Writes the gauges of all workers that report.
pub(super) fn write(text: &mut Text, fleet: &Fleet, loads: &LoadTable) {
    for (name, help, field) in GAUGES {
        text.family(name, Family::Gauge, help);
        for worker in fleet.iter() {
            for rank in loads.get(worker.id).map_or(&[][..], |report| &report.ranks) {
                let Some(value) = field(rank) else { continue };
                let dp_rank = rank.dp_rank.to_string();
                let labels = [
                    ("worker", worker.url.as_str()),
                    ("model", &*worker.model_name),
                    ("dp_rank", dp_rank.as_str()),
                ];
                text.sample(name, &labels, value);
            }
        }
    }
    let name = "smg_workers_overloaded";
    text.family(name, Family::Gauge, "Workers that overload protection leaves out, per model.");
    for model in fleet.placement.models.iter().filter(|model| !model.members.is_empty()) {
        let overloaded = model.members.iter().filter(|&&worker| loads.overloaded(worker)).count();
        text.sample(name, &[("model", &*model.name)], overloaded as f64);
    }
}
