//! Who holds a node: one entry inside the node, further ones in a chain, and beyond a few in a crowd
//! ([`super::crowd`]).

use super::super::alphabet::Alphabet;
use super::super::arena::{NIL, Vacancy};
use super::super::tenants::{NO_TENANT, Tenant};
use super::RadixTree;

/// Touch in the upper 48 bits, tenant in the lower 16.
pub(super) type Stamp = u64;

/// Bits of a stamp that name the tenant.
pub(super) const TENANT_BITS: u32 = Tenant::BITS;

/// The last touch a stamp can hold.
pub(super) const MAX_TOUCH: u64 = (1 << (u64::BITS - TENANT_BITS)) - 1;

/// Names an entry: the id of its node, or of its extra with [`EXTRA`] set.
pub(super) type Handle = u32;

pub(super) const EXTRA: u32 = 1 << 31;

/// In `Node::extra`: the lower bits are a crowd's number, not the first extra of a chain.
pub(super) const CROWD: u32 = 1 << 31;

/// `Entry::older` of an entry that is on no list.
pub(super) const OFF_LIST: u32 = NIL - 1;

/// Extras a node keeps in a chain; one more makes them a crowd.
const MAX_CHAIN: usize = 3;

/// One worker's hold on one node.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct Entry {
    /// Latest use of the node's prefix on this worker.
    pub stamp: Stamp,
    /// Neighbour towards the oldest on the worker's list.
    pub older: Handle,
    /// Neighbour towards the newest.
    pub newer: Handle,
    /// Number of child nodes the worker holds too.
    pub kids: u32,
}

/// An entry beside the node's own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extra {
    entry: Entry,
    node: u32,
    /// Next of the chain.
    next: u32,
}

/// What a tree keeps per worker.
#[derive(Debug)]
pub(super) struct TenantState {
    /// Counted size.
    pub units: u64,
    /// Number of entries.
    pub entries: u64,
    /// Ends of the list of entries ordered by touch.
    pub oldest: Handle,
    pub newest: Handle,
}

impl Entry {
    /// No holder.
    pub const NONE: Self = Self { stamp: NO_TENANT as Stamp, older: OFF_LIST, newer: NIL, kids: 0 };

    /// A hold that is on no list.
    pub fn new(stamp: Stamp, kids: u32) -> Self {
        Self { stamp, kids, ..Self::NONE }
    }

    /// The holder.
    #[inline]
    pub fn tenant(&self) -> Tenant {
        tenant_of(self.stamp)
    }

    /// Whether the entry is on its worker's list.
    #[inline]
    pub fn is_listed(&self) -> bool {
        self.older != OFF_LIST
    }
}

impl Default for TenantState {
    fn default() -> Self {
        Self { units: 0, entries: 0, oldest: NIL, newest: NIL }
    }
}

impl Vacancy for Extra {
    fn vacant(next: u32) -> Self {
        Self { entry: Entry::NONE, node: NIL, next }
    }

    fn next_vacant(&self) -> Option<u32> {
        (self.node == NIL).then_some(self.next)
    }
}

/// The tenant part of a stamp.
#[inline]
pub(super) fn tenant_of(stamp: Stamp) -> Tenant {
    stamp as Tenant
}

impl<A: Alphabet> RadixTree<A> {
    /// The entry behind a handle.
    #[inline]
    pub(super) fn entry(&self, handle: Handle) -> &Entry {
        match handle & EXTRA {
            0 => &self.nodes[handle].entry,
            _ => &self.extras[handle ^ EXTRA].entry,
        }
    }

    #[inline]
    fn entry_mut(&mut self, handle: Handle) -> &mut Entry {
        match handle & EXTRA {
            0 => &mut self.nodes[handle].entry,
            _ => &mut self.extras[handle ^ EXTRA].entry,
        }
    }

    /// The node an entry belongs to.
    #[inline]
    pub(super) fn node_of(&self, handle: Handle) -> u32 {
        match handle & EXTRA {
            0 => handle,
            _ => self.extras[handle ^ EXTRA].node,
        }
    }

