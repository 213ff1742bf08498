//! One simulation: arrivals, engines, gateways and faults in the order of their times.
//!
//! At one instant engines tell first, then comes what was planned (faults, probes, reports, sweeps),
//! then arrivals. Messages between clients, gateways and engines take no time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use smg_core::breaker::Outcome;
use smg_core::fleet::WorkerId;
use smg_core::policy::PolicyKind;
use smg_core::prefetch::prefetch_all;
use smg_core::rng::Rng;

use super::gateway::{Gateway, Sent, id};
use super::index::Index;
use super::oracle::InfiniteCache;
use super::record::Record;
use super::timeline::Timeline;
use super::workload::{Request, Workload};
use super::{Options, Policy};
use crate::engine::{Engine, Nanos, Progress, RequestId};

/// Attempts of one request, as in the gateway.
const MAX_ATTEMPTS: usize = 5;
/// First pause after an engine was found down; it doubles up to the gateway's probe interval.
const FIRST_PROBE: Nanos = 1_000_000_000;
const PROBE_INTERVAL: Nanos = 60_000_000_000;
/// Between two slices of one sweep.
const SLICE_PAUSE: Nanos = 1_000_000;

pub struct World<'a> {
    options: &'a Options,
    policy: Policy,
    workload: Workload,
    engines: Vec<Engine>,
    is_up: Vec<bool>,
    timeline: Timeline,
    planned: BinaryHeap<Reverse<(Nanos, Event)>>,
    gateways: Vec<Gateway>,
    /// How long each gateway had been there when the simulation began, within one interval of polls.
    ages: Vec<Nanos>,
    /// One per gateway, or one for all.
    indexes: Vec<Index>,
    next_gateway: usize,
    flights: Vec<Option<Flight>>,
    free_flights: Vec<usize>,
    cache: InfiniteCache,
    record: Record,
    progress: Vec<Progress>,
    rng: Rng,
    decisions: u64,
}

/// What happens at a planned time; the order is that of events of one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Fail {
        engine: usize,
    },
    Recover {
        engine: usize,
    },
    Restart {
        gateway: usize,
    },
    Probe {
        gateway: usize,
        engine: usize,
        pause: Nanos,
    },
    Poll {
        gateway: usize,
        engine: usize,
        round: u64,
    },
    /// Slices of the sweep that began at `began`.
    Sweep {
        index: usize,
        began: Nanos,
    },
}

/// A request in an engine.
struct Flight {
    arrived: Nanos,
    gateway: usize,
    sent: Sent,
    prompt_tokens: u32,
    reusable_tokens: u32,
    /// Its first token came within the SLO.
    in_time: bool,
    /// What a second attempt needs beside the sequence.
    tail: Option<u64>,
    shared_blocks: u32,
    session: Option<u64>,
    /// Engines that failed it.
    tried: Vec<WorkerId>,
}

impl<'a> World<'a> {
    pub fn new(options: &'a Options, policy: Policy, workload: Workload) -> Self {
        // One who sees everything is one.
        let gateways = if policy.gateway().is_some() { options.gateways } else { 1 };
        let indexes = if options.shared_index { 1 } else { gateways };
        let block_tokens = options.profile.block_tokens;
        let profile = Arc::new(options.profile.clone());
        let mut world = Self {
            options,
            policy,
            workload,
            engines: (0..options.engines).map(|_| Engine::coarse(profile.clone())).collect(),
            is_up: vec![true; options.engines],
            timeline: Timeline::new(options.engines),
            planned: BinaryHeap::new(),
            gateways: Vec::new(),
            ages: Vec::new(),
            indexes: (0..indexes).map(|_| new_index(options, block_tokens)).collect(),
            next_gateway: 0,
            flights: Vec::new(),
            free_flights: Vec::new(),
            cache: InfiniteCache::default(),
            record: Record::new(options.slo, options.engines),
            progress: Vec::new(),
            rng: Rng::new(options.seed ^ 0x77_6f72_6c64),
            decisions: 0,
        };
        for gateway in 0..gateways {
            let age = world.phase();
            world.ages.push(age);
            let started = world.new_gateway(gateway);
            world.gateways.push(started);
            world.start_polling(gateway);
        }
        for index in 0..indexes {
            let began = options.gateway.eviction_interval;
            world.plan(began, Event::Sweep { index, began });
        }
        for fault in &options.engine_failures {
            world.plan(fault.at, Event::Fail { engine: fault.engine });
            world.plan(fault.at + fault.down, Event::Recover { engine: fault.engine });
        }
        for &(at, gateway) in options.gateway_restarts.iter().filter(|(_, at)| *at < gateways) {
            world.plan(at, Event::Restart { gateway });
        }
        world
    }

