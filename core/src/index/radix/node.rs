//! Nodes and how they hang together: roots, children, the table of siblings.

use super::super::alphabet::Alphabet;
use super::super::arena::{Arena, NIL, Vacancy};
use super::super::buckets::Chained;
use super::super::slab::Position;
use super::RadixTree;
use super::holders::{CROWD, Entry};

/// Root of the prompts without a namespace; always there.
pub(super) const ROOT: u32 = 0;

/// `parent` of a free place.
const VACANT: u32 = NIL - 1;

/// One edge and its holders: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Node {
    /// Where the edge's content is; in a root, the namespace.
    pub start: Position,
    /// Length of the edge in items; 0 in roots only.
    pub len: u32,
    /// Length of the edge in units.
    pub units: u32,
    /// [`NIL`] in roots.
    pub parent: u32,
    /// Digest of the edge's first unit; 0 in roots.
    pub key: u32,
    /// Next in the chain of the table, if the node is in the table.
    pub chain: u32,
    /// The child, if there has been only one; it is not in the table.
    pub child: u32,
    /// Number of children in the table, otherwise.
    pub tabled: u32,
    /// Further holders: none, a chain of extras, or a crowd.
    pub extra: u32,
    /// A node two levels below on the path recorded last. Only a hint what to load early: it may
    /// name a free or reused place.
    pub ahead: u32,
    /// The first holder.
    pub entry: Entry,
}

const _: () = assert!(size_of::<Node>() == 64);

impl Node {
    /// The root of a namespace.
    pub fn root(namespace: Option<u64>) -> Self {
        Self {
            start: namespace.unwrap_or(0),
            len: 0,
            units: 0,
            parent: NIL,
            key: 0,
            chain: NIL,
            child: NIL,
            tabled: 0,
            extra: NIL,
            ahead: NIL,
            entry: Entry::NONE,
        }
    }

    /// Whether this is the root of a namespace.
    #[inline]
    pub fn is_root(&self) -> bool {
        self.len == 0
    }

    /// Number of the crowd of its further holders, if there are so many.
    #[inline]
    pub fn crowd(&self) -> Option<u32> {
        (self.extra != NIL && self.extra & CROWD != 0).then_some(self.extra ^ CROWD)
    }

    fn has_children(&self) -> bool {
        self.child != NIL || self.tabled > 0
    }
}

impl Vacancy for Node {
    fn vacant(next: u32) -> Self {
        Self { parent: VACANT, chain: next, ..Node::root(None) }
    }

    fn next_vacant(&self) -> Option<u32> {
        (self.parent == VACANT).then_some(self.chain)
    }
}

impl Chained for Arena<Node> {
    fn key(&self, id: u32) -> u64 {
        let node = &self[id];
        // The two kinds of keys may be equal; then the parent tells their nodes apart.
        if node.parent == NIL { node.start } else { child_key(node.parent, node.key) }
    }

    fn next(&self, id: u32) -> u32 {
        self[id].chain
    }

    fn set_next(&mut self, id: u32, next: u32) {
        self[id].chain = next;
    }

    fn content(&self, id: u32) -> (Position, u32) {
        let node = &self[id];
        // What a root has there is its namespace.
        if node.is_root() { (0, 0) } else { (node.start, node.len) }
    }

    fn prefetch(&self, id: u32) {
        self.prefetch(id);
    }
}

impl<A: Alphabet> RadixTree<A> {
    /// The root of a namespace, if it has prompts.
    pub(super) fn root(&self, namespace: Option<u64>) -> Option<u32> {
        let Some(namespace) = namespace else { return Some(ROOT) };
        let mut at = self.table.first(namespace).id;
        while at != NIL {
            let node = &self.nodes[at];
            if node.parent == NIL && node.start == namespace {
                return Some(at);
            }
            at = node.chain;
        }
        None
    }

    /// The root of a namespace, made if there is none.
    pub(super) fn root_or_new(&mut self, namespace: Option<u64>) -> u32 {
        self.root(namespace).unwrap_or_else(|| {
            let id = self.nodes.insert(Node::root(namespace));
            self.table.insert(&mut self.nodes, id);
            id
        })
    }

