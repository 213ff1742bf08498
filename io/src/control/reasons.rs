//! Which of the reasons why a worker is not up are worth a line of the log: it is asked every few
//! seconds, and may have another one each time.

use std::time::{Duration, Instant};

/// Between two lines about one worker, but for reasons that are new.
const PERIOD: Duration = Duration::from_secs(60);
/// Most reasons that are logged at once because they are new.
const MOST_NEW: usize = 4;

/// The reasons logged so far about one worker.
#[derive(Debug, Default)]
pub struct Reasons {
    last: Option<(Instant, String)>,
    /// Those logged at once, without digits.
    known: Vec<String>,
}

impl Reasons {
    /// Whether `reason` is to be logged now. It must be another one than last time, and new in more
    /// than its digits, or the last line a minute ago.
    pub fn is_news(&mut self, reason: &str, now: Instant) -> bool {
        let shape: String = reason.chars().filter(|c| !c.is_ascii_digit()).collect();
        let is_new = self.known.len() < MOST_NEW && !self.known.contains(&shape);
        if let Some((at, last)) = &self.last {
            let is_due = now.duration_since(*at) >= PERIOD;
            if last == reason || !(is_new || is_due) {
                return false;
            }
        }
        if is_new {
            self.known.push(shape);
        }
        self.last = Some((now, reason.to_owned()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds at which one of `reasons`, in turn and one per second, is logged within three minutes.
    fn logged(reasons: impl Fn(u64) -> String) -> Vec<u64> {
        let (mut log, start) = (Reasons::default(), Instant::now());
        (0..180)
            .filter(|&secs| log.is_news(&reasons(secs), start + Duration::from_secs(secs)))
            .collect()
    }

    #[test]
    fn a_reason_that_stays_is_logged_once() {
        assert_eq!(logged(|_| "Connection refused".to_owned()), [0]);
    }

    #[test]
    fn another_reason_is_logged_at_once() {
        let reasons = ["refused", "/health answered 503", "its model is not known yet"];
        assert_eq!(logged(|secs| reasons[secs as usize / 60].to_owned()), [0, 60, 120]);
        assert_eq!(logged(|secs| reasons[(secs as usize).min(2)].to_owned()), [0, 1, 2]);
    }

    #[test]
    fn what_differs_in_digits_is_logged_once_a_minute() {
        let expired = |secs| format!("certificate expired ({} seconds ago)", 95 + secs);
        assert_eq!(logged(expired), [0, 60, 120]);
    }

    #[test]
    fn reasons_in_turn_are_logged_once_a_minute() {
        let in_turn = |secs| ["eof", "reset"][secs as usize % 2].to_owned();
        assert_eq!(logged(in_turn), [0, 1, 62, 123]);
    }

    #[test]
    fn reasons_that_are_always_new_are_logged_once_a_minute() {
        let always_new = |secs| "x".repeat(secs as usize + 1);
        assert_eq!(logged(always_new), [0, 1, 2, 3, 63, 123]);
    }
}
