//! Circuit breakers: which workers may be tried, judged by how their requests ended.
//!
//! [`Breakers`] is one table of atomics by worker slot, shared by every shard: a decision reads one
//! word per worker, and whoever ends a request records the outcome. Time comes in as milliseconds
//! of the process's monotonic clock.
//!
//! closed → open after `failure_threshold` consecutive failures that all lie within `window_ms`;
//! open → half-open `timeout_ms` later, seen at the next read; half-open lets one probe request at a
//! time through, closes after `success_threshold` successful probes and opens again at the first
//! failed one. Requests sent before the breaker opened have no say once it has.
//!
//! A busy worker (429, 503) is healthy: it is only left alone for its `Retry-After`
//! ([`Breakers::skip_for`]), whatever the breaker says and even when breakers are disabled.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::fleet::{MAX_WORKERS, WorkerId};

#[cfg(test)]
mod tests;

/// Above this failure threshold only the count decides and the window is not applied: the times of
/// that many failures are not kept.
pub const MAX_TIMED_FAILURES: u32 = 1024;

/// Breaker settings of the gateway (`--cb-*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerConfig {
    /// False never opens a breaker; `Retry-After` is honoured all the same.
    pub enabled: bool,
    /// Consecutive failures that open it; 0 counts as 1.
    pub failure_threshold: u32,
    /// Successful probes that close it; 0 counts as 1, at most 65,535.
    pub success_threshold: u32,
    /// Time open before a probe is let through.
    pub timeout_ms: u64,
    /// A failure older than this is no longer part of the run.
    pub window_ms: u64,
    /// Longest time a `Retry-After` keeps a worker out.
    pub max_skip_ms: u64,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            failure_threshold: 10,
            success_threshold: 3,
            timeout_ms: 60_000,
            window_ms: 120_000,
            max_skip_ms: 30_000,
        }
    }
}

/// State of one breaker; the discriminant is the value of `smg_worker_cb_state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakerState {
    Closed = 0,
    Open = 1,
    HalfOpen = 2,
}

impl BreakerState {
    /// Label value of the transition counter.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// A change of state that the caller counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    pub from: BreakerState,
    pub to: BreakerState,
}

impl Transition {
    /// Every change there is.
    pub const ALL: [Self; 4] = [
        Self { from: BreakerState::Closed, to: BreakerState::Open },
        Self { from: BreakerState::Open, to: BreakerState::HalfOpen },
        Self { from: BreakerState::HalfOpen, to: BreakerState::Closed },
        Self { from: BreakerState::HalfOpen, to: BreakerState::Open },
    ];
}

/// How one attempt at a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The worker answered as it should; client errors included.
    Success,
    /// Connect error, reset, timeout, or status 500, 502, 504.
    Failure,
    /// Says nothing about the worker's health: it is busy (429, 503), or the client left.
    Neutral,
}

impl Outcome {
    /// The verdict on a response status of a worker.
    pub fn of_status(status: u16) -> Self {
        match status {
            500 | 502 | 504 => Self::Failure,
            429 | 503 => Self::Neutral,
            _ => Self::Success,
        }
    }

    /// Label value of the outcome counter; `Neutral` is not counted there.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Neutral => "neutral",
        }
    }
}

/// What the gauges of one worker's breaker show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerView {
    pub state: BreakerState,
    pub consecutive_failures: u32,
    pub consecutive_successes: u32,
    /// How often each of [`Transition::ALL`] happened in this registration.
    pub transitions: [u32; Transition::ALL.len()],
}

/// The breakers of all workers. Clones share one table.
#[derive(Debug, Clone)]
pub struct Breakers(Arc<Table>);

#[derive(Debug)]
struct Table {
    config: BreakerConfig,
    /// All that most reads need, packed: see [`Word`].
    words: Box<[AtomicU64]>,
    /// How many of them need a closer look. Written only when one begins to or ceases to; it may be off
    /// for as long as such a change takes.
    guarded: AtomicUsize,
    slots: Box<[Slot]>,
}

/// The rest of one breaker, read only when its word asks for it.
#[derive(Debug, Default)]
struct Slot {
    generation: AtomicU32,
    opened_at_ms: AtomicU64,
    skip_until_ms: AtomicU64,
    /// Counts of [`Transition::ALL`].
    transitions: [AtomicU32; Transition::ALL.len()],
    /// Times of the latest `failure_threshold` failures of a run; a worker that never failed has
    /// none.
    failures_ms: OnceLock<Box<[AtomicU64]>>,
}

impl Default for Breakers {
    fn default() -> Self {
        Self::new(BreakerConfig::default())
    }
}

