//! One simulated gateway: what its decisions read, and the decision.

use std::time::Duration;

use smg_core::breaker::{Admission, Breakers, Outcome};
use smg_core::fleet::{InFlight, InFlightGuard, ModelId, WorkerId};
use smg_core::policy::cache_aware::CacheAwareConfig;
use smg_core::policy::consistent_hashing::{self, HashedRequest};
use smg_core::policy::expected_wait::Scorer;
use smg_core::policy::load_report::{LoadReport, OverloadThresholds, RankLoad};
use smg_core::policy::load_rounds::{Rounds, publish_pause};
use smg_core::policy::prefix_hash::{self, PrefixHashConfig, PrefixRequest};
use smg_core::policy::ring::HashRing;
use smg_core::policy::rotation::{RoundRobin, passthrough};
use smg_core::policy::sticky::{ActiveKeys, Assignment, KeyPermit, StickyMap};
use smg_core::policy::{
    Candidates, Choice, LoadTable, Loads, NoWorker, PolicyKind, PolicyState, least_load,
    power_of_two, sampling,
};
use smg_core::rng::Rng;

use super::index::{Ask, Index, IndexOptions, boundary_items, items_of, known_tokens};
use super::workload::Request;
use crate::engine::{Engine, Nanos};

/// Settings of the gateways; the defaults are the gateway's own.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayOptions {
    pub cache_aware: CacheAwareConfig,
    pub index: IndexOptions,
    pub eviction_interval: Nanos,
    pub load_interval: Nanos,
    /// Each engine is asked at a moment of its own; the gateway itself asks them in rounds.
    pub polls_spread: bool,
    pub least_load: Scorer,
    pub prefix_hash: PrefixHashConfig,
    pub assignment: Assignment,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            cache_aware: CacheAwareConfig::default(),
            index: IndexOptions::default(),
            eviction_interval: 120_000_000_000,
            load_interval: 10_000_000_000,
            polls_spread: false,
            least_load: Scorer::DEFAULT,
            prefix_hash: PrefixHashConfig::default(),
            assignment: Assignment::Random,
        }
    }
}

const MODEL: ModelId = ModelId(0);

/// All that one gateway process knows, its index excepted: that may be shared.
pub struct Gateway {
    options: GatewayOptions,
    /// With lengths in the items of the index.
    prefix_hash: PrefixHashConfig,
    block_tokens: u32,
    known: Known,
    state: PolicyState,
    workers: Vec<WorkerId>,
    items: Vec<u32>,
    robin: RoundRobin,
    ring: HashRing,
    sessions: StickyMap,
    rng: Rng,
}

/// What it knows of the engines.
struct Known {
    is_ready: Vec<bool>,
    ready: Vec<WorkerId>,
    epoch: u64,
    in_flight: InFlight,
    breakers: Breakers,
    reports: Reports,
}

/// Load reports on their way to decisions.
#[derive(Default)]
struct Reports {
    /// Unless engines are asked one by one.
    rounds: Option<Rounds>,
    /// Age of the gateway when the simulation begins.
    age: Nanos,
    table: LoadTable,
    loads: Loads,
    /// When what changed is published.
    due: Option<Nanos>,
    published: Option<Nanos>,
}

/// A decision that holds while its request runs.
pub struct Sent {
    pub worker: usize,
    admission: Option<Admission>,
    _in_flight: InFlightGuard,
    _permit: Option<KeyPermit>,
}

impl Gateway {
    /// A gateway without state over `engines` ready engines; its rounds of load polls began `age`
    /// before the simulation.
    pub fn new(
        options: &GatewayOptions,
        policy: PolicyKind,
        engines: usize,
        block_tokens: u32,
        age: Nanos,
        seed: u64,
    ) -> Self {
        let rounds = Rounds::new(Duration::from_nanos(options.load_interval));
        let heads: Vec<u32> =
            options.prefix_hash.boundaries.iter().map(|&tokens| tokens as u32).collect();
        let in_items = |tokens: &[u32]| {
            boundary_items(tokens, block_tokens).into_iter().map(|items| items as usize).collect()
        };
        let count: Vec<usize> = in_items(&[options.prefix_hash.token_count as u32]);
        let prefix_hash = PrefixHashConfig {
            token_count: count[0],
            boundaries: in_items(&heads),
            ..options.prefix_hash.clone()
        };
        let needs_ring = matches!(policy, PolicyKind::PrefixHash | PolicyKind::ConsistentHashing);
        let urls: Vec<(WorkerId, String)> = (0..engines)
            .filter(|_| needs_ring)
            .map(|engine| (id(engine), format!("http://engine-{engine}:8000")))
            .collect();
        Self {
            options: options.clone(),
            prefix_hash,
            block_tokens,
            known: Known {
                is_ready: vec![true; engines],
                ready: (0..engines).map(id).collect(),
                epoch: 1,
                in_flight: InFlight::default(),
                breakers: Breakers::default(),
                reports: Reports {
                    rounds: (!options.polls_spread).then_some(rounds),
                    age,
                    ..Reports::default()
                },
            },
            state: PolicyState::default(),
            workers: Vec::new(),
            items: Vec::new(),
            robin: RoundRobin::default(),
            ring: HashRing::new(urls.iter().map(|(worker, url)| (*worker, url.as_str()))),
            sessions: StickyMap::new(ActiveKeys::default()),
            rng: Rng::new(seed),
        }
    }

