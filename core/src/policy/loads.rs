//! Load reports as decisions read them, and the credits that bridge the time between two reports.
//!
//! The control plane keeps a [`LoadTable`], enters each report as it arrives and publishes an
//! immutable [`Loads`]; a decision reads one from start to end.
//!
//! **Credits.** Between two reports a worker is credited with the tokens sent to it, so that a burst
//! spreads. A report must reset the credit of exactly the workers it covers, at the moment decisions
//! begin to see it. So nobody resets anything: each report of a slot carries the slot's next sequence
//! number, a credit is stored together with the sequence it belongs to, and a credit of an older
//! sequence counts as zero. Publishing the epoch is the reset. The credits are atomics in one table
//! that all epochs share, because several shards may send to one worker. A shard that still decides
//! by the older epoch adds to the newer credit: its request is not in the new report either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fleet::{MAX_WORKERS, WorkerId};
use crate::policy::expected_wait::Scorer;
use crate::policy::load_report::{LoadReport, OverloadThresholds};

/// One immutable epoch of load reports. `Loads::default()` is a fleet that reports nothing.
#[derive(Debug, Clone, Default)]
pub struct Loads {
    number: u64,
    any_vetoed: bool,
    /// By slot.
    waits: Arc<[Wait]>,
    /// By slot, for everything but the scan of a miss.
    loads: Arc<[WorkerLoad]>,
    credits: Credits,
}

/// What the scan of a miss reads of one worker's report, and nothing else: a fleet of thousands stays
/// in the nearest caches.
#[derive(Debug, Clone, Copy)]
struct Wait {
    generation: u32,
    /// 0: no report.
    sequence: u32,
    /// [`Scorer::DEFAULT`]'s score of the report alone; infinite if overload protection vetoes the
    /// worker.
    secs: f64,
    /// What one credited token adds to it.
    secs_per_token: f64,
}

/// One worker's report, reduced to what decisions read. All numbers are finite and not negative.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WorkerLoad {
    /// Waiting uncached tokens over all ranks.
    pub uncached_tokens: f64,
    /// Tokens per second over all ranks, 0 if not reported.
    pub throughput: f64,
    /// Mean KV usage over the ranks.
    pub kv_usage: f64,
    /// Waiting requests over all ranks.
    pub waiting_requests: u32,
    /// Overload protection vetoes the worker.
    pub overloaded: bool,
}

impl Wait {
    const NONE: Self = Self { generation: 0, sequence: 0, secs: 0.0, secs_per_token: 0.0 };
}

impl Loads {
    /// The latest report of `worker` in this epoch.
    pub fn get(&self, worker: WorkerId) -> Option<&WorkerLoad> {
        wait(&self.waits, worker).and_then(|_| self.loads.get(worker.slot as usize))
    }

    /// Whether overload protection vetoes `worker`. A worker without a report is never vetoed.
    #[inline]
    pub fn overloaded(&self, worker: WorkerId) -> bool {
        self.reader().vetoes(worker)
    }

    /// Whether overload protection vetoes anybody.
    #[inline]
    pub(crate) fn any_vetoed(&self) -> bool {
        self.any_vetoed
    }

    /// Tokens credited to `worker` since its report, 0 without one.
    pub fn credited_tokens(&self, worker: WorkerId) -> u32 {
        wait(&self.waits, worker)
            .map_or(0, |wait| since(&self.credits.tokens.0, worker, wait.sequence))
    }

    /// Requests credited to `worker` since its report, 0 without one.
    pub fn credited_requests(&self, worker: WorkerId) -> u32 {
        wait(&self.waits, worker)
            .map_or(0, |wait| since(&self.credits.requests.0, worker, wait.sequence))
    }

    /// Credits `worker` with one request of `tokens`. Does nothing without a report: nobody would
    /// read that credit, and the report to come resets it.
    pub fn credit(&self, worker: WorkerId, tokens: u32) {
        if let Some(wait) = wait(&self.waits, worker) {
            self.credits.tokens.add(worker, wait.sequence, tokens);
            self.credits.requests.add(worker, wait.sequence, 1);
        }
    }

