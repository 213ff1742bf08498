//! A gateway's prefix index, and decisions of `cache_aware` over it.
//!
//! A workload knows blocks, not text. To the tree a block is one page, its identity in two "tokens":
//! 512 tokens cost as much as one block. Lengths and matches are turned back into tokens or
//! characters before the policy sees them, and the tree's budget into blocks, so decisions are those
//! of whole prompts except that a match ends with a block. [`IndexOptions::whole_prompts`] feeds the
//! tree text or token IDs instead, to see that it is so.

use smg_core::fleet::WorkerId;
use smg_core::index::{
    Alphabet, HashIndex, Heads, Limits, RadixTree, TextTree, TokenTree, hash_heads,
};
use smg_core::policy::cache_aware::{
    self, CHARS_PER_TOKEN, CacheAwareConfig, HashLookup, TreeMatch,
};
use smg_core::policy::{Candidates, Choice, NoWorker, PolicyState};
use smg_core::rng::Rng;

use super::workload::Request;
use crate::trace::expand;

/// What prompts look like to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prompts {
    /// Text, four characters per token: chats and completions over HTTP.
    #[default]
    Text,
    /// Token IDs: gRPC, `/generate` with `input_ids`, the routing-token header.
    Tokens,
}

/// Settings of the index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexOptions {
    pub prompts: Prompts,
    /// Expand blocks to text or token IDs. Slow, and as much memory as a gateway takes.
    pub whole_prompts: bool,
    /// `--max-tree-size`: characters or tokens.
    pub max_tree_size: u64,
    /// `--cache-index hash` with these `--cache-boundaries` in tokens; empty: the tree.
    pub boundaries: Vec<u32>,
    /// `--cache-ttl-secs`, in milliseconds.
    pub ttl_ms: u64,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            prompts: Prompts::Text,
            whole_prompts: false,
            max_tree_size: 1 << 26,
            boundaries: Vec::new(),
            ttl_ms: 180_000,
        }
    }
}

/// Items of one block in the tree.
const ITEMS_PER_BLOCK: u32 = 2;
/// Entries evicted per slice, as in the gateway.
const SLICE_ENTRIES: usize = 512;

/// The index of one gateway, or of several that share it.
pub struct Index {
    kind: Kind,
    prompts: Prompts,
    block_tokens: u32,
    /// Size to evict down to, in the index's own units.
    budget: u64,
    /// One tick per decision.
    touch: u64,
    scratch: Scratch,
}

enum Kind {
    Blocks(TokenTree),
    Tokens(TokenTree),
    Text(TextTree),
    Hash(HashIndex, Heads),
}

/// Reused by every decision.
#[derive(Default)]
struct Scratch {
    items: Vec<u32>,
    text: String,
}

/// What a decision needs beside the index.
pub struct Ask<'a, 'c> {
    pub config: &'a CacheAwareConfig,
    pub state: &'a mut PolicyState,
    pub candidates: &'a Candidates<'c>,
    pub rng: &'a mut Rng,
}

impl Index {
    /// An empty index for prompts in blocks of `block_tokens`.
    pub fn new(options: &IndexOptions, page_tokens: u32, block_tokens: u32) -> Self {
        let whole = Limits::new(options.max_tree_size);
        let per_block = units_per_block(options.prompts, block_tokens);
        let items = |units: u64| (units * u64::from(ITEMS_PER_BLOCK) / per_block).max(1);
        let limits = Limits {
            budget_units: items(whole.budget_units),
            ceiling_units: items(whole.ceiling_units),
            ..whole
        };
        let (kind, budget) = match (options.boundaries.is_empty(), options.whole_prompts) {
            (false, _) => {
                let boundaries = boundary_items(&options.boundaries, block_tokens);
                let index = HashIndex::new(&boundaries, options.ttl_ms, 0);
                (Kind::Hash(index, Heads::default()), 0)
            }
            (true, false) => {
                (Kind::Blocks(TokenTree::new(limits, ITEMS_PER_BLOCK)), limits.budget_units)
            }
            (true, true) => {
                let kind = match options.prompts {
                    Prompts::Text => Kind::Text(TextTree::new(whole)),
                    Prompts::Tokens => Kind::Tokens(TokenTree::new(whole, page_tokens)),
                };
                (kind, whole.budget_units)
            }
        };
        Self {
            kind,
            prompts: options.prompts,
            block_tokens,
            budget,
            touch: 0,
            scratch: Scratch::default(),
        }
    }

    /// Looks up, chooses and records, as the gateway's owner of a model does.
    ///
    /// # Errors
    /// When nobody may be chosen.
    pub fn decide(&mut self, request: &Request, ask: Ask<'_, '_>) -> Result<Choice, NoWorker> {
        self.touch += 1;
        let Self { kind, prompts, block_tokens, touch, scratch, .. } = self;
        let (prompts, block_tokens) = (*prompts, *block_tokens);
        let tokens = request.sequence.prompt_tokens;
        let blocks = request.prompt_blocks(block_tokens);
        match kind {
            Kind::Blocks(tree) => {
                items_of(request, block_tokens, &mut scratch.items);
                let per_token = u64::from(chars_per_token(prompts));
                let matched = |items: u64| {
                    let whole = items / u64::from(ITEMS_PER_BLOCK) * u64::from(block_tokens);
                    whole.min(u64::from(tokens)) * per_token
                };
                let length = Some(u64::from(tokens) * per_token);
                in_tree(tree, &scratch.items, prompts, tokens, (length, matched), ask, *touch)
            }
            Kind::Tokens(tree) => {
                scratch.items.clear();
                let blocks = with_tail(blocks, request.tail);
                expand::tokens(&blocks, block_tokens, tokens, &mut scratch.items);
                in_tree(tree, &scratch.items, prompts, tokens, (None, |units| units), ask, *touch)
            }
            Kind::Text(tree) => {
                scratch.text.clear();
                let blocks = with_tail(blocks, request.tail);
                expand::text(&blocks, block_tokens, tokens, &mut scratch.text);
                in_tree(tree, &scratch.text, prompts, tokens, (None, |units| units), ask, *touch)
            }
            Kind::Hash(index, heads) => {
                items_of(request, block_tokens, &mut scratch.items);
                by_hash(index, heads, &scratch.items, prompts, tokens, ask)
            }
        }
    }

