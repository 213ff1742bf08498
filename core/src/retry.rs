//! When a failed attempt is tried again, after how long, and when the gateway must stop trying.
//!
//! [`Retries`] follows one request, [`RetryBudget`] bounds all of them together. A retry is possible
//! only while no response byte has reached the client; the caller stops asking after that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::rng::Rng;

/// Requests of this many seconds are "recent" for the budget.
pub const BUDGET_WINDOW_SECS: u64 = 10;
/// Share of the recent requests that may be retries.
pub const BUDGET_RATIO: f64 = 0.2;
/// Retries that may be in flight whatever the ratio says, over all shards.
pub const BUDGET_MIN_IN_FLIGHT: u32 = 10;

/// Retry settings of the gateway (`--retry-*`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryConfig {
    /// Attempts in total, the first included. 1 with `--disable-retries`.
    pub max_attempts: u32,
    /// Pause before the second attempt.
    pub initial_backoff_ms: u64,
    /// Longest pause before jitter, and longest `Retry-After` honoured.
    pub max_backoff_ms: u64,
    /// Growth of the pause per attempt, at least 1.
    pub backoff_multiplier: f64,
    /// A pause is scaled by a factor uniform in 1 ± this, 0 to 1.
    pub jitter_factor: f64,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            initial_backoff_ms: 50,
            max_backoff_ms: 30_000,
            backoff_multiplier: 1.5,
            jitter_factor: 0.2,
        }
    }
}

/// How an attempt failed before any byte of its response reached the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptFailure {
    /// No connection: refused, unreachable, or `--connect-timeout-secs` over; or a request that nobody
    /// acknowledged for so long, taken back.
    Connect,
    /// Reset or closed before a response byte.
    ClosedEarly,
    /// The worker answered with this status.
    Status {
        status: u16,
        /// Its `Retry-After`, if it sent one. Read on 429 and 503 only.
        retry_after_ms: Option<u64>,
    },
    /// No response head in `--request-timeout-secs`. The prompt may still be running.
    Timeout,
}

impl AttemptFailure {
    /// Whether another attempt may help and cannot run the prompt twice by a hung worker.
    pub fn is_retryable(self) -> bool {
        match self {
            Self::Connect | Self::ClosedEarly => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500 | 502 | 503),
            Self::Timeout => false,
        }
    }

    /// The pause the worker asked for, if its status is one that may ask.
    pub fn retry_after_ms(self) -> Option<u64> {
        match self {
            Self::Status { status: 429 | 503, retry_after_ms } => retry_after_ms,
            _ => None,
        }
    }
}

/// Why the client gets the failure it got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    /// Another attempt would not help, or could run the prompt twice.
    NotRetryable,
    /// `max_attempts` made.
    Exhausted,
    /// Too many retries under way over the whole gateway.
    BudgetSpent,
}

/// Permission for one more attempt.
#[derive(Debug)]
pub struct Retry {
    /// Pause before choosing a worker again.
    pub after_ms: u64,
    /// Hold it until that attempt has ended.
    pub permit: RetryPermit,
}

/// The attempts of one request.
#[derive(Debug, Clone, Copy)]
pub struct Retries {
    attempts: u32,
    may_replace: bool,
}

impl Default for Retries {
    fn default() -> Self {
        Self::new()
    }
}

impl Retries {
    /// A request whose first attempt is under way.
    pub fn new() -> Self {
        Self { attempts: 1, may_replace: true }
    }

    /// Attempts made so far, replaced connections not counted.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// True once per request: a pooled connection that died before a byte is replaced at once by
    /// another one to the same worker, without pause and without counting as an attempt.
    pub fn replace_pooled(&mut self) -> bool {
        std::mem::take(&mut self.may_replace)
    }

    /// What to do about a failed attempt. On `Ok` the next attempt is counted.
    ///
    /// `same_worker` says that the next attempt can only go to the worker that failed: its
    /// `Retry-After` is then the shortest pause. Any other worker owes nobody that time.
    pub fn next(
        &mut self,
        config: &RetryConfig,
        budget: &mut RetryBudget,
        failure: AttemptFailure,
        same_worker: bool,
        now_ms: u64,
        rng: &mut Rng,
    ) -> Result<Retry, GiveUp> {
        if !failure.is_retryable() {
            return Err(GiveUp::NotRetryable);
        }
        if self.attempts >= config.max_attempts {
            return Err(GiveUp::Exhausted);
        }
        let permit = budget.take(now_ms).ok_or(GiveUp::BudgetSpent)?;
        let backoff_ms = config.backoff_ms(self.attempts, rng);
        let asked_ms = failure.retry_after_ms().filter(|_| same_worker).unwrap_or(0);
        self.attempts += 1;
        Ok(Retry { after_ms: backoff_ms.max(asked_ms.min(config.max_backoff_ms)), permit })
    }
}

