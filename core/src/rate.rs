//! A rate that is kept exactly over all threads: a token bucket in one word.
//!
//! Instead of a number of tokens and the time of the last look, it holds the one time at which the
//! bucket will be full again (the generic cell rate algorithm, ITU-T I.371). Taking a token moves
//! that time on; there is none to take while it is further away than a full bucket takes to fill.

use std::sync::atomic::{AtomicU64, Ordering};

/// A bucket of tokens, full at first.
#[derive(Debug)]
pub struct TokenBucket {
    /// Between two tokens.
    interval_ns: u64,
    /// How far away the time of a full bucket may be for a token to be there: all tokens but one.
    tolerance_ns: u64,
    full_at_ns: AtomicU64,
}

impl TokenBucket {
    /// A bucket that holds up to `burst` tokens and gets `per_sec` each second, both at least 1. An
    /// interval that is not whole in nanoseconds is rounded up, so that the rate is never exceeded.
    pub fn new(per_sec: u32, burst: u64) -> Self {
        let interval_ns = NANOS_PER_SEC.div_ceil(u64::from(per_sec.max(1)));
        Self {
            interval_ns,
            tolerance_ns: interval_ns.saturating_mul(burst.saturating_sub(1)),
            full_at_ns: AtomicU64::new(0),
        }
    }

    /// Takes a token at `now_ns` of a clock that began at 0 and does not go back.
    ///
    /// # Errors
    /// How long it is until there is one, in nanoseconds and at least one, unless somebody else takes
    /// it.
    pub fn take(&self, now_ns: u64) -> Result<(), u64> {
        let take = |full_at_ns: u64| {
            let next = full_at_ns.max(now_ns).saturating_add(self.interval_ns);
            (full_at_ns <= now_ns.saturating_add(self.tolerance_ns)).then_some(next)
        };
        let taken = self.full_at_ns.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        taken.map(|_| ()).map_err(|full_at_ns| {
            full_at_ns.saturating_sub(now_ns.saturating_add(self.tolerance_ns)).max(1)
        })
    }
}

const NANOS_PER_SEC: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_full_bucket_is_a_burst_and_then_the_rate() {
        // 4 per second: one each 250 ms.
        let bucket = TokenBucket::new(4, 3);
        for _ in 0..3 {
            assert_eq!(bucket.take(1000 * MS), Ok(()));
        }
        assert_eq!(bucket.take(1000 * MS), Err(250 * MS));
        assert_eq!(bucket.take(1100 * MS), Err(150 * MS));
        assert_eq!(bucket.take(1250 * MS), Ok(()));
        assert_eq!(bucket.take(1250 * MS), Err(250 * MS));
        // Two and a half intervals later: two tokens, the third is half there.
        assert_eq!(bucket.take(1875 * MS), Ok(()));
        assert_eq!(bucket.take(1875 * MS), Ok(()));
        assert_eq!(bucket.take(1875 * MS), Err(125 * MS));
        // It holds no more than three, however long nobody asks.
        for _ in 0..3 {
            assert_eq!(bucket.take(60_000 * MS), Ok(()));
        }
        assert_eq!(bucket.take(60_000 * MS), Err(250 * MS));
    }

    #[test]
    fn a_rate_that_does_not_divide_a_second_is_not_exceeded() {
        // 3 per second are 333 333 333.3 ns apart.
        let bucket = TokenBucket::new(3, 1);
        assert_eq!(bucket.take(0), Ok(()));
        assert_eq!(bucket.take(333_333_333), Err(1));
        assert_eq!(bucket.take(333_333_334), Ok(()));
    }

    #[test]
    fn extremes_do_not_overflow() {
        for (per_sec, burst) in [(1, u64::MAX), (u32::MAX, u64::MAX), (u32::MAX, 1), (0, 0)] {
            let bucket = TokenBucket::new(per_sec, burst);
            assert_eq!(bucket.take(0), Ok(()));
            assert_eq!(bucket.take(u64::MAX), Ok(()));
        }
    }

    #[test]
    fn threads_together_take_no_more_than_there_is() {
        let bucket = TokenBucket::new(1, 1000);
        let take = || (0..600).filter(|_| bucket.take(5).is_ok()).count();
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 1000);
    }

    proptest! {
        /// Beside a bucket that counts: in units of 1/interval tokens, so that both are exact.
        #[test]
        fn it_is_a_bucket_that_counts(
            per_sec in 1u32..5000,
            burst in 1u64..20,
            pauses in proptest::collection::vec(0u64..2_000_000_000, 1..200),
        ) {
            let bucket = TokenBucket::new(per_sec, burst);
            let interval = NANOS_PER_SEC.div_ceil(u64::from(per_sec));
            let (mut now, mut level) = (0, burst * interval);
            for pause in pauses {
                // Mostly about as long as an interval.
                let pause = pause % (2 * interval);
                now += pause;
                level = (level + pause).min(burst * interval);
                let want = if level >= interval { Ok(()) } else { Err(interval - level) };
                prop_assert_eq!(bucket.take(now), want);
                if want.is_ok() {
                    level -= interval;
                }
            }
        }
    }
}