impl Breakers {
    /// Closed breakers for every slot.
    pub fn new(config: BreakerConfig) -> Self {
        let config = BreakerConfig {
            failure_threshold: config.failure_threshold.max(1),
            success_threshold: config.success_threshold.clamp(1, u32::from(u16::MAX)),
            ..config
        };
        Self(Arc::new(Table {
            config,
            words: (0..MAX_WORKERS).map(|_| AtomicU64::new(0)).collect(),
            guarded: AtomicUsize::new(0),
            slots: (0..MAX_WORKERS).map(|_| Slot::default()).collect(),
        }))
    }

    /// Whether a decision may choose `worker` now. Reserves nothing: [`Breakers::admit`] does, at
    /// dispatch.
    #[inline]
    pub fn allows(&self, worker: WorkerId, now_ms: u64) -> bool {
        self.reader().allows(worker, now_ms)
    }

    /// Whether [`Breakers::allows`] says yes to every worker, known without a look at each. Never for long
    /// after a change; false once for all while a registration that has ended is not let go of.
    #[inline]
    pub(crate) fn allow_all(&self) -> bool {
        self.0.guarded.load(Ordering::Relaxed) == 0
    }

    /// The table resolved once, for scans.
    #[inline]
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { words: &self.0.words, breakers: self }
    }

    #[cold]
    fn allows_guarded(&self, worker: WorkerId, now_ms: u64) -> bool {
        let word = Word(self.word_of(worker));
        let slot = &self.0.slots[worker.slot as usize];
        if word.skipped() && now_ms < slot.skip_until_ms.load(Ordering::Acquire) {
            return false;
        }
        match word.state() {
            BreakerState::Closed => true,
            BreakerState::Open => self.timed_out(slot, now_ms),
            BreakerState::HalfOpen => !word.probing(),
        }
    }

    /// Lets one request through to `worker`, as its breaker's probe if it is half-open. `None` when
    /// the breaker does not allow it any more: another shard took the probe since the decision.
    pub fn admit(&self, worker: WorkerId, now_ms: u64) -> Option<Admission> {
        if !self.allows(worker, now_ms) {
            return None;
        }
        let slot = &self.0.slots[worker.slot as usize];
        let (before, after) = self.update(worker, |word| {
            let word = match word.state() {
                _ if !word.skipped() => word,
                _ if now_ms < slot.skip_until_ms.load(Ordering::Acquire) => return None,
                _ => word.with_skipped(false),
            };
            match word.state() {
                BreakerState::Closed => Some(word),
                BreakerState::Open if self.timed_out(slot, now_ms) => {
                    Some(word.in_state(BreakerState::HalfOpen).with_probing(true))
                }
                BreakerState::HalfOpen if !word.probing() => Some(word.with_probing(true)),
                BreakerState::Open | BreakerState::HalfOpen => None,
            }
        })?;
        Some(Admission {
            probed: after.probing().then(|| self.clone()),
            worker,
            transition: self.transition(worker, before, after),
        })
    }

    /// Leaves a busy worker alone for its `Retry-After`, up to `max_skip_ms`. A shorter time than an
    /// earlier one changes nothing.
    pub fn skip_for(&self, worker: WorkerId, retry_after_ms: u64, now_ms: u64) {
        let slot = &self.0.slots[worker.slot as usize];
        if retry_after_ms == 0 || slot.generation.load(Ordering::Acquire) != worker.generation {
            return;
        }
        let until_ms = now_ms.saturating_add(retry_after_ms.min(self.0.config.max_skip_ms));
        slot.skip_until_ms.fetch_max(until_ms, Ordering::AcqRel);
        self.update(worker, |word| Some(word.with_skipped(true)));
    }

    /// The breaker as the gauges show it. An open one whose time is up shows as half-open.
    pub fn view(&self, worker: WorkerId, now_ms: u64) -> BreakerView {
        let word = Word(self.0.words[worker.slot as usize].load(Ordering::Acquire));
        let state = match word.state() {
            BreakerState::Open if self.timed_out(&self.0.slots[worker.slot as usize], now_ms) => {
                BreakerState::HalfOpen
            }
            state => state,
        };
        BreakerView {
            state,
            consecutive_failures: word.failures(),
            consecutive_successes: word.successes(),
            transitions: std::array::from_fn(|at| {
                self.0.slots[worker.slot as usize].transitions[at].load(Ordering::Relaxed)
            }),
        }
    }

    /// Starts `worker`'s registration with a closed breaker. Outcomes of earlier registrations of
    /// the slot that are still to come are ignored.
    pub fn reset(&self, worker: WorkerId) {
        let slot = &self.0.slots[worker.slot as usize];
        if slot.generation.swap(worker.generation, Ordering::AcqRel) != worker.generation {
            for count in &slot.transitions {
                count.store(0, Ordering::Relaxed);
            }
        }
        slot.skip_until_ms.store(0, Ordering::Release);
        let before = self.0.words[worker.slot as usize].swap(0, Ordering::AcqRel);
        self.count_guarded(Word(before), Word(0));
    }

    fn count_guarded(&self, before: Word, after: Word) {
        // It may wrap below 0 between two threads, and is back when both have counted.
        match (before.needs_a_closer_look(), after.needs_a_closer_look()) {
            (false, true) => _ = self.0.guarded.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.0.guarded.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
    }

    /// The change of state between two words, counted.
    fn transition(&self, worker: WorkerId, before: Word, after: Word) -> Option<Transition> {
        let change = Transition { from: before.state(), to: after.state() };
        let at = Transition::ALL.iter().position(|known| *known == change)?;
        self.0.slots[worker.slot as usize].transitions[at].fetch_add(1, Ordering::Relaxed);
        Some(change)
    }

    fn timed_out(&self, slot: &Slot, now_ms: u64) -> bool {
        now_ms.saturating_sub(slot.opened_at_ms.load(Ordering::Acquire)) >= self.0.config.timeout_ms
    }

    /// Applies `change` until it sticks; `None` from `change` leaves the word alone. Returns the
    /// word before and after.
    fn update(
        &self,
        worker: WorkerId,
        change: impl Fn(Word) -> Option<Word>,
    ) -> Option<(Word, Word)> {
        let cell = &self.0.words[worker.slot as usize];
        let mut before = cell.load(Ordering::Acquire);
        loop {
            let after = change(Word(before))?;
            if after.0 == before {
                return Some((Word(before), after));
            }
            match cell.compare_exchange_weak(before, after.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.count_guarded(Word(before), after);
                    return Some((Word(before), after));
                }
                Err(current) => before = current,
            }
        }
    }

    fn record(
        &self,
        worker: WorkerId,
        probe: bool,
        outcome: Outcome,
        now_ms: u64,
    ) -> Option<Transition> {
        let slot = &self.0.slots[worker.slot as usize];
        if slot.generation.load(Ordering::Acquire) != worker.generation || !self.0.config.enabled {
            return None;
        }
        let (before, after) = match (outcome, probe) {
            (Outcome::Neutral, false) => None,
            (Outcome::Neutral, true) => self.update(worker, |word| Some(word.with_probing(false))),
            (Outcome::Success, false) => self.update(worker, |word| match word.state() {
                BreakerState::Closed => Some(word.with_failures(0)),
                BreakerState::Open | BreakerState::HalfOpen => None,
            }),
            (Outcome::Success, true) => self.update(worker, |word| Some(self.probed_well(word))),
            (Outcome::Failure, _) => {
                slot.note_failure(self.0.config, Word(self.word_of(worker)).failures(), now_ms);
                self.update(worker, |word| self.failed(slot, word, probe, now_ms))
            }
        }?;
        self.transition(worker, before, after)
    }

    fn word_of(&self, worker: WorkerId) -> u64 {
        self.0.words[worker.slot as usize].load(Ordering::Acquire)
    }

    fn probed_well(&self, word: Word) -> Word {
        let successes = word.successes() + 1;
        if successes >= self.0.config.success_threshold {
            word.in_state(BreakerState::Closed).with_failures(0)
        } else {
            word.with_probing(false).with_successes(successes)
        }
    }

    fn failed(&self, slot: &Slot, word: Word, probe: bool, now_ms: u64) -> Option<Word> {
        let opens = match word.state() {
            BreakerState::Closed => {
                let run = word.failures().saturating_add(1);
                if !slot.run_is_over(self.0.config, run, now_ms) {
                    return Some(word.with_failures(run));
                }
                true
            }
            BreakerState::HalfOpen => probe,
            BreakerState::Open => false,
        };
        if !opens {
            return None;
        }
        // Before the word: whoever sees `Open` sees when it opened.
        slot.opened_at_ms.store(now_ms, Ordering::Release);
        Some(word.in_state(BreakerState::Open).with_failures(word.failures().saturating_add(1)))
    }
}

