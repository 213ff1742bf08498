//! What could be had at best: an infinite cache, and routers that see into the engines.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use smg_core::policy::Candidates;
use smg_core::policy::spill_gate::{SpillGate, SpillMargins};
use smg_core::rng::Rng;

use super::record::Record;
use super::workload::{Request, Workload};
use crate::engine::{Engine, Nanos, Profile};

/// One cache without limits, in which every prefix is found from the moment its first request is
/// sent: no router and no cache of any size can do better.
#[derive(Debug, Default)]
pub struct InfiniteCache(HashSet<u64, BuildHasherDefault<Identity>>);

impl InfiniteCache {
    /// Tokens of the request's prompt that were sent before, in whole blocks and without its last
    /// token, as an engine counts them; and remembers the request. One that is sent again because its
    /// engine went away is known then: the bound is loose for those.
    pub fn send(&mut self, request: &Request, block_tokens: u32) -> u32 {
        let shared = &request.sequence.blocks[..request.shared_blocks as usize];
        // A block's identity stands for all before it too: known blocks come first, and if the last
        // one is known, all are.
        let known = match shared.last() {
            Some(last) if self.0.contains(last) => shared.len(),
            _ => shared.iter().take_while(|&block| self.0.contains(block)).count(),
        };
        self.0.extend(&shared[known..]);
        let lookup = request.sequence.prompt_tokens.saturating_sub(1) / block_tokens;
        (known as u32).min(lookup) * block_tokens
    }
}

/// Block identities are hashes already: use them as they are.
#[derive(Debug, Default, Clone)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// The whole workload over the infinite cache, on engines that are always idle: a bound of the hit
/// share, and of times to first token. There is no load to speak of.
pub fn run_infinite(mut workload: Workload, profile: &Profile, slo: Nanos) -> Record {
    let idle = Engine::coarse(profile.clone());
    let mut cache = InfiniteCache::default();
    let mut record = Record::new(slo, 0);
    let mut ends = BinaryHeap::new();
    loop {
        let end = ends.peek().map(|Reverse((at, _))| *at);
        let arrival = workload.next_at();
        if let Some(at) = end.filter(|at| arrival.is_none_or(|arrival| *at <= arrival)) {
            if let Some(Reverse((_, session))) = ends.pop() {
                workload.ended(session, at);
            }
            continue;
        }
        let Some((at, request)) = workload.take() else { return record };
        let sequence = &request.sequence;
        let cached = cache.send(&request, profile.block_tokens);
        let first = at + idle.expected_first_token(at, sequence.prompt_tokens - cached);
        let more = u64::from(sequence.answer_tokens.saturating_sub(1));
        let end = first + more * profile.step_ns(1, 0);
        let in_time = record.first_token(at, first, sequence.prompt_tokens, cached, cached);
        record.end(at, end, in_time);
        ends.push(Reverse((end, request.session)));
    }
}

/// A router that knows each engine's cache and queue as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clairvoyant {
    /// To the engine where the first token is expected soonest. What a hit is worth against a queue
    /// follows from the engine's speed, so it neither queues behind a short prefix that everybody
    /// shares nor leaves a long one for a small backlog. It looks at one request at a time: what is
    /// best for this one need not be best for those to come.
    Soonest,
    /// To the longest hit among engines that the spill gate lets pass, the soonest of several. Where
    /// all prompts begin alike, as in Mooncake's traces, it sends nearly everything to one engine
    /// until the gate closes.
    LongestHit,
}

impl Clairvoyant {
    /// Chooses an engine, all brought up to `now`; `None` when nobody may be chosen.
    pub fn choose(
        self,
        engines: &[Engine],
        candidates: &Candidates<'_>,
        margins: SpillMargins,
        request: &Request,
        rng: &mut Rng,
        now: Nanos,
    ) -> Option<usize> {
        let eligible = candidates.eligible();
        let mut gate = SpillGate::new(eligible, margins);
        let mut best: Option<((bool, u32, Nanos), usize, usize)> = None;
        for worker in eligible.iter() {
            let engine = &engines[worker.slot as usize];
            let cached = engine.cached_tokens(&request.sequence);
            let uncached = request.sequence.prompt_tokens - cached;
            let wait = engine.expected_first_token(now, uncached);
            let key = match self {
                Self::Soonest => (false, 0, wait),
                Self::LongestHit => (gate.is_hot(worker), u32::MAX - cached, wait),
            };
            // The n-th of equals takes over with a chance of 1 / n: each is chosen alike.
            best = match best {
                Some((least, ..)) if key > least => best,
                Some((least, chosen, ties)) if key == least => {
                    let takes_over = rng.below(ties + 1) == 0;
                    let chosen = if takes_over { worker.slot as usize } else { chosen };
                    Some((key, chosen, ties + 1))
                }
                _ => Some((key, worker.slot as usize, 1)),
            };
        }
        best.map(|(_, engine, _)| engine)
    }
}
