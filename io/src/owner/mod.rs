//! What a shard keeps of the models it owns: their indexes and their sticky keys. A decision over an
//! index is match, choose, record and credit in one turn.

mod explain;
mod hashed;
mod parts;
mod sessions;
#[cfg(test)]
mod tests;
mod trees;

use std::collections::HashMap;

use smg_core::fleet::{ModelId, WorkerId};
use smg_core::index::{Garbage, Limits, Slice, TextTree, TokenTree};
use smg_core::policy::cache_aware::CacheAwareConfig;
use smg_core::policy::consistent_hashing::HashedRequest;
use smg_core::policy::sticky::{ActiveKeys, Assignment, KeyPermit, StickyMap};
use smg_core::policy::{Candidates, Choice, NoWorker, PolicyState};
use smg_core::prompt::Prompt;
use smg_core::rng::Rng;

use crate::config::{CacheIndex, Config};
use crate::messages::{SweepReport, TreeTenants};
use crate::policies;
use crate::runtime::clock;

pub use explain::{Contender, contenders};
use hashed::HashMode;
pub use parts::Parts;

/// Entries evicted per slice.
const SLICE_ENTRIES: usize = 512;

/// Everything of a request that decisions read.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// What it routes on.
    pub key: Key<'a>,
    /// Cache partition.
    pub namespace: Option<u64>,
    /// Workers already tried for it.
    pub excluded: &'a [WorkerId],
    /// Under `--routing-key-override`: the conversation it belongs to.
    pub session: Option<Session<'a>>,
    /// The routing-key header, for `manual` and `prefix_hash`.
    pub routing_key: Option<&'a [u8]>,
    /// What `consistent_hashing` reads; empty under other policies.
    pub hashed: HashedRequest<'a>,
    /// The client wants to know how the decision came about, and may.
    pub explain: bool,
}

/// What a request routes on.
#[derive(Debug, Clone, Copy)]
pub enum Key<'a> {
    /// Text of the prompt.
    Text(&'a str),
    /// Token IDs of the prompt, at least one.
    Tokens(&'a [u32]),
}

impl<'a> Key<'a> {
    /// That of a prompt: token IDs before text.
    pub fn of(prompt: &Prompt<'a>) -> Self {
        match prompt.tokens {
            [] => Self::Text(prompt.text),
            tokens => Self::Tokens(tokens),
        }
    }

    /// Number of token IDs, if they are known.
    pub fn tokens(&self) -> Option<u32> {
        match self {
            Self::Text(_) => None,
            Self::Tokens(tokens) => Some(u32::try_from(tokens.len()).unwrap_or(u32::MAX)),
        }
    }
}

/// A sticky session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session<'a> {
    /// Its key, without suffixes of turns and retries.
    pub key: &'a [u8],
    /// It came as the body's `rid`, not in a header.
    pub from_rid: bool,
}

/// Why a request was sent nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteError {
    /// The policy found nobody.
    NoWorker(NoWorker),
    /// The model's last worker has left since the request was read.
    ModelGone,
    /// The model's owner did not answer in time.
    OwnerSilent,
}

/// A decision and what is to be said about it.
#[derive(Debug)]
pub struct Decided {
    /// The worker, and how it came about.
    pub choice: Choice,
    /// Held until the request ends, if it has a sticky key.
    pub permit: Option<KeyPermit>,
    /// The index that was asked.
    pub index: Option<Index>,
    /// Units matched and units of the whole request; 0 without a tree.
    pub matched: u64,
    pub length: u64,
    /// Matched share of the request; `None` when no tree decided.
    pub ratio: Option<f32>,
    /// Boundary that decided, 0 if none did.
    pub level: u32,
    /// With [`Ask::explain`]: who else could have been chosen.
    pub contenders: Vec<Contender>,
}

impl Decided {
    /// A decision without an index.
    pub fn plain(choice: Choice) -> Self {
        Self {
            choice,
            permit: None,
            index: None,
            matched: 0,
            length: 0,
            ratio: None,
            level: 0,
            contenders: Vec::new(),
        }
    }
}

/// An index of a model; the value is its position in the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    String = 0,
    Token = 1,
    Hash = 3,
}

/// What is kept of one model, made when first needed.
#[derive(Default)]
struct Owned {
    text: Option<TextTree>,
    tokens: Option<TokenTree>,
    hash: Option<HashMode>,
    sessions: Option<StickyMap>,
    state: PolicyState,
}

/// Owned by one shard: all of a model's indexes, or one part of its trees ([`Parts`]).
pub struct Owner {
    config: CacheAwareConfig,
    limits: Limits,
    /// Of the hash index; `None` with trees.
    hash: Option<hashed::Settings>,
    assignment: Option<Assignment>,
    max_idle_ms: u64,
    active_keys: ActiveKeys,
    models: HashMap<ModelId, Owned>,
    /// Sticky keys over all models.
    pinned: usize,
    /// Logical clock of the trees: one tick per decision.
    touch: u64,
}

