//! The rules once more, as plainly as they can be written: what the simulation checks against.

use crate::breaker::{BreakerConfig, BreakerState, Outcome};
use crate::policy::load_report::RankLoad;

/// One worker's breaker with the times of all failures of its run.
#[derive(Debug, Default)]
pub(super) struct NaiveBreaker {
    failures_ms: Vec<u64>,
    opened_ms: Option<u64>,
    half_open: bool,
    probe_out: bool,
    successes: u32,
    skip_until_ms: u64,
}

impl NaiveBreaker {
    pub(super) fn allows(&self, config: &BreakerConfig, now_ms: u64) -> bool {
        let timed_out = |opened: u64| now_ms >= opened + config.timeout_ms;
        let closed_or_probing = match self.opened_ms {
            _ if self.half_open => !self.probe_out,
            Some(opened) => timed_out(opened),
            None => true,
        };
        now_ms >= self.skip_until_ms && closed_or_probing
    }

    /// A request is sent; whether it is a probe.
    pub(super) fn admit(&mut self) -> bool {
        if self.opened_ms.is_some() {
            self.half_open = true;
            self.probe_out = true;
        }
        self.probe_out && self.half_open
    }

    pub(super) fn skip_for(&mut self, ms: u64, now_ms: u64) {
        self.skip_until_ms = self.skip_until_ms.max(now_ms + ms);
    }

    pub(super) fn settle(
        &mut self,
        config: &BreakerConfig,
        probe: bool,
        outcome: Outcome,
        now_ms: u64,
    ) {
        if probe {
            self.probe_out = false;
            match outcome {
                Outcome::Neutral => {}
                Outcome::Success => {
                    self.successes += 1;
                    if self.successes >= config.success_threshold {
                        let skip_until_ms = self.skip_until_ms;
                        *self = Self { skip_until_ms, ..Self::default() };
                    }
                }
                Outcome::Failure => self.open(now_ms),
            }
        } else if self.opened_ms.is_none() {
            match outcome {
                Outcome::Neutral => {}
                Outcome::Success => self.failures_ms.clear(),
                Outcome::Failure => {
                    self.failures_ms.push(now_ms);
                    let recent = |&&at: &&u64| at + config.window_ms >= now_ms;
                    let run = self.failures_ms.iter().rev().take_while(recent).count();
                    if run >= config.failure_threshold as usize {
                        self.open(now_ms);
                    }
                }
            }
        }
    }

    pub(super) fn state(&self, config: &BreakerConfig, now_ms: u64) -> BreakerState {
        match self.opened_ms {
            _ if self.half_open => BreakerState::HalfOpen,
            Some(opened) if now_ms >= opened + config.timeout_ms => BreakerState::HalfOpen,
            Some(_) => BreakerState::Open,
            None => BreakerState::Closed,
        }
    }

    fn open(&mut self, now_ms: u64) {
        self.opened_ms = Some(now_ms);
        self.half_open = false;
        self.successes = 0;
    }
}

/// What one worker published, and what was sent to it since.
#[derive(Debug, Clone, Copy)]
pub(super) struct NaiveReport {
    pub rank: RankLoad,
    pub credited_tokens: u32,
}

impl NaiveReport {
    /// The formula as it stands in the contract.
    pub(super) fn score(&self) -> f64 {
        let rank = &self.rank;
        let queued = match rank.waiting_uncached_tokens {
            tokens if tokens > 0.0 => tokens,
            _ => rank.waiting_requests * 1024.0,
        };
        let throughput = if rank.gen_throughput > 0.0 { rank.gen_throughput } else { 2000.0 };
        let k = rank.token_usage.min(0.999);
        (queued + f64::from(self.credited_tokens)) / throughput + 0.15 * k / (1.0 - k)
    }
}

/// Scores of a set of (report, in-flight), in its order.
pub(super) fn scores(set: &[(Option<NaiveReport>, u32)]) -> Vec<f64> {
    let reports = || set.iter().filter_map(|(report, _)| report.as_ref());
    let Some(best) = reports().map(NaiveReport::score).reduce(f64::min) else {
        return set.iter().map(|&(_, in_flight)| f64::from(in_flight)).collect();
    };
    let rates: Vec<f64> =
        reports().map(|report| report.rank.gen_throughput).filter(|&rate| rate > 0.0).collect();
    let nominal =
        if rates.is_empty() { 2000.0 } else { rates.iter().sum::<f64>() / rates.len() as f64 };
    set.iter()
        .map(|(report, in_flight)| match report {
            Some(report) => report.score(),
            None => best + f64::from(*in_flight) * 1024.0 / nominal,
        })
        .collect()
}

/// Whether a worker is hot among eligible workers with these counts.
pub(super) fn hot(in_flight: u32, eligible: &[u32], abs: u32, rel: f64) -> bool {
    let mean = eligible.iter().map(|&n| f64::from(n)).sum::<f64>() / eligible.len() as f64;
    f64::from(in_flight) > rel * mean && f64::from(in_flight) > mean + f64::from(abs)
}