    /// Number of this epoch, 0 for one without reports. Not repeated by a table.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The epoch resolved once, for scans.
    #[inline]
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { waits: &self.waits, tokens: &self.credits.tokens.0 }
    }
}

/// [`Loads`] for a scan over many workers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    waits: &'a [Wait],
    tokens: &'a [AtomicU64],
}

impl Reader<'_> {
    /// Whether there is no report at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// [`Loads::overloaded`].
    #[inline]
    pub(crate) fn vetoes(&self, worker: WorkerId) -> bool {
        wait(self.waits, worker).is_some_and(|wait| wait.secs == f64::INFINITY)
    }

    /// [`Scorer::DEFAULT`]'s score of `worker` without its credit; infinite if the worker is vetoed
    /// or did not report, and then `silent` is set if it did not.
    #[inline]
    pub(crate) fn secs_alone(&self, worker: WorkerId, silent: &mut bool) -> f64 {
        let wait = self.waits.get(worker.slot as usize).unwrap_or(&Wait::NONE);
        let reported = (wait.generation == worker.generation) & (wait.sequence != 0);
        *silent |= !reported;
        // Without a branch, which would be mispredicted where reports are missing here and there.
        std::hint::select_unpredictable(reported, wait.secs, f64::INFINITY)
    }

    /// [`Scorer::DEFAULT`]'s score of `worker`, credit included; infinite if the worker is vetoed,
    /// `None` if it did not report.
    #[inline]
    pub(crate) fn wait_secs(&self, worker: WorkerId) -> Option<f64> {
        let wait = wait(self.waits, worker)?;
        let tokens = since(self.tokens, worker, wait.sequence);
        Some(wait.secs + f64::from(tokens) * wait.secs_per_token)
    }
}

#[inline]
fn wait(waits: &[Wait], worker: WorkerId) -> Option<&Wait> {
    waits
        .get(worker.slot as usize)
        .filter(|wait| wait.generation == worker.generation && wait.sequence != 0)
}

/// The control plane's side: the reports of all workers, and the source of epochs.
#[derive(Debug)]
pub struct LoadTable {
    waits: Vec<Wait>,
    loads: Vec<WorkerLoad>,
    /// Last sequence number each slot used. Survives registrations: a successor's first report
    /// follows its predecessor's last.
    sequences: Vec<u32>,
    reports: Vec<Option<LoadReport>>,
    credits: Credits,
    published: u64,
}

impl Default for LoadTable {
    fn default() -> Self {
        Self {
            waits: Vec::new(),
            loads: Vec::new(),
            sequences: Vec::new(),
            reports: Vec::new(),
            credits: Credits { tokens: CreditTable::new(), requests: CreditTable::new() },
            published: 0,
        }
    }
}

impl LoadTable {
    /// Enters a report that has just arrived. A report without ranks is no report.
    pub fn enter(&mut self, worker: WorkerId, report: LoadReport, overload: &OverloadThresholds) {
        if report.ranks.is_empty() {
            return self.clear(worker);
        }
        let slot = worker.slot as usize;
        if slot >= MAX_WORKERS {
            return;
        }
        if self.waits.len() <= slot {
            self.waits.resize(slot + 1, Wait::NONE);
            self.loads.resize(slot + 1, WorkerLoad::default());
            self.sequences.resize(slot + 1, 0);
            self.reports.resize(slot + 1, None);
        }
        let load = WorkerLoad {
            uncached_tokens: report.waiting_uncached_tokens(),
            throughput: report.throughput(),
            kv_usage: report.kv_usage(),
            waiting_requests: report.waiting_requests(),
            overloaded: overload.verdict(&report),
        };
        // 0 means no report, so the sequence skips it when it wraps.
        let sequence = self.sequences[slot].wrapping_add(1).max(1);
        let scorer = Scorer::DEFAULT;
        self.sequences[slot] = sequence;
        self.loads[slot] = load;
        self.waits[slot] = Wait {
            generation: worker.generation,
            sequence,
            secs: if load.overloaded { f64::INFINITY } else { scorer.score(&load, 0) },
            secs_per_token: scorer.secs_per_token(&load),
        };
        self.reports[slot] = Some(report);
    }

