//! The simulated fleet, its clients, and the checks.

use std::collections::BTreeMap;

use super::naive::{NaiveBreaker, NaiveReport, hot, scores};
use crate::breaker::{Admission, BreakerConfig, Breakers, Outcome};
use crate::fleet::{InFlight, InFlightGuard, WorkerId};
use crate::policy::cache_aware::{
    self, BlockMatch, CacheAwareConfig, HashLookup, TreeMatch, choose_by_blocks, choose_hashed,
    choose_under_pressure,
};
use crate::policy::load_report::{LoadReport, OverloadThresholds, RankLoad};
use crate::policy::ranking::Ranking;
use crate::policy::{
    Branch, Candidates, Choice, LoadTable, Loads, NoWorker, PolicyState, least_load, power_of_two,
};
use crate::rng::Rng;

const SLOTS: usize = 24;
const PREFIXES: usize = 120;
const MEAN_GAP_MS: usize = 14;
const REPORT_EVERY_MS: u64 = 10_000;
const OVERLOAD_WAITING: u32 = 40;
const MAX_ATTEMPTS: usize = 3;
/// Kinds of decision that rank holders by decay and temperature.
const RANKED: std::ops::Range<usize> = 7..12;

/// What happened, so that a run that never saw something fails.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub decisions: u64,
    branches: BTreeMap<&'static str, u64>,
    sheds: u64,
    nobody: u64,
    retries: u64,
    second_tries: u64,
    probes: u64,
    openings: u64,
    reports: u64,
    lost_reports: u64,
    removals: u64,
    returns: u64,
    kept_cool: u64,
}

impl Tally {
    pub(super) fn by_name(&self) -> Vec<(&'static str, u64)> {
        let branches = [
            Branch::TreeMatch,
            Branch::Spill,
            Branch::ExpectedWaitFallback,
            Branch::KvPressureExpectedWait,
            Branch::EventHit,
            Branch::EventSpill,
            Branch::EventMiss,
            Branch::HashHit,
            Branch::HashSpill,
            Branch::ShortRequest,
            Branch::Plain,
        ];
        let count = |branch: Branch| *self.branches.get(branch.as_str()).unwrap_or(&0);
        branches
            .iter()
            .map(|&branch| (branch.as_str(), count(branch)))
            .chain([
                ("sheds", self.sheds),
                ("nobody", self.nobody),
                ("retries", self.retries),
                ("second tries of a worker", self.second_tries),
                ("probes", self.probes),
                ("openings", self.openings),
                ("reports", self.reports),
                ("lost reports", self.lost_reports),
                ("removals", self.removals),
                ("returns", self.returns),
                ("holders passed over as hot", self.kept_cool),
            ])
            .collect()
    }
}

pub(super) struct World {
    rng: Rng,
    now_ms: u64,
    epoch: u64,
    ready: Vec<WorkerId>,
    slots: Vec<Slot>,
    in_flight: InFlight,
    breakers: Breakers,
    breaker_config: BreakerConfig,
    table: LoadTable,
    loads: Loads,
    overload: OverloadThresholds,
    state: PolicyState,
    config: CacheAwareConfig,
    /// Who holds each prefix, most recent first: the index of this world.
    holders: Vec<Vec<WorkerId>>,
    running: BTreeMap<(u64, u64), Running>,
    started: u64,
    pub digest: u64,
    pub tally: Tally,
}

/// One place in the fleet and the plain model of what is there.
struct Slot {
    generation: u32,
    registered: bool,
    healthy: bool,
    /// It fails most requests until then.
    sick_until_ms: u64,
    reports: bool,
    report_due_ms: u64,
    running: u32,
    breaker: NaiveBreaker,
    published: Option<NaiveReport>,
}