impl Slot {
    /// Keeps the time of the failure that follows `failures_before` others of its run.
    fn note_failure(&self, config: BreakerConfig, failures_before: u32, now_ms: u64) {
        if config.failure_threshold > MAX_TIMED_FAILURES {
            return;
        }
        let times = self
            .failures_ms
            .get_or_init(|| (0..config.failure_threshold).map(|_| AtomicU64::new(0)).collect());
        times[(failures_before % config.failure_threshold) as usize]
            .store(now_ms, Ordering::Release);
    }

    /// Whether a run of `run` failures, the last one at `now_ms`, opens the breaker: its latest
    /// `failure_threshold` ones all lie within the window.
    fn run_is_over(&self, config: BreakerConfig, run: u32, now_ms: u64) -> bool {
        if run < config.failure_threshold {
            return false;
        }
        let Some(times) = self.failures_ms.get() else { return true };
        let oldest = (run % config.failure_threshold) as usize;
        now_ms.saturating_sub(times[oldest].load(Ordering::Acquire)) <= config.window_ms
    }
}

/// [`Breakers`] for a scan over many workers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    words: &'a [AtomicU64],
    breakers: &'a Breakers,
}

impl Reader<'_> {
    /// [`Breakers::allows`].
    #[inline]
    pub(crate) fn allows(&self, worker: WorkerId, now_ms: u64) -> bool {
        // Relaxed: an acquire would make the scan reload everything else after each worker. Only a
        // word that points to the slot's other fields orders anything.
        let word = Word(self.words[worker.slot as usize].load(Ordering::Relaxed));
        !word.needs_a_closer_look() || self.breakers.allows_guarded(worker, now_ms)
    }
}

