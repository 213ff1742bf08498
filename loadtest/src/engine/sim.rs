//! Continuous batching in virtual time.
//!
//! The engine works in steps, as vLLM's V1 scheduler does. At the start of a step every running
//! request is given the tokens it still has to compute (one when it decodes, up to the step's
//! token budget while it prefills), then waiting requests join in arrival order as long as the
//! batch, the budget and the block pool allow. The step lasts [`Profile::step_ns`]; at its end each
//! request whose known tokens are all computed gains one generated token.
//!
//! While nothing but decoding happens, the steps to come are all alike: [`Engine::coarse`] takes them
//! as one run of steps, which an arrival or a cancellation cuts at the next step's end. What happens
//! when stays the same; only the tokens between a request's first and its last are not told.

use std::collections::VecDeque;
use std::sync::Arc;

use smg_core::prefetch::{prefetch, prefetch_all};

use super::pool::{BlockId, BlockPool};
use super::{Nanos, Profile, Sequence};
use runs::Steps;

mod outlook;
mod runs;

/// Names one request of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// What a step's end brought to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub request: RequestId,
    /// Generated tokens so far, this step's included.
    pub generated: u32,
    /// Prompt tokens found in the prefix cache when the request was first scheduled.
    pub cached_tokens: u32,
    /// The request has all its tokens and has left the engine.
    pub finished: bool,
    /// When the step ended.
    pub at: Nanos,
}

/// Why a request was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmitError {
    /// Prompt and answer need more tokens than the engine ever takes.
    TooLong { tokens: u32, limit: u32 },
    /// The waiting queue is full.
    QueueFull,
}

/// Totals since the engine started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests scheduled for the first time.
    pub admitted: u64,
    pub finished: u64,
    pub cancelled: u64,
    pub refused: u64,
    /// Prompt tokens of admitted requests, and how many of them the prefix cache had: vLLM's
    /// `prefix_cache_queries` and `prefix_cache_hits`.
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    /// Tokens computed by prefill, recomputation after preemption included.
    pub prefilled_tokens: u64,
    pub generated_tokens: u64,
    pub preemptions: u64,
    /// Time spent in steps that are over.
    pub busy_ns: Nanos,
}

/// What an engine reports about itself at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    pub running: u32,
    pub waiting: u32,
    /// KV blocks in use by running requests, and in the pool.
    pub used_blocks: u32,
    pub total_blocks: u32,
}

impl Load {
    /// Share of the pool in use, 0 to 1.
    pub fn usage(&self) -> f64 {
        f64::from(self.used_blocks) / f64::from(self.total_blocks.max(1))
    }
}

/// One simulated engine. Timestamps given to it must not go back.
#[derive(Debug)]
pub struct Engine {
    profile: Arc<Profile>,
    pool: BlockPool,
    waiting: VecDeque<Request>,
    running: Vec<Request>,
    /// The step under way, or the run of equal steps.
    steps: Option<Steps>,
    /// Tells first and last tokens only.
    is_coarse: bool,
    /// When the last step ended: the next one cannot start earlier.
    idle_since: Nanos,
    next_id: u64,
    counters: Counters,
    /// Reused by every admission.
    hits: Vec<BlockId>,
}

/// What every step looks at, in few bytes: a simulation has thousands of engines, and what one of
/// them has running is rarely in a near cache.
#[derive(Debug)]
struct Request {
    id: RequestId,
    prompt_tokens: u32,
    answer_tokens: u32,
    generated: u32,
    /// Tokens whose KV entries exist, cached ones included.
    computed: u32,
    /// Tokens being computed by the step under way.
    scheduled: u32,
    /// How many blocks it has: the length of `rest.blocks`.
    held: u32,
    rest: Box<Rest>,
}

#[derive(Debug)]
struct Rest {
    sequence: Sequence,
    arrived: Nanos,
    /// Set when first scheduled.
    cached_tokens: Option<u32>,
    blocks: Vec<BlockId>,
}

impl Request {
    /// Tokens known so far: the prompt and what was generated.
    fn known(&self) -> u32 {
        self.prompt_tokens + self.generated
    }

