//! What is counted and timed during one simulation.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::engine::Nanos;
use crate::load::Quantiles;
use crate::load::record::histogram;

/// Totals and distributions. Sizes do not grow with the number of requests.
pub struct Record {
    slo: Nanos,
    answered: u64,
    pub failed: u64,
    pub retried: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    reusable_tokens: u64,
    in_time: u64,
    first_token: Histogram<u64>,
    latency: Histogram<u64>,
    /// When the last request ended.
    end: Nanos,
    /// Requests sent to each engine, and the time each spent in steps.
    pub sent: Vec<u64>,
    pub busy: Vec<Nanos>,
    pub preemptions: u64,
}

/// One row of the table. Shares are 0 to 1, times in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmReport {
    pub policy: String,
    /// Requests answered whole, and requests that failed.
    pub requests: u64,
    pub failed: u64,
    /// Requests sent again because their engine went away.
    pub retried: u64,
    pub prompt_tokens: u64,
    /// Prompt tokens the engines found in their caches.
    pub cached_tokens: u64,
    /// Prompt tokens one cache without limits would have had.
    pub reusable_tokens: u64,
    /// Cached of all prompt tokens, and of the reusable ones.
    pub hit_share: f64,
    pub oracle_share: f64,
    pub ttft_ms: Quantiles,
    pub latency_ms: Quantiles,
    /// Of the engine with the most over the mean: requests, and time spent computing. 0 without
    /// engines.
    pub requests_max_over_mean: f64,
    pub busy_max_over_mean: f64,
    /// Mean share of the time the engines were computing.
    pub utilization: f64,
    /// Requests answered whole with their first token within the SLO, of all; and per second.
    pub goodput_share: f64,
    pub goodput_per_s: f64,
    pub preemptions: u64,
    /// From the first arrival's origin to the last request's end.
    pub simulated_s: f64,
}

impl Record {
    /// Nothing yet. `slo` is the longest good time to first token.
    pub fn new(slo: Nanos, engines: usize) -> Self {
        Self {
            slo,
            answered: 0,
            failed: 0,
            retried: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
            reusable_tokens: 0,
            in_time: 0,
            first_token: histogram(),
            latency: histogram(),
            end: 0,
            sent: vec![0; engines],
            busy: vec![0; engines],
            preemptions: 0,
        }
    }

    /// The first token of a request that arrived at `arrived`. Says whether it came in time.
    ///
    /// # Panics
    /// If an engine had more in its cache than was ever sent: the simulation is wrong then.
    pub fn first_token(
        &mut self,
        arrived: Nanos,
        at: Nanos,
        prompt_tokens: u32,
        cached_tokens: u32,
        reusable_tokens: u32,
    ) -> bool {
        assert!(
            cached_tokens <= reusable_tokens,
            "{cached_tokens} tokens cached of {reusable_tokens} that were sent before"
        );
        self.prompt_tokens += u64::from(prompt_tokens);
        self.cached_tokens += u64::from(cached_tokens);
        self.reusable_tokens += u64::from(reusable_tokens);
        self.first_token.saturating_record(at - arrived);
        at - arrived <= self.slo
    }

    /// The last token of a request that arrived at `arrived`.
    pub fn end(&mut self, arrived: Nanos, at: Nanos, in_time: bool) {
        self.answered += 1;
        self.in_time += u64::from(in_time);
        self.latency.saturating_record(at - arrived);
        self.end = self.end.max(at);
    }

    pub fn report(&self, policy: String) -> ArmReport {
        let all = self.answered + self.failed;
        let seconds = self.end as f64 / 1e9;
        let busy: f64 = self.busy.iter().map(|&busy| busy as f64).sum();
        let engine_time = self.end as f64 * self.busy.len() as f64;
        ArmReport {
            policy,
            requests: self.answered,
            failed: self.failed,
            retried: self.retried,
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            reusable_tokens: self.reusable_tokens,
            hit_share: share(self.cached_tokens as f64, self.prompt_tokens as f64),
            oracle_share: match self.reusable_tokens {
                0 => 1.0,
                reusable => self.cached_tokens as f64 / reusable as f64,
            },
            ttft_ms: Quantiles::of(&self.first_token),
            latency_ms: Quantiles::of(&self.latency),
            requests_max_over_mean: max_over_mean(&self.sent),
            busy_max_over_mean: max_over_mean(&self.busy),
            utilization: share(busy, engine_time),
            goodput_share: share(self.in_time as f64, all as f64),
            goodput_per_s: share(self.in_time as f64, seconds),
            preemptions: self.preemptions,
            simulated_s: seconds,
        }
    }
}

/// `part / whole`, 0 of nothing.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn max_over_mean(values: &[u64]) -> f64 {
    let max = values.iter().copied().max().unwrap_or(0) as f64;
    let mean = values.iter().sum::<u64>() as f64 / values.len().max(1) as f64;
    share(max, mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_ratios_by_hand() {
        let mut record = Record::new(100, 2);
        assert!(record.first_token(0, 100, 1_000, 200, 400));
        assert!(!record.first_token(50, 151, 1_000, 0, 400));
        record.end(0, 500_000_000, true);
        record.end(50, 2_000_000_000, false);
        record.failed = 2;
        record.sent = vec![3, 1];
        record.busy = vec![1_000_000_000, 0];
        let report = record.report("x".into());
        assert_eq!((report.hit_share, report.oracle_share), (0.1, 0.25));
        assert_eq!((report.requests_max_over_mean, report.busy_max_over_mean), (1.5, 2.0));
        assert_eq!((report.goodput_share, report.goodput_per_s), (0.25, 0.5));
        assert_eq!((report.utilization, report.simulated_s), (0.25, 2.0));
    }

    #[test]
    #[should_panic(expected = "5 tokens cached of 4")]
    fn more_hits_than_the_infinite_cache_has_cannot_be() {
        Record::new(1, 1).first_token(0, 1, 10, 5, 4);
    }
}
