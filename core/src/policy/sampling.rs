//! Uniform choices among the eligible workers, without a scan of the fleet as long as most of it is
//! eligible. This is all of the policies `random` and, outside prefill, `bucket`.

use crate::fleet::WorkerId;
use crate::policy::candidates::{Candidates, Eligible, NoWorker};
use crate::policy::{Branch, Choice};
use crate::rng::Rng;

/// Draws from `ready` before giving up on luck and listing the eligible workers.
const DRAWS: usize = 8;

/// The `random` policy: uniform over the eligible workers. `scratch` is used only when luck fails.
pub fn choose(
    candidates: &Candidates<'_>,
    scratch: &mut Vec<WorkerId>,
    rng: &mut Rng,
) -> Result<Choice, NoWorker> {
    let worker = sample(&candidates.eligible(), scratch, |_| true, rng)
        .ok_or_else(|| candidates.why_none())?;
    Ok(Choice { worker, branch: Branch::Plain, score: None })
}

/// A uniform draw among the eligible workers that `also` accepts. Rejection sampling: a draw from
/// `ready` that is accepted is uniform over all that would be.
pub(crate) fn sample(
    eligible: &Eligible<'_>,
    scratch: &mut Vec<WorkerId>,
    also: impl Fn(WorkerId) -> bool,
    rng: &mut Rng,
) -> Option<WorkerId> {
    let ready = eligible.candidates().ready;
    for _ in 0..DRAWS {
        let worker = *ready.get(rng.below(ready.len()))?;
        if eligible.allows(worker) && also(worker) {
            return Some(worker);
        }
    }
    eligible.list(scratch);
    scratch.retain(|&worker| also(worker));
    scratch.get(rng.below(scratch.len())).copied()
}

/// The eligible worker with the fewest requests in flight, ties at random.
pub(crate) fn fewest_in_flight(
    eligible: &Eligible<'_>,
    scratch: &mut Vec<WorkerId>,
    rng: &mut Rng,
) -> Option<WorkerId> {
    fewest(eligible, scratch, |worker| eligible.in_flight(worker), rng)
}

/// The eligible worker with the smallest `count`, ties at random.
pub(crate) fn fewest(
    eligible: &Eligible<'_>,
    ties: &mut Vec<WorkerId>,
    count: impl Fn(WorkerId) -> u32,
    rng: &mut Rng,
) -> Option<WorkerId> {
    ties.clear();
    let mut least = u32::MAX;
    for &worker in eligible.candidates().ready {
        if !eligible.allows(worker) {
            continue;
        }
        let count = count(worker);
        if count < least {
            ties.clear();
            least = count;
        }
        if count == least {
            ties.push(worker);
        }
    }
    ties.get(rng.below(ties.len())).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fake_fleet::{FakeFleet, binomial_bounds};

    #[test]
    fn every_eligible_worker_gets_its_share() {
        let mut fleet = FakeFleet::new(40);
        // Three of forty left: luck fails often, and the shares must stay even.
        for worker in 3..40 {
            fleet.open_breaker(worker);
        }
        let (mut rng, mut scratch) = (Rng::new(11), Vec::new());
        let mut counts = [0usize; 40];
        for _ in 0..3000 {
            let choice = choose(&fleet.candidates(), &mut scratch, &mut rng).unwrap();
            counts[choice.worker.slot as usize] += 1;
        }
        let (least, most) = binomial_bounds(3000, 1.0 / 3.0);
        assert!(counts[..3].iter().all(|count| (least..=most).contains(count)), "{counts:?}");
        assert!(counts[3..].iter().all(|&count| count == 0));
    }

    #[test]
    fn an_empty_fleet_has_nobody() {
        let fleet = FakeFleet::new(0);
        let none = choose(&fleet.candidates(), &mut Vec::new(), &mut Rng::new(1));
        assert_eq!(none, Err(NoWorker::Unavailable));
    }
}
