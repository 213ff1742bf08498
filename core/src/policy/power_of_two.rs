//! `power_of_two`: two distinct uniform samples, the one with the lower expected wait.

use crate::policy::candidates::{Candidates, NoWorker};
use crate::policy::expected_wait::Scorer;
use crate::policy::sampling::sample;
use crate::policy::{Branch, Choice, PolicyState};
use crate::rng::Rng;

/// Chooses a worker and credits it. `request_tokens` is the prompt's length if its token IDs are
/// known. The only eligible worker is taken without a score.
pub fn choose(
    state: &mut PolicyState,
    candidates: &Candidates<'_>,
    request_tokens: Option<u32>,
    rng: &mut Rng,
) -> Result<Choice, NoWorker> {
    let scorer = Scorer::DEFAULT;
    let eligible = candidates.eligible();
    let first = sample(&eligible, &mut state.workers, |_| true, rng)
        .ok_or_else(|| candidates.why_none())?;
    let second = sample(&eligible, &mut state.workers, |worker| worker != first, rng);
    let picked = second.and_then(|second| scorer.pick(&eligible, &[first, second], |_| true, rng));
    let worker = picked.map_or(first, |picked| picked.worker);
    scorer.credit(candidates.loads, worker, request_tokens);
    Ok(Choice { worker, branch: Branch::Plain, score: picked.map(|picked| picked.score) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fake_fleet::{FakeFleet, binomial_bounds, rank};

    #[test]
    fn of_two_workers_the_less_busy_serves() {
        let mut fleet = FakeFleet::new(2);
        fleet.set_in_flight(0, 1);
        let (mut state, mut rng) = (PolicyState::default(), Rng::new(1));
        for _ in 0..50 {
            let choice = choose(&mut state, &fleet.candidates(), None, &mut rng).unwrap();
            assert_eq!((choice.worker.slot, choice.score), (1, Some(0.0)));
        }
    }

    #[test]
    fn the_worst_of_three_never_serves_and_the_pairs_are_uniform() {
        let mut fleet = FakeFleet::new(3);
        fleet.report(0, &[rank()]);
        fleet.report(1, &[rank().tokens(9e6)]);
        fleet.report(2, &[rank().tokens(1.0)]);
        let (mut state, mut rng) = (PolicyState::default(), Rng::new(2));
        let mut counts = [0usize; 3];
        for _ in 0..3000 {
            // A request of no tokens leaves no credit, so the draws are independent.
            let choice = choose(&mut state, &fleet.candidates(), Some(0), &mut rng).unwrap();
            counts[choice.worker.slot as usize] += 1;
        }
        // Worker 0 is in two of the three pairs and wins both; worker 2 wins the third.
        assert_eq!(counts[1], 0);
        let (least, most) = binomial_bounds(3000, 2.0 / 3.0);
        assert!((least..=most).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn one_eligible_worker_needs_no_partner() {
        let mut fleet = FakeFleet::new(2);
        fleet.open_breaker(0);
        let (mut state, mut rng) = (PolicyState::default(), Rng::new(3));
        let choice = choose(&mut state, &fleet.candidates(), None, &mut rng).unwrap();
        assert_eq!((choice.worker.slot, choice.score), (1, None));
        fleet.open_breaker(1);
        let none = choose(&mut state, &fleet.candidates(), None, &mut rng);
        assert_eq!(none, Err(NoWorker::Unavailable));
    }
}
