//! Timelines of single breakers.

use super::BreakerState::{Closed, HalfOpen, Open};
use super::*;

const W: WorkerId = WorkerId { slot: 5, generation: 0 };

/// Opens at 3 failures within 1,000 ms, probes after 500 ms, closes after 2 successes.
fn breakers() -> Breakers {
    Breakers::new(BreakerConfig {
        enabled: true,
        failure_threshold: 3,
        success_threshold: 2,
        timeout_ms: 500,
        window_ms: 1000,
        max_skip_ms: 30_000,
    })
}

/// One request from dispatch to its end at the same time.
fn run(breakers: &Breakers, outcome: Outcome, now_ms: u64) -> Option<Transition> {
    breakers.admit(W, now_ms).expect("admitted").settle(breakers, outcome, now_ms)
}

fn fail(breakers: &Breakers, now_ms: u64) -> Option<Transition> {
    run(breakers, Outcome::Failure, now_ms)
}

fn succeed(breakers: &Breakers, now_ms: u64) -> Option<Transition> {
    run(breakers, Outcome::Success, now_ms)
}

fn step(from: BreakerState, to: BreakerState) -> Option<Transition> {
    Some(Transition { from, to })
}

fn state(breakers: &Breakers, now_ms: u64) -> BreakerState {
    breakers.view(W, now_ms).state
}

#[test]
fn which_statuses_count() {
    for status in [500, 502, 504] {
        assert_eq!(Outcome::of_status(status), Outcome::Failure);
    }
    for status in [429, 503] {
        assert_eq!(Outcome::of_status(status), Outcome::Neutral);
    }
    for status in [200, 204, 301, 400, 401, 404, 408, 422, 501] {
        assert_eq!(Outcome::of_status(status), Outcome::Success);
    }
}

#[test]
fn it_opens_at_the_threshold_and_a_success_starts_the_count_again() {
    let breakers = breakers();
    assert_eq!((fail(&breakers, 0), fail(&breakers, 1)), (None, None));
    assert_eq!(breakers.view(W, 1).consecutive_failures, 2);
    assert_eq!(succeed(&breakers, 2), None);
    assert_eq!((fail(&breakers, 3), fail(&breakers, 4)), (None, None));
    assert!(breakers.allows(W, 4));
    assert_eq!(fail(&breakers, 5), step(Closed, Open));
    assert!(!breakers.allows(W, 5));
    assert_eq!(state(&breakers, 5), Open);
    assert!(breakers.admit(W, 5).is_none());
    let neighbour = WorkerId { slot: 6, generation: 0 };
    assert!(breakers.allows(neighbour, 5));
}

#[test]
fn busy_answers_and_departed_clients_count_for_nothing() {
    let breakers = breakers();
    fail(&breakers, 0);
    fail(&breakers, 1);
    assert_eq!(run(&breakers, Outcome::Neutral, 2), None);
    drop(breakers.admit(W, 3));
    assert_eq!(breakers.view(W, 3).consecutive_failures, 2, "nor do they end a run");
    assert_eq!(fail(&breakers, 4), step(Closed, Open));
}

#[test]
fn failures_older_than_the_window_do_not_count() {
    let breakers = breakers();
    for at in [0, 600, 1001, 1700] {
        // Three in a row take 1,001 ms at first, then 1,100.
        assert_eq!(fail(&breakers, at), None, "{at}");
    }
    assert_eq!(state(&breakers, 1700), Closed);
    // 1001, 1700, 2001: exactly the window.
    assert_eq!(fail(&breakers, 2001), step(Closed, Open));
}

#[test]
fn slow_failures_never_open_it() {
    let breakers = breakers();
    for n in 0..50 {
        assert_eq!(fail(&breakers, n * 501), None);
    }
    assert_eq!(breakers.view(W, 0).consecutive_failures, 50);
}

fn opened() -> Breakers {
    let breakers = breakers();
    for at in 98..=100 {
        fail(&breakers, at);
    }
    assert_eq!(state(&breakers, 100), Open);
    breakers
}

