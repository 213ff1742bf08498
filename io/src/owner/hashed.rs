//! Decisions under `--cache-index hash`.

use smg_core::index::{HashIndex, Heads, hash_heads};
use smg_core::policy::cache_aware::{self, CacheAwareConfig, HashChoice, HashLookup};
use smg_core::policy::{Candidates, NoWorker, PolicyState};
use smg_core::rng::Rng;

use super::explain::contenders;
use super::{Ask, Decided, Index, Key};
use crate::config::CacheConfig;
use crate::runtime::clock;

/// `--cache-boundaries` and `--cache-ttl-secs`.
pub(super) struct Settings {
    boundaries: Box<[u32]>,
    ttl_ms: u64,
}

impl Settings {
    pub(super) fn new(config: &CacheConfig) -> Self {
        let narrow = |&boundary: &usize| u32::try_from(boundary).unwrap_or(u32::MAX);
        Self {
            boundaries: config.boundaries.iter().map(narrow).collect(),
            ttl_ms: config.ttl_secs.saturating_mul(1000),
        }
    }

    /// An empty index of one model.
    pub(super) fn index(&self) -> HashMode {
        let index = HashIndex::new(&self.boundaries, self.ttl_ms, clock::seed());
        HashMode { index, heads: Heads::default() }
    }
}

/// The hash index of one model.
pub(super) struct HashMode {
    pub(super) index: HashIndex,
    /// Reused by every request.
    heads: Heads,
}

impl HashMode {
    /// Looks up, chooses and records. A request without token IDs, or shorter than every boundary,
    /// is balanced and leaves no trace.
    pub(super) fn decide(
        &mut self,
        config: &CacheAwareConfig,
        state: &mut PolicyState,
        candidates: &Candidates<'_>,
        ask: &Ask<'_>,
        rng: &mut Rng,
    ) -> Result<Decided, NoWorker> {
        let now_ms = candidates.now_ms;
        let tokens = ask.key.tokens();
        let Key::Tokens(prompt) = ask.key else {
            let contenders = explained(candidates, ask, &[]);
            let nothing = HashLookup::<[(u32, &[_]); 0]>::NoTokens;
            let found =
                cache_aware::choose_hashed(config, state, candidates, nothing, tokens, rng)?;
            return Ok(Decided { contenders, ..decided(found, 0) });
        };
        let length = prompt.len() as u64;
        hash_heads(self.index.boundaries(), ask.namespace, prompt, &mut self.heads);
        if self.heads.is_short() {
            let contenders = explained(candidates, ask, &[]);
            let nothing = HashLookup::<[(u32, &[_]); 0]>::ShortRequest;
            let found =
                cache_aware::choose_hashed(config, state, candidates, nothing, tokens, rng)?;
            return Ok(Decided { contenders, ..decided(found, length) });
        }
        let (found, contenders) = if cache_aware::under_pressure(config, candidates) {
            let contenders = explained(candidates, ask, &[]);
            let choice = cache_aware::choose_under_pressure(state, candidates, tokens, rng)?;
            (HashChoice { choice, level: 0 }, contenders)
        } else {
            let held = self.index.find(&self.heads, now_ms, {
                let eligibility = state.eligibility(candidates);
                move |worker| eligibility.allows(worker)
            });
            let contenders = explained(candidates, ask, held.holders());
            let levels = (held.level > 0).then(|| (held.level, held.holders()));
            let lookup = HashLookup::Levels(levels);
            let found = cache_aware::choose_hashed(config, state, candidates, lookup, tokens, rng)?;
            (found, contenders)
        };
        self.index.record(&self.heads, found.choice.worker, now_ms);
        Ok(Decided { contenders, ..decided(found, length) })
    }
}

fn explained(
    candidates: &Candidates<'_>,
    ask: &Ask<'_>,
    holders: &[smg_core::fleet::WorkerId],
) -> Vec<super::Contender> {
    if ask.explain { contenders(candidates, holders) } else { Vec::new() }
}

fn decided(found: HashChoice, length: u64) -> Decided {
    Decided {
        index: Some(Index::Hash),
        level: found.level,
        matched: u64::from(found.level),
        length,
        ..Decided::plain(found.choice)
    }
}