    /// Decides by `policy` and counts the request.
    ///
    /// # Errors
    /// When nobody may be chosen.
    pub fn send(
        &mut self,
        policy: PolicyKind,
        index: &mut Index,
        request: &Request,
        tried: &[WorkerId],
        now: Nanos,
    ) -> Result<Sent, NoWorker> {
        self.known.reports.publish_due(now);
        let (choice, permit) = self.decide(policy, index, request, tried, now)?;
        Ok(self.sent(choice.worker, permit, now))
    }

    /// Counts a request whose engine somebody else chose.
    pub fn send_to(&mut self, engine: usize, now: Nanos) -> Sent {
        self.sent(id(engine), None, now)
    }

    /// The fleet as a decision sees it.
    pub fn candidates<'a>(&'a self, tried: &'a [WorkerId], now: Nanos) -> Candidates<'a> {
        self.known.candidates(tried, now)
    }

    /// A request has ended.
    pub fn settle(&mut self, mut sent: Sent, outcome: Outcome, now: Nanos) {
        if let Some(admission) = sent.admission.take() {
            admission.settle(&self.known.breakers, outcome, now / 1_000_000);
        }
    }

    /// Takes an engine out of the ready ones, or back; says whether that is a change.
    pub fn set_ready(&mut self, engine: usize, is_ready: bool, now: Nanos) -> bool {
        if self.known.is_ready[engine] == is_ready {
            return false;
        }
        self.known.is_ready[engine] = is_ready;
        let ready = self.known.is_ready.iter().enumerate().filter(|(_, ready)| **ready);
        self.known.ready = ready.map(|(engine, _)| id(engine)).collect();
        self.known.epoch += 1;
        if !is_ready {
            self.known
                .reports
                .change(now, self.known.is_ready.len(), |table| table.clear(id(engine)));
        }
        true
    }

    /// Asks an engine for its load; it must be brought up to `now`, and `None` if it is down.
    pub fn poll(&mut self, engine: usize, asked: Option<&Engine>, now: Nanos) {
        let asked = asked.filter(|_| self.known.is_ready[engine]);
        self.known.reports.asked(engine);
        self.known.reports.change(now, self.known.is_ready.len(), |table| match asked {
            Some(asked) => table.enter(id(engine), report(asked), &OverloadThresholds::default()),
            None => table.clear(id(engine)),
        });
    }

    /// When an engine is asked again that was asked in round `last`, and in which round that is.
    pub fn next_poll(&self, last: u64, engine: usize, now: Nanos) -> (u64, Nanos) {
        self.known.reports.next_poll(last, engine, now, self.options.load_interval)
    }

    fn sent(&mut self, worker: WorkerId, permit: Option<KeyPermit>, now: Nanos) -> Sent {
        Sent {
            worker: worker.slot as usize,
            admission: self.known.breakers.admit(worker, now / 1_000_000),
            _in_flight: self.known.in_flight.begin(worker),
            _permit: permit,
        }
    }

