//! The radix tree: which workers were sent which prompts.
//!
//! A node is one edge of content and the workers that hold it. Whoever holds a node holds its
//! ancestors. A node knows its only child; where there are several, they are found through one hash
//! table for the whole tree, so fan-out costs nothing. Neither depth nor size is ever
//! walked: a lookup follows one path, eviction pops lists ordered by touch ([`evict`]).

mod ahead;
mod compact;
mod crowd;
mod evict;
mod find;
mod holders;
mod node;
mod record;

#[cfg(any(test, debug_assertions))]
mod check;
#[cfg(test)]
mod model;
#[cfg(test)]
mod props;
#[cfg(test)]
mod tests;

use super::alphabet::{Alphabet, Pages, Text};
use super::arena::Arena;
use super::buckets::Buckets;
use super::slab::{SEGMENT_BYTES, Slab};
use super::tenants::Tenants;
use super::{Garbage, Limits};
use crate::fleet::WorkerId;
use compact::Compaction;
use crowd::Crowds;
use evict::OldestFirst;
use holders::{Extra, TenantState};
use node::{Node, ROOT};

pub use find::{Found, MAX_HOLDERS};

/// A radix tree over prompts of one kind, owned by one thread.
#[derive(Debug)]
pub struct RadixTree<A: Alphabet> {
    alphabet: A,
    limits: Limits,
    nodes: Arena<Node>,
    /// All nodes with siblings, by parent and first unit.
    table: Buckets,
    extras: Arena<Extra>,
    crowds: Crowds,
    slab: Slab<A::Item>,
    tenants: Tenants<TenantState>,
    oldest_first: OldestFirst,
    compaction: Option<Compaction>,
    size: Size,
    /// Touch of the latest record; every record gets a later one, so touches are unique.
    clock: u64,
    /// Grows with every change; tells whether a [`Found`] still describes the tree.
    version: u64,
    garbage: Garbage,
}

/// Counted sizes of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Size {
    /// Units of registered workers.
    live_units: u64,
    /// Units of removed workers that are still in memory.
    removed_units: u64,
    /// Entries of all workers.
    entries: u64,
    /// Registered workers with at least one entry.
    tenants: usize,
}

impl RadixTree<Text> {
    /// An empty string tree.
    pub fn new(limits: Limits) -> Self {
        Self::with_alphabet(Text, limits)
    }
}

impl RadixTree<Pages> {
    /// An empty token tree with pages of `page_tokens` tokens (0 counts as 1).
    pub fn new(limits: Limits, page_tokens: u32) -> Self {
        Self::with_alphabet(Pages::new(page_tokens, limits.seed), limits)
    }
}

impl<A: Alphabet> RadixTree<A> {
    /// Counted size in units, each holder counted; removed workers count no more.
    pub fn units(&self) -> u64 {
        self.size.live_units
    }

    /// Counted size of one worker in units.
    pub fn worker_units(&self, worker: WorkerId) -> u64 {
        self.tenants.get(worker).map_or(0, |tenant| self.tenants.state(tenant).units)
    }

    /// Number of registered workers with at least one entry.
    pub fn tenants(&self) -> usize {
        self.size.tenants
    }

    /// The registered workers with at least one entry.
    pub fn workers(&self) -> impl Iterator<Item = WorkerId> {
        self.tenants.live().filter(|(_, state)| state.entries > 0).map(|(worker, _)| worker)
    }

    /// Number of (node, worker) entries in memory, those of removed workers included.
    pub fn entries(&self) -> u64 {
        self.size.entries
    }

    /// The tree's bounds.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Memory released since the last slice of eviction; for a caller that does not run slices.
    pub fn take_garbage(&mut self) -> Garbage {
        std::mem::take(&mut self.garbage)
    }

    fn with_alphabet(alphabet: A, limits: Limits) -> Self {
        let mut nodes = Arena::default();
        let root = nodes.insert(Node::root(None));
        debug_assert_eq!(root, ROOT);
        let limits = Limits { max_entries: limits.max_entries.min(Limits::MAX_ENTRIES), ..limits };
        Self {
            alphabet,
            limits,
            nodes,
            table: Buckets::new(limits.seed),
            extras: Arena::default(),
            crowds: Crowds::default(),
            slab: Slab::new(SEGMENT_BYTES),
            tenants: Tenants::default(),
            oldest_first: OldestFirst::default(),
            compaction: None,
            size: Size::default(),
            clock: 0,
            version: 0,
            garbage: Garbage::default(),
        }
    }

    /// Notes a change. Debug builds recount the whole tree at changes 1, 2, 4, 8, ..., which costs a
    /// constant number of visits per change.
    fn changed(&mut self) {
        self.version += 1;
        #[cfg(debug_assertions)]
        if self.version.is_power_of_two() {
            self.check();
        }
    }
}