    /// The blocks that are looked up: those of all its known tokens but the last.
    fn lookup(&self, block_tokens: u32) -> &[u64] {
        &self.rest.sequence.blocks[..((self.known() - 1) / block_tokens) as usize]
    }

    /// Prefilling, that is computing anything but the newest generated token.
    fn prefills(&self) -> bool {
        self.generated == 0 || self.known() - self.computed > 1
    }
}

impl Engine {
    /// An idle engine with an empty cache.
    pub fn new(profile: impl Into<Arc<Profile>>) -> Self {
        let profile = profile.into();
        Self {
            pool: BlockPool::new(profile.cache_blocks),
            profile,
            waiting: VecDeque::new(),
            running: Vec::new(),
            steps: None,
            is_coarse: false,
            idle_since: 0,
            next_id: 0,
            counters: Counters::default(),
            hits: Vec::new(),
        }
    }

    /// An engine that tells each request's first and last token and nothing in between, at a small
    /// part of the cost.
    pub fn coarse(profile: impl Into<Arc<Profile>>) -> Self {
        Self { is_coarse: true, ..Self::new(profile) }
    }

    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Starts loading the engine itself into the CPU's caches.
    pub fn prefetch(&self) {
        prefetch_all(std::slice::from_ref(self));
    }

    /// Starts loading its requests that run. The engine itself should be there.
    pub fn prefetch_requests(&self) {
        prefetch_all(&self.running);
    }

    /// Lists the requests that end with the steps under way, and starts loading the rest of them. The
    /// requests should be there.
    pub fn prefetch_ending(&self) -> impl Iterator<Item = RequestId> {
        let count = self.steps.map_or(0, |steps| steps.count);
        let ends = move |r: &&Request| r.answer_tokens - r.generated <= count;
        self.running.iter().filter(ends).map(|request| {
            prefetch(&*request.rest);
            request.id
        })
    }

    /// Queues a request at `now`. It takes part from the first step that starts at or after `now`;
    /// an idle engine starts one at once. Call [`Engine::advance`] up to `now` first.
    pub fn submit(&mut self, now: Nanos, sequence: Sequence) -> Result<RequestId, SubmitError> {
        let id = RequestId(self.next_id);
        self.submit_as(id, now, sequence)?;
        self.next_id += 1;
        Ok(id)
    }

    /// [`Engine::submit`] under an identity of the caller's, which no other request in the engine
    /// has. Callers keep to one of the two.
    pub fn submit_as(
        &mut self,
        id: RequestId,
        now: Nanos,
        sequence: Sequence,
    ) -> Result<(), SubmitError> {
        let tokens = sequence.prompt_tokens.saturating_add(sequence.answer_tokens);
        let limit = self.profile.longest_request();
        if tokens > limit {
            self.counters.refused += 1;
            return Err(SubmitError::TooLong { tokens, limit });
        }
        if self.waiting.len() >= self.profile.max_waiting as usize {
            self.counters.refused += 1;
            return Err(SubmitError::QueueFull);
        }
        self.pool.prefetch(sequence.blocks.first());
        // It changes the steps to come only if it may join the batch.
        if self.waiting.is_empty() && self.running.len() < self.profile.max_batch as usize {
            self.cut_steps();
        }
        self.waiting.push_back(Request {
            id,
            prompt_tokens: sequence.prompt_tokens,
            answer_tokens: sequence.answer_tokens,
            generated: 0,
            computed: 0,
            scheduled: 0,
            held: 0,
            rest: Box::new(Rest {
                sequence,
                arrived: now,
                cached_tokens: None,
                blocks: Vec::new(),
            }),
        });
        if self.steps.is_none() {
            self.start_step(now.max(self.idle_since));
        }
        Ok(())
    }

    /// Drops a request whose client has gone; its blocks are free at once. A request that is
    /// unknown or finished is ignored.
    pub fn cancel(&mut self, id: RequestId) {
        self.cut_steps();
        if let Some(at) = self.running.iter().position(|r| r.id == id) {
            let request = self.running.remove(at);
            self.pool.release(&request.rest.blocks);
        } else if let Some(at) = self.waiting.iter().position(|r| r.id == id) {
            self.waiting.remove(at);
        } else {
            return;
        }
        self.counters.cancelled += 1;
    }

