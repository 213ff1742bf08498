//! Prefix indexes: where this gateway sent earlier prompts, so that a request can follow its prefix
//! to the worker whose KV cache probably holds it.
//!
//! [`TextTree`] and [`TokenTree`] are one radix tree over characters and over pages of token IDs;
//! [`HashIndex`] remembers heads of fixed lengths for a while. Each is owned by one thread. The
//! protocol of a decision is `find`, then the caller chooses, then `record`: one pass over the
//! prompt and one walk over the path, since `record` continues where `find` stopped.

mod alphabet;
mod arena;
mod buckets;
mod chunk;
mod hash;
mod radix;
mod shard;
mod slab;
mod tenants;

pub use alphabet::{Alphabet, Pages, Text};
pub use chunk::{Allotment, Source, use_source};
pub use hash::{HASH_INDEX_MAX_ENTRIES, HashIndex, Heads, MAX_HEAD_HOLDERS, Placement, hash_heads};
pub use radix::{Found, MAX_HOLDERS, RadixTree};
pub use shard::{TEXT_SHARD_CHARS, text_shard, token_shard};

/// The string tree: units are Unicode scalar values.
pub type TextTree = RadixTree<Text>;

/// The token tree: units are token IDs, matched and stored in whole pages.
pub type TokenTree = RadixTree<Pages>;

/// Bounds of one tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Size a sweep evicts down to, in units (characters or tokens), each holder counted.
    pub budget_units: u64,
    /// Size the tree never exceeds, in units, memory of removed workers included. A prompt that
    /// cannot fit below it is not recorded.
    pub ceiling_units: u64,
    /// Most (node, worker) entries, which bounds memory where edges are very short. A record evicts
    /// down to it first and may then pass it by the nodes of its own path.
    pub max_entries: u64,
    /// Keys the digests of first pages, so that a client cannot prepare colliding prompts.
    pub seed: u64,
}

impl Limits {
    /// Headroom between sweeps where a quarter of the budget would not hold one ordinary prompt.
    pub const MIN_HEADROOM_UNITS: u64 = 65_536;
    /// Fewest entries a tree may hold, however small its budget.
    pub const MIN_ENTRIES: u64 = 65_536;
    /// Most entries of any tree; keeps every 32-bit id in range.
    pub const MAX_ENTRIES: u64 = 1 << 29;

    /// The bounds of a tree with this budget: a ceiling of 1.25 times the budget (but at least
    /// [`Limits::MIN_HEADROOM_UNITS`] above it), and one entry per four units.
    pub fn new(budget_units: u64) -> Self {
        Self {
            budget_units,
            ceiling_units: budget_units
                .saturating_add((budget_units / 4).max(Self::MIN_HEADROOM_UNITS)),
            max_entries: (budget_units / 4).clamp(Self::MIN_ENTRIES, Self::MAX_ENTRIES),
            seed: 0,
        }
    }

    /// The same bounds with digests keyed by `seed`.
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }
}

/// What one slice of eviction or sweeping did.
#[derive(Debug, Default)]
pub struct Slice {
    /// Entries removed.
    pub entries: usize,
    /// Units removed (trees only), each holder counted.
    pub units: u64,
    /// Nothing is left to do: within the target, no memory of removed workers, no fragmented slab.
    pub done: bool,
    /// Memory the structure no longer needs.
    pub garbage: Garbage,
}

/// Memory to be freed away from the thread that owns an index: send it elsewhere and drop it.
#[derive(Default)]
pub struct Garbage(Vec<Box<dyn Send>>);

impl Garbage {
    /// Whether there is nothing worth sending.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes over `memory`.
    fn push(&mut self, memory: impl Send + 'static) {
        self.0.push(Box::new(memory));
    }
}

impl std::fmt::Debug for Garbage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Garbage").field(&self.0.len()).finish()
    }
}

/// A 128-bit product folded to 64 bits.
#[inline]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
