//! Scores worked out by hand, ties counted.

use proptest::prelude::*;

use super::*;
use crate::policy::fake_fleet::{FakeFleet, binomial_bounds, rank};
use crate::policy::load_report::RankLoad;
use crate::rng::Rng;

fn scores(fleet: &FakeFleet) -> Vec<f64> {
    let candidates = fleet.candidates();
    let scored = Scorer::DEFAULT.explain(&candidates.eligible(), candidates.ready);
    scored.into_iter().map(|scored| scored.score).collect()
}

fn pick(fleet: &FakeFleet, rng: &mut Rng) -> Option<Scored> {
    let eligible = fleet.candidates().eligible();
    Scorer::DEFAULT.pick(&eligible, &fleet.ready, |_| true, rng)
}

fn score_of(ranks: &[RankLoad]) -> f64 {
    let mut fleet = FakeFleet::new(1);
    fleet.report(0, ranks);
    let score = scores(&fleet)[0];
    assert_eq!(pick(&fleet, &mut Rng::new(1)).unwrap().score, score);
    score
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn queued_tokens_over_throughput() {
    assert_eq!(score_of(&[rank().tokens(9000.0)]), 9.0);
    assert_eq!(score_of(&[rank().tokens(3000.0).throughput(3000.0)]), 1.0);
    assert_eq!(score_of(&[rank()]), 0.0);
    // No throughput reported: 2,000 tokens per second.
    assert_eq!(score_of(&[rank().tokens(3000.0).throughput(0.0)]), 1.5);
}

#[test]
fn waiting_requests_count_1024_tokens_each_unless_tokens_are_reported() {
    assert_eq!(score_of(&[rank().waiting(3.0)]), 3.072);
    assert_eq!(score_of(&[rank().waiting(50.0).tokens(1000.0)]), 1.0);
}

#[test]
fn kv_pressure_in_seconds() {
    assert!(close(score_of(&[rank().usage(0.5)]), 0.15));
    assert!(close(score_of(&[rank().usage(0.9)]), 1.35));
    assert!(close(score_of(&[rank().usage(0.99)]), 14.85));
    assert!(close(score_of(&[rank().usage(1.0)]), 149.85));
    assert!(close(score_of(&[rank().usage(0.9).tokens(2000.0)]), 3.35));
}

#[test]
fn ranks_add_up() {
    // 2,000 tokens over 2,000 per second; usages 0.9 and 0.1 are 0.5.
    let ranks = [rank().tokens(1500.0).usage(0.9), rank().tokens(500.0).usage(0.1)];
    assert!(close(score_of(&ranks), 1.0 + 0.15));
}

#[test]
fn credit_waits_in_the_queue_too() {
    let mut fleet = FakeFleet::new(2);
    fleet.report(0, &[rank().tokens(1000.0).throughput(2000.0)]);
    fleet.report(1, &[rank()]);
    Scorer::DEFAULT.credit(&fleet.loads, fleet.worker(0), Some(3000));
    Scorer::DEFAULT.credit(&fleet.loads, fleet.worker(1), None);
    assert_eq!(scores(&fleet), [2.0, 1.024]);
}

#[test]
fn a_burst_between_two_reports_is_shared() {
    let mut fleet = FakeFleet::new(2);
    fleet.report(0, &[rank().throughput(2000.0)]);
    fleet.report(1, &[rank().tokens(4600.0).throughput(2000.0)]);
    let mut rng = Rng::new(1);
    let mut burst = || {
        let picked = pick(&fleet, &mut rng).unwrap().worker;
        Scorer::DEFAULT.credit(&fleet.loads, picked, None);
        picked.slot
    };
    // 0.512 s each: four fit below 2.3 s, the fifth is sent at 2.048 s and leaves 2.56 s.
    assert_eq!([burst(), burst(), burst(), burst(), burst(), burst()], [0, 0, 0, 0, 0, 1]);
}

#[test]
fn silence_scores_as_the_best_peer_plus_its_own_requests() {
    let mut fleet = FakeFleet::new(4);
    fleet.report(0, &[rank().tokens(4000.0).throughput(1000.0)]);
    fleet.report(1, &[rank().tokens(6000.0).throughput(3000.0)]);
    fleet.set_in_flight(2, 5);
    // Best peer 2 s; nominal (1000 + 3000) / 2; 5 × 1024 / 2000 = 2.56 s.
    assert_eq!(scores(&fleet), [4.0, 2.0, 2.0 + 5.0 * 1024.0 / 2000.0, 2.0]);
}

#[test]
fn nominal_throughput_is_2000_when_no_peer_reports_one() {
    let mut fleet = FakeFleet::new(2);
    fleet.report(0, &[rank().tokens(1000.0).throughput(0.0)]);
    fleet.set_in_flight(1, 2);
    assert_eq!(scores(&fleet), [0.5, 0.5 + 2.0 * 1024.0 / 2000.0]);
}

#[test]
fn nobody_reports_fewest_in_flight() {
    let mut fleet = FakeFleet::new(3);
    for (worker, count) in [(0, 20), (1, 3), (2, 7)] {
        fleet.set_in_flight(worker, count);
    }
    assert_eq!(scores(&fleet), [20.0, 3.0, 7.0]);
    let picked = pick(&fleet, &mut Rng::new(1)).unwrap();
    assert_eq!(picked, Scored { worker: fleet.worker(1), score: 3.0 });
}

#[test]
fn what_peers_are_is_the_set_that_is_compared() {
    let mut fleet = FakeFleet::new(3);
    fleet.report(0, &[rank().tokens(1000.0)]);
    fleet.report(1, &[rank().tokens(9000.0)]);
    let eligible = fleet.candidates().eligible();
    let scored = Scorer::DEFAULT.explain(&eligible, &[fleet.worker(2), fleet.worker(1)]);
    assert_eq!(scored[0].score, 9.0);
}

#[test]
fn every_kind_of_tie_is_uniform() {
    let silent_and_idle = |_: &mut FakeFleet| {};
    let all_report_the_same = |fleet: &mut FakeFleet| {
        (0..5).for_each(|worker| fleet.report(worker, &[rank().tokens(500.0)]));
    };
    // The best reporting worker has 0.5 s; three idle silent ones score exactly that.
    let mixed = |fleet: &mut FakeFleet| {
        fleet.report(0, &[rank().tokens(500.0)]);
        fleet.report(1, &[rank().tokens(500.0)]);
    };
    let setups: [&dyn Fn(&mut FakeFleet); 3] = [&silent_and_idle, &all_report_the_same, &mixed];
    for (seed, setup) in setups.into_iter().enumerate() {
        let mut fleet = FakeFleet::new(7);
        // Worse in every set-up.
        fleet.set_in_flight(5, 9);
        fleet.report(6, &[rank().tokens(90_000.0)]);
        if seed == 0 {
            fleet.table.clear(fleet.worker(6));
            fleet.loads = fleet.table.publish();
            fleet.set_in_flight(6, 1);
        }
        setup(&mut fleet);
        let mut rng = Rng::new(seed as u64);
        let mut counts = [0usize; 7];
        for _ in 0..5000 {
            counts[pick(&fleet, &mut rng).unwrap().worker.slot as usize] += 1;
        }
        let (least, most) = binomial_bounds(5000, 0.2);
        assert!(counts[..5].iter().all(|count| (least..=most).contains(count)), "{counts:?}");
        assert_eq!(counts[5..], [0, 0]);
    }
}

/// Draws with one [`Floor`] over `draws` decisions that change nothing: how often each worker came.
fn shares(fleet: &FakeFleet, draws: usize, seed: u64) -> Vec<usize> {
    let (mut floor, mut rng) = (Floor::default(), Rng::new(seed));
    let mut counts = vec![0; fleet.ready.len()];
    for _ in 0..draws {
        let eligible = fleet.candidates().eligible();
        let picked = Scorer::DEFAULT.pick_any(&eligible, &mut floor, &mut rng).unwrap();
        counts[picked.worker.slot as usize] += 1;
    }
    counts
}

#[test]
fn luck_has_the_chances_of_a_scan() {
    // 40 workers; 10 tie for the best, one of them tried already and one with an open breaker.
    let mut reporting = FakeFleet::new(40);
    for worker in 0..40 {
        let tokens = if worker < 10 { 700.0 } else { 700.0 + worker as f64 };
        reporting.report(worker, &[rank().tokens(tokens)]);
    }
    let mut silent = FakeFleet::new(40);
    (10..40).for_each(|worker| silent.set_in_flight(worker, 1));
    for (seed, mut fleet) in [reporting, silent].into_iter().enumerate() {
        fleet.open_breaker(0);
        fleet.excluded = vec![fleet.worker(1)];
        let counts = shares(&fleet, 8000, seed as u64);
        let (least, most) = binomial_bounds(8000, 1.0 / 8.0);
        assert_eq!(counts[..2], [0, 0]);
        assert!(counts[2..10].iter().all(|count| (least..=most).contains(count)), "{counts:?}");
        assert!(counts[10..].iter().all(|&count| count == 0));
    }
}

#[test]
fn silent_idle_workers_tie_with_the_best_of_a_large_fleet() {
    let mut fleet = FakeFleet::new(40);
    for worker in 0..38 {
        fleet.report(worker, &[rank().tokens(if worker == 7 { 50.0 } else { 900.0 })]);
    }
    fleet.set_in_flight(39, 1);
    let counts = shares(&fleet, 3000, 5);
    let (least, most) = binomial_bounds(3000, 0.5);
    assert!((least..=most).contains(&counts[7]), "{counts:?}");
    assert_eq!(counts[7] + counts[38], 3000);
}

#[test]
fn the_floor_follows_credits_and_reports() {
    let mut fleet = FakeFleet::new(40);
    (0..40).for_each(|worker| fleet.report(worker, &[rank()]));
    let (mut floor, mut rng) = (Floor::default(), Rng::new(6));
    let mut pick = |fleet: &FakeFleet| {
        let eligible = fleet.candidates().eligible();
        let picked = Scorer::DEFAULT.pick_any(&eligible, &mut floor, &mut rng).unwrap();
        Scorer::DEFAULT.credit(&fleet.loads, picked.worker, Some(1000));
        picked
    };
    // Forty requests of a second each: everybody gets one before anybody gets two.
    for round in 0..3 {
        let scores: Vec<f64> = (0..40).map(|_| pick(&fleet).score).collect();
        assert!(scores.iter().all(|&score| close(score, f64::from(round))), "{scores:?}");
    }
    // One reports anew and is alone with the lowest score.
    fleet.report(11, &[rank()]);
    assert_eq!(pick(&fleet).worker.slot, 11);
}

#[test]
fn nobody_lucky_is_vetoed_or_at_the_cap() {
    let mut fleet = FakeFleet::new(40);
    fleet.overload.waiting_requests = Some(9);
    (0..40).for_each(|worker| fleet.report(worker, &[rank().waiting(9.0)]));
    let (mut floor, mut rng) = (Floor::default(), Rng::new(6));
    let capped = Scorer { max_waiting_requests: 9, ..Scorer::DEFAULT };
    for scorer in [Scorer::DEFAULT, capped] {
        for _ in 0..20 {
            let eligible = fleet.candidates().eligible();
            assert_eq!(scorer.pick_any(&eligible, &mut floor, &mut rng), None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Whoever is picked has the lowest of the scores that `explain` lists for eligible workers.
    #[test]
    fn the_pick_is_among_the_lowest(
        workers in prop::collection::vec((0u32..4, 0u32..5, 0u32..3, any::<bool>()), 1..60),
        cap in 0u32..4,
        seed in any::<u64>(),
    ) {
        let mut fleet = FakeFleet::new(workers.len());
        for (worker, &(in_flight, tokens, throughput, closed)) in workers.iter().enumerate() {
            fleet.set_in_flight(worker, in_flight);
            if tokens > 0 {
                let tokens = f64::from(tokens - 1) * 300.0;
                let throughput = f64::from(throughput) * 300.0;
                fleet.report(worker, &[rank().tokens(tokens).throughput(throughput)]);
            }
            if !closed {
                fleet.open_breaker(worker);
            }
        }
        let scorer = Scorer { max_waiting_requests: cap, ..Scorer::DEFAULT };
        let (mut floor, mut rng) = (Floor::default(), Rng::new(seed));
        for _ in 0..8 {
            let eligible = fleet.candidates().eligible();
            let open: Vec<WorkerId> = eligible.iter().collect();
            let scores = scorer.explain(&eligible, &open);
            let lowest = scores.iter().map(|scored| scored.score).fold(f64::INFINITY, f64::min);
            let picked = scorer.pick_any(&eligible, &mut floor, &mut rng);
            prop_assert_eq!(picked.is_none(), lowest == f64::INFINITY);
            let Some(picked) = picked else { break };
            let listed = scores.iter().find(|scored| scored.worker == picked.worker).unwrap();
            prop_assert!(close(listed.score, lowest) && close(picked.score, lowest));
            scorer.credit(&fleet.loads, picked.worker, None);
        }
    }
}

#[test]
fn nobody_to_pick_from() {
    assert_eq!(pick(&FakeFleet::new(0), &mut Rng::new(1)), None);
}
