//! A fleet for tests: workers in slots 0.., all ready, with settable counts, reports and breakers.

use crate::breaker::{BreakerConfig, Breakers, Outcome};
use crate::fleet::{InFlight, InFlightGuard, WorkerId};
use crate::policy::candidates::Candidates;
use crate::policy::load_report::{LoadReport, OverloadThresholds, RankLoad};
use crate::policy::loads::{LoadTable, Loads};

pub(crate) struct FakeFleet {
    pub epoch: u64,
    pub ready: Vec<WorkerId>,
    pub in_flight: InFlight,
    pub breakers: Breakers,
    pub table: LoadTable,
    pub loads: Loads,
    pub excluded: Vec<WorkerId>,
    pub overload: OverloadThresholds,
    pub now_ms: u64,
    held: Vec<Vec<InFlightGuard>>,
}

impl FakeFleet {
    pub fn new(workers: usize) -> Self {
        Self {
            epoch: 1,
            ready: (0..workers as u32).map(|slot| WorkerId { slot, generation: 0 }).collect(),
            in_flight: InFlight::default(),
            breakers: Breakers::new(BreakerConfig {
                failure_threshold: 1,
                ..BreakerConfig::default()
            }),
            table: LoadTable::default(),
            loads: Loads::default(),
            excluded: Vec::new(),
            overload: OverloadThresholds::default(),
            now_ms: 1000,
            held: (0..workers).map(|_| Vec::new()).collect(),
        }
    }

    pub fn worker(&self, index: usize) -> WorkerId {
        self.ready[index]
    }

    pub fn set_in_flight(&mut self, index: usize, count: u32) {
        let worker = self.ready[index];
        let held = &mut self.held[index];
        held.truncate(count as usize);
        while held.len() < count as usize {
            held.push(self.in_flight.begin(worker));
        }
    }

    pub fn report(&mut self, index: usize, ranks: &[RankLoad]) {
        let report = LoadReport { ranks: ranks.to_vec() };
        self.table.enter(self.ready[index], report, &self.overload);
        self.loads = self.table.publish();
    }

    pub fn open_breaker(&mut self, index: usize) {
        let admission = self.breakers.admit(self.ready[index], self.now_ms).unwrap();
        admission.settle(&self.breakers, Outcome::Failure, self.now_ms).unwrap();
    }

    pub fn candidates(&self) -> Candidates<'_> {
        Candidates {
            epoch: self.epoch,
            ready: &self.ready,
            in_flight: &self.in_flight,
            breakers: &self.breakers,
            loads: &self.loads,
            excluded: &self.excluded,
            now_ms: self.now_ms,
        }
    }
}

/// An idle rank with a throughput of 1,000 tokens per second.
pub(crate) fn rank() -> RankLoad {
    RankLoad { gen_throughput: 1000.0, ..RankLoad::default() }
}

impl RankLoad {
    pub fn tokens(self, waiting_uncached_tokens: f64) -> Self {
        Self { waiting_uncached_tokens, ..self }
    }

    pub fn waiting(self, waiting_requests: f64) -> Self {
        Self { waiting_requests, ..self }
    }

    pub fn usage(self, token_usage: f64) -> Self {
        Self { token_usage, ..self }
    }

    pub fn throughput(self, gen_throughput: f64) -> Self {
        Self { gen_throughput, ..self }
    }
}

/// Five standard deviations around the mean of a binomial count: missed by chance about once in two
/// million runs, and never by a fixed seed that once passed.
pub(crate) fn binomial_bounds(draws: usize, share: f64) -> (usize, usize) {
    let mean = draws as f64 * share;
    let margin = 5.0 * (mean * (1.0 - share)).sqrt() + 1.0;
    ((mean - margin).max(0.0) as usize, (mean + margin) as usize)
}