    /// Evicts one slice of a sweep; false when there is more to do.
    pub fn sweep(&mut self, now_ms: u64) -> bool {
        match &mut self.kind {
            Kind::Blocks(tree) | Kind::Tokens(tree) => {
                tree.evict_slice(self.budget, SLICE_ENTRIES).done
            }
            Kind::Text(tree) => tree.evict_slice(self.budget, SLICE_ENTRIES).done,
            Kind::Hash(index, _) => index.sweep(now_ms, SLICE_ENTRIES).done,
        }
    }
}

/// The request's blocks in the index's items.
pub fn items_of(request: &Request, block_tokens: u32, items: &mut Vec<u32>) {
    items.clear();
    for &block in request.prompt_blocks(block_tokens).iter().chain(&request.tail) {
        items.extend([block as u32, (block >> 32) as u32]);
    }
}

/// Head lengths in tokens as lengths in items: whole blocks, at least one.
pub fn boundary_items(boundaries: &[u32], block_tokens: u32) -> Vec<u32> {
    let items = |&tokens: &u32| (tokens / block_tokens).max(1) * ITEMS_PER_BLOCK;
    let mut items: Vec<u32> = boundaries.iter().map(items).collect();
    items.dedup();
    items
}

fn chars_per_token(prompts: Prompts) -> u32 {
    match prompts {
        Prompts::Text => CHARS_PER_TOKEN as u32,
        Prompts::Tokens => 1,
    }
}

fn units_per_block(prompts: Prompts, block_tokens: u32) -> u64 {
    u64::from(block_tokens) * u64::from(chars_per_token(prompts))
}

/// Length of the prompt if the policy may know it.
pub fn known_tokens(prompts: Prompts, tokens: u32) -> Option<u32> {
    (prompts == Prompts::Tokens).then_some(tokens)
}

fn with_tail(blocks: &[u64], tail: Option<u64>) -> Vec<u64> {
    blocks.iter().copied().chain(tail).collect()
}

/// `units` is the prompt's length, if it is not the tree's own count, and what turns the tree's
/// match into the same units.
fn in_tree<A: Alphabet>(
    tree: &mut RadixTree<A>,
    prompt: &A::Prompt,
    prompts: Prompts,
    tokens: u32,
    (length, matched): (Option<u64>, impl Fn(u64) -> u64),
    ask: Ask<'_, '_>,
    touch: u64,
) -> Result<Choice, NoWorker> {
    let Ask { config, state, candidates, rng } = ask;
    let found = tree.find(None, prompt, {
        let eligibility = state.eligibility(candidates);
        move |worker| eligibility.allows(worker)
    });
    let tokens = known_tokens(prompts, tokens);
    let choice = if cache_aware::under_pressure(config, candidates) {
        cache_aware::choose_under_pressure(state, candidates, tokens, rng)?
    } else {
        let matched = TreeMatch {
            matched_units: matched(found.matched_units),
            total_units: length.unwrap_or(found.total_units),
            holders: found.holders(),
            units_are_chars: prompts == Prompts::Text,
        };
        let is_holder = |worker| tree.is_holder(&found, worker);
        cache_aware::choose(config, state, candidates, &matched, is_holder, tokens, rng)?
    };
    tree.record(&found, prompt, choice.worker, touch);
    Ok(choice)
}

fn by_hash(
    index: &mut HashIndex,
    heads: &mut Heads,
    items: &[u32],
    prompts: Prompts,
    tokens: u32,
    ask: Ask<'_, '_>,
) -> Result<Choice, NoWorker> {
    let Ask { config, state, candidates, rng } = ask;
    let known = known_tokens(prompts, tokens);
    hash_heads(index.boundaries(), None, items, heads);
    let nothing = match prompts {
        Prompts::Text => Some(HashLookup::<[(u32, &[WorkerId]); 0]>::NoTokens),
        Prompts::Tokens if heads.is_short() => Some(HashLookup::ShortRequest),
        Prompts::Tokens => None,
    };
    if let Some(nothing) = nothing {
        let found = cache_aware::choose_hashed(config, state, candidates, nothing, known, rng)?;
        return Ok(found.choice);
    }
    let choice = if cache_aware::under_pressure(config, candidates) {
        cache_aware::choose_under_pressure(state, candidates, known, rng)?
    } else {
        let held = index.find(heads, candidates.now_ms, {
            let eligibility = state.eligibility(candidates);
            move |worker| eligibility.allows(worker)
        });
        let lookup = HashLookup::Levels((held.level > 0).then(|| (held.level, held.holders())));
        cache_aware::choose_hashed(config, state, candidates, lookup, known, rng)?.choice
    };
    index.record(heads, choice.worker, candidates.now_ms);
    Ok(choice)
}