    /// When something may come of the steps under way; `None` when the engine is idle.
    pub fn next_step_end(&self) -> Option<Nanos> {
        self.steps.map(|steps| steps.end())
    }

    /// Ends every step that is over by `now` and starts the next ones where they belong in time, so
    /// that results do not depend on how often this is called. What happened is appended to `out`.
    pub fn advance(&mut self, now: Nanos, out: &mut Vec<Progress>) {
        while let Some(steps) = self.steps.filter(|steps| steps.end() <= now) {
            self.decode(steps.count - 1);
            self.counters.busy_ns += steps.each;
            self.end_step(steps.end(), out);
            self.start_step(steps.end());
        }
        self.catch_up(now);
    }

    /// Forgets every cached prefix (vLLM's `/reset_prefix_cache`).
    pub fn reset_cache(&mut self) {
        // Somebody who waits may need less room with fewer hits.
        self.cut_steps();
        self.pool.forget_contents();
    }

    /// The engine's load now.
    pub fn load(&self) -> Load {
        Load {
            running: self.running.len() as u32,
            waiting: self.waiting.len() as u32,
            used_blocks: self.pool.used(),
            total_blocks: self.pool.capacity(),
        }
    }

    /// Tokens of waiting requests that the cache does not hold now. Walks the queue.
    pub fn waiting_uncached_tokens(&self) -> u64 {
        let uncached = |r: &Request| u64::from(r.known()) - u64::from(self.cached_tokens_of(r));
        self.waiting.iter().map(uncached).sum()
    }

    /// Tokens of the request the prefix cache would spare: whole leading blocks, and at least one
    /// token is left to compute because its output is needed (vLLM looks up `known - 1` tokens).
    fn cached_tokens_of(&self, request: &Request) -> u32 {
        let lookup = request.lookup(self.profile.block_tokens);
        self.pool.leading_hits(lookup) as u32 * self.profile.block_tokens
    }

    /// Takes out every request, first come, first out, with whether it has its first token. The
    /// cache is empty then, as after a restart; the counters go on.
    pub fn crash(&mut self) -> Vec<(RequestId, Sequence, bool)> {
        self.steps = None;
        self.pool = BlockPool::new(self.profile.cache_blocks);
        let (running, waiting) = (self.running.drain(..), self.waiting.drain(..));
        let mut all: Vec<_> = running
            .chain(waiting)
            .map(|r| (r.rest.arrived, r.id, r.rest.sequence, r.generated > 0))
            .collect();
        all.sort_by_key(|(arrived, id, ..)| (*arrived, *id));
        all.into_iter().map(|(_, id, sequence, started)| (id, sequence, started)).collect()
    }

    fn start_step(&mut self, now: Nanos) {
        let mut budget = self.profile.step_tokens.max(1);
        let preempted = self.schedule_running(&mut budget);
        if !preempted {
            self.admit_waiting(now, &mut budget);
        }
        let (mut decoding, mut prefill_tokens) = (0, 0);
        for request in self.running.iter().filter(|r| r.scheduled > 0) {
            if request.prefills() {
                prefill_tokens += request.scheduled;
            } else {
                decoding += 1;
            }
        }
        self.counters.prefilled_tokens += u64::from(prefill_tokens);
        if decoding + prefill_tokens == 0 {
            self.steps = None;
            self.idle_since = now;
            return;
        }
        let each = self.profile.step_ns(decoding, prefill_tokens).max(1);
        let all_decode = decoding as usize == self.running.len();
        let count = if self.is_coarse && all_decode && !preempted { self.equal_steps() } else { 1 };
        self.steps = Some(Steps { start: now, each, count });
    }

    /// Gives running requests their tokens in order of admission. When the pool is dry the youngest
    /// one goes back to the head of the queue and loses its blocks. Returns whether one did.
    fn schedule_running(&mut self, budget: &mut u32) -> bool {
        let mut preempted = false;
        let mut at = 0;
        while at < self.running.len() {
            let request = &self.running[at];
            let tokens = (request.known() - request.computed).min(*budget);
            if tokens == 0 {
                self.running[at].scheduled = 0;
                at += 1;
                continue;
            }
            while at < self.running.len() && !self.reserve(at, tokens) {
                self.preempt_youngest();
                preempted = true;
            }
            if at < self.running.len() {
                self.running[at].scheduled = tokens;
                *budget -= tokens;
            }
            at += 1;
        }
        preempted
    }

