//! What a worker says about its load: `GET /v1/loads`, or its engine's Prometheus text
//! ([`parse_engine_metrics`]).
//!
//! Numbers from outside are cleaned on entry: whatever is absent, negative or not a number is 0.

use simd_json::prelude::*;
use simd_json::tape::{Object, Value};

pub use crate::policy::engine_metrics::parse_engine_metrics;

/// One poll of one worker.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LoadReport {
    /// One entry per data-parallel rank.
    pub ranks: Vec<RankLoad>,
}

/// Load of one rank, in the terms of `/v1/loads`. What an engine does not report is 0, or `None`
/// where the field is optional there.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RankLoad {
    pub dp_rank: u32,
    pub running_requests: f64,
    pub waiting_requests: f64,
    /// Tokens of waiting requests that are not in the KV cache.
    pub waiting_uncached_tokens: f64,
    pub total_requests: f64,
    pub used_tokens: f64,
    pub max_total_tokens: f64,
    /// Share of the KV cache in use, normally 0 to 1.
    pub token_usage: f64,
    /// Generated tokens per second.
    pub gen_throughput: f64,
    /// 0 to 1.
    pub cache_hit_rate: f64,
    pub utilization: f64,
    pub max_running_requests: f64,
    pub kv_transfer_latency_ms: Option<f64>,
    pub kv_transfer_speed_gb_s: Option<f64>,
    pub prefill_queue_requests: Option<f64>,
    pub decode_queue_requests: Option<f64>,
}

impl LoadReport {
    /// Waiting uncached tokens over all ranks.
    pub fn waiting_uncached_tokens(&self) -> f64 {
        self.sum(|rank| rank.waiting_uncached_tokens)
    }

    /// Waiting requests over all ranks.
    pub fn waiting_requests(&self) -> u32 {
        self.sum(|rank| rank.waiting_requests) as u32
    }

    /// Generated tokens per second over all ranks.
    pub fn throughput(&self) -> f64 {
        self.sum(|rank| rank.gen_throughput)
    }

    /// Tokens in the KV caches of all ranks.
    pub fn used_tokens(&self) -> f64 {
        self.sum(|rank| rank.used_tokens)
    }

    /// Mean KV usage over the ranks.
    pub fn kv_usage(&self) -> f64 {
        self.sum(|rank| rank.token_usage) / self.ranks.len().max(1) as f64
    }

    fn sum(&self, field: impl Fn(&RankLoad) -> f64) -> f64 {
        self.ranks.iter().map(field).sum()
    }
}

/// When overload protection vetoes a worker. Both unset is off.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OverloadThresholds {
    /// Waiting requests, summed over ranks, from which it is overloaded.
    pub waiting_requests: Option<u32>,
    /// Mean KV usage from which it is overloaded.
    pub token_usage: Option<f64>,
}

impl OverloadThresholds {
    /// Whether a worker with this report is vetoed.
    pub fn verdict(&self, report: &LoadReport) -> bool {
        self.waiting_requests.is_some_and(|most| report.waiting_requests() >= most)
            || self.token_usage.is_some_and(|most| report.kv_usage() >= most)
    }
}

/// Most ranks read from one report; further ones are dropped.
pub const MAX_RANKS: usize = 256;