impl RetryConfig {
    /// Pause after attempt number `attempt` (1 is the first):
    /// `min(initial · multiplier^(attempt−1), max)`, scaled by 1 ± jitter.
    pub fn backoff_ms(&self, attempt: u32, rng: &mut Rng) -> u64 {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let grown = self.initial_backoff_ms as f64 * self.backoff_multiplier.powi(exponent);
        let capped = grown.min(self.max_backoff_ms as f64);
        let jitter = 1.0 + self.jitter_factor * (2.0 * rng.unit() - 1.0);
        // The cast saturates, and a NaN from absurd settings is 0.
        (capped * jitter).round() as u64
    }
}

/// Seconds of a `Retry-After` header in milliseconds. The HTTP-date form is not used by engines
/// and is `None`.
pub fn parse_retry_after_ms(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    if digits.is_empty() || digits.len() > 9 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |seconds, digit| seconds * 10 + u64::from(digit - b'0')) * 1000)
}

/// Bounds retries to [`BUDGET_RATIO`] of a shard's recent requests, or [`BUDGET_MIN_IN_FLIGHT`] in
/// flight over all shards, whichever is more: when workers fail, retries cannot multiply the load.
///
/// Each shard has its own window (one writer, no shared cache line per request); only retries touch
/// the shared count.
#[derive(Debug, Default)]
pub struct RetryBudget {
    in_flight: Arc<AtomicU32>,
    window: [Second; BUDGET_WINDOW_SECS as usize],
}

#[derive(Debug, Clone, Copy, Default)]
struct Second {
    number: u64,
    requests: u32,
    retries: u32,
}

impl RetryBudget {
    /// The budget of another shard of the same gateway.
    pub fn for_another_shard(&self) -> Self {
        Self { in_flight: self.in_flight.clone(), window: Default::default() }
    }

    /// Counts a request; retries of it are counted by [`RetryBudget::take`].
    pub fn note_request(&mut self, now_ms: u64) {
        let second = self.second(now_ms);
        second.requests = second.requests.saturating_add(1);
    }

    /// Retries in flight over all shards.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Takes one retry out of the budget.
    pub fn take(&mut self, now_ms: u64) -> Option<RetryPermit> {
        if !self.take_floor() {
            let (requests, retries) = self.recent(now_ms);
            if (retries + 1) as f64 > requests as f64 * BUDGET_RATIO {
                return None;
            }
            self.in_flight.fetch_add(1, Ordering::Relaxed);
        }
        let second = self.second(now_ms);
        second.retries = second.retries.saturating_add(1);
        Some(RetryPermit(self.in_flight.clone()))
    }

    /// One of the retries that need no ratio.
    fn take_floor(&self) -> bool {
        self.in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count < BUDGET_MIN_IN_FLIGHT).then_some(count + 1)
            })
            .is_ok()
    }

    fn recent(&self, now_ms: u64) -> (u64, u64) {
        let now = now_ms / 1000;
        self.window
            .iter()
            .filter(|second| second.number <= now && second.number + BUDGET_WINDOW_SECS > now)
            .fold((0, 0), |(requests, retries), second| {
                (requests + u64::from(second.requests), retries + u64::from(second.retries))
            })
    }

    fn second(&mut self, now_ms: u64) -> &mut Second {
        let number = now_ms / 1000;
        let second = &mut self.window[(number % BUDGET_WINDOW_SECS) as usize];
        if second.number != number {
            *second = Second { number, ..Second::default() };
        }
        second
    }
}

/// One retry in flight; dropping it ends that.
#[derive(Debug)]
#[must_use = "the retry counts as over once this is dropped"]
pub struct RetryPermit(Arc<AtomicU32>);

