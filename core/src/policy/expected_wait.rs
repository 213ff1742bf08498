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
//! nobody reports, the fewest requests in flight win. Ties, equal up to rounding, are broken uniformly
//! at random.

use crate::fleet::WorkerId;
use crate::policy::candidates::Eligible;
use crate::policy::loads::{Loads, WorkerLoad};
use crate::rng::Rng;

use least::{Least, TIE};

mod least;
#[cfg(test)]
mod tests;

/// KV usage is clamped to this before `k / (1 − k)`.
pub const MAX_KV_USAGE: f64 = 0.999;

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

impl Scorer {
    /// The built-in constants, which `cache_aware` and `power_of_two` always use.
    pub const DEFAULT: Self = Self {
        kv_weight_secs: 0.15,
        mean_prefill_tokens: 1024,
        default_throughput: 2000.0,
        max_waiting_requests: 0,
    };

    /// The best of those in `set` that are eligible and that `also` accepts. `None` when nobody is,
    /// or everybody is at the waiting cap.
    pub fn pick(
        &self,
        eligible: &Eligible<'_>,
        set: &[WorkerId],
        also: impl FnMut(WorkerId) -> bool,
        rng: &mut Rng,
    ) -> Option<Scored> {
        self.scan(eligible, set, also, rng).0
    }

    /// The best of all eligible workers. Where idle workers or equal scores are common it takes one
    /// after a few draws, with the same chances as a scan would; else it is that scan.
    pub fn pick_any(
        &self,
        eligible: &Eligible<'_>,
        floor: &mut Floor,
        rng: &mut Rng,
    ) -> Option<Scored> {
        let ready = eligible.candidates().ready;
        if ready.len() > 4 * Floor::DRAWS
            && let Some(lucky) = self.try_luck(eligible, floor, rng)
        {
            return Some(lucky);
        }
        let (picked, lowest) = self.scan(eligible, ready, |_| true, rng);
        floor.note(eligible, self, lowest);
        picked
    }

    /// Credits the chosen worker; `tokens` if the request's token IDs are known.
    pub fn credit(&self, loads: &Loads, worker: WorkerId, tokens: Option<u32>) {
        loads.credit(worker, tokens.unwrap_or(self.mean_prefill_tokens));
    }

    /// Expected wait of a worker with a report, in seconds.
    pub fn score(&self, load: &WorkerLoad, credited_tokens: u32) -> f64 {
        let queued = if load.uncached_tokens > 0.0 {
            load.uncached_tokens
        } else {
            f64::from(load.waiting_requests) * f64::from(self.mean_prefill_tokens)
        };
        let k = load.kv_usage.clamp(0.0, MAX_KV_USAGE);
        let alone = queued / self.throughput(load) + self.kv_weight_secs * (k / (1.0 - k));
        alone + f64::from(credited_tokens) * self.secs_per_token(load)
    }

    /// What one more token adds to the score.
    pub fn secs_per_token(&self, load: &WorkerLoad) -> f64 {
        1.0 / self.throughput(load)
    }

    fn throughput(&self, load: &WorkerLoad) -> f64 {
        if load.throughput > 0.0 { load.throughput } else { self.default_throughput }
    }

    /// Scores of all of `set` as one decision over it sees them, in its order. For explanations; a
    /// decision does not list scores.
    pub fn explain(&self, eligible: &Eligible<'_>, set: &[WorkerId]) -> Vec<Scored> {
        let loads = eligible.candidates().loads;
        let secs = |&worker: &WorkerId| self.secs(loads, worker);
        let best = set.iter().filter_map(secs).filter(|secs| secs.is_finite()).reduce(f64::min);
        let throughputs = || {
            let reports = set.iter().filter_map(|&worker| loads.get(worker));
            reports.map(|load| load.throughput).filter(|&throughput| throughput > 0.0)
        };
        let nominal = match throughputs().count() {
            0 => self.default_throughput,
            count => throughputs().sum::<f64>() / count as f64,
        };
        let score = |&worker: &WorkerId| {
            let in_flight = f64::from(eligible.in_flight(worker));
            let score = match (self.secs(loads, worker), best) {
                (Some(secs), _) => secs,
                (None, Some(best)) => {
                    best + in_flight * f64::from(self.mean_prefill_tokens) / nominal
                }
                (None, None) => in_flight,
            };
            Scored { worker, score }
        };
        set.iter().map(score).collect()
    }

    /// Score of `worker` if it reported; infinite if it is vetoed or at the waiting cap.
    fn secs(&self, loads: &Loads, worker: WorkerId) -> Option<f64> {
        let load = loads.get(worker)?;
        let waiting = || load.waiting_requests.saturating_add(loads.credited_requests(worker));
        let at_cap = self.max_waiting_requests > 0 && waiting() >= self.max_waiting_requests;
        Some(if load.overloaded || at_cap {
            f64::INFINITY
        } else {
            self.score(load, loads.credited_tokens(worker))
        })
    }