/// Reads the body of `GET /v1/loads`, rewriting it in place. `None` when it is not of that schema:
/// an object with a `loads` list of objects.
pub fn parse_loads(json: &mut [u8]) -> Option<LoadReport> {
    // A tape, not a tree of values: nothing recurses over the depth of a hostile document.
    let tape = simd_json::to_tape(json).ok()?;
    let report = tape.as_value();
    let loads = member(&report.as_object()?, "loads")?;
    let loads = loads.as_array()?;
    let mut ranks = Vec::new();
    for (index, rank) in loads.iter().take(MAX_RANKS).enumerate() {
        let rank = rank.as_object()?;
        let number = |name: &str| member(&rank, name)?.cast_f64().map(clean);
        let plain = |name: &str| number(name).unwrap_or(0.0);
        // SGLang nests these; the flat names are the schema's.
        let nested = |name: &str| {
            let disaggregation = member(&rank, "disaggregation")?;
            member(&disaggregation.as_object()?, name)?.cast_f64().map(clean)
        };
        ranks.push(RankLoad {
            dp_rank: number("dp_rank").map_or(index as u32, |rank| rank as u32),
            running_requests: plain("num_running_reqs"),
            waiting_requests: plain("num_waiting_reqs"),
            waiting_uncached_tokens: plain("num_waiting_uncached_tokens"),
            total_requests: plain("num_total_reqs"),
            used_tokens: plain("num_used_tokens"),
            max_total_tokens: plain("max_total_num_tokens"),
            token_usage: plain("token_usage"),
            gen_throughput: plain("gen_throughput"),
            cache_hit_rate: plain("cache_hit_rate"),
            utilization: plain("utilization"),
            max_running_requests: plain("max_running_requests"),
            kv_transfer_latency_ms: number("kv_transfer_latency_ms")
                .or_else(|| nested("kv_transfer_latency_ms")),
            kv_transfer_speed_gb_s: number("kv_transfer_speed_gb_s")
                .or_else(|| nested("kv_transfer_speed_gb_s")),
            prefill_queue_requests: number("prefill_queue_reqs"),
            decode_queue_requests: number("decode_queue_reqs"),
        });
    }
    let mut numbers: Vec<u32> = ranks.iter().map(|rank| rank.dp_rank).collect();
    numbers.sort_unstable();
    if numbers.windows(2).any(|pair| pair[0] == pair[1]) {
        // Their gauges would be one series with several values.
        (0..).zip(&mut ranks).for_each(|(at, rank)| rank.dp_rank = at);
    }
    Some(LoadReport { ranks })
}

/// The value of the last member of this name: of a repeated one the last counts, as in the JSON
/// parsers that engines use.
fn member<'t, 'i>(object: &Object<'t, 'i>, name: &str) -> Option<Value<'t, 'i>> {
    object.iter().filter(|(key, _)| *key == name).last().map(|(_, value)| value)
}

/// Larger numbers from outside are taken as this one, so that sums and quotients stay finite.
const MAX_NUMBER: f64 = 1e15;