struct Running {
    slot: usize,
    generation: u32,
    outcome: Outcome,
    retry_after_ms: u64,
    admission: Admission,
    probe: bool,
    _guard: InFlightGuard,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let breaker_config = BreakerConfig {
            failure_threshold: 4,
            success_threshold: 2,
            timeout_ms: 5000,
            window_ms: 20_000,
            ..BreakerConfig::default()
        };
        let mut config = CacheAwareConfig::default();
        config.spill.abs = 3;
        config.kv_pressure.overload = 0.97;
        let slot = |at: usize| Slot {
            generation: 0,
            registered: true,
            healthy: true,
            sick_until_ms: 0,
            reports: at != 5,
            report_due_ms: at as u64 * 400,
            running: 0,
            breaker: NaiveBreaker::default(),
            published: None,
        };
        let mut world = Self {
            rng: Rng::new(seed),
            now_ms: 0,
            epoch: 0,
            ready: Vec::new(),
            slots: (0..SLOTS).map(slot).collect(),
            in_flight: InFlight::default(),
            breakers: Breakers::new(breaker_config),
            breaker_config,
            table: LoadTable::default(),
            loads: Loads::default(),
            overload: OverloadThresholds {
                waiting_requests: Some(OVERLOAD_WAITING),
                token_usage: None,
            },
            state: PolicyState::default(),
            config,
            holders: vec![Vec::new(); PREFIXES],
            running: BTreeMap::new(),
            started: 0,
            digest: 0,
            tally: Tally::default(),
        };
        world.publish_placement();
        world
    }

    /// Time passes, what is due happens, and one request arrives.
    pub(super) fn step(&mut self) {
        let flooded = self.is_flooded();
        self.now_ms += 1 + self.rng.below(2 * MEAN_GAP_MS) as u64;
        if flooded != self.is_flooded() {
            self.publish_placement();
        }
        self.end_requests();
        self.collect_reports();
        if self.rng.below(400) == 0 {
            self.churn();
        }
        self.check_counts();
        self.serve();
        self.check_counts();
    }

    fn end_requests(&mut self) {
        while let Some(entry) = self.running.first_entry() {
            if entry.key().0 > self.now_ms {
                break;
            }
            let request = entry.remove();
            self.settle(request);
        }
    }

    fn settle(&mut self, request: Running) {
        let slot = &mut self.slots[request.slot];
        slot.running -= 1;
        let worker = WorkerId { slot: request.slot as u32, generation: request.generation };
        let step = request.admission.settle(&self.breakers, request.outcome, self.now_ms);
        self.breakers.skip_for(worker, request.retry_after_ms, self.now_ms);
        assert_eq!(slot.generation, request.generation, "a slot waits for its last request");
        let config = &self.breaker_config;
        slot.breaker.settle(config, request.probe, request.outcome, self.now_ms);
        if request.retry_after_ms > 0 {
            slot.breaker.skip_for(request.retry_after_ms, self.now_ms);
        }
        let state = slot.breaker.state(config, self.now_ms);
        assert_eq!(self.breakers.view(worker, self.now_ms).state, state);
        self.tally.openings += u64::from(step.is_some() && state as u64 == 1);
    }

    /// Polls are staggered; what arrived is published together.
    fn collect_reports(&mut self) {
        let mut changed = false;
        for at in 0..SLOTS {
            let due = self.slots[at].reports && self.slots[at].report_due_ms <= self.now_ms;
            if !due || !self.slots[at].registered {
                continue;
            }
            changed = true;
            self.slots[at].report_due_ms += REPORT_EVERY_MS;
            let worker = self.worker(at);
            if self.rng.below(20) == 0 && !self.is_flooded() {
                self.table.clear(worker);
                self.slots[at].published = None;
                self.tally.lost_reports += 1;
                continue;
            }
            let rank = self.draw_rank(self.slots[at].running);
            let report = LoadReport { ranks: vec![rank] };
            self.table.enter(worker, report, &self.overload);
            self.slots[at].published = Some(NaiveReport { rank, credited_tokens: 0 });
            self.tally.reports += 1;
        }
        if changed {
            self.loads = self.table.publish();
        }
    }

    /// Once in a while everybody is overloaded, so that requests are shed.
    fn is_flooded(&self) -> bool {
        self.now_ms / 30_000 % 5 == 4
    }

    fn draw_rank(&mut self, running: u32) -> RankLoad {
        let waiting = match self.rng.below(30) {
            _ if self.is_flooded() => OVERLOAD_WAITING as usize,
            0 => OVERLOAD_WAITING as usize,
            n => n / 6,
        };
        RankLoad {
            running_requests: f64::from(running),
            waiting_requests: waiting as f64,
            waiting_uncached_tokens: (self.rng.below(4) * self.rng.below(3000)) as f64,
            gen_throughput: (self.rng.below(4) * 700) as f64,
            token_usage: (self.rng.unit() * 0.98 * 1000.0).round() / 1000.0,
            ..RankLoad::default()
        }
    }

    /// One change of the fleet.
    fn churn(&mut self) {
        let at = self.rng.below(SLOTS);
        match self.rng.below(5) {
            0 => self.slots[at].sick_until_ms = self.now_ms + 8000,
            1 if self.slots[at].registered => self.remove(at),
            2 | 3 => self.bring_back(at),
            _ => self.slots[at].healthy = !self.slots[at].healthy,
        }
        self.publish_placement();
    }

    fn remove(&mut self, at: usize) {
        let worker = self.worker(at);
        self.slots[at].registered = false;
        self.slots[at].published = None;
        self.table.clear(worker);
        self.loads = self.table.publish();
        for holders in &mut self.holders {
            holders.retain(|&holder| holder != worker);
        }
        self.tally.removals += 1;
    }

    /// Registers a removed worker again once its last request has ended, as a new registration.
    fn bring_back(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        slot.healthy = true;
        if slot.registered || slot.running > 0 {
            return;
        }
        slot.registered = true;
        slot.generation += 1;
        slot.report_due_ms = self.now_ms + 1000;
        slot.breaker = NaiveBreaker::default();
        let worker = self.worker(at);
        self.breakers.reset(worker);
        self.tally.returns += 1;
    }

    /// A worker that never reports cannot be overloaded: it is taken out while the others are.
    fn publish_placement(&mut self) {
        self.epoch += 1;
        let flooded = self.is_flooded();
        self.ready = (0..SLOTS)
            .filter(|&at| self.slots[at].registered && self.slots[at].healthy)
            .filter(|&at| self.slots[at].reports || !flooded)
            .map(|at| self.worker(at))
            .collect();
    }

    fn worker(&self, at: usize) -> WorkerId {
        WorkerId { slot: at as u32, generation: self.slots[at].generation }
    }

    /// One request with its retries.
    fn serve(&mut self) {
        let prefix = self.rng.below(self.rng.clone().below(PREFIXES) + 1);
        let mut tried = Vec::new();
        while tried.len() < MAX_ATTEMPTS {
            let Some(worker) = self.decide(prefix, &tried) else { return };
            self.tally.retries += u64::from(!tried.is_empty());
            self.tally.second_tries += u64::from(tried.contains(&worker));
            if self.dispatch(worker) {
                return;
            }
            tried.push(worker);
        }
    }

    /// Sends a request; false if it failed at once.
    fn dispatch(&mut self, worker: WorkerId) -> bool {
        let at = worker.slot as usize;
        let admission = self.breakers.admit(worker, self.now_ms).expect("an eligible worker");
        let probe = self.slots[at].breaker.admit();
        assert_eq!(admission.is_probe(), probe);
        self.tally.probes += u64::from(probe);
        let sick = self.now_ms < self.slots[at].sick_until_ms;
        let (outcome, retry_after_ms) = match self.rng.below(100) {
            0 => (Outcome::Failure, 0),
            n if sick && n < 80 => (Outcome::Failure, 0),
            1 => (Outcome::Neutral, 500 + self.rng.below(2500) as u64),
            2 => (Outcome::Neutral, 0),
            _ => (Outcome::Success, 0),
        };
        let lasts_ms = 1 + self.rng.below(4000) as u64;
        let request = Running {
            slot: at,
            generation: worker.generation,
            outcome,
            retry_after_ms,
            admission,
            probe,
            _guard: self.in_flight.begin(worker),
        };
        self.slots[at].running += 1;
        if outcome == Outcome::Failure {
            self.settle(request);
            return false;
        }
        self.started += 1;
        self.running.insert((self.now_ms + lasts_ms, self.started), request);
        true
    }

    /// The exact counts equal a recount, and credits equal what was sent since each report.
    fn check_counts(&self) {
        for (at, slot) in self.slots.iter().enumerate() {
            let worker = self.worker(at);
            assert_eq!(self.in_flight.get(worker), slot.running);
            let credited = slot.published.map_or(0, |report| report.credited_tokens);
            assert_eq!(self.loads.credited_tokens(worker), credited, "credit of {worker:?}");
        }
    }
}

