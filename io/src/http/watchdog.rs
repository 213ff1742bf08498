//! One lazily moved timer per connection.
//!
//! Deadlines change several times per request; the runtime's timer is touched only when a deadline
//! comes earlier than the one it is set to, or when it fires before the present deadline. Deadlines
//! are kept on the coarse clock, which costs a fifth of the precise one to read.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use monoio::time::{Sleep, sleep};

use crate::runtime::clock;

/// Fires once the present deadline has passed, at most one tick of the coarse clock late.
pub struct Watchdog {
    sleep: Pin<Box<Sleep>>,
    fires_at_ms: u64,
    deadline_ms: u64,
    /// The timer knows the task to wake. One task owns a watchdog all its life.
    registered: bool,
}

impl Watchdog {
    /// A watchdog that fires `after` from now.
    pub fn new(after: Duration) -> Self {
        let deadline_ms = clock::now_ms().saturating_add(millis(after));
        let sleep = Box::pin(sleep(after));
        Self { sleep, fires_at_ms: deadline_ms, deadline_ms, registered: false }
    }

    /// Moves the deadline to `after` from now.
    pub fn set(&mut self, after: Duration) {
        self.deadline_ms = clock::now_ms().saturating_add(millis(after));
        if self.deadline_ms < self.fires_at_ms {
            self.rearm(self.deadline_ms);
        }
    }

    /// Ready once the deadline has passed.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The timer itself says whether it fired: it wakes once, and the coarse clock may lag behind
        // it then.
        if self.registered && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        while self.sleep.as_mut().poll(cx).is_ready() {
            if clock::now_ms() >= self.deadline_ms {
                return Poll::Ready(());
            }
            self.rearm(self.deadline_ms);
        }
        self.registered = true;
        Poll::Pending
    }

    fn rearm(&mut self, at_ms: u64) {
        self.fires_at_ms = at_ms;
        self.registered = false;
        // Never zero: a timer that is due at once would spin until the coarse clock has ticked.
        let left = at_ms.saturating_sub(clock::now_ms()).max(1);
        self.sleep.set(sleep(Duration::from_millis(left)));
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::config::IoDriver;
    use crate::runtime::driver;

    #[test]
    fn no_wake_is_lost_while_the_coarse_clock_lags_behind_the_timer() {
        let (mut runtime, _) = driver::build(IoDriver::Auto).unwrap();
        runtime.block_on(async {
            let waiting: Vec<_> = (0..500u64)
                .map(|n| {
                    monoio::spawn(async move {
                        // Started at many phases of the coarse clock, each alone with its timer.
                        sleep(Duration::from_micros(137 * n)).await;
                        let mut watchdog = Watchdog::new(Duration::from_millis(1 + n % 40));
                        poll_fn(|cx| watchdog.poll(cx)).await;
                    })
                })
                .collect();
            for task in waiting {
                let fired = monoio::time::timeout(Duration::from_secs(10), task).await;
                assert!(fired.is_ok(), "a watchdog slept through its deadline");
            }
        });
    }
}