impl Owner {
    /// Owns nothing yet. `active_keys` is shared with all shards.
    pub fn new(config: &Config, parts: Parts, active_keys: ActiveKeys) -> Self {
        let budget = config.cache.max_tree_size as u64;
        Self {
            config: policies::cache_aware_config(config),
            limits: parts.limits(budget).with_seed(clock::seed()),
            hash: (config.cache.index == CacheIndex::Hash)
                .then(|| hashed::Settings::new(&config.cache)),
            assignment: config.sticky.assignment_mode.map(policies::assignment),
            max_idle_ms: config.sticky.max_idle_secs.saturating_mul(1000),
            active_keys,
            models: HashMap::new(),
            pinned: 0,
            touch: 0,
        }
    }

    /// Decides by `cache_aware` where a request goes and records it there.
    ///
    /// # Errors
    /// When no worker may be chosen; nothing is recorded then.
    pub fn decide(
        &mut self,
        model: ModelId,
        candidates: &Candidates<'_>,
        ask: &Ask<'_>,
        rng: &mut Rng,
    ) -> Result<Decided, NoWorker> {
        self.touch += 1;
        let Self { config, limits, hash, models, touch, .. } = self;
        let Owned { text, tokens, hash: mode, state, .. } = models.entry(model).or_default();
        if let Some(settings) = hash {
            let mode = mode.get_or_insert_with(|| settings.index());
            return mode.decide(config, state, candidates, ask, rng);
        }
        match ask.key {
            Key::Text(prompt) => {
                let tree = text.get_or_insert_with(|| TextTree::new(*limits));
                trees::decide(
                    tree,
                    prompt,
                    Index::String,
                    config,
                    state,
                    candidates,
                    ask,
                    rng,
                    *touch,
                )
            }
            Key::Tokens(prompt) => {
                let new = || TokenTree::new(*limits, config.block_size);
                let tree = tokens.get_or_insert_with(new);
                trees::decide(
                    tree,
                    prompt,
                    Index::Token,
                    config,
                    state,
                    candidates,
                    ask,
                    rng,
                    *touch,
                )
            }
        }
    }

    /// The affinity threshold, for the debug line.
    pub fn threshold(&self) -> f32 {
        self.config.cache_threshold
    }

    /// Forgets a removed worker in every index. A sticky key that names it is placed anew when it is
    /// next used: registrations are told apart.
    pub fn forget(&mut self, worker: WorkerId) {
        for owned in self.models.values_mut() {
            if let Some(tree) = &mut owned.text {
                tree.remove_worker(worker);
            }
            if let Some(tree) = &mut owned.tokens {
                tree.remove_worker(worker);
            }
            if let Some(hash) = &mut owned.hash {
                hash.index.remove_worker(worker);
            }
        }
    }

    /// Workers in a model's trees.
    pub fn tenants(&self, model: ModelId) -> TreeTenants {
        let owned = self.models.get(&model);
        let (text, tokens) = owned.map_or((None, None), |o| (o.text.as_ref(), o.tokens.as_ref()));
        TreeTenants {
            string: text.map_or_else(Vec::new, |tree| tree.workers().collect()),
            token: tokens.map_or_else(Vec::new, |tree| tree.workers().collect()),
        }
    }

    /// Evicts one bounded slice of a model's indexes and sticky keys, and reports their sizes and the
    /// memory they no longer need.
    pub fn sweep(&mut self, model: ModelId, now_ms: u64) -> (SweepReport, Vec<Garbage>) {
        let mut report = SweepReport { done: true, ..SweepReport::default() };
        let mut garbage = Vec::new();
        let budget = self.limits.budget_units;
        let Some(owned) = self.models.get_mut(&model) else { return (report, garbage) };
        let mut note = |report: &mut SweepReport, slice: Slice| {
            report.done &= slice.done;
            report.evicted += slice.entries;
            if !slice.garbage.is_empty() {
                garbage.push(slice.garbage);
            }
        };
        if let Some(tree) = &mut owned.text {
            note(&mut report, tree.evict_slice(budget, SLICE_ENTRIES));
            report.chars = tree.units();
            report.string_tenants = tree.tenants();
        }
        if let Some(tree) = &mut owned.tokens {
            note(&mut report, tree.evict_slice(budget, SLICE_ENTRIES));
            report.tokens = tree.units();
            report.token_tenants = tree.tenants();
        }
        if let Some(hash) = &mut owned.hash {
            note(&mut report, hash.index.sweep(now_ms, SLICE_ENTRIES));
            report.placements = hash.index.entries();
        }
        if let Some(sessions) = &mut owned.sessions {
            let forgotten = sessions.sweep(now_ms, self.max_idle_ms, SLICE_ENTRIES);
            report.done &= forgotten < SLICE_ENTRIES;
            self.pinned -= forgotten;
        }
        (report, garbage)
    }
}
