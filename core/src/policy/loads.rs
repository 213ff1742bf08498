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
use crate::policy::load_report::{LoadReport, OverloadThresholds};

/// KV usage is clamped to this before `k / (1 − k)`.
pub const MAX_KV_USAGE: f64 = 0.999;

/// One immutable epoch of load reports. `Loads::default()` is a fleet that reports nothing.
#[derive(Debug, Clone, Default)]
pub struct Loads {
    /// By slot.
    entries: Arc<[Entry]>,
    /// Mean KV usage by slot, apart because only the KV pressure check reads it.
    kv_usage: Arc<[f64]>,
    credits: Option<Credits>,
}

/// What decisions read of one worker's report.
#[derive(Debug, Clone, Copy)]
struct Entry {
    generation: u32,
    /// 0: no report.
    sequence: u32,
    load: WorkerLoad,
}

/// One worker's report, reduced to what the scorer reads. All numbers are finite and not negative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkerLoad {
    /// Waiting uncached tokens over all ranks.
    pub uncached_tokens: f64,
    /// Tokens per second over all ranks, 0 if not reported.
    pub throughput: f64,
    /// `k / (1 − k)` of the mean KV usage k, k clamped to [0, [`MAX_KV_USAGE`]].
    pub kv_barrier: f64,
    /// Waiting requests over all ranks.
    pub waiting_requests: u32,
    /// Overload protection vetoes the worker.
    pub overloaded: bool,
}

impl Entry {
    const NONE: Self = Self {
        generation: 0,
        sequence: 0,
        load: WorkerLoad {
            uncached_tokens: 0.0,
            throughput: 0.0,
            kv_barrier: 0.0,
            waiting_requests: 0,
            overloaded: false,
        },
    };
}

impl Loads {
    /// The latest report of `worker` in this epoch.
    #[inline]
    pub fn get(&self, worker: WorkerId) -> Option<&WorkerLoad> {
        self.entry(worker).map(|entry| &entry.load)
    }

    /// Mean KV usage over `worker`'s ranks, if it reported.
    pub fn kv_usage(&self, worker: WorkerId) -> Option<f64> {
        self.entry(worker)?;
        self.kv_usage.get(worker.slot as usize).copied()
    }

    /// Whether overload protection vetoes `worker`. A worker without a report is never vetoed.
    #[inline]
    pub fn overloaded(&self, worker: WorkerId) -> bool {
        self.get(worker).is_some_and(|load| load.overloaded)
    }

    /// The report of `worker` and the tokens credited since.
    #[inline]
    pub(crate) fn with_credit(&self, worker: WorkerId) -> Option<(&WorkerLoad, u32)> {
        let entry = self.entry(worker)?;
        let tokens =
            self.credits.as_ref().map_or(0, |credits| credits.tokens.since(worker, entry.sequence));
        Some((&entry.load, tokens))
    }

    /// Tokens credited to `worker` since its report, 0 without one.
    pub fn credited_tokens(&self, worker: WorkerId) -> u32 {
        self.with_credit(worker).map_or(0, |(_, tokens)| tokens)
    }

    /// Requests credited to `worker` since its report, 0 without one.
    pub fn credited_requests(&self, worker: WorkerId) -> u32 {
        match (self.entry(worker), &self.credits) {
            (Some(entry), Some(credits)) => credits.requests.since(worker, entry.sequence),
            _ => 0,
        }
    }

    /// Credits `worker` with one request of `tokens`. Does nothing without a report: nobody would
    /// read that credit, and the report to come resets it.
    pub fn credit(&self, worker: WorkerId, tokens: u32) {
        if let (Some(entry), Some(credits)) = (self.entry(worker), &self.credits) {
            credits.tokens.add(worker, entry.sequence, tokens);
            credits.requests.add(worker, entry.sequence, 1);
        }
    }

    #[inline]
    fn entry(&self, worker: WorkerId) -> Option<&Entry> {
        self.entries
            .get(worker.slot as usize)
            .filter(|entry| entry.generation == worker.generation && entry.sequence != 0)
    }
}

/// The control plane's side: the reports of all workers, and the source of epochs.
#[derive(Debug)]
pub struct LoadTable {
    entries: Vec<Entry>,
    kv_usage: Vec<f64>,
    /// Last sequence number each slot used. Survives registrations: a successor's first report
    /// follows its predecessor's last.
    sequences: Vec<u32>,
    reports: Vec<Option<LoadReport>>,
    credits: Credits,
}

