//! Lookup: one walk along the prompt, then the best holders of where it ended.

use super::super::alphabet::Alphabet;
use super::super::arena::NIL;
use super::super::tenants::NO_TENANT;
use super::RadixTree;
use super::holders::TENANT_BITS;
use super::node::ROOT;
use crate::fleet::WorkerId;

/// Most holders a lookup returns.
pub const MAX_HOLDERS: usize = 8;

/// What a lookup found, and where, so that [`RadixTree::record`] can continue there.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Length of the longest recorded prefix of the prompt, in units.
    pub matched_units: u64,
    /// Length of the prompt in units.
    pub total_units: u64,
    holders: [WorkerId; MAX_HOLDERS],
    holder_count: u8,
    eligible_count: u8,
    /// Node whose holders these are; [`NIL`] if nothing matched.
    holder_node: u32,
    pub(super) cursor: Cursor,
}

/// Where the walk along a prompt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    pub version: u64,
    pub namespace: Option<u64>,
    /// Length of the whole prompt in items.
    pub prompt_items: usize,
    /// The last node whose edge shares something with the prompt, or the namespace's root; [`NIL`]
    /// without a root.
    pub node: u32,
    /// Items of that node's edge that match.
    pub in_edge: u32,
    /// Units of that node's edge that match.
    pub edge_units: u64,
    /// Items of the prompt that match.
    pub position: usize,
    /// Units of the prompt that match, whoever holds them.
    pub units: u64,
    /// Units of the storable part that do not match.
    pub rest_units: u64,
}

impl Found {
    /// Holders of the deepest matched node, at most [`MAX_HOLDERS`]: eligible ones first, within
    /// each kind the most recently touched first.
    pub fn holders(&self) -> &[WorkerId] {
        &self.holders[..usize::from(self.holder_count)]
    }

    /// The eligible ones among [`Found::holders`].
    pub fn eligible(&self) -> &[WorkerId] {
        &self.holders[..usize::from(self.eligible_count)]
    }

    /// Matched part of the prompt, 0 for an empty one.
    pub fn ratio(&self) -> f64 {
        if self.total_units == 0 {
            return 0.0;
        }
        self.matched_units as f64 / self.total_units as f64
    }
}

impl<A: Alphabet> RadixTree<A> {
    /// Looks a prompt up in a namespace. `eligible` says whether a worker may be chosen now. Changes
    /// nothing and allocates nothing.
    pub fn find(
        &self,
        namespace: Option<u64>,
        prompt: &A::Prompt,
        eligible: impl Fn(WorkerId) -> bool,
    ) -> Found {
        let items = A::items(prompt);
        let storable = self.alphabet.storable(items);
        let cursor = self.walk(namespace, items, storable);
        let (holder_node, matched_units) = self.held_part(&cursor);
        let mut found = Found {
            matched_units,
            total_units: cursor.units + cursor.rest_units + self.alphabet.units(&items[storable..]),
            holders: [WorkerId { slot: 0, generation: 0 }; MAX_HOLDERS],
            holder_count: 0,
            eligible_count: 0,
            holder_node,
            cursor,
        };
        if holder_node != NIL {
            self.prefetch_neighbours(holder_node);
            self.pick_holders(&mut found, eligible);
        }
        found
    }

    /// Whether `worker` holds the deepest matched node, judged against all its holders. Call it
    /// before the tree changes; after a change only the holders in `found` are known.
    pub fn is_holder(&self, found: &Found, worker: WorkerId) -> bool {
        if found.cursor.version != self.version {
            return found.holders().contains(&worker);
        }
        found.holder_node != NIL
            && self
                .tenants
                .get(worker)
                .is_some_and(|tenant| self.holder(found.holder_node, tenant).is_some())
    }

    /// Follows the first `storable` items of a prompt as far as the tree knows them.
    pub(super) fn walk(
        &self,
        namespace: Option<u64>,
        items: &[A::Item],
        storable: usize,
    ) -> Cursor {
        let root = self.root(namespace);
        let mut at = Cursor {
            version: self.version,
            namespace,
            prompt_items: items.len(),
            node: root.unwrap_or(NIL),
            in_edge: 0,
            edge_units: 0,
            position: 0,
            units: 0,
            rest_units: 0,
        };
        while at.node != NIL && at.position < storable {
            let node = &self.nodes[at.node];
            if at.in_edge < node.len {
                break;
            }
            let rest = &items[at.position..storable];
            let Some((child_id, common)) = self.child(node, at.node, rest) else { break };
            let child = &self.nodes[child_id];
            at.node = child_id;
            at.in_edge = common as u32;
            at.edge_units = if at.in_edge == child.len {
                u64::from(child.units)
            } else {
                self.alphabet.units(&rest[..common])
            };
            at.position += common;
            at.units += at.edge_units;
        }
        at.rest_units = self.alphabet.units(&items[at.position..storable]);
        at
    }

    /// The deepest node of a walk that a registered worker holds, and the units matched there. Holders
    /// of a node hold its ancestors, so the search goes up and ends at the first one.
    fn held_part(&self, cursor: &Cursor) -> (u32, u64) {
        let (mut node_id, mut units) = (cursor.node, cursor.units);
        if units == 0 {
            return (NIL, 0);
        }
        if self.tenants.first_removed().is_none() {
            return (node_id, units);
        }
        let mut matched_here = cursor.edge_units;
        loop {
            let mut is_held = false;
            self.each_holder(node_id, |stamp| {
                is_held = self.tenants.is_live(stamp as u16);
                !is_held
            });
            if is_held {
                return (node_id, units);
            }
            units -= matched_here;
            if units == 0 {
                return (NIL, 0);
            }
            node_id = self.nodes[node_id].parent;
            debug_assert_ne!(node_id, ROOT);
            matched_here = u64::from(self.nodes[node_id].units);
        }
    }

    /// Fills in the best holders of the node found.
    fn pick_holders(&self, found: &mut Found, eligible: impl Fn(WorkerId) -> bool) {
        const ELIGIBLE: u64 = 1 << 63;
        let any_removed = self.tenants.first_removed().is_some();
        // Rank: eligible above all, then the touch; touches are unique per worker and node.
        let mut ranks = [0u64; MAX_HOLDERS];
        let mut count = 0;
        self.each_holder(found.holder_node, |stamp| {
            let touch = stamp >> TENANT_BITS;
            let lowest = if count == MAX_HOLDERS { ranks[MAX_HOLDERS - 1] } else { 0 };
            if count == MAX_HOLDERS && touch | ELIGIBLE <= lowest {
                return true;
            }
            let tenant = stamp as u16;
            debug_assert_ne!(tenant, NO_TENANT);
            if any_removed && !self.tenants.is_live(tenant) {
                return true;
            }
            let worker = self.tenants.worker(tenant);
            let rank = if eligible(worker) { touch | ELIGIBLE } else { touch };
            if count == MAX_HOLDERS && rank <= lowest {
                return true;
            }
            count = (count + 1).min(MAX_HOLDERS);
            let mut place = count - 1;
            while place > 0 && ranks[place - 1] < rank {
                ranks[place] = ranks[place - 1];
                found.holders[place] = found.holders[place - 1];
                place -= 1;
            }
            ranks[place] = rank;
            found.holders[place] = worker;
            true
        });
        found.holder_count = count as u8;
        found.eligible_count =
            ranks[..count].iter().take_while(|&&rank| rank & ELIGIBLE != 0).count() as u8;
    }
}
