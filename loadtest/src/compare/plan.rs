//! How much of a comparison is left.

use std::time::{Duration, Instant};

/// Runs still to do, and how long they were thought to take.
pub(super) struct Plan {
    left: [Part; 2],
    done: usize,
    /// What the runs done so far were thought to take.
    planned: Duration,
    begun: Instant,
}

/// Runs of the same length.
#[derive(Clone, Copy)]
struct Part {
    runs: usize,
    each: Duration,
}

/// The two kinds of load.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    Cost,
    Routing,
}

/// Before this much is done the plan is believed as it is.
const LEARN_AFTER: Duration = Duration::from_secs(15);

impl Plan {
    /// So many runs of such lengths: first under the cost loads, then under the routing load.
    pub fn new(cost: (usize, Duration), routing: (usize, Duration)) -> Self {
        let part = |(runs, each)| Part { runs, each };
        let left = [part(cost), part(routing)];
        Self { left, done: 0, planned: Duration::ZERO, begun: Instant::now() }
    }

    /// Strikes runs off.
    pub fn skip(&mut self, phase: Phase, runs: usize) {
        let part = &mut self.left[phase as usize];
        part.runs = part.runs.saturating_sub(runs);
    }

    /// Takes the next run off the plan; says which one it is and how long everything will take.
    pub fn next(&mut self, phase: Phase) -> String {
        let left: Duration = self.left.iter().map(|part| part.each * part.runs as u32).sum();
        let left = left.mul_f64(self.slowness(self.begun.elapsed()));
        let total = self.done + self.left.iter().map(|part| part.runs).sum::<usize>();
        self.done += 1;
        self.skip(phase, 1);
        self.planned += self.left[phase as usize].each;
        let seconds = left.as_secs();
        format!("{}/{total}  {}:{:02} left", self.done, seconds / 60, seconds % 60)
    }

    /// What things take as a multiple of what was planned.
    fn slowness(&self, elapsed: Duration) -> f64 {
        if self.planned < LEARN_AFTER {
            return 1.0;
        }
        (elapsed.as_secs_f64() / self.planned.as_secs_f64()).clamp(0.5, 5.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_shrinks_and_follows_the_clock() {
        let mut plan = Plan::new((4, Duration::from_secs(10)), (2, Duration::from_secs(30)));
        assert_eq!(plan.next(Phase::Cost), "1/6  1:40 left");
        assert_eq!(plan.next(Phase::Cost), "2/6  1:30 left");
        // 20 s were planned for what took 30.
        assert_eq!(plan.slowness(Duration::from_secs(30)), 1.5);
        plan.skip(Phase::Cost, 2);
        assert!(plan.next(Phase::Routing).starts_with("3/4  "));
        assert!(plan.next(Phase::Routing).starts_with("4/4  "));
    }
}
