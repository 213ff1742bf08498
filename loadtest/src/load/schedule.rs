//! When requests of an open loop are due, whatever the server does.

use std::time::Duration;

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

/// A rate for a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Not negative; 0 is a pause.
    pub rate_per_s: f64,
    pub time: Duration,
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
    /// Ends of the steps with their rates; none for one rate throughout.
    steps: Vec<(Nanos, f64)>,
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
            steps: Vec::new(),
        };
        if spacing == Spacing::Poisson {
            schedule.next = start.saturating_add(schedule.gap());
        }
        schedule
    }

    /// Arrivals at rates that change: the first step's from `start` on, counted from `from` on, the last
    /// one's until `end`.
    pub fn stepped(
        spacing: Spacing,
        steps: &[Step],
        from: Nanos,
        (start, end): (Nanos, Nanos),
        limit: Option<u64>,
        seed: u64,
    ) -> Self {
        let mut schedule = Self::new(Spacing::Uniform, 1.0, (start, end), limit, seed);
        schedule.spacing = spacing;
        let mut ends = from;
        schedule.steps.extend(steps.iter().map(|step| {
            ends = ends.saturating_add(step.time.as_nanos() as Nanos);
            (ends, step.rate_per_s)
        }));
        schedule.next = match spacing {
            Spacing::Poisson => schedule.after(start),
            // The first one is due at once, or when the pauses in front are over.
            Spacing::Uniform => {
                let pauses = schedule.steps.iter().take_while(|(_, rate_per_s)| *rate_per_s == 0.0);
                pauses.last().map_or(start, |(ends, _)| *ends)
            }
        };
        schedule
    }

    /// The arrival that follows one at `at`, with steps.
    fn after(&mut self, at: Nanos) -> Nanos {
        let mut arrivals = match self.spacing {
            Spacing::Uniform => 1.0,
            Spacing::Poisson => -(1.0 - self.rng.unit()).ln(),
        };
        // From the start: a clock's own nanoseconds may not fit.
        let start = self.start;
        let mut at = at.saturating_sub(start) as f64;
        for (index, &(ends, rate_per_s)) in self.steps.iter().enumerate() {
            let is_last = index + 1 == self.steps.len();
            let ends = if is_last { f64::INFINITY } else { ends.saturating_sub(start) as f64 };
            if at >= ends || rate_per_s == 0.0 && !is_last {
                at = at.max(ends);
                continue;
            }
            let possible = (ends - at) * rate_per_s / 1e9;
            // What is due when a step ends is of the next one, which may be a pause.
            if arrivals < possible {
                let after = (at + arrivals * 1e9 / rate_per_s).round() as Nanos;
                return start.saturating_add(after);
            }
            arrivals -= possible;
            at = ends;
        }
        Nanos::MAX
    }

    /// The next arrival, or none when the schedule is over.
    pub fn peek(&self) -> Option<Nanos> {
        (self.remaining > 0 && self.next < self.end).then_some(self.next)
    }

    /// When something is to be done: the next arrival or, if there is none, the end of the time. None
    /// when the last of a limited number of arrivals is over.
    pub fn next_event(&self) -> Option<Nanos> {
        (self.remaining > 0).then_some(self.next.min(self.end))
    }

    /// Takes the next arrival off the schedule.
    pub fn take(&mut self) -> Option<Nanos> {
        let at = self.peek()?;
        self.remaining -= 1;
        self.count += 1;
        self.next = match self.spacing {
            _ if !self.steps.is_empty() => self.after(at),
            // From the start each time: rounding does not add up.
            Spacing::Uniform => {
                self.start + (self.count as f64 * 1e9 / self.rate_per_s).round() as Nanos
            }
            Spacing::Poisson => at.saturating_add(self.gap()),
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
    fn rates_change_at_their_times() {
        let step = |rate_per_s, secs| Step { rate_per_s, time: Duration::from_secs(secs) };
        let steps = [step(1.0, 3), step(0.0, 2), step(4.0, 1), step(2.0, 1)];
        let ms = |times: Vec<Nanos>| times.into_iter().map(|at| at / 1_000_000).collect::<Vec<_>>();
        let window = (0, 8_000_000_000);
        // Counted from 1 s on: the first second is the warm-up.
        let uniform = Schedule::stepped(Spacing::Uniform, &steps, 1_000_000_000, window, None, 1);
        let expected = [0, 1_000, 2_000, 3_000, 6_000, 6_250, 6_500, 6_750, 7_000, 7_500];
        assert_eq!(ms(all(uniform)), expected);
        // It begins with a pause, at whose end the first one is due, and the last rate goes on.
        let late = Schedule::stepped(Spacing::Uniform, &steps[1..], 0, window, None, 1);
        let expected = [2_000, 2_250, 2_500, 2_750, 3_000, 3_500, 4_000, 4_500];
        assert_eq!(ms(all(late))[..8], expected);
        let steps = [step(1_000.0, 50), step(4_000.0, 50)];
        let window = (0, 100_000_000_000);
        let times = all(Schedule::stepped(Spacing::Poisson, &steps, 0, window, None, 3));
        let first = times.iter().filter(|at| **at < 50_000_000_000).count() as f64;
        let second = times.len() as f64 - first;
        // 50,000 and 200,000 expected; five standard deviations are 1,118 and 2,236.
        assert!((first - 50_000.0).abs() < 1_118.0, "{first}");
        assert!((second - 200_000.0).abs() < 2_236.0, "{second}");
        // A schedule that ends in a pause is over.
        let paused = [step(2.0, 1), step(0.0, 1)];
        let over = Schedule::stepped(Spacing::Uniform, &paused, 0, (0, Nanos::MAX), None, 1);
        assert_eq!(ms(all(over)), [0, 500]);
    }

    #[test]
    fn a_limit_ends_the_schedule_early() {
        let times = all(Schedule::new(Spacing::Uniform, 10.0, (0, u64::MAX), Some(3), 1));
        assert_eq!(times, [0, 100_000_000, 200_000_000]);
    }
}
