//! `cache_aware`: a worker that likely holds the prompt's prefix, unless it is too busy.
//!
//! The caller looks the prompt up in one index and hands the answer in as a plain value; this module
//! ranks the holders, applies the spill gate and falls back to the lowest expected wait
//! (routing.md §3). Whatever the branch, the chosen worker is credited; recording it in the index is
//! the caller's.
//!
//! One decision, in this order:
//!
//! 1. hash mode, without usable boundaries: [`choose_hashed`] at once;
//! 2. [`under_pressure`]: then [`choose_under_pressure`], no look-up needed, and record;
//! 3. otherwise look up, then [`choose`] (trees), [`choose_by_blocks`] (KV events) or
//!    [`choose_hashed`].

use crate::fleet::WorkerId;
use crate::policy::candidates::{Candidates, Eligible, NoWorker};
use crate::policy::expected_wait::{Scored, Scorer};
use crate::policy::kv_pressure::KvPressure;
use crate::policy::ranking::{Ranking, RequestBlocks};
use crate::policy::spill_gate::{SpillGate, SpillMargins};
use crate::policy::{Branch, Choice, PolicyState};
use crate::rng::Rng;

#[cfg(test)]
mod tests;

/// Characters that count as one token where text is put in relation to blocks of tokens.
pub const CHARS_PER_TOKEN: u64 = 4;

/// `cache_aware` scores with the built-in constants, whatever `least_load` is told.
const SCORER: Scorer = Scorer::DEFAULT;

/// Settings of one model's `cache_aware` policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheAwareConfig {
    /// Trees: affinity only strictly above this share of the request, 0 to 1.
    pub cache_threshold: f32,
    pub spill: SpillMargins,
    pub kv_pressure: KvPressure,
    pub ranking: Ranking,
    /// Tokens per block where no index knows better, at least 1.
    pub block_size: u32,
}

impl Default for CacheAwareConfig {
    fn default() -> Self {
        Self {
            cache_threshold: 0.3,
            spill: SpillMargins::default(),
            kv_pressure: KvPressure::default(),
            ranking: Ranking::default(),
            block_size: 16,
        }
    }
}

/// What a prefix tree found.
#[derive(Debug, Clone, Copy)]
pub struct TreeMatch<'a> {
    /// Leading characters or tokens found.
    pub matched_units: u64,
    /// Characters or tokens of the whole request.
    pub total_units: u64,
    /// Up to eight workers that hold all that matched; eligible ones first.
    pub holders: &'a [WorkerId],
    /// Units are characters, not tokens.
    pub units_are_chars: bool,
}

impl TreeMatch<'_> {
    /// Matched share of the request, 0 for an empty one. The threshold and the match-ratio histogram
    /// see this number.
    pub fn ratio(&self) -> f32 {
        if self.total_units == 0 {
            return 0.0;
        }
        self.matched_units as f32 / self.total_units as f32
    }

    fn blocks(&self, block_size: u32) -> RequestBlocks {
        let per_token = if self.units_are_chars { CHARS_PER_TOKEN } else { 1 };
        let block_size = block_size.max(1);
        let tokens = self.total_units / per_token;
        RequestBlocks { blocks: (tokens / u64::from(block_size)).max(1), block_size }
    }
}

/// What the KV-event index found: who holds how many leading blocks of the request.
#[derive(Debug, Clone, Copy)]
pub struct BlockMatch<'a> {
    /// Workers with at least the first block, and their consecutive leading blocks.
    pub holders: &'a [(WorkerId, u32)],
    /// Full blocks of the request.
    pub request_blocks: u32,
    /// Tokens per block, as learned from the events.
    pub block_size: u32,
}

/// A decision of hash mode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HashChoice {
    pub choice: Choice,
    /// The boundary that decided, 0 if none did.
    pub level: u32,
}

/// Whether KV pressure suspends affinity for a request that arrives now.
pub fn under_pressure(config: &CacheAwareConfig, candidates: &Candidates<'_>) -> bool {
    config.kv_pressure.fires(candidates.eligible())
}

