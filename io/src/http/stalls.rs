//! Workers whose hosts leave something unanswered right now: a connection that is being opened, or a
//! request that nobody has acknowledged. They may be gone or only slow; until that is known, requests
//! that come meanwhile are better off elsewhere.

use std::borrow::Cow;
use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use smg_core::fleet::{MAX_WORKERS, WorkerId};

use crate::shared::Shared;

/// Hosts answer within a round trip. One across an ocean, or a packet that is sent twice, comes close to
/// this; what it costs then is that a few requests go elsewhere.
pub const STALLED_AFTER: Duration = Duration::from_millis(250);

/// Workers avoided at a time: where more are silent it is this side's network.
const MOST: usize = 64;

/// How many stalls there are, over all shards.
pub struct Stalls {
    total: AtomicUsize,
    /// By slot: those of its latest registration.
    by_slot: Box<[AtomicU64]>,
}

/// The stalls of one registration, in one word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct OfSlot {
    generation: u32,
    count: u32,
}

impl OfSlot {
    fn from_word(word: u64) -> Self {
        Self { generation: (word >> 32) as u32, count: word as u32 }
    }

    fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.count)
    }
}

impl Default for Stalls {
    fn default() -> Self {
        let by_slot = (0..MAX_WORKERS).map(|_| AtomicU64::new(0)).collect();
        Self { total: AtomicUsize::new(0), by_slot }
    }
}

impl Stalls {
    fn begin(&self, worker: WorkerId) {
        self.total.fetch_add(1, Ordering::Relaxed);
        self.change(worker, |known| match known.generation.cmp(&worker.generation) {
            Less => Some(OfSlot { generation: worker.generation, count: 1 }),
            Equal => Some(OfSlot { count: known.count.saturating_add(1), ..known }),
            // Another has its slot by now.
            Greater => None,
        });
    }

    fn end(&self, worker: WorkerId) {
        self.total.fetch_sub(1, Ordering::Relaxed);
        self.change(worker, |known| {
            let is_same = known.generation == worker.generation;
            is_same.then(|| OfSlot { count: known.count.saturating_sub(1), ..known })
        });
    }

    fn change(&self, worker: WorkerId, change: impl Fn(OfSlot) -> Option<OfSlot>) {
        let change = |word| change(OfSlot::from_word(word)).map(OfSlot::word);
        // `None` leaves it as it is.
        let _ = self.by_slot[worker.slot as usize].fetch_update(
            Ordering::Relaxed,
            Ordering::Relaxed,
            change,
        );
    }

    fn are_of(&self, worker: WorkerId) -> bool {
        let word = self.by_slot[worker.slot as usize].load(Ordering::Relaxed);
        let known = OfSlot::from_word(word);
        known.generation == worker.generation && known.count > 0
    }

    /// Whom a request does not go to: the workers already `tried`, and beside them those among `ready`
    /// that have a stall, unless that leaves nobody who is `usable`. Costs one read while there is none.
    pub fn avoid<'a>(
        &self,
        ready: &[WorkerId],
        tried: &'a [WorkerId],
        usable: impl Fn(WorkerId) -> bool,
    ) -> Cow<'a, [WorkerId]> {
        if self.total.load(Ordering::Relaxed) == 0 {
            return Cow::Borrowed(tried);
        }
        let mut avoided: Vec<WorkerId> =
            ready.iter().copied().filter(|&id| self.are_of(id)).take(MOST + 1).collect();
        if avoided.is_empty() || avoided.len() > MOST {
            return Cow::Borrowed(tried);
        }
        avoided.extend_from_slice(tried);
        let is_left = |id: &WorkerId| !avoided.contains(id) && usable(*id);
        if ready.iter().any(is_left) { Cow::Owned(avoided) } else { Cow::Borrowed(tried) }
    }
}

/// One stall; dropping it ends it.
pub struct Stall {
    shared: Arc<Shared>,
    worker: WorkerId,
}

impl Stall {
    /// Something sent to `worker`'s host is unanswered.
    pub fn begin(shared: &Arc<Shared>, worker: WorkerId) -> Self {
        shared.stalls.begin(worker);
        Self { shared: shared.clone(), worker }
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.shared.stalls.end(self.worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(slot: u32) -> WorkerId {
        WorkerId { slot, generation: 0 }
    }

    /// With a stall of each of these slots.
    fn stalled(slots: impl IntoIterator<Item = u32>) -> Stalls {
        let stalls = Stalls::default();
        slots.into_iter().for_each(|slot| stalls.begin(worker(slot)));
        stalls
    }

    #[test]
    fn who_is_silent_is_avoided_beside_who_was_tried() {
        let ready = [worker(1), worker(2), worker(3)];
        assert_eq!(stalled([]).avoid(&ready, &[worker(1)], |_| true).as_ref(), [worker(1)]);
        assert_eq!(
            stalled([2]).avoid(&ready, &[worker(1)], |_| true).as_ref(),
            [worker(2), worker(1)]
        );
        // Of another model.
        assert_eq!(stalled([9]).avoid(&ready, &[], |_| true).as_ref(), []);
    }

    #[test]
    fn where_nobody_else_is_left_only_who_was_tried_is_avoided() {
        let ready = [worker(1), worker(2)];
        // One was tried and the other is silent: better a silent one than one that failed.
        assert_eq!(stalled([2]).avoid(&ready, &[worker(1)], |_| true).as_ref(), [worker(1)]);
        assert_eq!(stalled([1, 2]).avoid(&ready, &[], |_| true).as_ref(), []);
        // The third one is not to be used.
        let ready = [worker(1), worker(2), worker(3)];
        let usable = |id: WorkerId| id.slot != 3;
        assert_eq!(stalled([2]).avoid(&ready, &[worker(1)], usable).as_ref(), [worker(1)]);
    }

    #[test]
    fn where_most_of_a_fleet_is_silent_nobody_is_avoided() {
        let ready: Vec<WorkerId> = (0..100).map(worker).collect();
        assert_eq!(stalled(0..64).avoid(&ready, &[], |_| true).len(), 64);
        assert_eq!(stalled(0..65).avoid(&ready, &[], |_| true).as_ref(), []);
    }

    #[test]
    fn a_worker_does_not_inherit_the_silence_of_one_that_had_its_slot() {
        let (before, after) = (worker(2), WorkerId { slot: 2, generation: 1 });
        let ready = [worker(1), after];
        let stalls = stalled([2]);
        assert_eq!(stalls.avoid(&ready, &[], |_| true).as_ref(), []);
        // Its own counts, whatever becomes of the other's.
        stalls.begin(after);
        stalls.begin(before);
        stalls.end(before);
        stalls.end(before);
        assert_eq!(stalls.avoid(&ready, &[], |_| true).as_ref(), [after]);
        stalls.end(after);
        assert_eq!(stalls.avoid(&ready, &[], |_| true).as_ref(), []);
        assert_eq!(stalls.total.load(Ordering::Relaxed), 0);
    }
}