    /// Forgets the report of `worker`: its poll failed, it is not ready any more or it was removed.
    pub fn clear(&mut self, worker: WorkerId) {
        let slot = worker.slot as usize;
        if self.get(worker).is_some() {
            self.waits[slot] = Wait::NONE;
            self.loads[slot] = WorkerLoad::default();
            self.reports[slot] = None;
        }
    }

    /// The whole report of `worker`, rank by rank.
    pub fn get(&self, worker: WorkerId) -> Option<&LoadReport> {
        wait(&self.waits, worker)?;
        self.reports[worker.slot as usize].as_ref()
    }

    /// Whether overload protection vetoes `worker`.
    pub fn overloaded(&self, worker: WorkerId) -> bool {
        self.get(worker).is_some() && self.loads[worker.slot as usize].overloaded
    }

    /// The reports as an epoch. Copies 64 bytes per slot in use, so publish once per batch of
    /// arrivals, not once per worker.
    pub fn publish(&mut self) -> Loads {
        self.published += 1;
        Loads {
            number: self.published,
            any_vetoed: self.loads.iter().any(|load| load.overloaded),
            waits: self.waits.as_slice().into(),
            loads: self.loads.as_slice().into(),
            credits: self.credits.clone(),
        }
    }
}

/// Empty by default, as in an epoch without reports.
#[derive(Debug, Clone, Default)]
struct Credits {
    tokens: CreditTable,
    requests: CreditTable,
}

/// An amount per slot, each stored with the report sequence it belongs to: sequence in the high half,
/// amount in the low half, saturating.
#[derive(Debug, Clone, Default)]
struct CreditTable(Arc<[AtomicU64]>);

impl CreditTable {
    fn new() -> Self {
        Self((0..MAX_WORKERS).map(|_| AtomicU64::new(0)).collect())
    }

    fn add(&self, worker: WorkerId, sequence: u32, amount: u32) {
        let cell = &self.0[worker.slot as usize];
        let mut word = cell.load(Ordering::Relaxed);
        loop {
            let stored = (word >> 32) as u32;
            let (sequence, sum) = if is_older(stored, sequence) {
                (sequence, amount)
            } else {
                (stored, (word as u32).saturating_add(amount))
            };
            let next = u64::from(sequence) << 32 | u64::from(sum);
            match cell.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(current) => word = current,
            }
        }
    }
}

/// The amount credited since report `sequence` or a later one.
#[inline]
fn since(credits: &[AtomicU64], worker: WorkerId, sequence: u32) -> u32 {
    let Some(cell) = credits.get(worker.slot as usize) else { return 0 };
    let word = cell.load(Ordering::Relaxed);
    if is_older((word >> 32) as u32, sequence) { 0 } else { word as u32 }
}