/// Deciding, and checking the decision.
impl World {
    fn decide(&mut self, prefix: usize, tried: &[WorkerId]) -> Option<WorkerId> {
        self.tally.decisions += 1;
        let eligible = self.eligible(tried);
        let tokens = (self.rng.below(2) == 0).then(|| self.rng.below(3000) as u32);
        let kind = self.rng.below(20);
        let (decided, holders) = self.choose(prefix, tried, kind, tokens);
        let choice = match decided {
            Ok(choice) => choice,
            Err(reason) => {
                assert!(eligible.is_empty(), "somebody was eligible");
                let shed = reason == NoWorker::Overloaded;
                self.tally.sheds += u64::from(shed);
                self.tally.nobody += u64::from(!shed);
                return None;
            }
        };
        self.check_choice(choice, kind, &holders, prefix, &eligible);
        let worker = choice.worker;
        assert!(eligible.contains(&worker), "{worker:?} is not eligible");
        if let Some(report) = &mut self.slots[worker.slot as usize].published {
            report.credited_tokens += tokens.unwrap_or(1024);
        }
        let holders = &mut self.holders[prefix];
        holders.retain(|&holder| holder != worker);
        holders.insert(0, worker);
        holders.truncate(12);
        let fact = u64::from(worker.slot) << 32 | choice.branch as u64;
        self.digest = (self.digest ^ fact).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        *self.tally.branches.entry(choice.branch.as_str()).or_default() += 1;
        Some(worker)
    }

