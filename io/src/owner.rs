//! The indexes of the models a shard owns, and the decisions made over them: match, choose, record
//! and credit in one turn.

use std::collections::HashMap;

use smg_core::fleet::{ModelId, WorkerId};
use smg_core::index::{Limits, TextTree, TokenTree};
use smg_core::policy::cache_aware::{self, CacheAwareConfig, TreeMatch};
use smg_core::policy::{Branch, Candidates, Choice, NoWorker, PolicyState};
use smg_core::rng::Rng;

use crate::config::Config;
use crate::messages::SweepReport;
use crate::policies;
use crate::runtime::clock;

/// Entries evicted per slice.
const SLICE_ENTRIES: usize = 512;

/// What a request routes on.
#[derive(Debug, Clone, Copy)]
pub enum Key<'a> {
    /// Text of the prompt.
    Text(&'a str),
    /// Token IDs of the prompt, at least one.
    Tokens(&'a [u32]),
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
#[derive(Debug, Clone, Copy)]
pub struct Decided {
    /// The worker, and how it came about.
    pub choice: Choice,
    /// Which index was asked.
    pub index: Index,
    /// Matched share of the request; `None` when no tree was asked.
    pub ratio: Option<f32>,
}

/// An index of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    String = 0,
    Token = 1,
}

/// The indexes of one model, made when first needed.
struct Indexes {
    text: Option<TextTree>,
    tokens: Option<TokenTree>,
    state: PolicyState,
}

/// Owned by one shard.
pub struct Owner {
    config: CacheAwareConfig,
    limits: Limits,
    models: HashMap<ModelId, Indexes>,
    /// Logical clock of the trees: one tick per decision.
    touch: u64,
}

impl Owner {
    /// Owns nothing yet.
    pub fn new(config: &Config) -> Self {
        let budget = config.cache.max_tree_size as u64;
        Self {
            config: policies::cache_aware_config(config),
            limits: Limits::new(budget).with_seed(clock::seed()),
            models: HashMap::new(),
            touch: 0,
        }
    }

    /// Decides where a request goes and records it there.
    ///
    /// # Errors
    /// When no worker may be chosen; nothing is recorded then.
    pub fn decide(
        &mut self,
        model: ModelId,
        candidates: &Candidates<'_>,
        key: Key<'_>,
        namespace: Option<u64>,
        rng: &mut Rng,
    ) -> Result<Decided, NoWorker> {
        self.touch += 1;
        let Self { config, limits, models, touch } = self;
        let indexes = models.entry(model).or_insert_with(|| Indexes {
            text: None,
            tokens: None,
            state: PolicyState::default(),
        });
        let state = &mut indexes.state;
        match key {
            Key::Text(text) => {
                let tree = indexes.text.get_or_insert_with(|| TextTree::new(*limits));
                let found = tree.find(namespace, text, {
                    let eligibility = state.eligibility(candidates);
                    move |worker| eligibility.allows(worker)
                });
                let matched = TreeMatch {
                    matched_units: found.matched_units,
                    total_units: found.total_units,
                    holders: found.holders(),
                    units_are_chars: true,
                };
                let decided = choose(config, state, candidates, &matched, None, rng, |worker| {
                    tree.is_holder(&found, worker)
                })?;
                tree.record(&found, text, decided.choice.worker, *touch);
                Ok(decided)
            }
            Key::Tokens(tokens) => {
                let tree = indexes
                    .tokens
                    .get_or_insert_with(|| TokenTree::new(*limits, config.block_size));
                let found = tree.find(namespace, tokens, {
                    let eligibility = state.eligibility(candidates);
                    move |worker| eligibility.allows(worker)
                });
                let matched = TreeMatch {
                    matched_units: found.matched_units,
                    total_units: found.total_units,
                    holders: found.holders(),
                    units_are_chars: false,
                };
                let length = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
                let decided =
                    choose(config, state, candidates, &matched, Some(length), rng, |worker| {
                        tree.is_holder(&found, worker)
                    })?;
                tree.record(&found, tokens, decided.choice.worker, *touch);
                Ok(decided)
            }
        }
    }

    /// The affinity threshold, for the debug line.
    pub fn threshold(&self) -> f32 {
        self.config.cache_threshold
    }

    /// Forgets a removed worker in every index.
    pub fn forget(&mut self, worker: WorkerId) {
        for indexes in self.models.values_mut() {
            if let Some(tree) = &mut indexes.text {
                tree.remove_worker(worker);
            }
            if let Some(tree) = &mut indexes.tokens {
                tree.remove_worker(worker);
            }
        }
    }

    /// Evicts one bounded slice of a model's indexes and reports their sizes.
    pub fn sweep(&mut self, model: ModelId) -> SweepReport {
        let mut report = SweepReport { done: true, ..SweepReport::default() };
        let budget = self.limits.budget_units;
        let Some(indexes) = self.models.get_mut(&model) else { return report };
        if let Some(tree) = &mut indexes.text {
            let slice = tree.evict_slice(budget, SLICE_ENTRIES);
            report.done &= slice.done;
            report.evicted += slice.entries;
            report.chars = tree.units();
            report.string_tenants = tree.tenants();
        }
        if let Some(tree) = &mut indexes.tokens {
            let slice = tree.evict_slice(budget, SLICE_ENTRIES);
            report.done &= slice.done;
            report.evicted += slice.entries;
            report.tokens = tree.units();
            report.token_tenants = tree.tenants();
        }
        report
    }
}

fn choose(
    config: &CacheAwareConfig,
    state: &mut PolicyState,
    candidates: &Candidates<'_>,
    matched: &TreeMatch<'_>,
    tokens: Option<u32>,
    rng: &mut Rng,
    is_holder: impl Fn(WorkerId) -> bool,
) -> Result<Decided, NoWorker> {
    let index = if matched.units_are_chars { Index::String } else { Index::Token };
    if cache_aware::under_pressure(config, candidates) {
        let choice = cache_aware::choose_under_pressure(state, candidates, tokens, rng)?;
        return Ok(Decided { choice, index, ratio: None });
    }
    let choice = cache_aware::choose(config, state, candidates, matched, is_holder, tokens, rng)?;
    debug_assert!(choice.branch != Branch::KvPressureExpectedWait);
    Ok(Decided { choice, index, ratio: Some(matched.ratio()) })
}