    /// Runs to the end of the last request. Also returns the number of decisions made.
    pub fn run(mut self) -> (Record, u64) {
        loop {
            self.look_ahead();
            let arrival = self.workload.next_at().unwrap_or(Nanos::MAX);
            let planned = self.planned.peek().map_or(Nanos::MAX, |Reverse((at, _))| *at);
            if let Some((at, engine)) = self.timeline.first()
                && at <= planned.min(arrival)
            {
                self.advance(engine, at);
            } else if arrival == Nanos::MAX && self.flights.len() == self.free_flights.len() {
                break;
            } else if planned <= arrival {
                if let Some(Reverse((at, event))) = self.planned.pop() {
                    self.happen(event, at);
                }
            } else if let Some((at, request)) = self.workload.take() {
                let gateway = self.next_gateway;
                self.next_gateway = (gateway + 1) % self.gateways.len();
                self.serve(request, gateway, at, at, Vec::new());
            }
        }
        for (engine, busy) in self.engines.iter().zip(&mut self.record.busy) {
            *busy = engine.counters().busy_ns;
            self.record.preemptions += engine.counters().preemptions;
        }
        (self.record, self.decisions)
    }

    /// Asks for memory that will be needed soon. There is too much of it for near caches, and what to
    /// load is known long before.
    fn look_ahead(&self) {
        if let Some((_, first)) = self.timeline.first() {
            for request in self.engines[first].prefetch_ending() {
                prefetch_all(self.flights[request.0 as usize].as_slice());
            }
        }
        if let Some(second) = self.timeline.second() {
            self.engines[second].prefetch_requests();
        }
        for engine in self.timeline.then() {
            self.engines[engine].prefetch();
        }
    }

    fn plan(&mut self, at: Nanos, event: Event) {
        self.planned.push(Reverse((at, event)));
    }

    fn happen(&mut self, event: Event, now: Nanos) {
        match event {
            Event::Fail { engine } => self.fail(engine, now),
            Event::Recover { engine } => self.is_up[engine] = true,
            Event::Restart { gateway } => {
                self.gateways[gateway] = self.new_gateway(gateway);
                if !self.options.shared_index {
                    let block_tokens = self.options.profile.block_tokens;
                    self.indexes[gateway] = new_index(self.options, block_tokens);
                }
                for engine in 0..self.engines.len() {
                    self.poll(gateway, engine, now);
                }
            }
            Event::Probe { gateway, engine, pause } => self.probe(gateway, engine, pause, now),
            Event::Poll { gateway, engine, round } => {
                self.poll(gateway, engine, now);
                let (round, at) = self.gateways[gateway].next_poll(round, engine, now);
                self.plan(at, Event::Poll { gateway, engine, round });
            }
            Event::Sweep { index, began } => {
                let interval = self.options.gateway.eviction_interval;
                if self.indexes[index].sweep(now / 1_000_000) {
                    let began = (began + interval).max(now + 1);
                    self.plan(began, Event::Sweep { index, began });
                } else {
                    self.plan(now + SLICE_PAUSE, Event::Sweep { index, began });
                }
            }
        }
    }

