//! Eviction: leaf-first, oldest first, exact, without a walk.
//!
//! Each worker has a list of its entries in the order of their touch, except entries above one that
//! is as young: they are off the list. So the oldest entry of the list either is a leaf (no child of
//! its node has the worker), or its prompt was used after all longer ones; then it waits off the list
//! too. When an entry's last child goes, the entry is now the oldest leaf: it has the child's touch,
//! and the child was the oldest. It enters the list at the old end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::super::Slice;
use super::super::alphabet::Alphabet;
use super::super::arena::NIL;
use super::super::tenants::Tenant;
use super::RadixTree;
use super::holders::{Handle, TENANT_BITS};
use crate::fleet::WorkerId;

/// The worker with the oldest entry.
#[derive(Debug, Default)]
pub(super) struct OldestFirst {
    /// A lower bound of each listed worker's oldest touch, corrected when it comes up.
    heap: BinaryHeap<Reverse<(u64, Tenant)>>,
    /// Whether a tenant is in the heap.
    is_queued: Vec<bool>,
}

impl OldestFirst {
    /// Notes that a tenant has an entry with this touch or a later one, and none older.
    pub fn note(&mut self, tenant: Tenant, touch: u64) {
        let index = usize::from(tenant);
        if index >= self.is_queued.len() {
            self.is_queued.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.is_queued[index], true) {
            self.heap.push(Reverse((touch, tenant)));
        }
    }
}

/// Size to evict down to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub units: u64,
    pub entries: u64,
}

/// What a run of removals did.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Released {
    pub entries: usize,
    pub units: u64,
}

impl<A: Alphabet> RadixTree<A> {
    /// Frees memory of removed workers, then evicts the oldest entries until the tree counts at most
    /// `target_units` (and its limit of entries), then compacts the slab; all of it up to about
    /// `max_entries` entries' worth of work. Call it again until it is done.
    pub fn evict_slice(&mut self, target_units: u64, max_entries: usize) -> Slice {
        let max_entries = max_entries.max(1);
        let target = Target { units: target_units, entries: self.limits.max_entries };
        let released = self.release_entries(target, max_entries);
        let is_within = self.tenants.first_removed().is_none() && !self.is_over(target);
        let done = is_within && self.compact_slice(max_entries - released.entries);
        Slice {
            entries: released.entries,
            units: released.units,
            done,
            garbage: std::mem::take(&mut self.garbage),
        }
    }

    /// Forgets a worker: no lookup sees it again. Its memory is freed by the next slices. A later
    /// registration in the same slot starts empty.
    pub fn remove_worker(&mut self, worker: WorkerId) {
        if let Some(tenant) = self.tenants.remove(worker) {
            self.discount(tenant);
            self.changed();
        }
    }

    /// Moves a removed worker's units to where memory waits to be freed.
    pub(super) fn discount(&mut self, tenant: Tenant) {
        let state = self.tenants.state(tenant);
        self.size.live_units -= state.units;
        self.size.removed_units += state.units;
        self.size.tenants -= usize::from(state.entries > 0);
    }

    /// Frees up to `max_entries` entries: those of removed workers, then the oldest while the tree is
    /// over the target.
    pub(super) fn release_entries(&mut self, target: Target, max_entries: usize) -> Released {
        let mut released = self.purge(max_entries);
        while released.entries < max_entries && self.is_over(target) {
            let Some(handle) = self.oldest_leaf() else { break };
            released.units += self.release(handle);
            released.entries += 1;
        }
        if released.entries > 0 {
            self.changed();
        }
        released
    }

    /// Frees up to `max_entries` entries of removed workers.
    fn purge(&mut self, max_entries: usize) -> Released {
        let mut released = Released::default();
        while let Some(tenant) = self.tenants.first_removed() {
            match self.oldest_leaf_of(tenant) {
                Some(_) if released.entries == max_entries => break,
                Some(handle) => {
                    released.units += self.release(handle);
                    released.entries += 1;
                }
                None => self.tenants.release_first(),
            }
        }
        released
    }

    fn is_over(&self, target: Target) -> bool {
        self.size.live_units > target.units || self.size.entries > target.entries
    }

    /// The oldest leaf entry of all registered workers.
    fn oldest_leaf(&mut self) -> Option<Handle> {
        loop {
            let &Reverse((bound, tenant)) = self.oldest_first.heap.peek()?;
            let oldest =
                if self.tenants.is_live(tenant) { self.oldest_leaf_of(tenant) } else { None };
            let touch = oldest.map(|handle| self.entry(handle).stamp >> TENANT_BITS);
            let mut top = self.oldest_first.heap.peek_mut()?;
            let (Some(handle), Some(touch)) = (oldest, touch) else {
                PeekMut::pop(top);
                self.oldest_first.is_queued[usize::from(tenant)] = false;
                continue;
            };
            if touch == bound {
                return Some(handle);
            }
            *top = Reverse((touch, tenant));
        }
    }

    /// The oldest leaf entry of one worker. Takes entries that came up too early off the list.
    fn oldest_leaf_of(&mut self, tenant: Tenant) -> Option<Handle> {
        loop {
            let handle = self.tenants.state(tenant).oldest;
            if handle == NIL {
                return None;
            }
            if self.entry(handle).kids == 0 {
                return Some(handle);
            }
            self.unlist(handle);
        }
    }

    /// Removes a leaf entry; returns its units.
    fn release(&mut self, handle: Handle) -> u64 {
        self.prefetch_newer(handle);
        let node_id = self.node_of(handle);
        let tenant = self.entry(handle).tenant();
        let node = &self.nodes[node_id];
        let (parent_id, units) = (node.parent, u64::from(node.units));
        let is_held = self.remove_holder(handle);
        self.discount_entry(tenant, units);
        if !self.nodes[parent_id].is_root()
            && let Some(parent) = self.holder(parent_id, tenant)
            && self.remove_kid(parent) == 0
            && !self.entry(parent).is_listed()
        {
            self.list_oldest(parent);
        }
        if !is_held {
            self.free_node(node_id);
        }
        units
    }

    fn discount_entry(&mut self, tenant: Tenant, units: u64) {
        let is_live = self.tenants.is_live(tenant);
        let state = self.tenants.state_mut(tenant);
        state.units -= units;
        if is_live {
            self.size.live_units -= units;
            self.size.tenants -= usize::from(state.entries == 0);
        } else {
            self.size.removed_units -= units;
        }
    }
}
