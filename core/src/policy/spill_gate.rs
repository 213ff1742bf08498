//! The spill gate: affinity stops where a worker is much busier than the fleet.
//!
//! ```text
//! hot(w)  ⇔  in-flight > rel × mean  and  in-flight > mean + abs
//! ```
//!
//! with the mean over all eligible workers, `w` included (routing.md §3 step 5).

use crate::fleet::WorkerId;
use crate::policy::candidates::Eligible;

/// The margins, `--balance-*-threshold`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpillMargins {
    /// Requests above the mean.
    pub abs: u32,
    /// Multiple of the mean, at least 1.
    pub rel: f64,
}

impl Default for SpillMargins {
    fn default() -> Self {
        Self { abs: 64, rel: 1.5 }
    }
}

/// The gate for one decision. The mean is taken at most once, and only when a worker has more than
/// `abs` requests in flight: below that it cannot be hot, so a usual hit does not scan the fleet.
pub struct SpillGate<'a> {
    eligible: Eligible<'a>,
    margins: SpillMargins,
    mean: Option<f64>,
}

impl<'a> SpillGate<'a> {
    /// A gate over `eligible`.
    pub fn new(eligible: Eligible<'a>, margins: SpillMargins) -> Self {
        Self { eligible, margins, mean: None }
    }

    /// Whether affinity to `worker` must yield.
    pub fn is_hot(&mut self, worker: WorkerId) -> bool {
        let in_flight = self.eligible.in_flight(worker);
        if in_flight <= self.margins.abs {
            return false;
        }
        let eligible = self.eligible;
        let mean = *self.mean.get_or_insert_with(|| eligible.mean_in_flight());
        exceeds(f64::from(in_flight), mean, self.margins)
    }
}

fn exceeds(in_flight: f64, mean: f64, margins: SpillMargins) -> bool {
    in_flight > mean * margins.rel && in_flight > mean + f64::from(margins.abs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fake_fleet::FakeFleet;

    fn hot(counts: &[u32], abs: u32, rel: f64) -> Vec<bool> {
        let mut fleet = FakeFleet::new(counts.len());
        for (worker, &count) in counts.iter().enumerate() {
            fleet.set_in_flight(worker, count);
        }
        let candidates = fleet.candidates();
        let mut gate = SpillGate::new(candidates.eligible(), SpillMargins { abs, rel });
        candidates.ready.iter().map(|&worker| gate.is_hot(worker)).collect()
    }

    #[test]
    fn the_defaults_at_their_edges() {
        let defaults = SpillMargins::default();
        // Mean 10: above 74. Mean 128: 192 both ways. Mean 200: above 300.
        for (mean, most) in [(10.0, 74.0), (128.0, 192.0), (200.0, 300.0)] {
            assert!(!exceeds(most, mean, defaults), "{most} at {mean}");
            assert!(exceeds(most + 1.0, mean, defaults), "{} at {mean}", most + 1.0);
        }
    }

    #[test]
    fn two_workers_with_the_defaults_spill_above_128() {
        assert_eq!(hot(&[128, 0], 64, 1.5), [false, false]);
        assert_eq!(hot(&[129, 0], 64, 1.5), [true, false]);
    }

    #[test]
    fn both_margins_must_be_exceeded() {
        // Mean 14/3: 8 > 4.67 but not above 2.9 × 4.67 = 13.5.
        assert_eq!(hot(&[8, 3, 3], 0, 2.9), [false; 3]);
        // Mean 1.5: 3 is not above 2 × 1.5; mean 1.75: 4 is above 3.5.
        assert_eq!(hot(&[3, 1, 1, 1], 0, 2.0), [false; 4]);
        assert_eq!(hot(&[4, 1, 1, 1], 0, 2.0), [true, false, false, false]);
        // Mean 2: 6 is not above 2 + 4; mean 7/3: 7 is above 6.33.
        assert_eq!(hot(&[6, 0, 0], 4, 1.0), [false; 3]);
        assert_eq!(hot(&[7, 0, 0], 4, 1.0), [true, false, false]);
    }

    #[test]
    fn one_worker_is_its_own_mean() {
        assert_eq!(hot(&[1000], 0, 1.0), [false]);
    }

    #[test]
    fn the_mean_is_over_eligible_workers_only() {
        let mut fleet = FakeFleet::new(3);
        fleet.set_in_flight(0, 6);
        fleet.open_breaker(2);
        let candidates = fleet.candidates();
        let margins = SpillMargins { abs: 3, rel: 1.0 };
        // Two eligible: mean 3, and 6 is not above 3 + 3. Over three it would be 2, and hot.
        assert!(!SpillGate::new(candidates.eligible(), margins).is_hot(fleet.worker(0)));
    }
}
