//! What an engine has done, readable from any thread while it runs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use crate::engine::{Counters, Load};

/// One engine's cells. Only the engines' thread writes them.
#[derive(Debug, Default)]
pub struct EngineStats {
    received: AtomicU64,
    open: AtomicU64,
    most_open: AtomicU64,
    admitted: AtomicU64,
    finished: AtomicU64,
    cancelled: AtomicU64,
    refused: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    generated_tokens: AtomicU64,
    preemptions: AtomicU64,
    busy_ns: AtomicU64,
    running: AtomicU64,
    waiting: AtomicU64,
    used_blocks: AtomicU64,
    total_blocks: AtomicU64,
}

/// The cells' values at one moment; each is exact, together they may be one event apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineSnapshot {
    /// Inference requests read from the wire, and how many of them are not answered yet.
    pub received: u64,
    pub open: u64,
    /// The most that were ever open at once.
    pub most_open: u64,
    pub admitted: u64,
    pub finished: u64,
    pub cancelled: u64,
    pub refused: u64,
    /// Prompt tokens of admitted requests, and how many of them were cached.
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    pub preemptions: u64,
    pub busy_ns: u64,
    pub running: u64,
    pub waiting: u64,
    pub used_blocks: u64,
    pub total_blocks: u64,
}

impl EngineStats {
    pub fn snapshot(&self) -> EngineSnapshot {
        EngineSnapshot {
            received: self.received.load(Relaxed),
            open: self.open.load(Relaxed),
            most_open: self.most_open.load(Relaxed),
            admitted: self.admitted.load(Relaxed),
            finished: self.finished.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            refused: self.refused.load(Relaxed),
            prompt_tokens: self.prompt_tokens.load(Relaxed),
            cached_tokens: self.cached_tokens.load(Relaxed),
            generated_tokens: self.generated_tokens.load(Relaxed),
            preemptions: self.preemptions.load(Relaxed),
            busy_ns: self.busy_ns.load(Relaxed),
            running: self.running.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            used_blocks: self.used_blocks.load(Relaxed),
            total_blocks: self.total_blocks.load(Relaxed),
        }
    }

    /// Counts the most that are open at once from now on.
    pub(super) fn count_most_open_anew(&self) {
        self.most_open.store(self.open.load(Relaxed), Relaxed);
    }

    pub(super) fn publish(&self, counters: &Counters, load: &Load) {
        self.admitted.store(counters.admitted, Relaxed);
        self.finished.store(counters.finished, Relaxed);
        self.cancelled.store(counters.cancelled, Relaxed);
        self.refused.store(counters.refused, Relaxed);
        self.prompt_tokens.store(counters.prompt_tokens, Relaxed);
        self.cached_tokens.store(counters.cached_tokens, Relaxed);
        self.generated_tokens.store(counters.generated_tokens, Relaxed);
        self.preemptions.store(counters.preemptions, Relaxed);
        self.busy_ns.store(counters.busy_ns, Relaxed);
        self.running.store(u64::from(load.running), Relaxed);
        self.waiting.store(u64::from(load.waiting), Relaxed);
        self.used_blocks.store(u64::from(load.used_blocks), Relaxed);
        self.total_blocks.store(u64::from(load.total_blocks), Relaxed);
    }
}

/// Counts one inference request as open until dropped, whatever ends it.
pub(super) struct OpenRequest<'a>(&'a EngineStats);

impl<'a> OpenRequest<'a> {
    pub fn new(stats: &'a EngineStats) -> Self {
        // Plain load and store: there is one writer.
        stats.received.store(stats.received.load(Relaxed) + 1, Relaxed);
        let open = stats.open.load(Relaxed) + 1;
        stats.open.store(open, Relaxed);
        if open > stats.most_open.load(Relaxed) {
            stats.most_open.store(open, Relaxed);
        }
        Self(stats)
    }
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        self.0.open.store(self.0.open.load(Relaxed) - 1, Relaxed);
    }
}