    /// Brings an engine up to `now` and tells those concerned.
    fn advance(&mut self, engine: usize, now: Nanos) {
        self.tell(engine, now);
        self.timeline.set(engine, self.engines[engine].next_step_end());
    }

    /// [`World::advance`] for a caller that sets the engine's time itself.
    fn tell(&mut self, engine: usize, now: Nanos) {
        let mut progress = std::mem::take(&mut self.progress);
        self.engines[engine].advance(now, &mut progress);
        for told in progress.drain(..) {
            let slot = told.request.0 as usize;
            let Some(flight) = &mut self.flights[slot] else { continue };
            if told.generated == 1 {
                flight.in_time = self.record.first_token(
                    flight.arrived,
                    told.at,
                    flight.prompt_tokens,
                    told.cached_tokens,
                    flight.reusable_tokens,
                );
            }
            if told.finished
                && let Some(flight) = self.land(slot)
            {
                self.record.end(flight.arrived, told.at, flight.in_time);
                self.gateways[flight.gateway].settle(flight.sent, Outcome::Success, told.at);
                self.workload.ended(flight.session, told.at);
            }
        }
        self.progress = progress;
    }

    /// Sends a request until an engine takes it.
    fn serve(
        &mut self,
        request: Request,
        gateway: usize,
        arrived: Nanos,
        now: Nanos,
        mut tried: Vec<WorkerId>,
    ) {
        while tried.len() < MAX_ATTEMPTS {
            let Some(sent) = self.decide(&request, gateway, &tried, now) else { break };
            self.record.retried += u64::from(!tried.is_empty());
            let engine = sent.worker;
            if self.is_up[engine] {
                return self.submit(request, gateway, sent, arrived, now, tried);
            }
            self.gateways[gateway].settle(sent, Outcome::Failure, now);
            self.find_down(gateway, engine, now);
            tried.push(id(engine));
        }
        self.record.failed += 1;
        self.workload.ended(request.session, now);
    }

    fn decide(
        &mut self,
        request: &Request,
        gateway: usize,
        tried: &[WorkerId],
        now: Nanos,
    ) -> Option<Sent> {
        self.decisions += 1;
        match self.policy {
            Policy::Gateway(policy) => {
                let index = if self.options.shared_index { 0 } else { gateway };
                let index = &mut self.indexes[index];
                self.gateways[gateway].send(policy, index, request, tried, now).ok()
            }
            Policy::Clairvoyant(clairvoyant) => {
                for engine in 0..self.engines.len() {
                    self.advance(engine, now);
                }
                let margins = self.options.gateway.cache_aware.spill;
                let gateway = &mut self.gateways[gateway];
                let candidates = gateway.candidates(tried, now);
                let rng = &mut self.rng;
                let engine =
                    clairvoyant.choose(&self.engines, &candidates, margins, request, rng, now)?;
                Some(gateway.send_to(engine, now))
            }
            Policy::Infinite => None,
        }
    }

    fn submit(
        &mut self,
        request: Request,
        gateway: usize,
        sent: Sent,
        arrived: Nanos,
        now: Nanos,
        tried: Vec<WorkerId>,
    ) {
        let engine = sent.worker;
        self.tell(engine, now);
        let reusable_tokens = self.cache.send(&request, self.options.profile.block_tokens);
        let Request { sequence, tail, shared_blocks, session } = request;
        let prompt_tokens = sequence.prompt_tokens;
        let slot = self.free_flights.pop().unwrap_or(self.flights.len());
        let taken = self.engines[engine].submit_as(RequestId(slot as u64), now, sequence);
        self.timeline.set(engine, self.engines[engine].next_step_end());
        if taken.is_err() {
            // Too long, or the queue is full: an answer that says so.
            self.free_flights.extend((slot < self.flights.len()).then_some(slot));
            self.gateways[gateway].settle(sent, Outcome::Neutral, now);
            self.record.failed += 1;
            return self.workload.ended(session, now);
        }
        self.record.sent[engine] += 1;
        let flight = Flight {
            arrived,
            gateway,
            sent,
            prompt_tokens,
            reusable_tokens,
            in_time: false,
            tail,
            shared_blocks,
            session,
            tried,
        };
        match self.flights.get_mut(slot) {
            Some(place) => *place = Some(flight),
            None => self.flights.push(Some(flight)),
        }
    }

