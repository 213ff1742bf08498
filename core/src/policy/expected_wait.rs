//! The expected-wait scorer: which of some workers will start a request soonest.
//!
//! ```text
//! score = (queued + credited) / throughput + weight · k / (1 − k)        seconds
//! ```
//!
//! queued: waiting uncached tokens, else waiting requests × the mean prompt; credited: tokens sent
//! since the report; throughput: as reported, else nominal; k: mean KV usage (routing.md §5).
//!
//! A worker without a report scores as the best reporting one of the same set plus its own requests
//! in flight × mean prompt / nominal throughput: it neither attracts everything nor starves. When
//! nobody reports, the fewest requests in flight win. Exact ties are broken uniformly at random.

use crate::fleet::WorkerId;
use crate::policy::candidates::Eligible;
use crate::policy::loads::{Loads, WorkerLoad};
use crate::rng::Rng;

/// Constants of the scorer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scorer {
    /// Seconds per unit of `k / (1 − k)`. Finite, not negative.
    pub kv_weight_secs: f64,
    /// Tokens of a request whose length is not known, at least 1.
    pub mean_prefill_tokens: u32,
    /// Tokens per second of a worker that reports none. Finite, above 0.
    pub default_throughput: f64,
    /// Workers with this many requests waiting, reported or sent since, are passed over; 0 is off.
    pub max_waiting_requests: u32,
}

impl Scorer {
    /// The built-in constants, which `cache_aware` and `power_of_two` always use.
    pub const DEFAULT: Self = Self {
        kv_weight_secs: 0.15,
        mean_prefill_tokens: 1024,
        default_throughput: 2000.0,
        max_waiting_requests: 0,
    };
}

impl Default for Scorer {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A worker and its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scored {
    pub worker: WorkerId,
    /// Seconds of expected wait; requests in flight when nobody in the set reports.
    pub score: f64,
}

/// Scratch space: the workers that tie for the best score so far.
#[derive(Debug, Default)]
pub struct Ties {
    reporting: Vec<WorkerId>,
    silent: Vec<WorkerId>,
}

impl Scorer {
    /// The best of `set`, all of whom are eligible. `None` when the set is empty or everybody in it
    /// is at the waiting cap.
    pub fn pick(
        &self,
        eligible: &Eligible<'_>,
        set: impl Iterator<Item = WorkerId>,
        ties: &mut Ties,
        rng: &mut Rng,
    ) -> Option<Scored> {
        let loads = eligible.candidates().loads;
        let mut best = Best::new(ties);
        for worker in set {
            match loads.with_credit(worker) {
                Some((load, credited)) => {
                    if !self.at_cap(loads, worker, load) {
                        best.reporting(worker, self.score(load, credited), load.throughput);
                    }
                }
                None => best.silent(worker, eligible.in_flight(worker)),
            }
        }
        best.draw(self, rng)
    }

    /// Credits the chosen worker; `tokens` if the request's token IDs are known.
    pub fn credit(&self, loads: &Loads, worker: WorkerId, tokens: Option<u32>) {
        loads.credit(worker, tokens.unwrap_or(self.mean_prefill_tokens));
    }

    /// Expected wait of a worker with a report, in seconds.
    #[inline]
    pub fn score(&self, load: &WorkerLoad, credited_tokens: u32) -> f64 {
        let queued = if load.uncached_tokens > 0.0 {
            load.uncached_tokens
        } else {
            f64::from(load.waiting_requests) * f64::from(self.mean_prefill_tokens)
        };
        let throughput =
            if load.throughput > 0.0 { load.throughput } else { self.default_throughput };
        (queued + f64::from(credited_tokens)) / throughput + self.kv_weight_secs * load.kv_barrier
    }

