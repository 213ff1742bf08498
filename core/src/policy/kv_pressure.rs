//! KV pressure: while an engine's cache is too full, or much fuller than another's, what the
//! gateway remembers of it is being evicted, so affinity is skipped (routing.md §3 step 2).

use crate::policy::candidates::Eligible;

/// Thresholds on the mean KV usage of a worker's ranks. 1 and more never fire.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KvPressure {
    /// The hottest usage may not exceed this (`--overload-token-usage-threshold`).
    pub overload: f64,
    /// Hottest minus coldest may not exceed this (`--balance-token-usage-threshold`).
    pub balance: f64,
}

impl Default for KvPressure {
    fn default() -> Self {
        Self { overload: 1.0, balance: 1.0 }
    }
}

impl KvPressure {
    /// Whether affinity is to be skipped, judged over the eligible workers that reported.
    pub fn fires(&self, eligible: Eligible<'_>) -> bool {
        if self.overload >= 1.0 && self.balance >= 1.0 {
            return false;
        }
        let loads = eligible.candidates().loads;
        let bounds = eligible.iter().filter_map(|worker| loads.get(worker)).fold(
            None,
            |bounds: Option<(f64, f64)>, load| match bounds {
                Some((coldest, hottest)) => {
                    Some((coldest.min(load.kv_usage), hottest.max(load.kv_usage)))
                }
                None => Some((load.kv_usage, load.kv_usage)),
            },
        );
        // A threshold of 1 is off even for an engine that reports more than 1.
        bounds.is_some_and(|(coldest, hottest)| {
            (self.overload < 1.0 && hottest > self.overload)
                || (self.balance < 1.0 && hottest - coldest > self.balance)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fake_fleet::{FakeFleet, rank};

    fn fires(usages: &[Option<f64>], overload: f64, balance: f64) -> bool {
        let mut fleet = FakeFleet::new(usages.len());
        for (worker, usage) in usages.iter().enumerate() {
            if let Some(token_usage) = *usage {
                fleet.report(worker, &[rank().usage(token_usage)]);
            }
        }
        KvPressure { overload, balance }.fires(fleet.candidates().eligible())
    }

    #[test]
    fn overload_is_strict_and_any_worker_can_trigger_it() {
        assert!(!fires(&[Some(0.75), Some(0.0)], 0.75, 1.0));
        assert!(fires(&[Some(0.0), Some(0.875)], 0.75, 1.0));
        assert!(fires(&[Some(0.95), None], 0.9, 1.0), "one report is enough");
    }

    #[test]
    fn spread_is_strict_and_needs_two_reports() {
        assert!(!fires(&[Some(0.75), Some(0.25)], 1.0, 0.5));
        assert!(fires(&[Some(0.875), Some(0.25)], 1.0, 0.5));
        assert!(!fires(&[Some(0.95), None], 1.0, 0.3), "a silent worker has no usage");
        assert!(!fires(&[Some(0.95), Some(0.95)], 1.0, 0.3), "uniformly full");
    }

    #[test]
    fn one_and_more_are_off_and_so_is_silence() {
        assert!(!fires(&[Some(1.0), Some(0.0)], 1.0, 1.0));
        assert!(!fires(&[Some(1.5), Some(0.0)], 1.0, 2.5));
        assert!(!fires(&[None, None], 0.1, 0.1));
    }

    #[test]
    fn usage_is_the_mean_over_ranks_of_eligible_workers() {
        let mut fleet = FakeFleet::new(2);
        fleet.report(0, &[rank().usage(1.0), rank().usage(0.5)]);
        fleet.report(1, &[rank()]);
        let over = |overload| KvPressure { overload, balance: 1.0 };
        assert!(!over(0.75).fires(fleet.candidates().eligible()));
        assert!(over(0.7).fires(fleet.candidates().eligible()));
        fleet.open_breaker(0);
        assert!(!over(0.7).fires(fleet.candidates().eligible()), "it is not eligible");
    }
}
