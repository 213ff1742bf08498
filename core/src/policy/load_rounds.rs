//! Rounds of load polls: all engines are asked at one moment of every interval.
//!
//! A report resets its engine's credit, and it counts what waits, not what runs. Whoever was asked last
//! looks idle beside engines asked seconds ago, and every request without a prefix would go there. So
//! engines are asked together, and what they say becomes one epoch: while a round is gathered, reports
//! are not published. An engine that is slow to answer holds up the others for a tenth of a second.
//!
//! Times are counted from the gateway's start.

use std::time::Duration;

/// Between two engines of a round: thousands of connections are not opened in one instant.
const PACE: Duration = Duration::from_micros(100);
/// The questions of a round take at most this part of an interval.
const WINDOW_SHARE: u32 = 4;
/// For the last answers of a round, counted from its last question.
const PATIENCE: Duration = Duration::from_millis(100);
/// While answers are outstanding, how often one looks.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Between two publications, and so much more per worker: an epoch copies 64 bytes per worker, so
/// arrivals are taken together, and copying stays a small share of what asking costs.
const PUBLISH_PAUSE: Duration = Duration::from_millis(4);
const PUBLISH_PAUSE_PER_WORKER: Duration = Duration::from_micros(5);

/// When rounds begin, and how far the present one is.
#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    interval: Duration,
    /// Slots of the fleet that were ever asked.
    slots: u32,
    /// Questions without an answer so far.
    outstanding: u32,
}

impl Rounds {
    /// Round 0 begins with the gateway, and another every `interval`, which is not zero.
    pub fn new(interval: Duration) -> Self {
        Self { interval, slots: 0, outstanding: 0 }
    }

    /// The round after `last` that the engine in `slot` takes part in, and when it is asked: the first
    /// one whose question is not overdue at `now`.
    pub fn next(&self, last: u64, slot: u32, now: Duration) -> (u64, Duration) {
        let place = self.place(slot);
        let begun = now.saturating_sub(place).as_nanos() / self.interval.as_nanos();
        let round = (last + 1).max(begun as u64 + 1);
        // Nanoseconds in 64 bits last for 584 years.
        let begins = (self.interval.as_nanos() as u64).saturating_mul(round);
        (round, Duration::from_nanos(begins) + place)
    }

    /// The engine in `slot` is asked.
    pub fn asked(&mut self, slot: u32) {
        self.slots = self.slots.max(slot + 1);
        self.outstanding += 1;
    }

    /// It answered, or did not in time.
    pub fn answered(&mut self) {
        self.outstanding -= 1;
    }

    /// While the present round is being gathered, how long to wait before looking again.
    pub fn gathering(&self, now: Duration) -> Option<Duration> {
        let begun = Duration::from_nanos((now.as_nanos() % self.interval.as_nanos()) as u64);
        let last_question = self.place(self.slots);
        if begun < last_question {
            return Some(last_question - begun);
        }
        (self.outstanding > 0 && begun < last_question + PATIENCE).then_some(LOOK_AGAIN)
    }

    /// When in a round a slot is asked, from the round's beginning.
    fn place(&self, slot: u32) -> Duration {
        (PACE * slot).min(self.interval / WINDOW_SHARE)
    }
}

/// From one publication of reports to the next, with so many workers.
pub fn publish_pause(workers: usize) -> Duration {
    PUBLISH_PAUSE + PUBLISH_PAUSE_PER_WORKER * u32::try_from(workers).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn everybody_is_asked_at_the_same_moment_of_every_interval() {
        let rounds = Rounds::new(INTERVAL);
        // Registered 3 s after the gateway's start: next asked at 10 s, and 10 ms later in slot 100.
        assert_eq!(rounds.next(0, 0, ms(3_000)), (1, ms(10_000)));
        assert_eq!(rounds.next(0, 100, ms(3_000)), (1, ms(10_010)));
        assert_eq!(rounds.next(1, 0, ms(10_004)), (2, ms(20_000)));
        // A timer that fired early does not have an engine asked twice in a round.
        assert_eq!(rounds.next(1, 0, ms(9_999)), (2, ms(20_000)));
        // A question that took longer than an interval misses rounds, not the pace.
        assert_eq!(rounds.next(1, 0, ms(31_000)), (4, ms(40_000)));
    }

    #[test]
    fn questions_are_paced_but_take_a_quarter_of_an_interval_at_most() {
        let rounds = Rounds::new(ms(1_000));
        assert_eq!(rounds.next(0, 4_000, ms(0)), (1, ms(1_250)));
        assert_eq!(rounds.next(0, 2_000, ms(0)), (1, ms(1_200)));
        // Asked at 1,250 ms, done at 1,251: the next time is 2,250.
        assert_eq!(rounds.next(1, 4_000, ms(1_251)), (2, ms(2_250)));
    }

    #[test]
    fn a_round_is_published_when_all_have_answered_or_patience_ends() {
        let mut rounds = Rounds::new(INTERVAL);
        rounds.asked(0);
        rounds.asked(99);
        // 100 slots: the last question is 10 ms after the beginning.
        let at = |millis| INTERVAL + ms(millis);
        assert_eq!(rounds.gathering(at(4)), Some(ms(6)));
        assert_eq!(rounds.gathering(at(10)), Some(LOOK_AGAIN));
        rounds.answered();
        assert_eq!(rounds.gathering(at(109)), Some(LOOK_AGAIN), "one is missing");
        assert_eq!(rounds.gathering(at(110)), None, "and not waited for any longer");
        rounds.answered();
        assert_eq!(rounds.gathering(at(20)), None, "all have answered");
        // Between two rounds nothing is held back.
        rounds.asked(5);
        assert_eq!(rounds.gathering(at(5_000)), None);
    }

    #[test]
    fn larger_fleets_are_published_less_often() {
        assert_eq!(publish_pause(0), ms(4));
        assert_eq!(publish_pause(4_000), ms(24));
    }
}
