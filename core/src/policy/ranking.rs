//! From scored candidates to the group the spill gate sees: overlap decay, then the best group or a
//! sampled one (routing.md §3 step 4).

use crate::policy::candidates::Eligible;
use crate::policy::expected_wait::Scored;
use crate::rng::Rng;

/// `--overlap-decay` and `--selection-temperature`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ranking {
    /// A score is divided by `1 + decay · x`; 0 is off.
    pub overlap_decay: f64,
    /// 0 takes the best score; above, a score is drawn with weight `exp((s' − 1) / temperature)`, s'
    /// its position between the worst (0) and the best (1).
    pub temperature: f64,
}

/// The request's size in the terms of the decay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestBlocks {
    /// Blocks of the request, at least 1.
    pub blocks: u64,
    /// Tokens per block, at least 1.
    pub block_size: u32,
}

impl Ranking {
    /// Leaves in `candidates` the group with the chosen score, in its order. Scores end up decayed.
    pub fn keep_group(
        &self,
        eligible: &Eligible<'_>,
        candidates: &mut Vec<Scored>,
        request: RequestBlocks,
        rng: &mut Rng,
    ) {
        if self.overlap_decay > 0.0 {
            self.decay(eligible, candidates, request);
        }
        if let Some(score) = self.drawn_score(candidates, rng) {
            candidates.retain(|candidate| candidate.score == score);
        }
    }

    /// `x` is the candidate's waiting-prefill backlog above the least-backlogged candidate, in
    /// blocks, per block of the request. Candidates without a report keep their score.
    fn decay(&self, eligible: &Eligible<'_>, candidates: &mut [Scored], request: RequestBlocks) {
        let loads = eligible.candidates().loads;
        let backlog =
            |candidate: &Scored| loads.get(candidate.worker).map(|load| load.uncached_tokens);
        let Some(least) = candidates.iter().filter_map(backlog).reduce(f64::min) else { return };
        let per_block = f64::from(request.block_size.max(1)) * request.blocks.max(1) as f64;
        for candidate in candidates {
            if let Some(tokens) = backlog(candidate) {
                candidate.score /= 1.0 + self.overlap_decay * ((tokens - least) / per_block);
            }
        }
    }