    /// The entry of `tenant` at a node.
    #[inline]
    pub(super) fn holder(&self, node_id: u32, tenant: Tenant) -> Option<Handle> {
        let node = &self.nodes[node_id];
        if node.entry.tenant() == tenant {
            return Some(node_id);
        }
        if let Some(crowd) = node.crowd() {
            return self.crowds.get(crowd).extra(tenant).map(|id| id | EXTRA);
        }
        let mut at = node.extra;
        while at != NIL {
            let extra = &self.extras[at];
            if extra.entry.tenant() == tenant {
                return Some(at | EXTRA);
            }
            at = extra.next;
        }
        None
    }

    /// Calls `visit` with the stamp of each holder of a node until it returns false.
    #[inline]
    pub(super) fn each_holder(&self, node_id: u32, mut visit: impl FnMut(Stamp) -> bool) {
        let node = &self.nodes[node_id];
        if node.entry.tenant() != NO_TENANT && !visit(node.entry.stamp) {
            return;
        }
        if let Some(crowd) = node.crowd() {
            for &stamp in self.crowds.get(crowd).stamps() {
                if !visit(stamp) {
                    return;
                }
            }
            return;
        }
        let mut at = node.extra;
        while at != NIL {
            let extra = &self.extras[at];
            if !visit(extra.entry.stamp) {
                return;
            }
            at = extra.next;
        }
    }

    /// Makes the tenant of `entry` a holder of a node it does not hold.
    pub(super) fn add_holder(&mut self, node_id: u32, entry: Entry) -> Handle {
        debug_assert!(self.holder(node_id, entry.tenant()).is_none());
        self.size.entries += 1;
        self.tenants.state_mut(entry.tenant()).entries += 1;
        let node = &mut self.nodes[node_id];
        if node.entry.tenant() == NO_TENANT {
            node.entry = entry;
            return node_id;
        }
        let (next, crowd) = (node.extra, node.crowd());
        let id = self.extras.insert(Extra { entry, node: node_id, next });
        if let Some(crowd) = crowd {
            self.crowds.get_mut(crowd).join(entry.stamp, id);
        } else {
            self.nodes[node_id].extra = id;
            if self.chain_len(id) > MAX_CHAIN {
                self.form_crowd(node_id);
            }
        }
        id | EXTRA
    }

    /// Makes the holders of `lower` holders of its new parent `upper`, on no list there.
    pub(super) fn copy_holders(&mut self, lower: u32, upper: u32) {
        let node = &self.nodes[lower];
        let (own, crowd, mut at) = (node.entry, node.crowd(), node.extra);
        if own.tenant() != NO_TENANT {
            self.add_holder(upper, Entry::new(own.stamp, 1));
        }
        if let Some(crowd) = crowd {
            let stamps = self.crowds.get(crowd).stamps().to_vec();
            for stamp in stamps {
                self.add_holder(upper, Entry::new(stamp, 1));
            }
            return;
        }
        while at != NIL {
            let Extra { entry, next, .. } = self.extras[at];
            self.add_holder(upper, Entry::new(entry.stamp, 1));
            at = next;
        }
    }

    /// Takes a listed entry out of its list and of its node. Returns whether the node has other
    /// holders.
    pub(super) fn remove_holder(&mut self, handle: Handle) -> bool {
        self.unlist(handle);
        let node_id = self.node_of(handle);
        let tenant = self.entry(handle).tenant();
        self.size.entries -= 1;
        self.tenants.state_mut(tenant).entries -= 1;
        if handle & EXTRA == 0 {
            let node = &mut self.nodes[node_id];
            node.entry = Entry::NONE;
            return node.extra != NIL;
        }
        let id = handle ^ EXTRA;
        if let Some(crowd) = self.nodes[node_id].crowd() {
            if !self.crowds.get_mut(crowd).leave(tenant) {
                self.crowds.close(crowd, &mut self.garbage);
                self.nodes[node_id].extra = NIL;
            }
        } else {
            self.leave_chain(node_id, id);
        }
        self.extras.remove(id, &mut self.garbage);
        let node = &self.nodes[node_id];
        node.entry.tenant() != NO_TENANT || node.extra != NIL
    }

