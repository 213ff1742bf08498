//! `least_load`: the lowest expected wait over all eligible workers, with the operator's constants
//! (`--least-load-*`). The miss path of `cache_aware` is the same with the built-in ones.

use crate::policy::candidates::{Candidates, NoWorker};
use crate::policy::expected_wait::Scorer;
use crate::policy::{Branch, Choice, PolicyState};
use crate::rng::Rng;

/// Chooses a worker and credits it. `request_tokens` is the prompt's length if its token IDs are
/// known. With a waiting cap, [`NoWorker::Unavailable`] also when everybody is at it.
pub fn choose(
    scorer: &Scorer,
    state: &mut PolicyState,
    candidates: &Candidates<'_>,
    request_tokens: Option<u32>,
    rng: &mut Rng,
) -> Result<Choice, NoWorker> {
    let eligible = candidates.eligible();
    let picked =
        scorer.pick_any(&eligible, &mut state.floor, rng).ok_or_else(|| candidates.why_none())?;
    scorer.credit(candidates.loads, picked.worker, request_tokens);
    Ok(Choice { worker: picked.worker, branch: Branch::Plain, score: Some(picked.score) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fake_fleet::{FakeFleet, rank};

    #[test]
    fn the_operators_constants_decide() {
        let mut fleet = FakeFleet::new(2);
        fleet.report(0, &[rank().tokens(1000.0).throughput(0.0)]);
        fleet.report(1, &[rank().tokens(5000.0).throughput(1000.0)]);
        let choose = |scorer: Scorer| {
            let (mut state, mut rng) = (PolicyState::default(), Rng::new(1));
            choose(&scorer, &mut state, &fleet.candidates(), Some(0), &mut rng).unwrap()
        };
        // 1000 / 2000 = 0.5 s against 5 s.
        let choice = choose(Scorer::DEFAULT);
        assert_eq!((choice.worker.slot, choice.score), (0, Some(0.5)));
        // 1000 / 100 = 10 s against 5 s.
        let choice = choose(Scorer { default_throughput: 100.0, ..Scorer::DEFAULT });
        assert_eq!((choice.worker.slot, choice.score), (1, Some(5.0)));
    }

    #[test]
    fn the_waiting_cap_counts_what_was_sent_since_the_report() {
        let mut fleet = FakeFleet::new(2);
        fleet.report(0, &[rank().waiting(5.0)]);
        fleet.report(1, &[rank().waiting(3.0).tokens(9_000_000.0)]);
        let scorer = Scorer { max_waiting_requests: 5, ..Scorer::DEFAULT };
        let (mut state, mut rng) = (PolicyState::default(), Rng::new(1));
        let mut next = || choose(&scorer, &mut state, &fleet.candidates(), None, &mut rng);
        assert_eq!(next().unwrap().worker.slot, 1);
        assert_eq!(next().unwrap().worker.slot, 1);
        assert_eq!(next(), Err(NoWorker::Unavailable), "3 reported and 2 sent");
    }

    #[test]
    fn a_worker_without_a_report_is_never_at_the_cap() {
        let mut fleet = FakeFleet::new(2);
        fleet.report(0, &[rank().waiting(50.0)]);
        fleet.set_in_flight(1, 1000);
        let scorer = Scorer { max_waiting_requests: 5, ..Scorer::DEFAULT };
        let (mut state, mut rng) = (PolicyState::default(), Rng::new(1));
        let choice = choose(&scorer, &mut state, &fleet.candidates(), None, &mut rng).unwrap();
        // Nobody else is left to compare with: its score is its own count.
        assert_eq!((choice.worker.slot, choice.score), (1, Some(1000.0)));
    }
}