    fn try_luck(&self, eligible: &Eligible<'_>, floor: &Floor, rng: &mut Rng) -> Option<Scored> {
        let all = eligible.candidates();
        let nobody_reports = all.loads.reader().is_empty();
        let lowest = if nobody_reports { 0.0 } else { floor.get(eligible, self)? };
        (0..Floor::DRAWS).find_map(|_| {
            let worker = all.ready[rng.below(all.ready.len())];
            let score = match nobody_reports {
                true => f64::from(eligible.in_flight(worker)),
                false => self.secs(all.loads, worker)?,
            };
            let best = score <= lowest * (1.0 + TIE) && eligible.allows(worker);
            best.then_some(Scored { worker, score })
        })
    }

    /// The best of `set`, and the lowest score among all that report, eligible or not: `None` if
    /// somebody does not report.
    fn scan(
        &self,
        eligible: &Eligible<'_>,
        set: &[WorkerId],
        also: impl FnMut(WorkerId) -> bool,
        rng: &mut Rng,
    ) -> (Option<Scored>, Option<f64>) {
        let loads = eligible.candidates().loads;
        if *self == Self::DEFAULT {
            let reader = loads.reader();
            let alone = |worker, silent: &mut bool| reader.secs_alone(worker, silent);
            scan_by(eligible, set, alone, |worker| reader.wait_secs(worker), also, rng)
        } else {
            let secs = |worker| self.secs(loads, worker);
            let alone = |worker, silent: &mut bool| {
                let secs = secs(worker);
                *silent |= secs.is_none();
                secs.unwrap_or(f64::INFINITY)
            };
            scan_by(eligible, set, alone, secs, also, rng)
        }
    }
}

/// Two loops rather than one, so that each has few enough variables for the registers: those who
/// report, and, if anybody does not, those who do not.
///
/// A worker without a report scores the best reporting one's score plus a term that grows with its
/// requests in flight. So next to a reporting worker it ties when it is idle and loses when it is
/// not, whatever the nominal throughput.
///
/// `secs_alone` is `secs` without the credit, which only adds to it, and says whether it is `None`.
#[inline]
fn scan_by(
    eligible: &Eligible<'_>,
    set: &[WorkerId],
    secs_alone: impl Fn(WorkerId, &mut bool) -> f64,
    secs: impl Fn(WorkerId) -> Option<f64>,
    mut also: impl FnMut(WorkerId) -> bool,
    rng: &mut Rng,
) -> (Option<Scored>, Option<f64>) {
    let mut any_silent = eligible.candidates().loads.reader().is_empty();
    let mut reporting = Least::below(f64::MAX);
    if !any_silent {
        let bound = |worker| secs_alone(worker, &mut any_silent);
        let key = |worker| secs(worker).unwrap_or(f64::INFINITY);
        reporting.find(set, bound, key, |w| eligible.allows_silent(w) && also(w), rng);
    }
    if !any_silent {
        let picked = reporting.found().map(|(at, score)| Scored { worker: set[at], score });
        return (picked, Some(reporting.lowest()));
    }
    let mut silent = Least::below(if reporting.count() > 0 { 0 } else { u32::MAX });
    let may_serve = |w| eligible.allows_silent(w) && secs(w).is_none() && also(w);
    let in_flight = |worker| eligible.in_flight(worker);
    silent.find(set, in_flight, in_flight, may_serve, rng);
    let picked = match (reporting.found(), silent.found()) {
        (None, None) => None,
        (None, Some((at, in_flight))) => Some((at, f64::from(in_flight))),
        (Some(best), None) => Some(best),
        (Some((at, score)), Some((silent_at, _))) => {
            let drawn = rng.below(reporting.count() + silent.count());
            Some((if drawn < reporting.count() { at } else { silent_at }, score))
        }
    };
    (picked.map(|(at, score)| Scored { worker: set[at], score }), None)
}

/// A lower bound of every score in the fleet, kept from one full scan to the next.
///
/// While everybody reports, scores only grow until the next report: the lowest one of a scan bounds
/// all later ones from below. A worker drawn at random that is eligible and has that score is
/// therefore a uniform draw among all that tie for the best. An idle fleet, or one whose queues
/// fill evenly, needs no scan that way.
#[derive(Debug, Default)]
pub struct Floor {
    source: Option<Source>,
    secs: f64,
}

/// The placement, loads and scorer a bound belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Source {
    placement: u64,
    loads: u64,
    ready_at: usize,
    ready_len: usize,
    scorer: Scorer,
}

impl Source {
    fn of(eligible: &Eligible<'_>, scorer: &Scorer) -> Self {
        let all = eligible.candidates();
        Self {
            placement: all.epoch,
            loads: all.loads.number(),
            ready_at: all.ready.as_ptr() as usize,
            ready_len: all.ready.len(),
            scorer: *scorer,
        }
    }
}

impl Floor {
    const DRAWS: usize = 4;

    fn get(&self, eligible: &Eligible<'_>, scorer: &Scorer) -> Option<f64> {
        (self.source == Some(Source::of(eligible, scorer))).then_some(self.secs)
    }

    fn note(&mut self, eligible: &Eligible<'_>, scorer: &Scorer, lowest: Option<f64>) {
        // Nobody was below the scan's first bar: everybody is vetoed or at the cap.
        let lowest = lowest.filter(|&secs| secs < f64::MAX);
        self.source = lowest.map(|_| Source::of(eligible, scorer));
        self.secs = lowest.unwrap_or(0.0);
    }
}
