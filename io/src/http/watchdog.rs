//! One lazily moved timer per connection.
//!
//! Deadlines change several times per request; the runtime's timer is touched only when a deadline
//! comes earlier than the one it is set to, or when it fires before the present deadline.

use std::pin::Pin;
use std::future::Future;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use monoio::time::{Instant as TimerInstant, Sleep, sleep_until};

/// Fires once the present deadline has passed.
pub struct Watchdog {
    sleep: Pin<Box<Sleep>>,
    fires_at: Instant,
    deadline: Instant,
}

impl Watchdog {
    /// A watchdog that fires `after` from now.
    pub fn new(after: Duration) -> Self {
        let deadline = Instant::now() + after;
        Self {
            sleep: Box::pin(sleep_until(TimerInstant::from_std(deadline))),
            fires_at: deadline,
            deadline,
        }
    }

    /// Moves the deadline to `after` from now.
    pub fn set(&mut self, after: Duration) {
        self.deadline = Instant::now() + after;
        if self.deadline < self.fires_at {
            self.rearm();
        }
    }

    /// Ready once the deadline has passed.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= self.deadline {
                return Poll::Ready(());
            }
            self.rearm();
        }
        Poll::Pending
    }

    fn rearm(&mut self) {
        self.fires_at = self.deadline;
        self.sleep.as_mut().reset(TimerInstant::from_std(self.deadline));
    }
}