    fn decide(
        &mut self,
        policy: PolicyKind,
        index: &mut Index,
        request: &Request,
        tried: &[WorkerId],
        now: Nanos,
    ) -> Result<(Choice, Option<KeyPermit>), NoWorker> {
        let candidates = self.known.candidates(tried, now);
        let tokens = known_tokens(self.options.index.prompts, request.sequence.prompt_tokens);
        let key = request.session.filter(|_| goes_by_key(policy)).map(|s| format!("session-{s:x}"));
        let key = key.as_ref().map(String::as_bytes);
        let (state, rng) = (&mut self.state, &mut self.rng);
        let choice = match policy {
            PolicyKind::CacheAware => {
                let config = &self.options.cache_aware;
                index.decide(request, Ask { config, state, candidates: &candidates, rng })
            }
            PolicyKind::RoundRobin => self.robin.choose(MODEL, &candidates),
            PolicyKind::Random | PolicyKind::Bucket => {
                sampling::choose(&candidates, &mut self.workers, rng)
            }
            PolicyKind::PowerOfTwo => power_of_two::choose(state, &candidates, tokens, rng),
            PolicyKind::LeastLoad => {
                least_load::choose(&self.options.least_load, state, &candidates, tokens, rng)
            }
            PolicyKind::PrefixHash => {
                items_of(request, self.block_tokens, &mut self.items);
                let head = PrefixRequest { tokens: Some(&self.items), ..PrefixRequest::default() };
                let config = &self.prefix_hash;
                prefix_hash::choose(config, &self.ring, state, &candidates, &head, rng)
                    .map(|found| found.choice)
            }
            PolicyKind::ConsistentHashing => {
                let hashed = HashedRequest { routing_key: key, ..HashedRequest::default() };
                consistent_hashing::choose(&self.ring, state, &candidates, &hashed, rng)
            }
            PolicyKind::Manual => {
                let mode = self.options.assignment;
                return self.sessions.choose_manually(key, mode, state, &candidates, rng);
            }
            PolicyKind::Passthrough => passthrough(&candidates),
        };
        choice.map(|choice| (choice, None))
    }
}

impl Known {
    fn candidates<'a>(&'a self, tried: &'a [WorkerId], now: Nanos) -> Candidates<'a> {
        Candidates {
            epoch: self.epoch,
            ready: &self.ready,
            in_flight: &self.in_flight,
            breakers: &self.breakers,
            loads: &self.reports.loads,
            excluded: tried,
            now_ms: now / 1_000_000,
        }
    }
}

impl Reports {
    /// Enters a change, and says when it is to be published.
    fn change(&mut self, now: Nanos, engines: usize, change: impl FnOnce(&mut LoadTable)) {
        self.publish_due(now);
        change(&mut self.table);
        let pause = publish_pause(engines).as_nanos() as Nanos;
        let earliest = self.published.map_or(0, |at| at + pause);
        let gathered = now + self.gathering(now);
        self.due.get_or_insert(gathered.max(earliest));
    }

    /// Answers take no time here.
    fn asked(&mut self, engine: usize) {
        if let Some(rounds) = &mut self.rounds {
            rounds.asked(id(engine).slot);
            rounds.answered();
        }
    }

    /// For how long what changes now is held back.
    fn gathering(&self, now: Nanos) -> Nanos {
        let now = Duration::from_nanos(now + self.age);
        let wait = self.rounds.and_then(|rounds| rounds.gathering(now));
        wait.unwrap_or_default().as_nanos() as Nanos
    }

    fn next_poll(&self, last: u64, engine: usize, now: Nanos, interval: Nanos) -> (u64, Nanos) {
        let Some(rounds) = &self.rounds else { return (last + 1, now + interval) };
        let (round, at) = rounds.next(last, id(engine).slot, Duration::from_nanos(now + self.age));
        (round, at.as_nanos() as Nanos - self.age)
    }

    fn publish_due(&mut self, now: Nanos) {
        if let Some(due) = self.due.filter(|due| *due <= now) {
            self.due = None;
            self.published = Some(due);
            self.loads = self.table.publish();
        }
    }
}

/// Policies that read the session.
fn goes_by_key(policy: PolicyKind) -> bool {
    matches!(policy, PolicyKind::Manual | PolicyKind::ConsistentHashing)
}

/// The engine of this number as gateways name it.
pub fn id(engine: usize) -> WorkerId {
    WorkerId { slot: engine as u32, generation: 0 }
}

/// What an engine reports, as the simulated engines' `/v1/loads` says it.
fn report(engine: &Engine) -> LoadReport {
    let (load, counters, profile) = (engine.load(), engine.counters(), engine.profile());
    let block_tokens = f64::from(profile.block_tokens);
    let rank = RankLoad {
        running_requests: f64::from(load.running),
        waiting_requests: f64::from(load.waiting),
        waiting_uncached_tokens: engine.waiting_uncached_tokens() as f64,
        total_requests: f64::from(load.running + load.waiting),
        used_tokens: f64::from(load.used_blocks) * block_tokens,
        max_total_tokens: f64::from(load.total_blocks) * block_tokens,
        token_usage: load.usage(),
        gen_throughput: counters.generated_tokens as f64 * 1e9 / counters.busy_ns.max(1) as f64,
        max_running_requests: f64::from(profile.max_batch),
        ..RankLoad::default()
    };
    LoadReport { ranks: vec![rank] }
}
