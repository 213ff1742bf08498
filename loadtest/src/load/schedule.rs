//! When requests of an open loop are due, whatever the server does.

use smg_core::rng::Rng;

use crate::engine::Nanos;

/// How arrivals are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spacing {
    /// Evenly.
    Uniform,
    /// Independent of each other: exponential gaps with the same mean.
    Poisson,
}

/// Intended start times in ascending order, computed one at a time.
#[derive(Debug, Clone)]
pub struct Schedule {
    start: Nanos,
    /// Arrivals at or after this time do not happen.
    end: Nanos,
    rate_per_s: f64,
    remaining: u64,
    count: u64,
    spacing: Spacing,
    rng: Rng,
    next: Nanos,
}

impl Schedule {
    /// Arrivals at `rate_per_s` (positive) from `start` until `end`, `limit` of them at most.
    pub fn new(
        spacing: Spacing,
        rate_per_s: f64,
        (start, end): (Nanos, Nanos),
        limit: Option<u64>,
        seed: u64,
    ) -> Self {
        let mut schedule = Self {
            start,
            end,
            rate_per_s,
            remaining: limit.unwrap_or(u64::MAX),
            count: 0,
            spacing,
            rng: Rng::new(seed),
            next: start,
        };
        if spacing == Spacing::Poisson {
            schedule.next = start + schedule.gap();
        }
        schedule
    }

    /// The next arrival, or none when the schedule is over.
    pub fn peek(&self) -> Option<Nanos> {
        (self.remaining > 0 && self.next < self.end).then_some(self.next)
    }

    /// Takes the next arrival off the schedule.
    pub fn take(&mut self) -> Option<Nanos> {
        let at = self.peek()?;
        self.remaining -= 1;
        self.count += 1;
        self.next = match self.spacing {
            // From the start each time: rounding does not add up.
            Spacing::Uniform => {
                self.start + (self.count as f64 * 1e9 / self.rate_per_s).round() as Nanos
            }
            Spacing::Poisson => at + self.gap(),
        };
        Some(at)
    }

    fn gap(&mut self) -> Nanos {
        // 1 - unit() is in (0, 1], so the logarithm is finite.
        (-(1.0 - self.rng.unit()).ln() * 1e9 / self.rate_per_s).round() as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut schedule: Schedule) -> Vec<Nanos> {
        std::iter::from_fn(|| schedule.take()).collect()
    }

    #[test]
    fn uniform_arrivals_do_not_drift() {
        let times = all(Schedule::new(Spacing::Uniform, 3.0, (1_000, 10_000_001_000), None, 1));
        assert_eq!(times.len(), 30);
        assert_eq!(times[..4], [1_000, 333_334_333, 666_667_667, 1_000_001_000]);
        assert_eq!(times[27], 9_000_001_000);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread() {
        let times = all(Schedule::new(Spacing::Poisson, 1_000.0, (0, 100_000_000_000), None, 7));
        let count = times.len() as f64;
        // 100,000 expected; five standard deviations are 1,581.
        assert!((count - 100_000.0).abs() < 1_581.0, "{count}");
        let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let variation = variance.sqrt() / mean;
        assert!((variation - 1.0).abs() < 0.02, "an exponential has variation 1, not {variation}");
    }

    #[test]
    fn a_limit_ends_the_schedule_early() {
        let times = all(Schedule::new(Spacing::Uniform, 10.0, (0, u64::MAX), Some(3), 1));
        assert_eq!(times, [0, 100_000_000, 200_000_000]);
    }
}
