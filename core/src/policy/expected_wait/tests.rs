//! Scores worked out by hand, ties counted.

use super::*;
use crate::policy::fake_fleet::{FakeFleet, binomial_bounds, rank};
use crate::policy::load_report::RankLoad;

fn scores(fleet: &FakeFleet) -> Vec<f64> {
    let candidates = fleet.candidates();
    let scored = Scorer::DEFAULT.explain(&candidates.eligible(), candidates.ready);
    scored.into_iter().map(|scored| scored.score).collect()
}

fn pick(fleet: &FakeFleet, rng: &mut Rng) -> Option<Scored> {
    let eligible = fleet.candidates().eligible();
    Scorer::DEFAULT.pick(&eligible, eligible.iter(), &mut Ties::default(), rng)
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

#[test]
fn nobody_to_pick_from() {
    assert_eq!(pick(&FakeFleet::new(0), &mut Rng::new(1)), None);
}
