//! Workers whose hosts leave something unanswered right now: a connection that is being opened, or a
//! request that nobody has acknowledged. They may be gone or only slow; until that is known, requests
//! that come meanwhile are better off elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use smg_core::fleet::{MAX_WORKERS, WorkerId};

use crate::shared::Shared;

/// Hosts answer within a round trip. One across an ocean, or a packet that is sent twice, comes close to
/// this; what it costs then is that a few requests go elsewhere.
pub const STALLED_AFTER: Duration = Duration::from_millis(250);

/// How many stalls there are, over all shards.
pub struct Stalls {
    total: AtomicUsize,
    /// By slot: of a worker that is gone they soon end.
    by_slot: Box<[AtomicU32]>,
}

impl Default for Stalls {
    fn default() -> Self {
        let by_slot = (0..MAX_WORKERS).map(|_| AtomicU32::new(0)).collect();
        Self { total: AtomicUsize::new(0), by_slot }
    }
}

impl Stalls {
    /// Those of `workers` that have one. Costs one read while there is none.
    pub fn of<'a>(&self, workers: impl Iterator<Item = &'a WorkerId>) -> Vec<WorkerId> {
        if self.total.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let stalls = |id: &&WorkerId| self.by_slot[id.slot as usize].load(Ordering::Relaxed) > 0;
        workers.filter(stalls).copied().collect()
    }
}

/// One stall; dropping it ends it.
pub struct Stall {
    shared: Arc<Shared>,
    slot: usize,
}

impl Stall {
    /// Something sent to `worker` is unanswered.
    pub fn begin(shared: &Arc<Shared>, worker: WorkerId) -> Self {
        let slot = worker.slot as usize;
        shared.stalls.by_slot[slot].fetch_add(1, Ordering::Relaxed);
        shared.stalls.total.fetch_add(1, Ordering::Relaxed);
        Self { shared: shared.clone(), slot }
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.shared.stalls.total.fetch_sub(1, Ordering::Relaxed);
        self.shared.stalls.by_slot[self.slot].fetch_sub(1, Ordering::Relaxed);
    }
}