/// The decision under KV pressure, for every index: lowest expected wait.
pub fn choose_under_pressure(
    state: &mut PolicyState,
    candidates: &Candidates<'_>,
    request_tokens: Option<u32>,
    rng: &mut Rng,
) -> Result<Choice, NoWorker> {
    let mut decision = Decision::new(state, candidates, rng);
    let picked = decision.anybody()?;
    Ok(decision.credited(picked, Branch::KvPressureExpectedWait, request_tokens))
}

/// The decision after a look-up in a prefix tree.
///
/// `is_holder` answers for any worker whether it holds all that matched, judged against all holders
/// and not only the eight in `found`: it tells a match from a spill. `request_tokens` is the
/// request's length if its token IDs are known.
pub fn choose(
    config: &CacheAwareConfig,
    state: &mut PolicyState,
    candidates: &Candidates<'_>,
    found: &TreeMatch<'_>,
    is_holder: impl Fn(WorkerId) -> bool,
    request_tokens: Option<u32>,
    rng: &mut Rng,
) -> Result<Choice, NoWorker> {
    let mut decision = Decision::new(state, candidates, rng);
    if found.ratio() <= config.cache_threshold {
        let picked = decision.anybody()?;
        return Ok(decision.credited(picked, Branch::ExpectedWaitFallback, request_tokens));
    }
    decision.gather(found.holders.iter().map(|&worker| (worker, 1.0)));
    decision.rank(&config.ranking, found.blocks(config.block_size));
    let picked = decision.through_the_gate(config.spill)?;
    let branch = if is_holder(picked.worker) { Branch::TreeMatch } else { Branch::Spill };
    Ok(decision.credited(picked, branch, request_tokens))
}

/// The decision after a look-up in the KV-event index. One block is enough for affinity.
pub fn choose_by_blocks(
    config: &CacheAwareConfig,
    state: &mut PolicyState,
    candidates: &Candidates<'_>,
    found: &BlockMatch<'_>,
    request_tokens: Option<u32>,
    rng: &mut Rng,
) -> Result<Choice, NoWorker> {
    let mut decision = Decision::new(state, candidates, rng);
    let held = found.holders.iter().filter(|(_, blocks)| *blocks > 0);
    decision.gather(held.map(|&(worker, blocks)| (worker, f64::from(blocks))));
    if decision.state.scored.is_empty() {
        let picked = decision.anybody()?;
        return Ok(decision.credited(picked, Branch::EventMiss, request_tokens));
    }
    let block_size = found.block_size.max(1);
    let request = RequestBlocks { blocks: u64::from(found.request_blocks).max(1), block_size };
    decision.rank(&config.ranking, request);
    // What everybody in the group holds: a worker with as much is no spill.
    let blocks_of = |worker| found.holders.iter().find(|(w, _)| *w == worker).map_or(0, |h| h.1);
    let group = decision.state.scored.iter().map(|scored| blocks_of(scored.worker)).min();
    let picked = decision.through_the_gate(config.spill)?;
    let hit = group.is_some_and(|least| blocks_of(picked.worker) >= least);
    let branch = if hit { Branch::EventHit } else { Branch::EventSpill };
    Ok(decision.credited(picked, branch, request_tokens))
}

/// What hash mode can look up for a request.
#[derive(Debug)]
pub enum HashLookup<L> {
    /// The request has no token IDs: nothing to look up or record.
    NoTokens,
    /// It is shorter than every boundary: likewise.
    ShortRequest,
    /// (boundary, live holders) of its applicable boundaries, deepest first. Read until the first
    /// boundary with an eligible holder.
    Levels(L),
}

