//! What one shard counts per worker.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use smg_core::breaker::Outcome;
use smg_core::fleet::{MAX_WORKERS, WorkerId};

use crate::metrics::Counter;

/// Workers whose cells are made together, once one of them is counted.
const CHUNK: usize = 256;

/// Counts per worker. Only one shard writes them.
pub struct WorkerCells(Box<[OnceLock<Box<[Cells]>>]>);

/// Counts of the registration of a slot that was counted last.
#[derive(Default)]
struct Cells {
    generation: AtomicU32,
    outcomes: [Counter; WorkerCells::OUTCOMES.len()],
}

impl WorkerCells {
    /// Outcomes that are counted.
    pub const OUTCOMES: [Outcome; 2] = [Outcome::Success, Outcome::Failure];

    /// Counts how an attempt at a worker ended.
    pub fn count_outcome(&self, worker: WorkerId, outcome: Outcome) {
        let Some(at) = Self::OUTCOMES.iter().position(|&counted| counted == outcome) else {
            return;
        };
        let slot = worker.slot as usize;
        let chunk =
            self.0[slot / CHUNK].get_or_init(|| (0..CHUNK).map(|_| Cells::default()).collect());
        let cells = &chunk[slot % CHUNK];
        let known = cells.generation.load(Ordering::Relaxed);
        if known != worker.generation {
            // A request of an earlier registration that ends late is nobody's any more.
            if worker.generation.wrapping_sub(known) > u32::MAX / 2 {
                return;
            }
            cells.outcomes.iter().for_each(Counter::reset);
            cells.generation.store(worker.generation, Ordering::Release);
        }
        cells.outcomes[at].inc();
    }

    /// Counts of [`WorkerCells::OUTCOMES`] of one registration.
    pub(super) fn outcomes(&self, worker: WorkerId) -> [u64; Self::OUTCOMES.len()] {
        let slot = worker.slot as usize;
        let cells = self.0[slot / CHUNK].get().map(|chunk| &chunk[slot % CHUNK]);
        match cells {
            Some(cells) if cells.generation.load(Ordering::Acquire) == worker.generation => {
                cells.outcomes.each_ref().map(Counter::get)
            }
            _ => [0; Self::OUTCOMES.len()],
        }
    }
}

impl Default for WorkerCells {
    fn default() -> Self {
        Self((0..MAX_WORKERS.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_in_the_slot_begins_at_zero() {
        let cells = WorkerCells::default();
        let worker = |generation| WorkerId { slot: 300, generation };
        assert_eq!(cells.outcomes(worker(0)), [0, 0]);
        for outcome in [Outcome::Success, Outcome::Failure, Outcome::Neutral, Outcome::Success] {
            cells.count_outcome(worker(0), outcome);
        }
        assert_eq!(cells.outcomes(worker(0)), [2, 1]);
        cells.count_outcome(worker(1), Outcome::Failure);
        cells.count_outcome(worker(0), Outcome::Success);
        assert_eq!((cells.outcomes(worker(1)), cells.outcomes(worker(0))), ([0, 1], [0, 0]));
        assert_eq!(cells.outcomes(WorkerId { slot: 301, generation: 0 }), [0, 0]);
        let last = WorkerId { slot: MAX_WORKERS as u32 - 1, generation: 0 };
        cells.count_outcome(last, Outcome::Success);
        assert_eq!(cells.outcomes(last), [1, 0]);
    }
}