    /// Scores of all of `set` as one decision over it sees them, in its order. For explanations; a
    /// decision does not list scores.
    pub fn explain(&self, eligible: &Eligible<'_>, set: &[WorkerId]) -> Vec<Scored> {
        let loads = eligible.candidates().loads;
        let mut ties = Ties::default();
        let mut best = Best::new(&mut ties);
        for &worker in set {
            if let Some((load, credited)) = loads.with_credit(worker) {
                best.reporting(worker, self.score(load, credited), load.throughput);
            }
        }
        let reference = best.reference(self);
        let score = |&worker: &WorkerId| Scored {
            worker,
            score: match (loads.with_credit(worker), reference) {
                (Some((load, credited)), _) => self.score(load, credited),
                (None, reference) => self.silent_score(eligible.in_flight(worker), reference),
            },
        };
        set.iter().map(score).collect()
    }

    /// Score of a worker without a report; `reference` is the best reporting peer's score and the
    /// nominal throughput, if anybody reports.
    fn silent_score(&self, in_flight: u32, reference: Option<(f64, f64)>) -> f64 {
        match reference {
            Some((best, nominal)) => {
                best + f64::from(in_flight) * f64::from(self.mean_prefill_tokens) / nominal
            }
            None => f64::from(in_flight),
        }
    }

    fn at_cap(&self, loads: &Loads, worker: WorkerId, load: &WorkerLoad) -> bool {
        self.max_waiting_requests > 0
            && load.waiting_requests.saturating_add(loads.credited_requests(worker))
                >= self.max_waiting_requests
    }
}

/// The running result of one scan. Ties are collected and drawn from once at the end: that costs a
/// random number per decision, not one per tied worker of an idle fleet.
struct Best<'t> {
    ties: &'t mut Ties,
    score: f64,
    in_flight: u32,
    throughput_sum: f64,
    throughput_count: u32,
}

impl<'t> Best<'t> {
    fn new(ties: &'t mut Ties) -> Self {
        ties.reporting.clear();
        ties.silent.clear();
        Self {
            ties,
            score: f64::INFINITY,
            in_flight: u32::MAX,
            throughput_sum: 0.0,
            throughput_count: 0,
        }
    }

    #[inline]
    fn reporting(&mut self, worker: WorkerId, score: f64, throughput: f64) {
        if throughput > 0.0 {
            self.throughput_sum += throughput;
            self.throughput_count += 1;
        }
        if score < self.score || self.ties.reporting.is_empty() {
            self.score = score;
            self.ties.reporting.clear();
            self.ties.reporting.push(worker);
        } else if score == self.score {
            self.ties.reporting.push(worker);
        }
    }

    #[inline]
    fn silent(&mut self, worker: WorkerId, in_flight: u32) {
        if in_flight < self.in_flight || self.ties.silent.is_empty() {
            self.in_flight = in_flight;
            self.ties.silent.clear();
            self.ties.silent.push(worker);
        } else if in_flight == self.in_flight {
            self.ties.silent.push(worker);
        }
    }

    /// Best score of a reporting worker, and the nominal throughput.
    fn reference(&self, scorer: &Scorer) -> Option<(f64, f64)> {
        let nominal = match self.throughput_count {
            0 => scorer.default_throughput,
            count => self.throughput_sum / f64::from(count),
        };
        (!self.ties.reporting.is_empty()).then_some((self.score, nominal))
    }

    fn draw(self, scorer: &Scorer, rng: &mut Rng) -> Option<Scored> {
        let reference = self.reference(scorer);
        let Ties { reporting, silent } = &*self.ties;
        // Of workers without a report the one with the fewest in flight scores best, so the others
        // need no score.
        let silent_score = scorer.silent_score(self.in_flight, reference);
        let (score, first, second): (f64, &[WorkerId], &[WorkerId]) = match reference {
            None => (silent_score, silent, &[]),
            Some((best, _)) if !silent.is_empty() && silent_score == best => {
                (best, reporting, silent)
            }
            Some((best, _)) => (best, reporting, &[]),
        };
        let count = first.len() + second.len();
        let drawn = if count > 1 { rng.below(count) } else { 0 };
        let worker = *first.get(drawn).or_else(|| second.get(drawn - first.len()))?;
        Some(Scored { worker, score })
    }
}

#[cfg(test)]
mod tests;