/// The decision of `--cache-index hash`, KV pressure excepted.
pub fn choose_hashed<H: AsRef<[WorkerId]>>(
    config: &CacheAwareConfig,
    state: &mut PolicyState,
    candidates: &Candidates<'_>,
    lookup: HashLookup<impl IntoIterator<Item = (u32, H)>>,
    request_tokens: Option<u32>,
    rng: &mut Rng,
) -> Result<HashChoice, NoWorker> {
    let mut decision = Decision::new(state, candidates, rng);
    let levels = match lookup {
        HashLookup::NoTokens => None,
        HashLookup::ShortRequest => {
            let picked = decision.anybody()?;
            let choice = decision.credited(picked, Branch::ShortRequest, request_tokens);
            return Ok(HashChoice { choice, level: 0 });
        }
        HashLookup::Levels(levels) => Some(levels),
    };
    for (level, holders) in levels.into_iter().flatten() {
        let holders = holders.as_ref();
        decision.gather(holders.iter().map(|&worker| (worker, 1.0)));
        if decision.state.scored.is_empty() {
            continue;
        }
        let picked = decision.through_the_gate(config.spill)?;
        let hit = holders.contains(&picked.worker);
        let branch = if hit { Branch::HashHit } else { Branch::HashSpill };
        let choice = decision.credited(picked, branch, request_tokens);
        return Ok(HashChoice { choice, level });
    }
    let picked = decision.anybody()?;
    let choice = decision.credited(picked, Branch::ExpectedWaitFallback, request_tokens);
    Ok(HashChoice { choice, level: 0 })
}

/// One decision under way: the steps that all indexes share.
struct Decision<'a> {
    eligible: Eligible<'a>,
    state: &'a mut PolicyState,
    rng: &'a mut Rng,
}

impl<'a> Decision<'a> {
    fn new(state: &'a mut PolicyState, candidates: &Candidates<'a>, rng: &'a mut Rng) -> Self {
        state.ready.refresh(candidates);
        Self { eligible: candidates.eligible(), state, rng }
    }

    /// Takes the eligible ones of an index's holders as candidates.
    fn gather(&mut self, holders: impl Iterator<Item = (WorkerId, f64)>) {
        let PolicyState { ready, scored, .. } = &mut *self.state;
        let eligible = &self.eligible;
        scored.clear();
        scored.extend(
            holders
                .filter(|&(worker, _)| ready.contains(worker) && eligible.allows(worker))
                .map(|(worker, score)| Scored { worker, score }),
        );
    }

    /// Reduces the candidates to one score group.
    fn rank(&mut self, ranking: &Ranking, request: RequestBlocks) {
        ranking.keep_group(&self.eligible, &mut self.state.scored, request, self.rng);
    }

    /// Lowest expected wait among candidates that are not hot; all hot: among eligible workers that
    /// are not hot; no candidates: among eligible workers. Somebody is always at or below the mean,
    /// so the last resort is for counts that move while they are read.
    fn through_the_gate(&mut self, margins: SpillMargins) -> Result<Scored, NoWorker> {
        let PolicyState { scored, workers, .. } = &mut *self.state;
        if scored.is_empty() {
            return self.anybody();
        }
        workers.clear();
        workers.extend(scored.iter().map(|candidate| candidate.worker));
        let mut gate = SpillGate::new(self.eligible, margins);
        let fleet = self.eligible.candidates().ready;
        for set in [workers.as_slice(), fleet] {
            let cool = |worker| !gate.is_hot(worker);
            if let Some(picked) = SCORER.pick(&self.eligible, set, cool, self.rng) {
                return Ok(picked);
            }
        }
        self.anybody()
    }

    /// Lowest expected wait among all eligible workers.
    fn anybody(&mut self) -> Result<Scored, NoWorker> {
        let candidates = self.eligible.candidates();
        SCORER
            .pick_any(&self.eligible, &mut self.state.floor, self.rng)
            .ok_or_else(|| candidates.why_none())
    }

    fn credited(&self, picked: Scored, branch: Branch, request_tokens: Option<u32>) -> Choice {
        let loads = self.eligible.candidates().loads;
        SCORER.credit(loads, picked.worker, request_tokens);
        Choice { worker: picked.worker, branch, score: Some(picked.score) }
    }
}