    /// Ready, not refused by the plain breaker, not overloaded by the published report; not tried
    /// unless nobody else is left.
    fn eligible(&self, tried: &[WorkerId]) -> Vec<WorkerId> {
        let may_serve = |worker: &WorkerId| {
            let slot = &self.slots[worker.slot as usize];
            let waiting = slot.published.map_or(0.0, |report| report.rank.waiting_requests);
            slot.breaker.allows(&self.breaker_config, self.now_ms)
                && waiting < f64::from(OVERLOAD_WAITING)
        };
        let all: Vec<WorkerId> = self.ready.iter().copied().filter(may_serve).collect();
        let fresh: Vec<WorkerId> =
            all.iter().copied().filter(|worker| !tried.contains(worker)).collect();
        if fresh.is_empty() { all } else { fresh }
    }

    /// The decision and the holders that were offered to it; `kind` says how it is made.
    fn choose(
        &mut self,
        prefix: usize,
        tried: &[WorkerId],
        kind: usize,
        tokens: Option<u32>,
    ) -> (Result<Choice, NoWorker>, Vec<WorkerId>) {
        let matched = self.rng.below(1001) as u64;
        let candidates = Candidates {
            epoch: self.epoch,
            ready: &self.ready,
            in_flight: &self.in_flight,
            breakers: &self.breakers,
            loads: &self.loads,
            excluded: tried,
            now_ms: self.now_ms,
        };
        let mut holders = self.holders[prefix].clone();
        // As the trees do it: eligible ones first, then the most recent, at most eight.
        let eligibility = self.state.eligibility(&candidates);
        holders.sort_by_key(|&holder| !eligibility.allows(holder));
        holders.truncate(8);
        let (state, rng) = (&mut self.state, &mut self.rng);
        let mut config = self.config;
        if RANKED.contains(&kind) {
            config.ranking = Ranking { overlap_decay: 0.5, temperature: 0.3 };
        }
        let config = &config;
        let decided = match kind {
            0 => power_of_two::choose(state, &candidates, tokens, rng),
            1 => {
                let scorer = crate::policy::expected_wait::Scorer::DEFAULT;
                least_load::choose(&scorer, state, &candidates, tokens, rng)
            }
            2 | 3 => {
                let held: Vec<(WorkerId, u32)> =
                    holders.iter().zip([5, 5, 3, 3, 3, 1, 0, 0]).map(|(&w, n)| (w, n)).collect();
                let found = BlockMatch { holders: &held, request_blocks: 6, block_size: 16 };
                choose_by_blocks(config, state, &candidates, &found, tokens, rng)
            }
            4 => {
                let lookup = HashLookup::<[(u32, Vec<WorkerId>); 0]>::ShortRequest;
                choose_hashed(config, state, &candidates, lookup, tokens, rng)
                    .map(|found| found.choice)
            }
            5 | 6 => {
                let (deep, shallow) = holders.split_at(holders.len().min(3));
                let lookup = HashLookup::Levels([(64, deep), (16, shallow)]);
                choose_hashed(config, state, &candidates, lookup, tokens, rng)
                    .map(|found| found.choice)
            }
            _ if cache_aware::under_pressure(config, &candidates) => {
                choose_under_pressure(state, &candidates, tokens, rng)
            }
            _ => {
                let found = TreeMatch {
                    matched_units: if holders.is_empty() { 0 } else { matched },
                    total_units: 1000,
                    holders: &holders,
                    units_are_chars: true,
                };
                let all = &self.holders[prefix];
                let holds = |worker| all.contains(&worker);
                cache_aware::choose(config, state, &candidates, &found, holds, tokens, rng)
            }
        };
        (decided, holders)
    }

