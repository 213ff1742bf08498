//! What the owner of a model's decisions keeps between them: scratch space and a set of the ready
//! workers. Nothing in it changes what is decided.

use crate::fleet::WorkerId;
use crate::policy::candidates::{Candidates, Eligible};
use crate::policy::expected_wait::{Floor, Scored};

/// Reused by every decision of one model on one shard, so that a decision allocates nothing once the
/// vectors have grown to the fleet's size. Models may share one, at the price of deriving the set of
/// ready workers anew whenever they alternate.
#[derive(Debug, Default)]
pub struct PolicyState {
    pub(crate) ready: ReadySet,
    pub(crate) scored: Vec<Scored>,
    pub(crate) floor: Floor,
    pub(crate) workers: Vec<WorkerId>,
}

impl PolicyState {
    /// Who may be chosen, for any worker an index may name: also one of an earlier registration or
    /// one that is not ready now. This is what a tree asks when it picks eight of many holders.
    pub fn eligibility<'a>(&'a mut self, candidates: &Candidates<'a>) -> Eligibility<'a> {
        self.ready.refresh(candidates);
        Eligibility { ready: &self.ready, eligible: candidates.eligible() }
    }
}

/// [`Eligible`] for workers that may not even be ready.
#[derive(Debug, Clone, Copy)]
pub struct Eligibility<'a> {
    ready: &'a ReadySet,
    eligible: Eligible<'a>,
}

impl Eligibility<'_> {
    /// Whether `worker` may be chosen.
    #[inline]
    pub fn allows(&self, worker: WorkerId) -> bool {
        self.ready.contains(worker) && self.eligible.allows(worker)
    }
}

/// The ready workers of one placement epoch by slot, so that asking for one holder does not search
/// the fleet. Rebuilt when the epoch changes.
#[derive(Debug, Default)]
pub(crate) struct ReadySet {
    /// Epoch, address and length of the list it was built from. Epochs are never reused, so a list
    /// of the same epoch at the same place is the same list.
    source: Option<(u64, usize, usize)>,
    /// Generation + 1 of the ready worker in each slot, 0 for none.
    generations: Vec<u64>,
}

impl ReadySet {
    pub(crate) fn refresh(&mut self, candidates: &Candidates<'_>) {
        let ready = candidates.ready;
        let source = (candidates.epoch, ready.as_ptr() as usize, ready.len());
        if self.source == Some(source) {
            return;
        }
        self.generations.fill(0);
        for worker in ready {
            let slot = worker.slot as usize;
            if self.generations.len() <= slot {
                self.generations.resize(slot + 1, 0);
            }
            self.generations[slot] = u64::from(worker.generation) + 1;
        }
        self.source = Some(source);
    }

    #[inline]
    pub(crate) fn contains(&self, worker: WorkerId) -> bool {
        self.generations.get(worker.slot as usize) == Some(&(u64::from(worker.generation) + 1))
    }
}