#[test]
fn one_probe_at_a_time_closes_it() {
    let breakers = opened();
    assert!(!breakers.allows(W, 599));
    assert!(breakers.allows(W, 600));
    assert_eq!(state(&breakers, 600), HalfOpen);
    let probe = breakers.admit(W, 600).unwrap();
    assert!(probe.is_probe());
    assert_eq!(probe.transition, step(Open, HalfOpen));
    assert!(!breakers.allows(W, 601) && breakers.admit(W, 601).is_none());
    assert_eq!(probe.settle(&breakers, Outcome::Success, 650), None);
    assert_eq!(breakers.view(W, 650).consecutive_successes, 1);
    let probe = breakers.admit(W, 651).unwrap();
    assert_eq!((probe.is_probe(), probe.transition), (true, None));
    assert_eq!(probe.settle(&breakers, Outcome::Success, 660), step(HalfOpen, Closed));
    let view = breakers.view(W, 660);
    assert_eq!((view.state, view.consecutive_failures, view.consecutive_successes), (Closed, 0, 0));
    assert!(!breakers.admit(W, 661).unwrap().is_probe());
}

#[test]
fn a_failed_probe_opens_it_for_another_timeout() {
    let breakers = opened();
    succeed(&breakers, 600);
    assert_eq!(fail(&breakers, 700), step(HalfOpen, Open));
    assert!(!breakers.allows(W, 1199));
    assert!(breakers.allows(W, 1200));
    // The success of the earlier half-open time is forgotten.
    assert_eq!(succeed(&breakers, 1200), None);
    assert_eq!(succeed(&breakers, 1201), step(HalfOpen, Closed));
}

#[test]
fn a_probe_without_a_verdict_is_given_back() {
    let breakers = opened();
    drop(breakers.admit(W, 600).unwrap());
    let probe = breakers.admit(W, 601).unwrap();
    assert_eq!(probe.settle(&breakers, Outcome::Neutral, 602), None);
    assert!(breakers.allows(W, 603));
    assert_eq!(state(&breakers, 603), HalfOpen);
}

#[test]
fn requests_from_before_it_opened_have_no_say() {
    let breakers = breakers();
    let early: Vec<_> = (0..4).map(|_| breakers.admit(W, 0).unwrap()).collect();
    for at in 98..=100 {
        fail(&breakers, at);
    }
    let mut early = early.into_iter();
    let mut late = |outcome, at| early.next().unwrap().settle(&breakers, outcome, at);
    assert_eq!(late(Outcome::Success, 200), None);
    assert_eq!(late(Outcome::Failure, 400), None);
    assert!(breakers.allows(W, 600), "the late failure did not lengthen the timeout");
    let probe = breakers.admit(W, 600).unwrap();
    assert_eq!(late(Outcome::Failure, 610), None);
    assert_eq!(late(Outcome::Success, 620), None);
    assert!(!breakers.allows(W, 630), "the probe is still out");
    assert_eq!(probe.settle(&breakers, Outcome::Success, 640), None);
}

#[test]
fn a_busy_worker_is_left_alone_for_as_long_as_it_asked() {
    let breakers = breakers();
    breakers.skip_for(W, 3000, 1000);
    assert!(!breakers.allows(W, 3999) && breakers.admit(W, 3999).is_none());
    assert_eq!(state(&breakers, 2000), Closed);
    breakers.skip_for(W, 10, 1500);
    assert!(!breakers.allows(W, 3999), "a shorter time changes nothing");
    assert!(breakers.allows(W, 4000) && breakers.admit(W, 4000).is_some());
    breakers.skip_for(W, 0, 5000);
    assert!(breakers.allows(W, 5000));
    breakers.skip_for(W, u64::MAX, 5000);
    assert!(!breakers.allows(W, 34_999) && breakers.allows(W, 35_000), "up to the longest");
}

