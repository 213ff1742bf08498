//! Warnings about what may happen thousands of times per second.

use std::time::{Duration, Instant};

/// Lets one of many alike events through per period.
#[derive(Debug)]
pub struct Seldom {
    period: Duration,
    last: Option<Instant>,
}

impl Seldom {
    /// Lets the first event through, and one whenever `period` is over.
    pub const fn new(period: Duration) -> Self {
        Self { period, last: None }
    }

    /// Whether an event that happens now is one to speak of.
    pub fn is_due(&mut self) -> bool {
        self.is_due_at(Instant::now())
    }

    fn is_due_at(&mut self, now: Instant) -> bool {
        let due = self.last.is_none_or(|last| now.duration_since(last) >= self.period);
        if due {
            self.last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_per_period() {
        let (mut seldom, start) = (Seldom::new(Duration::from_secs(5)), Instant::now());
        let due: Vec<u64> =
            (0..12_000).filter(|&ms| seldom.is_due_at(start + Duration::from_millis(ms))).collect();
        assert_eq!(due, [0, 5000, 10_000]);
    }
}