    fn land(&mut self, slot: usize) -> Option<Flight> {
        let flight = self.flights[slot].take()?;
        self.free_flights.push(slot);
        Some(flight)
    }

    /// An engine goes away: what has begun is cut, what has not is sent elsewhere.
    fn fail(&mut self, engine: usize, now: Nanos) {
        self.advance(engine, now);
        self.is_up[engine] = false;
        let lost = self.engines[engine].crash();
        self.timeline.set(engine, None);
        let mut again = Vec::new();
        for (request, sequence, has_begun) in lost {
            let Some(flight) = self.land(request.0 as usize) else { continue };
            self.gateways[flight.gateway].settle(flight.sent, Outcome::Failure, now);
            self.find_down(flight.gateway, engine, now);
            if has_begun {
                self.record.failed += 1;
                self.workload.ended(flight.session, now);
            } else {
                let Flight { tail, shared_blocks, session, .. } = flight;
                let request = Request { sequence, tail, shared_blocks, session };
                again.push((request, flight.gateway, flight.arrived, flight.tried));
            }
        }
        for (request, gateway, arrived, mut tried) in again {
            tried.push(id(engine));
            self.serve(request, gateway, arrived, now, tried);
        }
    }

    /// A gateway has met an engine that is down.
    fn find_down(&mut self, gateway: usize, engine: usize, now: Nanos) {
        if self.gateways[gateway].set_ready(engine, false, now) {
            let pause = FIRST_PROBE;
            self.plan(now + pause, Event::Probe { gateway, engine, pause });
        }
    }

    fn probe(&mut self, gateway: usize, engine: usize, pause: Nanos, now: Nanos) {
        if self.is_up[engine] {
            self.gateways[gateway].set_ready(engine, true, now);
            return self.poll(gateway, engine, now);
        }
        let pause = (2 * pause).min(PROBE_INTERVAL);
        self.plan(now + pause, Event::Probe { gateway, engine, pause });
    }

    fn poll(&mut self, gateway: usize, engine: usize, now: Nanos) {
        self.advance(engine, now);
        let asked = self.is_up[engine].then_some(&self.engines[engine]);
        self.gateways[gateway].poll(engine, asked, now);
    }

    fn new_gateway(&mut self, place: usize) -> Gateway {
        let Options { gateway, engines, profile, .. } = self.options;
        let policy = self.policy.gateway().unwrap_or(PolicyKind::Random);
        let (age, seed) = (self.ages[place], self.rng.next_u64());
        Gateway::new(gateway, policy, *engines, profile.block_tokens, age, seed)
    }

    /// Part of an interval of load polls.
    fn phase(&mut self) -> Nanos {
        (self.rng.unit() * self.options.gateway.load_interval as f64) as Nanos
    }

    /// Every engine is asked once at the start, again within an interval, then once per interval.
    fn start_polling(&mut self, gateway: usize) {
        let reads_loads = self.policy.gateway().is_some_and(PolicyKind::reads_loads);
        for engine in 0..self.engines.len() {
            if reads_loads {
                self.poll(gateway, engine, 0);
                let (round, at) = match self.options.gateway.polls_spread {
                    true => (1, self.phase()),
                    false => self.gateways[gateway].next_poll(0, engine, 0),
                };
                self.plan(at, Event::Poll { gateway, engine, round });
            }
        }
    }
}

fn new_index(options: &Options, block_tokens: u32) -> Index {
    let page_tokens = options.gateway.cache_aware.block_size;
    Index::new(&options.gateway.index, page_tokens, block_tokens)
}