    /// Sets an entry's stamp.
    #[inline]
    pub(super) fn restamp(&mut self, handle: Handle, stamp: Stamp) {
        if handle & EXTRA == 0 {
            self.nodes[handle].entry.stamp = stamp;
            return;
        }
        let extra = &mut self.extras[handle ^ EXTRA];
        extra.entry.stamp = stamp;
        if let Some(crowd) = self.nodes[extra.node].crowd() {
            self.crowds.get_mut(crowd).restamp(stamp);
        }
    }

    /// Adds to the number of child nodes the entry's worker holds too.
    #[inline]
    pub(super) fn add_kid(&mut self, handle: Handle) {
        self.entry_mut(handle).kids += 1;
    }

    /// Takes one from the number of child nodes the entry's worker holds too; returns what is left.
    #[inline]
    pub(super) fn remove_kid(&mut self, handle: Handle) -> u32 {
        let entry = self.entry_mut(handle);
        entry.kids -= 1;
        entry.kids
    }

    /// Puts an entry at the young end of its worker's list, from wherever it is.
    pub(super) fn list_newest(&mut self, handle: Handle) {
        self.unlist(handle);
        let state = self.tenants.state_mut(self.entry(handle).tenant());
        let older = std::mem::replace(&mut state.newest, handle);
        match older {
            NIL => state.oldest = handle,
            older => self.entry_mut(older).newer = handle,
        }
        let entry = self.entry_mut(handle);
        (entry.older, entry.newer) = (older, NIL);
    }

    /// Puts an entry that is on no list at the old end of its worker's list.
    pub(super) fn list_oldest(&mut self, handle: Handle) {
        debug_assert!(!self.entry(handle).is_listed());
        let state = self.tenants.state_mut(self.entry(handle).tenant());
        let newer = std::mem::replace(&mut state.oldest, handle);
        match newer {
            NIL => state.newest = handle,
            newer => self.entry_mut(newer).older = handle,
        }
        let entry = self.entry_mut(handle);
        (entry.older, entry.newer) = (NIL, newer);
    }

    /// Takes an entry off its worker's list, if it is on it.
    #[inline]
    pub(super) fn unlist(&mut self, handle: Handle) {
        let Entry { stamp, older, newer, .. } = *self.entry(handle);
        if older == OFF_LIST {
            return;
        }
        self.entry_mut(handle).older = OFF_LIST;
        match newer {
            NIL => self.tenants.state_mut(tenant_of(stamp)).newest = older,
            newer => self.entry_mut(newer).older = older,
        }
        match older {
            NIL => self.tenants.state_mut(tenant_of(stamp)).oldest = newer,
            older => self.entry_mut(older).newer = newer,
        }
    }

    fn chain_len(&self, mut at: u32) -> usize {
        let mut len = 0;
        while at != NIL {
            len += 1;
            at = self.extras[at].next;
        }
        len
    }

    fn leave_chain(&mut self, node_id: u32, id: u32) {
        let next = self.extras[id].next;
        let mut at = self.nodes[node_id].extra;
        if at == id {
            self.nodes[node_id].extra = next;
            return;
        }
        while self.extras[at].next != id {
            at = self.extras[at].next;
        }
        self.extras[at].next = next;
    }

    /// Makes a node's chain a crowd.
    fn form_crowd(&mut self, node_id: u32) {
        let number = self.crowds.open();
        let mut at = self.nodes[node_id].extra;
        self.nodes[node_id].extra = number | CROWD;
        while at != NIL {
            let Extra { entry, next, .. } = self.extras[at];
            self.crowds.get_mut(number).join(entry.stamp, at);
            at = next;
        }
    }
}
