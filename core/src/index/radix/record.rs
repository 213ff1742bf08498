//! Recording: the chosen worker becomes a holder of the whole prompt.

use super::super::alphabet::Alphabet;
use super::super::arena::NIL;
use super::super::tenants::Tenant;
use super::RadixTree;
use super::evict::Target;
use super::find::{Cursor, Found};
use super::holders::{Entry, MAX_TOUCH, TENANT_BITS};
use super::node::Node;
use crate::fleet::WorkerId;

/// Entries evicted at a time where a prompt would pass the ceiling.
const CEILING_SLICE_ENTRIES: usize = 512;

impl<A: Alphabet> RadixTree<A> {
    /// Records `worker` as a holder of the whole prompt that `found` is about, as of `touch`: a
    /// logical clock, below 2^48. A touch that is not later than the last one counts as the next.
    ///
    /// Continues where `find` stopped; if the tree has changed since, the path is walked again.
    /// Evicts first where the prompt would pass the ceiling. Records nothing for an empty prompt, for
    /// tokens below one page, for a removed worker, or for a prompt beyond the ceiling.
    pub fn record(&mut self, found: &Found, prompt: &A::Prompt, worker: WorkerId, touch: u64) {
        let items = A::items(prompt);
        let storable = self.alphabet.storable(items);
        debug_assert_eq!(items.len(), found.cursor.prompt_items, "not the prompt of this lookup");
        if storable == 0 {
            return;
        }
        let Some(tenant) = self.enter(worker) else { return };
        let Some(cursor) = self.make_room(found.cursor, items, storable, tenant) else { return };
        self.clock = touch.max(self.clock + 1).min(MAX_TOUCH);
        let end = self.extend_path(&cursor, &items[cursor.position..storable]);
        self.hold_path(end, tenant);
        self.changed();
    }

    /// Makes the walk's end a node and puts a leaf with the rest of the prompt below it, if there is
    /// any. Returns the node where the prompt ends.
    fn extend_path(&mut self, cursor: &Cursor, rest: &[A::Item]) -> u32 {
        let mut end = match cursor.node {
            NIL => self.root_or_new(cursor.namespace),
            node => node,
        };
        if cursor.in_edge < self.nodes[end].len {
            end = self.split(end, cursor.in_edge, cursor.edge_units as u32);
        }
        if rest.is_empty() {
            return end;
        }
        let leaf = Node {
            start: self.slab.append(rest),
            len: rest.len() as u32,
            units: cursor.rest_units as u32,
            parent: end,
            key: self.alphabet.key(rest),
            ..Node::root(None)
        };
        let id = self.nodes.insert(leaf);
        self.link_child(id);
        id
    }

    /// Cuts a node's edge after `len` items, which are `units` units. The lower part keeps the node's
    /// id, children and entries; the new upper part gets the same holders.
    fn split(&mut self, lower_id: u32, len: u32, units: u32) -> u32 {
        let lower = &self.nodes[lower_id];
        let upper = Node {
            start: lower.start,
            len,
            units,
            parent: lower.parent,
            key: lower.key,
            ..Node::root(None)
        };
        let lower_key = self.alphabet.key(&self.edge(lower)[len as usize..]);
        let upper_id = self.nodes.insert(upper);
        self.replace_child(lower_id, upper_id);

        let lower = &mut self.nodes[lower_id];
        lower.start += u64::from(len);
        lower.len -= len;
        lower.units -= units;
        lower.parent = upper_id;
        lower.key = lower_key;
        self.link_child(lower_id);
        self.copy_holders(lower_id, upper_id);
        upper_id
    }

    /// Makes the tenant a holder of a node and of its ancestors, touched now. The node's entry goes
    /// to the young end of the worker's list. An entry above is as young as the one below it, so it
    /// leaves the list until it is the worker's last on this path.
    fn hold_path(&mut self, end: u32, tenant: Tenant) {
        let stamp = self.clock << TENANT_BITS | u64::from(tenant);
        let mut is_new_below = false;
        let mut at = end;
        let mut below = [NIL; 2];
        while !self.nodes[at].is_root() {
            let handle = match self.holder(at, tenant) {
                Some(handle) => {
                    self.restamp(handle, stamp);
                    if is_new_below {
                        self.add_kid(handle);
                    }
                    is_new_below = false;
                    handle
                }
                None => {
                    let handle = self.add_holder(at, Entry::new(stamp, is_new_below.into()));
                    self.count_units(tenant, self.nodes[at].units);
                    is_new_below = true;
                    handle
                }
            };
            if at == end {
                self.list_newest(handle);
                self.oldest_first.note(tenant, self.clock);
            } else {
                self.unlist(handle);
            }
            let node = &mut self.nodes[at];
            node.ahead = below[1];
            below = [at, below[0]];
            at = node.parent;
        }
    }

    fn count_units(&mut self, tenant: Tenant, units: u32) {
        let state = self.tenants.state_mut(tenant);
        if state.entries == 1 {
            self.size.tenants += 1;
        }
        state.units += u64::from(units);
        self.size.live_units += u64::from(units);
    }

    /// The tenant of a worker that may record.
    fn enter(&mut self, worker: WorkerId) -> Option<Tenant> {
        if let Some(tenant) = self.tenants.get(worker) {
            return Some(tenant);
        }
        if let Some(older) = self.tenants.supersede(worker) {
            self.discount(older);
        }
        // 49,000 registrations removed since the last sweep: their memory has to go now.
        if self.tenants.is_full() {
            let target = Target { units: u64::MAX, entries: u64::MAX };
            while self.release_entries(target, CEILING_SLICE_ENTRIES).entries > 0 {}
        }
        self.tenants.enter(worker)
    }

    /// Evicts until what the worker does not hold of the prompt fits below the ceiling. Returns where
    /// the prompt ends in the tree then, or nothing if it never fits.
    fn make_room(
        &mut self,
        mut cursor: Cursor,
        items: &[A::Item],
        storable: usize,
        tenant: Tenant,
    ) -> Option<Cursor> {
        loop {
            if cursor.version != self.version || cursor.prompt_items != items.len() {
                cursor = self.walk(cursor.namespace, items, storable);
            }
            debug_assert_eq!(cursor, self.walk(cursor.namespace, items, storable));
            // Exact only where it matters: most records are far below the ceiling.
            let most = cursor.units + cursor.rest_units;
            if self.has_room(most) {
                return Some(cursor);
            }
            let growth = self.growth(&cursor, tenant);
            let target = Target {
                units: self.limits.ceiling_units.checked_sub(growth)?,
                entries: self.limits.max_entries.saturating_sub(1),
            };
            // The eviction may reach the prompt's own path, hence the loop: each turn frees something.
            if self.has_room(growth)
                || self.release_entries(target, CEILING_SLICE_ENTRIES).entries == 0
            {
                return Some(cursor);
            }
        }
    }

    fn has_room(&self, growth: u64) -> bool {
        let occupied = self.size.live_units + self.size.removed_units;
        growth <= self.limits.ceiling_units.saturating_sub(occupied)
            && self.size.entries < self.limits.max_entries
    }

    /// Units of a prompt that the worker does not hold.
    fn growth(&self, cursor: &Cursor, tenant: Tenant) -> u64 {
        let mut growth = cursor.rest_units;
        let (mut at, mut units) = (cursor.node, cursor.edge_units);
        while at != NIL && self.holder(at, tenant).is_none() {
            growth += units;
            let parent = self.nodes[at].parent;
            if parent == NIL {
                break;
            }
            (at, units) = (parent, u64::from(self.nodes[parent].units));
        }
        growth
    }
}