/// Whether sequence `a` was given out before `b`, across a wrap.
fn is_older(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fake_fleet::rank;
    use crate::policy::load_report::RankLoad;

    const A: WorkerId = WorkerId { slot: 0, generation: 0 };
    const B: WorkerId = WorkerId { slot: 3, generation: 0 };

    fn enter(table: &mut LoadTable, worker: WorkerId, rank: RankLoad) {
        table.enter(worker, LoadReport { ranks: vec![rank] }, &OverloadThresholds::default());
    }

    #[test]
    fn an_entry_is_the_report_reduced() {
        let mut table = LoadTable::default();
        let report = LoadReport {
            ranks: vec![rank().tokens(600.0).usage(0.9), rank().tokens(100.0).waiting(2.0)],
        };
        let overload = OverloadThresholds { waiting_requests: Some(2), token_usage: None };
        table.enter(A, report.clone(), &overload);
        let loads = table.publish();
        let load = WorkerLoad {
            uncached_tokens: 700.0,
            throughput: 2000.0,
            kv_usage: 0.45,
            waiting_requests: 2,
            overloaded: true,
        };
        assert_eq!(loads.get(A), Some(&load));
        assert!(loads.overloaded(A) && table.overloaded(A));
        assert_eq!(table.get(A), Some(&report));
    }

    #[test]
    fn nobody_reports_by_default() {
        let loads = Loads::default();
        loads.credit(A, 1000);
        assert_eq!((loads.get(A), loads.number()), (None, 0));
        assert_eq!((loads.overloaded(A), loads.credited_tokens(A)), (false, 0));
    }

    #[test]
    fn a_report_belongs_to_one_registration() {
        let mut table = LoadTable::default();
        let successor = WorkerId { generation: 1, ..A };
        enter(&mut table, A, rank());
        assert!(table.publish().get(A).is_some());
        assert!(table.publish().get(successor).is_none());
        table.clear(successor);
        assert!(table.publish().get(A).is_some(), "clearing another registration does nothing");
        table.clear(A);
        assert!(table.publish().get(A).is_none() && table.get(A).is_none());
        table.clear(B);
    }

    #[test]
    fn a_report_without_ranks_is_a_failed_poll() {
        let mut table = LoadTable::default();
        enter(&mut table, A, rank());
        table.enter(A, LoadReport::default(), &OverloadThresholds::default());
        assert!(table.publish().get(A).is_none());
    }

    #[test]
    fn a_report_resets_the_credit_of_the_workers_it_covers_and_only_theirs() {
        let mut table = LoadTable::default();
        enter(&mut table, A, rank());
        enter(&mut table, B, rank());
        let first = table.publish();
        first.credit(A, 1024);
        first.credit(A, 76);
        first.credit(B, 10);
        assert_eq!((first.credited_tokens(A), first.credited_requests(A)), (1100, 2));
        enter(&mut table, A, rank());
        assert_eq!(first.credited_tokens(A), 1100, "not before the report is published");
        let second = table.publish();
        assert_eq!((second.credited_tokens(A), second.credited_requests(A)), (0, 0));
        assert_eq!((second.credited_tokens(B), second.credited_requests(B)), (10, 1));
    }

    #[test]
    fn a_shard_on_the_older_epoch_adds_to_the_newer_credit() {
        let mut table = LoadTable::default();
        enter(&mut table, A, rank());
        let older = table.publish();
        older.credit(A, 500);
        enter(&mut table, A, rank());
        let newer = table.publish();
        newer.credit(A, 30);
        assert_eq!(newer.credited_tokens(A), 30);
        // Sent after the report too, by somebody who has not seen it yet.
        older.credit(A, 4);
        assert_eq!((newer.credited_tokens(A), older.credited_tokens(A)), (34, 34));
    }

    #[test]
    fn a_gap_in_the_reports_keeps_no_credit() {
        let mut table = LoadTable::default();
        enter(&mut table, A, rank());
        table.publish().credit(A, 500);
        table.clear(A);
        let silent = table.publish();
        silent.credit(A, 500);
        assert_eq!(silent.credited_tokens(A), 0);
        enter(&mut table, A, rank());
        assert_eq!(table.publish().credited_tokens(A), 0);
    }

    #[test]
    fn a_successor_in_the_slot_starts_without_its_predecessors_credit() {
        let mut table = LoadTable::default();
        enter(&mut table, A, rank());
        table.publish().credit(A, 500);
        table.clear(A);
        let successor = WorkerId { generation: 1, ..A };
        enter(&mut table, successor, rank());
        assert_eq!(table.publish().credited_tokens(successor), 0);
    }

    #[test]
    fn credits_saturate_and_sequences_wrap() {
        let credits = CreditTable::new();
        credits.add(A, 1, u32::MAX - 1);
        credits.add(A, 1, 7);
        assert_eq!(since(&credits.0, A, 1), u32::MAX);
        credits.add(B, u32::MAX, 5);
        assert_eq!(since(&credits.0, B, u32::MAX), 5);
        assert_eq!(since(&credits.0, B, 1), 0, "1 follows u32::MAX");
        credits.add(B, 1, 6);
        assert_eq!(since(&credits.0, B, 1), 6);
    }

    #[test]
    fn several_threads_lose_no_credit() {
        let mut table = LoadTable::default();
        enter(&mut table, A, rank());
        let loads = table.publish();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5000).for_each(|_| loads.credit(A, 3)));
            }
        });
        assert_eq!((loads.credited_tokens(A), loads.credited_requests(A)), (60_000, 20_000));
    }
}