/// One request on its way to a worker. [`Admission::settle`] tells how it ended; dropping it without
/// that counts as [`Outcome::Neutral`] and gives a probe back.
#[derive(Debug)]
#[must_use = "a probe that is not held is given back at once"]
pub struct Admission {
    /// The table, while this is its worker's probe.
    probed: Option<Breakers>,
    worker: WorkerId,
    /// Open → half-open, when this request is the first probe.
    pub transition: Option<Transition>,
}

impl Admission {
    /// Whether this request decides a half-open breaker.
    pub fn is_probe(&self) -> bool {
        self.probed.is_some()
    }

    /// Records the outcome; `breakers` is the table that admitted the request.
    pub fn settle(
        mut self,
        breakers: &Breakers,
        outcome: Outcome,
        now_ms: u64,
    ) -> Option<Transition> {
        let probe = self.probed.take().is_some();
        breakers.record(self.worker, probe, outcome, now_ms)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(breakers) = self.probed.take() {
            breakers.record(self.worker, true, Outcome::Neutral, 0);
        }
    }
}

/// One breaker packed in 64 bits: state (2), probe out (1), skipped (1), consecutive successful
/// probes (16, from bit 16), consecutive failures (32, from bit 32). All zero is closed and clean.
#[derive(Debug, Clone, Copy)]
struct Word(u64);

impl Word {
    const STATE: u64 = 0b11;
    const PROBING: u64 = 0b100;
    const SKIPPED: u64 = 0b1000;
    const SUCCESSES: u64 = 0xffff << 16;

    /// False for a closed breaker of a worker that is not skipped.
    fn needs_a_closer_look(self) -> bool {
        self.0 & (Self::STATE | Self::SKIPPED) != 0
    }

    fn state(self) -> BreakerState {
        match self.0 & Self::STATE {
            0 => BreakerState::Closed,
            1 => BreakerState::Open,
            _ => BreakerState::HalfOpen,
        }
    }

    fn probing(self) -> bool {
        self.0 & Self::PROBING != 0
    }

    fn skipped(self) -> bool {
        self.0 & Self::SKIPPED != 0
    }

    fn successes(self) -> u32 {
        ((self.0 & Self::SUCCESSES) >> 16) as u32
    }

    fn failures(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The word in another state: no probe out, no successes yet.
    fn in_state(self, state: BreakerState) -> Self {
        Self(self.0 & !(Self::STATE | Self::PROBING | Self::SUCCESSES) | state as u64)
    }

    fn with_probing(self, probing: bool) -> Self {
        Self(self.0 & !Self::PROBING | if probing { Self::PROBING } else { 0 })
    }

    fn with_skipped(self, skipped: bool) -> Self {
        Self(self.0 & !Self::SKIPPED | if skipped { Self::SKIPPED } else { 0 })
    }

    fn with_successes(self, successes: u32) -> Self {
        Self(self.0 & !Self::SUCCESSES | u64::from(successes.min(0xffff)) << 16)
    }

    fn with_failures(self, failures: u32) -> Self {
        Self(self.0 & 0xffff_ffff | u64::from(failures) << 32)
    }
}
