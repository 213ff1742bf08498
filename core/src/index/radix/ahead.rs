//! What to load early. In a tree that does not fit the CPU's caches each node, edge and entry is a
//! miss of 100 to 300 ns; asked for ahead, several of them are under way at a time. Nothing here
//! changes what a walk finds.

use super::super::alphabet::Alphabet;
use super::super::arena::NIL;
use super::super::buckets::Head;
use super::RadixTree;
use super::holders::{EXTRA, Entry, Handle, OFF_LIST, tenant_of};
use super::node::{Node, child_key};

/// Nodes of a path that are looked at ahead of a record.
const NODES_ABOVE: usize = 32;
/// Crowds among them that are asked for.
const CROWDS_ABOVE: usize = 4;

impl<A: Alphabet> RadixTree<A> {
    /// Starts loading what a walk through `node` needs next, so that it arrives while this node's edge
    /// is compared: the content of its only child and the node below that, or of several children the
    /// head of the chain that has the one `rest` leads to.
    #[inline]
    pub(super) fn look_ahead(&self, node: &Node, id: u32, rest: &[A::Item]) {
        if node.tabled > 0 {
            if let Some(below @ [_, ..]) = rest.get(node.len as usize..) {
                self.table.prefetch(child_key(id, self.alphabet.key(below)));
            }
        } else if node.child != NIL {
            self.nodes.prefetch(node.ahead);
            let child = &self.nodes[node.child];
            self.slab.prefetch(child.start, child.len);
        } else {
            self.prefetch_neighbours(id);
        }
    }

    /// Starts loading, once the head of a chain is there, what its first node will need: the node, its
    /// content, and where that is one character, the head of the chain that has the child `rest` leads to.
    /// `key` is that of `rest`.
    #[inline]
    pub(super) fn prefetch_first(&self, head: Head, key: u32, rest: &[A::Item]) {
        self.nodes.prefetch(head.id);
        if head.len as usize != self.alphabet.spelled_out(key) {
            self.slab.prefetch(head.start, head.len);
        } else if let Some(below @ [_, ..]) = rest.get(head.len as usize..) {
            self.table.prefetch(child_key(head.id, self.alphabet.key(below)));
        }
    }

    /// Starts loading the head of the chain that has the node if its parent has several children.
    #[inline]
    fn prefetch_siblings(&self, id: u32) {
        let node = &self.nodes[id];
        self.table.prefetch(child_key(node.parent, node.key));
    }

    /// Starts loading what recording the first holder of a node again will write: the entries beside
    /// its own on the worker's list, and the list's young end.
    #[inline]
    pub(super) fn prefetch_neighbours(&self, node_id: u32) {
        let Entry { stamp, older, newer, .. } = self.nodes[node_id].entry;
        if older == OFF_LIST {
            return;
        }
        for handle in [older, newer, self.tenants.state(tenant_of(stamp)).newest] {
            if handle & EXTRA == 0 {
                self.nodes.prefetch(handle);
            }
        }
    }

    /// Starts loading the crowd of a node, if it has one.
    #[inline]
    pub(super) fn prefetch_crowd(&self, node: &Node) {
        if let Some(crowd) = node.crowd() {
            self.crowds.prefetch(crowd);
        }
    }

    /// Starts loading what recording the first holder of a node again will write in the crowds above.
    pub(super) fn prefetch_crowds_above(&self, node_id: u32) {
        let tenant = self.nodes[node_id].entry.tenant();
        let mut crowds = [NIL; CROWDS_ABOVE];
        let (mut count, mut at) = (0, node_id);
        for _ in 0..NODES_ABOVE {
            let node = &self.nodes[at];
            if node.is_root() || count == CROWDS_ABOVE {
                break;
            }
            if let Some(crowd) = node.crowd()
                && node.entry.tenant() != tenant
            {
                crowds[count] = crowd;
                self.crowds.get(crowd).prefetch(tenant);
                count += 1;
            }
            at = node.parent;
        }
        for &number in &crowds[..count] {
            if let Some(extra) = self.crowds.get(number).extra(tenant) {
                self.extras.prefetch(extra);
            }
        }
    }

    /// Starts loading what evicting the entries that follow on a list will need: of the fourth, its
    /// record; of the third, its node; of the second, the node above; of the first, what unlinking the
    /// nodes will read; of this one, the holders of the node two above, which is next when the node above
    /// becomes a leaf. Each stage finds loaded what the one before asked for when the list was one
    /// entry longer.
    #[inline]
    pub(super) fn prefetch_newer(&self, handle: Handle) {
        self.prefetch_holders_above(self.nodes[self.node_of(handle)].parent);
        let first = self.entry(handle).newer;
        if first == NIL {
            return;
        }
        self.prefetch_unlinking(self.node_of(first));
        let second = self.entry(first).newer;
        if second == NIL {
            return;
        }
        self.nodes.prefetch(self.nodes[self.node_of(second)].parent);
        let third = self.entry(second).newer;
        if third == NIL {
            return;
        }
        self.nodes.prefetch(self.node_of(third));
        self.prefetch_record(self.entry(third).newer);
    }

    /// Starts loading the chains of siblings of a node and of the node above, and the node above that.
    #[inline]
    fn prefetch_unlinking(&self, id: u32) {
        let parent_id = self.nodes[id].parent;
        let parent = &self.nodes[parent_id];
        if parent.tabled > 0 {
            self.prefetch_siblings(id);
        }
        if !parent.is_root() {
            self.prefetch_siblings(parent_id);
            self.nodes.prefetch(parent.parent);
            self.prefetch_crowd(parent);
        }
    }

    /// Starts loading the first further holder of the node above.
    #[inline]
    fn prefetch_holders_above(&self, id: u32) {
        let node = &self.nodes[id];
        if !node.is_root() {
            let above = &self.nodes[node.parent];
            self.prefetch_crowd(above);
            self.extras.prefetch(above.extra);
        }
    }

    #[inline]
    fn prefetch_record(&self, handle: Handle) {
        match handle & EXTRA {
            0 => self.nodes.prefetch(handle),
            _ => self.extras.prefetch(handle ^ EXTRA),
        }
    }
}