impl Drop for RetryPermit {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "more retries ended than began");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS_500: AttemptFailure =
        AttemptFailure::Status { status: 500, retry_after_ms: Some(9000) };

    fn plain() -> RetryConfig {
        RetryConfig { jitter_factor: 0.0, ..RetryConfig::default() }
    }

    #[test]
    fn what_is_tried_again() {
        for status in [408, 429, 500, 502, 503] {
            assert!(AttemptFailure::Status { status, retry_after_ms: None }.is_retryable());
        }
        for status in [200, 400, 401, 404, 413, 422, 501, 504] {
            assert!(!AttemptFailure::Status { status, retry_after_ms: None }.is_retryable());
        }
        assert!(AttemptFailure::Connect.is_retryable());
        assert!(AttemptFailure::ClosedEarly.is_retryable());
        assert!(!AttemptFailure::Timeout.is_retryable());
    }

    #[test]
    fn attempts_are_counted_and_end() {
        let (mut budget, mut rng) = (RetryBudget::default(), Rng::new(1));
        let mut retries = Retries::new();
        let mut pauses = Vec::new();
        while let Ok(retry) = retries.next(&plain(), &mut budget, STATUS_500, false, 0, &mut rng) {
            pauses.push(retry.after_ms);
        }
        // 50 · 1.5^k: 50, 75, 112.5, 168.75.
        assert_eq!(pauses, [50, 75, 113, 169]);
        assert_eq!(retries.attempts(), 5);
        assert_eq!(budget.in_flight(), 0, "the permits were dropped");
        let end = retries.next(&plain(), &mut budget, STATUS_500, false, 0, &mut rng);
        assert_eq!(end.unwrap_err(), GiveUp::Exhausted);
    }

    #[test]
    fn one_attempt_means_no_retry() {
        let config = RetryConfig { max_attempts: 1, ..plain() };
        let (mut budget, mut rng) = (RetryBudget::default(), Rng::new(1));
        let end =
            Retries::new().next(&config, &mut budget, AttemptFailure::Connect, false, 0, &mut rng);
        assert_eq!(end.unwrap_err(), GiveUp::Exhausted);
    }

    #[test]
    fn a_hung_prompt_runs_once() {
        let (mut budget, mut rng) = (RetryBudget::default(), Rng::new(1));
        let end =
            Retries::new().next(&plain(), &mut budget, AttemptFailure::Timeout, false, 0, &mut rng);
        assert_eq!(end.unwrap_err(), GiveUp::NotRetryable);
    }

    #[test]
    fn backoff_is_capped_before_jitter_and_jitter_stays_in_its_band() {
        let config = RetryConfig { max_backoff_ms: 300, backoff_multiplier: 10.0, ..plain() };
        let mut rng = Rng::new(3);
        assert_eq!(config.backoff_ms(1, &mut rng), 50);
        assert_eq!(config.backoff_ms(2, &mut rng), 300);
        assert_eq!(config.backoff_ms(u32::MAX, &mut rng), 300);
        let config = RetryConfig { initial_backoff_ms: 1000, jitter_factor: 0.2, ..plain() };
        let draws: Vec<u64> = (0..1000).map(|_| config.backoff_ms(1, &mut rng)).collect();
        assert!(draws.iter().all(|ms| (800..=1200).contains(ms)));
        assert!(draws.iter().any(|&ms| ms < 850) && draws.iter().any(|&ms| ms > 1150));
    }

    #[test]
    fn retry_after_is_honoured_on_the_worker_that_asked_and_up_to_the_cap() {
        let (mut budget, mut rng) = (RetryBudget::default(), Rng::new(1));
        let mut pause = |status, retry_after_ms, same_worker| {
            let failure = AttemptFailure::Status { status, retry_after_ms };
            let retry =
                Retries::new().next(&plain(), &mut budget, failure, same_worker, 0, &mut rng);
            retry.unwrap().after_ms
        };
        assert_eq!(pause(429, Some(2000), true), 2000);
        assert_eq!(pause(503, Some(2000), true), 2000);
        assert_eq!(pause(503, Some(10), true), 50, "never below the backoff");
        assert_eq!(pause(503, Some(90_000), true), 30_000, "never above the longest backoff");
        assert_eq!(pause(500, Some(2000), true), 50, "only 429 and 503 may ask");
        assert_eq!(pause(429, Some(2000), false), 50, "another worker owes no wait");
    }

    #[test]
    fn retry_after_values() {
        assert_eq!(parse_retry_after_ms(b"3"), Some(3000));
        assert_eq!(parse_retry_after_ms(b" 0 "), Some(0));
        assert_eq!(parse_retry_after_ms(b"999999999"), Some(999_999_999_000));
        for bad in [&b""[..], b"-1", b"1.5", b"1234567890", b"Wed, 21 Oct 2026 07:28:00 GMT"] {
            assert_eq!(parse_retry_after_ms(bad), None);
        }
    }

    #[test]
    fn a_pooled_connection_is_replaced_once() {
        let mut retries = Retries::new();
        assert!(retries.replace_pooled());
        assert!(!retries.replace_pooled());
        assert_eq!(retries.attempts(), 1);
    }

    #[test]
    fn ten_in_flight_need_no_ratio_and_the_eleventh_does() {
        let mut budget = RetryBudget::default();
        let mut other = budget.for_another_shard();
        let mut held: Vec<_> = (0..9).map(|_| budget.take(0).unwrap()).collect();
        held.push(other.take(0).unwrap());
        assert!(budget.take(0).is_none() && other.take(0).is_none(), "ten over all shards");
        // One comes back: its place is free again.
        held.pop();
        assert_eq!(budget.in_flight(), 9);
        held.push(budget.take(0).unwrap());
        assert!(budget.take(0).is_none());
        // This shard made 10 retries; 60 requests allow 12.
        for _ in 0..60 {
            budget.note_request(5000);
        }
        held.push(budget.take(5000).unwrap());
        held.push(budget.take(5000).unwrap());
        assert!(budget.take(5000).is_none());
        // The retries of second 0 are forgotten after ten seconds, the requests are not.
        held.extend((0..10).map(|_| budget.take(10_000).unwrap()));
        assert!(budget.take(10_000).is_none());
        // Nothing recent is left, and 22 are in flight.
        assert_eq!(budget.in_flight(), 22);
        assert!(budget.take(60_000).is_none());
    }
}