    /// The content of a node's edge.
    #[inline]
    pub(super) fn edge(&self, node: &Node) -> &[A::Item] {
        self.slab.get(node.start, node.len)
    }

    /// The child of `parent` that shares at least the first unit with `rest`, and the length in items
    /// of what they share.
    #[inline]
    pub(super) fn child(
        &self,
        parent: &Node,
        parent_id: u32,
        rest: &[A::Item],
    ) -> Option<(u32, usize)> {
        let mut key = 0;
        let mut at = parent.child;
        if parent.tabled > 0 {
            key = self.alphabet.key(rest);
            let head = self.table.first(child_key(parent_id, key));
            self.prefetch_first(head, key, rest);
            at = self.sibling(head.id, parent_id, key);
        }
        while at != NIL {
            let child = &self.nodes[at];
            let common = self.shared(parent, child, at, rest);
            if common > 0 {
                return Some((at, common));
            }
            // Another one's first unit may have the same digest.
            at = if parent.tabled > 0 { self.sibling(child.chain, parent_id, key) } else { NIL };
        }
        None
    }

    /// The first child of `parent` with this key in the chain that goes on at `at`.
    #[inline]
    fn sibling(&self, mut at: u32, parent: u32, key: u32) -> u32 {
        while at != NIL {
            let node = &self.nodes[at];
            if node.parent == parent && node.key == key {
                break;
            }
            at = node.chain;
        }
        at
    }

    /// Length in items of what a child of `parent` shares with `rest`. What the walk needs next is asked
    /// for before they are compared.
    #[inline]
    fn shared(&self, parent: &Node, child: &Node, id: u32, rest: &[A::Item]) -> usize {
        self.prefetch_crowd(child);
        // An edge of one unit is its key; its content would be a cache miss for a character.
        if child.len as usize == self.alphabet.spelled_out(child.key) {
            return if child.key == self.alphabet.key(rest) { child.len as usize } else { 0 };
        }
        self.look_ahead(child, id, rest);
        if parent.crowd().is_some() && child.crowd().is_none() {
            self.prefetch_crowds_above(id);
        }
        self.alphabet.common(self.edge(child), rest)
    }

    /// Makes `id`, whose parent and key are set, a child of its parent.
    pub(super) fn link_child(&mut self, id: u32) {
        let parent_id = self.nodes[id].parent;
        let parent = &mut self.nodes[parent_id];
        let first = std::mem::replace(&mut parent.child, NIL);
        match (first, parent.tabled) {
            (NIL, 0) => parent.child = id,
            (NIL, _) => {
                parent.tabled += 1;
                self.table.insert(&mut self.nodes, id);
            }
            _ => {
                parent.tabled = 2;
                self.table.insert(&mut self.nodes, first);
                self.table.insert(&mut self.nodes, id);
            }
        }
    }

    /// Puts `new`, which has the same parent and key, in the place of its sibling `old`.
    pub(super) fn replace_child(&mut self, old: u32, new: u32) {
        let parent_id = self.nodes[old].parent;
        let parent = &mut self.nodes[parent_id];
        if parent.child == old {
            parent.child = new;
        } else {
            self.table.replace(&mut self.nodes, old, new);
        }
    }

    /// Frees a node without holders, which has no children, and its namespace's root with the last
    /// of its prompts.
    pub(super) fn free_node(&mut self, id: u32) {
        let node = &self.nodes[id];
        debug_assert!(!node.has_children(), "node {id} has children and no holder");
        let parent_id = node.parent;
        self.slab.release(node.start, node.len, &mut self.garbage);
        let parent = &mut self.nodes[parent_id];
        if parent.child == id {
            parent.child = NIL;
        } else {
            parent.tabled -= 1;
            self.table.remove(&mut self.nodes, id, &mut self.garbage);
        }
        self.nodes.remove(id, &mut self.garbage);
        let parent = &self.nodes[parent_id];
        if parent.is_root() && parent_id != ROOT && !parent.has_children() {
            self.table.remove(&mut self.nodes, parent_id, &mut self.garbage);
            self.nodes.remove(parent_id, &mut self.garbage);
        }
    }
}

/// Key of a child in the table.
#[inline]
pub(super) fn child_key(parent: u32, key: u32) -> u64 {
    u64::from(parent) << 32 | u64::from(key)
}