#[test]
fn a_disabled_breaker_never_opens_but_honours_retry_after() {
    let breakers = Breakers::new(BreakerConfig {
        enabled: false,
        failure_threshold: 1,
        ..BreakerConfig::default()
    });
    for at in 0..20 {
        assert_eq!(fail(&breakers, at), None);
    }
    assert!(breakers.allows(W, 20));
    breakers.skip_for(W, 1000, 20);
    assert!(!breakers.allows(W, 21));
}

#[test]
fn a_new_registration_starts_closed_and_old_outcomes_are_ignored() {
    let breakers = breakers();
    let old = breakers.admit(W, 0).unwrap();
    for at in 98..=100 {
        fail(&breakers, at);
    }
    breakers.skip_for(W, 10_000, 100);
    let new = WorkerId { generation: 1, ..W };
    breakers.reset(new);
    assert!(breakers.allows(new, 101));
    for _ in 0..5 {
        let _ = breakers.admit(W, 101).unwrap().settle(&breakers, Outcome::Failure, 101);
    }
    assert_eq!(old.settle(&breakers, Outcome::Failure, 102), None);
    breakers.skip_for(W, 10_000, 102);
    let view = breakers.view(new, 102);
    assert_eq!((view.state, view.consecutive_failures), (Closed, 0));
    assert!(breakers.allows(new, 102));
}

#[test]
fn a_threshold_beyond_the_timed_ones_only_counts() {
    let breakers = Breakers::new(BreakerConfig {
        failure_threshold: MAX_TIMED_FAILURES + 1,
        window_ms: 10,
        ..BreakerConfig::default()
    });
    for n in 0..u64::from(MAX_TIMED_FAILURES) {
        assert_eq!(fail(&breakers, n * 1000), None);
    }
    assert_eq!(fail(&breakers, 2_000_000), step(Closed, Open));
}

#[test]
fn racing_probes_let_exactly_one_through() {
    let breakers = opened();
    let admitted: usize = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let held: Vec<_> = (0..100).filter_map(|_| breakers.admit(W, 600)).collect();
                    let count = held.len();
                    // Held to the end: nobody else may get it meanwhile.
                    std::mem::forget(held);
                    count
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).sum()
    });
    assert_eq!(admitted, 1);
}

#[test]
fn the_word_keeps_its_parts_apart() {
    let word = Word(0).in_state(HalfOpen).with_probing(true).with_skipped(true);
    let word = word.with_successes(0xffff).with_failures(u32::MAX);
    assert_eq!((word.state(), word.probing(), word.skipped()), (HalfOpen, true, true));
    assert_eq!((word.successes(), word.failures()), (0xffff, u32::MAX));
    let word = word.in_state(Open).with_skipped(false);
    assert_eq!((word.state(), word.probing(), word.skipped()), (Open, false, false));
    assert_eq!((word.successes(), word.failures()), (0, u32::MAX));
    assert_eq!(word.with_failures(0).0, Open as u64);
}

#[test]
fn whether_all_are_allowed_is_known_without_a_look_at_each() {
    let breakers = breakers();
    let other = WorkerId { slot: 1, ..W };
    assert!(breakers.allow_all());
    breakers.skip_for(W, 1000, 0);
    breakers.skip_for(W, 2000, 0);
    breakers.skip_for(other, 1000, 0);
    assert!(!breakers.allow_all());
    drop(breakers.admit(W, 3000));
    assert!(!breakers.allow_all(), "the other");
    breakers.reset(other);
    breakers.reset(other);
    assert!(breakers.allow_all());
    let breakers = opened();
    assert!(!breakers.allow_all(), "open");
    let probe = breakers.admit(W, 600).unwrap();
    assert!(!breakers.allow_all(), "half-open");
    let _ = probe.settle(&breakers, Outcome::Success, 601);
    succeed(&breakers, 602);
    assert_eq!((state(&breakers, 602), breakers.allow_all()), (Closed, true));
}