impl Default for LoadTable {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            kv_usage: Vec::new(),
            sequences: Vec::new(),
            reports: Vec::new(),
            credits: Credits { tokens: CreditTable::new(), requests: CreditTable::new() },
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
        if self.entries.len() <= slot {
            self.entries.resize(slot + 1, Entry::NONE);
            self.kv_usage.resize(slot + 1, 0.0);
            self.sequences.resize(slot + 1, 0);
            self.reports.resize(slot + 1, None);
        }
        // 0 means no report, so the sequence skips it when it wraps.
        let sequence = self.sequences[slot].wrapping_add(1).max(1);
        let kv_usage = report.kv_usage();
        let clamped = kv_usage.clamp(0.0, MAX_KV_USAGE);
        self.sequences[slot] = sequence;
        self.kv_usage[slot] = kv_usage;
        self.entries[slot] = Entry {
            generation: worker.generation,
            sequence,
            load: WorkerLoad {
                uncached_tokens: report.waiting_uncached_tokens(),
                throughput: report.throughput(),
                kv_barrier: clamped / (1.0 - clamped),
                waiting_requests: report.waiting_requests(),
                overloaded: overload.verdict(&report),
            },
        };
        self.reports[slot] = Some(report);
    }

    /// Forgets the report of `worker`: its poll failed, it is not ready any more or it was removed.
    pub fn clear(&mut self, worker: WorkerId) {
        let slot = worker.slot as usize;
        if self.get(worker).is_some() {
            self.entries[slot] = Entry::NONE;
            self.kv_usage[slot] = 0.0;
            self.reports[slot] = None;
        }
    }

    /// The whole report of `worker`, rank by rank.
    pub fn get(&self, worker: WorkerId) -> Option<&LoadReport> {
        let entry = self.entries.get(worker.slot as usize)?;
        (entry.generation == worker.generation)
            .then(|| self.reports[worker.slot as usize].as_ref())
            .flatten()
    }

    /// Whether overload protection vetoes `worker`.
    pub fn overloaded(&self, worker: WorkerId) -> bool {
        self.get(worker).is_some() && self.entries[worker.slot as usize].load.overloaded
    }

    /// The reports as an epoch: copies 56 bytes per slot in use, so publish once per batch of
    /// arrivals, not once per worker.
    pub fn publish(&self) -> Loads {
        Loads {
            entries: self.entries.as_slice().into(),
            kv_usage: self.kv_usage.as_slice().into(),
            credits: Some(self.credits.clone()),
        }
    }
}

#[derive(Debug, Clone)]
struct Credits {
    tokens: CreditTable,
    requests: CreditTable,
}

/// An amount per slot, each stored with the report sequence it belongs to: sequence in the high half,
/// amount in the low half, saturating.
#[derive(Debug, Clone)]
struct CreditTable(Arc<[AtomicU64]>);

impl CreditTable {
    fn new() -> Self {
        Self((0..MAX_WORKERS).map(|_| AtomicU64::new(0)).collect())
    }

    /// The amount credited since report `sequence` or a later one.
    #[inline]
    fn since(&self, worker: WorkerId, sequence: u32) -> u32 {
        let word = self.0[worker.slot as usize].load(Ordering::Relaxed);
        if is_older((word >> 32) as u32, sequence) { 0 } else { word as u32 }
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
        let load = loads.get(A).unwrap();
        assert_eq!((load.uncached_tokens, load.throughput), (700.0, 2000.0));
        assert_eq!((load.waiting_requests, load.overloaded), (2, true));
        // k = 0.45.
        assert!((load.kv_barrier - 0.45 / 0.55).abs() < 1e-12);
        assert_eq!(loads.kv_usage(A), Some(0.45));
        assert!(loads.overloaded(A) && table.overloaded(A));
        assert_eq!(table.get(A), Some(&report));
    }

    #[test]
    fn a_full_cache_is_clamped() {
        let mut table = LoadTable::default();
        enter(&mut table, A, rank().usage(1.0));
        enter(&mut table, B, rank().usage(7.0));
        let loads = table.publish();
        for worker in [A, B] {
            let barrier = loads.get(worker).unwrap().kv_barrier;
            assert!((barrier - 999.0).abs() < 1e-9, "{barrier}");
        }
    }

    #[test]
    fn nobody_reports_by_default() {
        let loads = Loads::default();
        loads.credit(A, 1000);
        assert_eq!((loads.get(A), loads.kv_usage(A)), (None, None));
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
        assert_eq!(credits.since(A, 1), u32::MAX);
        credits.add(B, u32::MAX, 5);
        assert_eq!(credits.since(B, u32::MAX), 5);
        assert_eq!(credits.since(B, 1), 0, "1 follows u32::MAX");
        credits.add(B, 1, 6);
        assert_eq!(credits.since(B, 1), 6);
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