    fn drawn_score(&self, candidates: &[Scored], rng: &mut Rng) -> Option<f64> {
        let scores = || candidates.iter().map(|candidate| candidate.score);
        let best = scores().reduce(f64::max)?;
        let worst = scores().reduce(f64::min)?;
        if self.temperature <= 0.0 || best == worst {
            return Some(best);
        }
        let weight = |score: f64| ((score - worst) / (best - worst) - 1.0) / self.temperature;
        let total: f64 = scores().map(|score| weight(score).exp()).sum();
        let mut left = rng.unit() * total;
        for score in scores() {
            left -= weight(score).exp();
            if left < 0.0 {
                return Some(score);
            }
        }
        // Rounding ate the last bit of the sum.
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fake_fleet::{FakeFleet, binomial_bounds, rank};

    const TEN_BLOCKS: RequestBlocks = RequestBlocks { blocks: 10, block_size: 16 };

    fn group(
        fleet: &FakeFleet,
        ranking: Ranking,
        scores: &[f64],
        request: RequestBlocks,
        rng: &mut Rng,
    ) -> Vec<Scored> {
        let mut candidates: Vec<Scored> = scores
            .iter()
            .enumerate()
            .map(|(worker, &score)| Scored { worker: fleet.worker(worker), score })
            .collect();
        let eligible = fleet.candidates().eligible();
        ranking.keep_group(&eligible, &mut candidates, request, rng);
        candidates
    }

    fn decayed(fleet: &FakeFleet, decay: f64, request: RequestBlocks, worker: usize) -> f64 {
        let eligible = fleet.candidates().eligible();
        let mut candidates: Vec<Scored> =
            (0..3).map(|worker| Scored { worker: fleet.worker(worker), score: 1.0 }).collect();
        let ranking = Ranking { overlap_decay: decay, temperature: 0.0 };
        ranking.decay(&eligible, &mut candidates, request);
        candidates[worker].score
    }

    #[test]
    fn a_backlog_of_one_request_length_halves_the_score() {
        let mut fleet = FakeFleet::new(3);
        fleet.report(0, &[rank().tokens(100.0), rank().tokens(60.0)]);
        fleet.report(1, &[rank()]);
        // 160 tokens are 10 blocks of 16, one per block of the request: x = 1.
        assert_eq!(decayed(&fleet, 1.0, TEN_BLOCKS, 0), 0.5);
        assert_eq!(decayed(&fleet, 1.0, TEN_BLOCKS, 1), 1.0);
        assert_eq!(decayed(&fleet, 1.0, TEN_BLOCKS, 2), 1.0, "no report, no decay");
        assert_eq!(decayed(&fleet, 0.5, TEN_BLOCKS, 0), 1.0 / 1.5);
        // Half the request, twice the x.
        let five = RequestBlocks { blocks: 5, ..TEN_BLOCKS };
        assert_eq!(decayed(&fleet, 1.0, five, 0), 1.0 / 3.0);
    }

    #[test]
    fn backlogs_count_above_the_smallest_and_waiting_requests_do_not_count() {
        let mut fleet = FakeFleet::new(3);
        fleet.report(0, &[rank().tokens(5160.0)]);
        fleet.report(1, &[rank().tokens(5000.0)]);
        fleet.report(2, &[rank().tokens(5000.0).waiting(100.0)]);
        assert_eq!(decayed(&fleet, 1.0, TEN_BLOCKS, 0), 0.5);
        assert_eq!(decayed(&fleet, 1.0, TEN_BLOCKS, 2), 1.0);
    }

    #[test]
    fn nobody_reports_nothing_decays() {
        assert_eq!(decayed(&FakeFleet::new(3), 5.0, TEN_BLOCKS, 0), 1.0);
    }

    #[test]
    fn temperature_zero_keeps_the_best_group_whole() {
        let fleet = FakeFleet::new(4);
        let mut rng = Rng::new(1);
        let kept = group(&fleet, Ranking::default(), &[1.0, 3.0, 2.0, 3.0], TEN_BLOCKS, &mut rng);
        let workers: Vec<_> = kept.iter().map(|candidate| candidate.worker).collect();
        assert_eq!(workers, [fleet.worker(1), fleet.worker(3)]);
        assert!(group(&fleet, Ranking::default(), &[], TEN_BLOCKS, &mut rng).is_empty());
    }

    #[test]
    fn equal_scores_are_not_sampled_at_any_temperature() {
        let fleet = FakeFleet::new(3);
        let ranking = Ranking { overlap_decay: 0.0, temperature: 100.0 };
        let kept = group(&fleet, ranking, &[1.0; 3], TEN_BLOCKS, &mut Rng::new(5));
        assert_eq!(kept.len(), 3);
    }

    #[test]
    fn the_weaker_of_two_scores_is_drawn_as_the_softmax_says() {
        let fleet = FakeFleet::new(2);
        let mut rng = Rng::new(42);
        for (temperature, scores) in [(1.0, [2.0, 7.0]), (0.5, [0.1, 0.2]), (0.1, [1.0, 2.0])] {
            let ranking = Ranking { overlap_decay: 0.0, temperature };
            let draws = 4000;
            let weaker = (0..draws)
                .filter(|_| {
                    let kept = group(&fleet, ranking, &scores, TEN_BLOCKS, &mut rng);
                    assert_eq!(kept.len(), 1);
                    kept[0].worker == fleet.worker(0)
                })
                .count();
            // 27 % at T = 1, 12 % at 0.5, e^-10 at 0.1.
            let share = (-1.0f64 / temperature).exp() / (1.0 + (-1.0f64 / temperature).exp());
            let (least, most) = binomial_bounds(draws, share);
            assert!((least..=most).contains(&weaker), "{weaker} of {draws} at T = {temperature}");
        }
    }

    #[test]
    fn a_drawn_score_brings_everybody_who_has_it() {
        let fleet = FakeFleet::new(3);
        let ranking = Ranking { overlap_decay: 0.0, temperature: 1000.0 };
        let mut rng = Rng::new(9);
        let sizes: Vec<usize> = (0..3000)
            .map(|_| group(&fleet, ranking, &[1.0, 1.0, 2.0], TEN_BLOCKS, &mut rng).len())
            .collect();
        // Each candidate weighs the same at this temperature, so the pair is drawn twice as often.
        let pairs = sizes.iter().filter(|&&size| size == 2).count();
        assert!(sizes.iter().all(|&size| size == 1 || size == 2));
        let (least, most) = binomial_bounds(3000, 2.0 / 3.0);
        assert!((least..=most).contains(&pairs), "{pairs}");
    }
}