/// A number as engines may be believed.
pub(crate) fn clean(number: f64) -> f64 {
    if number > 0.0 { number.min(MAX_NUMBER) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Option<LoadReport> {
        parse_loads(&mut json.as_bytes().to_vec())
    }

    /// `GET /v1/loads` of SGLang 0.5.23, shortened.
    const CAPTURED: &str = r#"{"timestamp":"2026-11-29T17:51:45.056592+00:00","version":"0.5.23",
        "accelerator":null,"loads":[{"timestamp":1795974705.0551121,"dp_rank":0,
        "num_running_reqs":3,"num_waiting_reqs":7,"num_waiting_uncached_tokens":412,
        "num_used_tokens":1024,"num_total_tokens":0,"max_total_num_tokens":4096,
        "max_running_requests":8,"token_usage":0.25,"gen_throughput":61.5,"cache_hit_rate":0.125,
        "utilization":0.5,"decode_moments":[38.0,164281.0],
        "disaggregation":{"mode":"null","kv_transfer_speed_gb_s":1.5,"kv_transfer_latency_ms":2},
        "queues":{"waiting":0,"grammar":0}}]}"#;

    #[test]
    fn a_captured_report() {
        let report = parse(CAPTURED).unwrap();
        let rank = RankLoad {
            dp_rank: 0,
            running_requests: 3.0,
            waiting_requests: 7.0,
            waiting_uncached_tokens: 412.0,
            total_requests: 0.0,
            used_tokens: 1024.0,
            max_total_tokens: 4096.0,
            token_usage: 0.25,
            gen_throughput: 61.5,
            cache_hit_rate: 0.125,
            utilization: 0.5,
            max_running_requests: 8.0,
            kv_transfer_latency_ms: Some(2.0),
            kv_transfer_speed_gb_s: Some(1.5),
            prefill_queue_requests: None,
            decode_queue_requests: None,
        };
        assert_eq!(report.ranks, [rank]);
    }

    #[test]
    fn ranks_are_summed_and_usage_is_their_mean() {
        let report = parse(
            r#"{"loads":[{"num_waiting_reqs":5,"num_waiting_uncached_tokens":600,"token_usage":1.0,
                 "gen_throughput":500,"num_used_tokens":10},
                {"dp_rank":1,"num_waiting_reqs":6,"num_waiting_uncached_tokens":700,
                 "token_usage":0.5,"gen_throughput":250.5,"num_used_tokens":20}]}"#,
        )
        .unwrap();
        assert_eq!(report.waiting_requests(), 11);
        assert_eq!(report.waiting_uncached_tokens(), 1300.0);
        assert_eq!(report.throughput(), 750.5);
        assert_eq!(report.kv_usage(), 0.75);
        assert_eq!(report.used_tokens(), 30.0);
    }

    #[test]
    fn everything_in_a_rank_is_optional() {
        let report = parse(r#"{"loads":[{},{}]}"#).unwrap();
        assert_eq!(report.ranks[0], RankLoad::default());
        assert_eq!(report.ranks[1].dp_rank, 1, "numbered by place");
        assert!(parse(r#"{"loads":[]}"#).unwrap().ranks.is_empty());
    }

    #[test]
    fn ranks_with_one_number_are_numbered_by_place() {
        let numbers = |json: &str| -> Vec<u32> {
            parse(json).unwrap().ranks.iter().map(|rank| rank.dp_rank).collect()
        };
        assert_eq!(numbers(r#"{"loads":[{"dp_rank":5},{"dp_rank":3}]}"#), [5, 3]);
        assert_eq!(numbers(r#"{"loads":[{"dp_rank":5},{"dp_rank":5},{"dp_rank":1}]}"#), [0, 1, 2]);
        assert_eq!(numbers(r#"{"loads":[{"dp_rank":1},{}]}"#), [0, 1]);
        assert_eq!(numbers(r#"{"loads":[{"dp_rank":1e12},{"dp_rank":1e13}]}"#), [0, 1]);
    }

    #[test]
    fn numbers_nobody_can_mean() {
        let report = parse(
            r#"{"loads":[{"num_waiting_reqs":-5,"gen_throughput":1e300,"token_usage":"0.5",
                "num_waiting_uncached_tokens":null,"dp_rank":-1}]}"#,
        )
        .unwrap();
        let rank = RankLoad { gen_throughput: 1e15, ..RankLoad::default() };
        assert_eq!(report.ranks, [rank]);
    }

    #[test]
    fn of_a_repeated_name_the_last_counts() {
        let report = parse(
            r#"{"loads":[],"loads":[{"num_waiting_reqs":1,"num_waiting_reqs":5,"dp_rank":0,
                "disaggregation":{"kv_transfer_latency_ms":1},
                "disaggregation":{"kv_transfer_latency_ms":2,"kv_transfer_latency_ms":3}}]}"#,
        );
        let rank = RankLoad {
            waiting_requests: 5.0,
            kv_transfer_latency_ms: Some(3.0),
            ..RankLoad::default()
        };
        assert_eq!(report.unwrap().ranks, [rank]);
    }

    #[test]
    fn anything_else_is_not_the_schema() {
        for other in ["", "{", "[]", "null", "7", r#"{"loads":{}}"#, r#"{"loads":[7]}"#, "{}"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_deep_or_long_document_does_no_harm() {
        let deep =
            format!("{{\"loads\":[{{\"x\":{}{}}}]}}", "[".repeat(100_000), "]".repeat(100_000));
        let _ = parse(&deep);
        let long = format!("{{\"loads\":[{}{{}}]}}", "{},".repeat(10_000));
        assert_eq!(parse(&long).unwrap().ranks.len(), MAX_RANKS);
    }

    #[test]
    fn overload_is_at_or_above_either_threshold() {
        let report = |waiting_requests, token_usage| LoadReport {
            ranks: vec![RankLoad { waiting_requests, token_usage, ..RankLoad::default() }],
        };
        let waiting =
            OverloadThresholds { waiting_requests: Some(10), ..OverloadThresholds::default() };
        assert!(!waiting.verdict(&report(9.0, 1.0)));
        assert!(waiting.verdict(&report(10.0, 0.0)));
        let usage = OverloadThresholds { token_usage: Some(0.75), waiting_requests: None };
        assert!(!usage.verdict(&report(5000.0, 0.74)));
        assert!(usage.verdict(&report(0.0, 0.75)));
        assert!(!OverloadThresholds::default().verdict(&report(1e6, 1.0)));
        let both = OverloadThresholds { waiting_requests: Some(10), token_usage: Some(0.75) };
        assert!(both.verdict(&report(0.0, 0.9)) && both.verdict(&report(10.0, 0.0)));
    }
}