    /// Makes room for `tokens` more computed tokens of running request `at` and names the blocks
    /// they fill. False, and nothing changed, when the pool has too few free blocks.
    fn reserve(&mut self, at: usize, tokens: u32) -> bool {
        let request = &mut self.running[at];
        let block_tokens = self.profile.block_tokens;
        let will_be_computed = request.computed + tokens;
        let held = request.held * block_tokens;
        if will_be_computed < held && request.computed + block_tokens >= held {
            // Within its last block, as most decoding is.
            return true;
        }
        let missing = will_be_computed.div_ceil(block_tokens).saturating_sub(request.held);
        if missing > self.pool.free() {
            return false;
        }
        let Rest { sequence, blocks, .. } = &mut *request.rest;
        blocks.extend((0..missing).map_while(|_| self.pool.allocate()));
        request.held = blocks.len() as u32;
        let full = |computed: u32| (computed / block_tokens) as usize;
        let filled = full(request.computed)..full(will_be_computed);
        for (&id, &content) in blocks[filled.clone()].iter().zip(&sequence.blocks[filled]) {
            self.pool.set_content(id, content);
        }
        true
    }

    fn preempt_youngest(&mut self) {
        if let Some(mut request) = self.running.pop() {
            self.pool.release(&request.rest.blocks);
            request.rest.blocks.clear();
            request.held = 0;
            request.computed = 0;
            request.scheduled = 0;
            self.counters.preemptions += 1;
            self.waiting.push_front(request);
        }
    }

    fn admit_waiting(&mut self, now: Nanos, budget: &mut u32) {
        while *budget > 0 && self.running.len() < self.profile.max_batch as usize {
            let Some(next) = self.waiting.front().filter(|r| r.rest.arrived <= now) else { return };
            let block_tokens = self.profile.block_tokens;
            let hits = &mut self.hits;
            self.pool.list_leading_hits(next.lookup(block_tokens), hits);
            let cached = hits.len() as u32 * block_tokens;
            let tokens = (next.known() - cached).min(*budget);
            let new_blocks = (cached + tokens).div_ceil(block_tokens) - hits.len() as u32;
            if new_blocks + self.pool.free_among(hits) > self.pool.free() {
                return;
            }
            // The front was just looked at.
            let Some(mut request) = self.waiting.pop_front() else { return };
            self.pool.use_blocks(hits);
            let rest = &mut *request.rest;
            rest.blocks.reserve_exact(rest.sequence.blocks.len() + 1);
            rest.blocks.extend_from_slice(hits);
            request.held = hits.len() as u32;
            request.computed = cached;
            request.scheduled = tokens;
            if rest.cached_tokens.is_none() {
                rest.cached_tokens = Some(cached);
                self.counters.admitted += 1;
                self.counters.prompt_tokens += u64::from(request.prompt_tokens);
                self.counters.cached_tokens += u64::from(cached);
            }
            self.running.push(request);
            let reserved = self.reserve(self.running.len() - 1, tokens);
            debug_assert!(reserved, "free blocks were counted above");
            *budget -= tokens;
        }
    }

    fn end_step(&mut self, at: Nanos, out: &mut Vec<Progress>) {
        let (pool, counters, is_coarse) = (&mut self.pool, &mut self.counters, self.is_coarse);
        self.running.retain_mut(|request| {
            request.computed += std::mem::take(&mut request.scheduled);
            if request.computed < request.known() {
                return true;
            }
            request.generated += 1;
            counters.generated_tokens += 1;
            let finished = request.generated >= request.answer_tokens;
            if finished || request.generated == 1 || !is_coarse {
                out.push(Progress {
                    request: request.id,
                    generated: request.generated,
                    cached_tokens: request.rest.cached_tokens.unwrap_or(0),
                    finished,
                    at,
                });
            }
            if finished {
                counters.finished += 1;
                pool.release(&request.rest.blocks);
            }
            !finished
        });
    }
}

#[cfg(test)]
#[path = "sim_tests.rs"]
mod tests;