    /// The hot rule, and that the scorer's choice is the best of the set it chose from.
    fn check_choice(
        &mut self,
        choice: Choice,
        kind: usize,
        holders: &[WorkerId],
        prefix: usize,
        eligible: &[WorkerId],
    ) {
        let counts: Vec<u32> = eligible.iter().map(|&w| self.in_flight.get(w)).collect();
        let spill = self.config.spill;
        let is_hot =
            |worker: WorkerId| hot(self.in_flight.get(worker), &counts, spill.abs, spill.rel);
        let cool: Vec<WorkerId> = eligible.iter().copied().filter(|&w| !is_hot(w)).collect();
        let cool_holders: Vec<WorkerId> =
            cool.iter().copied().filter(|worker| holders.contains(worker)).collect();
        let any_holder = eligible.iter().any(|worker| holders.contains(worker));
        let worker = choice.worker;
        let set = match choice.branch {
            Branch::Plain if kind == 0 => return,
            Branch::Plain
            | Branch::ExpectedWaitFallback
            | Branch::KvPressureExpectedWait
            | Branch::ShortRequest
            | Branch::EventMiss => eligible,
            Branch::TreeMatch | Branch::Spill => {
                let holds = self.holders[prefix].contains(&worker);
                assert_eq!(choice.branch == Branch::TreeMatch, holds);
                self.tally.kept_cool += u64::from(any_holder && cool_holders.is_empty());
                match (any_holder, cool_holders.is_empty()) {
                    (false, _) => eligible,
                    (true, false) if !RANKED.contains(&kind) => &cool_holders,
                    // Ranking leaves only some of the holders, and those may all be hot.
                    _ => &cool,
                }
            }
            _ => &cool,
        };
        assert!(set.contains(&worker), "{worker:?} is not in the set of {:?}", choice.branch);
        // What the other indexes' groups are is theirs to say.
        if RANKED.contains(&kind) || matches!(kind, 2 | 3 | 5 | 6) {
            return;
        }
        self.check_best(worker, set);
    }

    fn check_best(&self, chosen: WorkerId, set: &[WorkerId]) {
        let known: Vec<(Option<NaiveReport>, u32)> = set
            .iter()
            .map(|&w| (self.slots[w.slot as usize].published, self.in_flight.get(w)))
            .collect();
        let scores = scores(&known);
        let best = scores.iter().copied().fold(f64::INFINITY, f64::min);
        let at = set.iter().position(|&worker| worker == chosen).expect("chosen from the set");
        assert!(scores[at] <= best * (1.0 + 1e-9), "{} against {best}", scores[at]);
    }
}
