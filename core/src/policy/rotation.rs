//! Policies that follow the order of registration: `round_robin` and `passthrough`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::fleet::{ModelId, WorkerId};
use crate::policy::candidates::{Candidates, NoWorker};
use crate::policy::{Branch, Choice};

/// Models with a counter of their own; model numbers beyond it share one with another model, which
/// only shifts both rotations.
const COUNTERS: usize = 1024;

/// `round_robin`: each model's eligible workers in turn. Clones share the counters, so the turn
/// holds whichever shard accepts a request.
#[derive(Debug, Clone)]
pub struct RoundRobin(Arc<[AtomicU32]>);

impl Default for RoundRobin {
    fn default() -> Self {
        Self((0..COUNTERS).map(|_| AtomicU32::new(0)).collect())
    }
}

impl RoundRobin {
    /// The next worker of `model`.
    pub fn choose(&self, model: ModelId, candidates: &Candidates<'_>) -> Result<Choice, NoWorker> {
        let eligible = candidates.eligible();
        let count = eligible.count();
        if count == 0 {
            return Err(candidates.why_none());
        }
        let turn = self.0[model.0 as usize % COUNTERS].fetch_add(1, Ordering::Relaxed) as usize;
        // A breaker may have opened since they were counted.
        let next = eligible.nth(turn % count).or_else(|| eligible.iter().next());
        next.map(plain).ok_or_else(|| candidates.why_none())
    }
}

/// `passthrough`: the first eligible worker.
pub fn passthrough(candidates: &Candidates<'_>) -> Result<Choice, NoWorker> {
    let first = candidates.eligible().iter().next();
    first.map(plain).ok_or_else(|| candidates.why_none())
}

fn plain(worker: WorkerId) -> Choice {
    Choice { worker, branch: Branch::Plain, score: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fake_fleet::FakeFleet;

    fn slots(robin: &RoundRobin, fleet: &FakeFleet, model: u32, turns: usize) -> Vec<u32> {
        (0..turns)
            .map(|_| robin.choose(ModelId(model), &fleet.candidates()).unwrap().worker.slot)
            .collect()
    }

    #[test]
    fn workers_take_turns_across_shards_and_per_model() {
        let fleet = FakeFleet::new(3);
        let robin = RoundRobin::default();
        assert_eq!(slots(&robin, &fleet, 0, 4), [0, 1, 2, 0]);
        assert_eq!(slots(&robin, &fleet, 1, 1), [0]);
        assert_eq!(slots(&robin.clone(), &fleet, 0, 3), [1, 2, 0]);
    }

    #[test]
    fn a_worker_that_may_not_be_chosen_is_left_out_and_the_others_alternate() {
        let mut fleet = FakeFleet::new(3);
        fleet.open_breaker(1);
        let robin = RoundRobin::default();
        assert_eq!(slots(&robin, &fleet, 0, 6), [0, 2, 0, 2, 0, 2]);
    }

    #[test]
    fn passthrough_takes_the_first_it_can() {
        let mut fleet = FakeFleet::new(3);
        assert_eq!(passthrough(&fleet.candidates()).unwrap().worker.slot, 0);
        fleet.open_breaker(0);
        assert_eq!(passthrough(&fleet.candidates()).unwrap().worker.slot, 1);
        fleet.open_breaker(1);
        fleet.open_breaker(2);
        assert_eq!(passthrough(&fleet.candidates()), Err(NoWorker::Unavailable));
    }
}
