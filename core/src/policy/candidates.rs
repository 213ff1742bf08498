//! The fleet as one decision sees it, and who of it may be chosen.

use crate::breaker::Breakers;
use crate::fleet::{InFlight, WorkerId};
use crate::policy::loads::Loads;

/// Everything one decision may read about the fleet: one epoch of placement and loads from start to
/// end, plus the live counts.
#[derive(Debug, Clone, Copy)]
pub struct Candidates<'a> {
    /// [`crate::fleet::Placement::epoch`] that `ready` belongs to.
    pub epoch: u64,
    /// The model's ready workers, in order of registration.
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

impl<'a> Candidates<'a> {
    /// Settles, once per decision, whether workers already tried count: they do only when no other
    /// worker is eligible.
    pub fn eligible(self) -> Eligible<'a> {
        let lifted = !self.excluded.is_empty() && !self.any_untried();
        Eligible { all: self, lifted }
    }

    /// The workers that may be chosen, those already tried for this request included.
    pub fn ignoring_tried(self) -> Eligible<'a> {
        Eligible { all: self, lifted: true }
    }

    /// Whether somebody may be chosen who was not tried for this request: if not, a retry can only
    /// go back to a worker that failed.
    pub fn any_untried(&self) -> bool {
        self.ready.iter().any(|&worker| self.available(worker) && !self.excluded.contains(&worker))
    }

    /// Why [`Candidates::eligible`] is empty.
    pub fn why_none(&self) -> NoWorker {
        if !self.ready.is_empty() && self.ready.iter().all(|&w| self.loads.overloaded(w)) {
            NoWorker::Overloaded
        } else {
            NoWorker::Unavailable
        }
    }

    /// Breaker and overload protection allow a ready worker.
    #[inline]
    fn available(&self, worker: WorkerId) -> bool {
        self.breakers.allows(worker, self.now_ms) && !self.loads.overloaded(worker)
    }
}

/// The workers one decision may choose from.
#[derive(Debug, Clone, Copy)]
pub struct Eligible<'a> {
    all: Candidates<'a>,
    /// Nobody but workers already tried is left, so those are eligible again.
    lifted: bool,
}

impl<'a> Eligible<'a> {
    /// Whether `worker`, which must be one of `ready`, may be chosen.
    #[inline]
    pub fn allows(&self, worker: WorkerId) -> bool {
        self.all.available(worker) && (self.lifted || !self.all.excluded.contains(&worker))
    }

    /// The eligible workers, in order of registration.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = WorkerId> + 'a {
        self.all.ready.iter().copied().filter(move |&worker| self.allows(worker))
    }

    /// Requests in flight at `worker`.
    #[inline]
    pub fn in_flight(&self, worker: WorkerId) -> u32 {
        self.all.in_flight.get(worker)
    }

    /// Mean number of requests in flight over the eligible workers, 0 without any.
    pub fn mean_in_flight(self) -> f64 {
        let (count, sum) = self.iter().fold((0u64, 0u64), |(count, sum), worker| {
            (count + 1, sum + u64::from(self.in_flight(worker)))
        });
        if count == 0 { 0.0 } else { sum as f64 / count as f64 }
    }

    /// What the decision reads.
    pub fn candidates(&self) -> &Candidates<'a> {
        &self.all
    }
}
