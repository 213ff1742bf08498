//! The fleet as one decision sees it, and who of it may be chosen.

use crate::breaker::{self, Breakers};
use crate::fleet::{InFlight, WorkerId};
use crate::policy::Branch;
use crate::policy::loads::{self, Loads};

/// Everything one decision may read about the fleet: one epoch of placement and loads from start to
/// end, plus the live counts.
#[derive(Debug, Clone, Copy)]
pub struct Candidates<'a> {
    /// [`crate::fleet::Placement::epoch`] that `ready` belongs to.
    pub epoch: u64,
    /// The model's ready workers, in order of registration: the epoch's own list. What was derived
    /// from a list is kept until the epoch or the list's address changes, so a buffer that is
    /// filled anew within an epoch will not do.
    pub ready: &'a [WorkerId],
    /// Requests in flight per worker.
    pub in_flight: &'a InFlight,
    /// Breakers and `Retry-After`.
    pub breakers: &'a Breakers,
    /// Load reports and overload verdicts.
    pub loads: &'a Loads,
    /// Workers already tried for this request.
    pub excluded: &'a [WorkerId],
    /// Monotonic time.
    pub now_ms: u64,
}

/// Why no worker could be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoWorker {
    /// There are ready workers and overload protection vetoes every one: 503
    /// `worker_overload_protection_shed`.
    Overloaded,
    /// Anything else: 503 `no_available_workers`.
    Unavailable,
    /// The request named a target worker that is not there: 503 `no_available_workers`, branch
    /// `target_worker_miss`.
    NoSuchTarget,
}

impl NoWorker {
    /// Branch of the policies that count decisions for nobody: `manual`, `prefix_hash` and
    /// `consistent_hashing`.
    pub fn branch(self) -> Branch {
        match self {
            Self::NoSuchTarget => Branch::TargetWorkerMiss,
            Self::Overloaded | Self::Unavailable => Branch::NoHealthyWorkers,
        }
    }
}

impl<'a> Candidates<'a> {
    /// Settles, once per decision, whether workers already tried count: they do only when no other
    /// worker is eligible.
    pub fn eligible(self) -> Eligible<'a> {
        let strict = self.except(self.excluded);
        if self.excluded.is_empty() || strict.iter().next().is_some() {
            strict
        } else {
            self.except(&[])
        }
    }

    /// The workers that may be chosen, those already tried for this request included.
    pub fn ignoring_tried(self) -> Eligible<'a> {
        self.except(&[])
    }

    /// Whether somebody may be chosen who was not tried for this request: if not, a retry can only
    /// go back to a worker that failed.
    pub fn any_untried(self) -> bool {
        self.except(self.excluded).iter().next().is_some()
    }

    /// Why [`Candidates::eligible`] is empty.
    pub fn why_none(&self) -> NoWorker {
        if !self.ready.is_empty() && self.ready.iter().all(|&w| self.loads.overloaded(w)) {
            NoWorker::Overloaded
        } else {
            NoWorker::Unavailable
        }
    }

    fn except(self, tried: &'a [WorkerId]) -> Eligible<'a> {
        let everyone = tried.is_empty() && self.breakers.allow_all() && !self.loads.any_vetoed();
        let (breakers, loads) = (self.breakers.reader(), self.loads.reader());
        Eligible { everyone, breakers, loads, tried, all: self }
    }
}

/// The workers one decision may choose from.
#[derive(Debug, Clone, Copy)]
pub struct Eligible<'a> {
    all: Candidates<'a>,
    /// All of `ready` are, known without a look at each.
    everyone: bool,
    breakers: breaker::Reader<'a>,
    loads: loads::Reader<'a>,
    /// Workers already tried, unless nobody else is left.
    tried: &'a [WorkerId],
}

impl<'a> Eligible<'a> {
    /// Whether `worker`, which must be one of `ready`, may be chosen.
    #[inline]
    pub fn allows(&self, worker: WorkerId) -> bool {
        self.everyone || (self.allows_silent(worker) && !self.loads.vetoes(worker))
    }

    /// [`Eligible::allows`] for a worker that no report can veto.
    #[inline]
    pub(crate) fn allows_silent(&self, worker: WorkerId) -> bool {
        self.everyone
            || (self.breakers.allows(worker, self.all.now_ms) && !self.tried.contains(&worker))
    }

    /// The eligible workers, in order of registration.
    pub fn iter(self) -> impl Iterator<Item = WorkerId> + 'a {
        self.all.ready.iter().copied().filter(move |&worker| self.allows(worker))
    }

    /// Lists them, in order of registration.
    pub fn list(self, into: &mut Vec<WorkerId>) {
        into.clear();
        // A plain loop: `iter` in `extend` is not inlined, and this is a scan of the fleet.
        for &worker in self.all.ready {
            if self.allows(worker) {
                into.push(worker);
            }
        }
    }

    /// How many there are.
    pub fn count(self) -> usize {
        if self.everyone {
            return self.all.ready.len();
        }
        let mut count = 0;
        for &worker in self.all.ready {
            count += usize::from(self.allows(worker));
        }
        count
    }

    /// The one at position `at` of [`Eligible::list`].
    pub(crate) fn nth(self, at: usize) -> Option<WorkerId> {
        if self.everyone { self.all.ready.get(at).copied() } else { self.iter().nth(at) }
    }

    /// Requests in flight at `worker`.
    #[inline]
    pub fn in_flight(&self, worker: WorkerId) -> u32 {
        self.all.in_flight.get(worker)
    }

    /// Mean number of requests in flight over the eligible workers, 0 without any.
    pub fn mean_in_flight(self) -> f64 {
        let (mut count, mut sum) = (0u64, 0u64);
        for &worker in self.all.ready {
            if self.allows(worker) {
                count += 1;
                sum += u64::from(self.in_flight(worker));
            }
        }
        if count == 0 { 0.0 } else { sum as f64 / count as f64 }
    }

    /// What the decision reads.
    pub fn candidates(&self) -> &Candidates<'a> {
        &self.all
    }
}
