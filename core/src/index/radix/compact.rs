//! Returning dead slab space: a pass over the nodes moves live edges out of the sparsest segments.

use super::super::alphabet::Alphabet;
use super::super::arena::Arena;
use super::super::slab::Slab;
use super::RadixTree;
use super::node::{Node, child_key};

/// A pass in progress.
#[derive(Debug)]
pub(super) struct Compaction {
    /// Nodes below this id have been visited.
    next_node: u32,
}

/// Nodes visited for each entry of work a slice may do.
const NODES_PER_ENTRY: usize = 4;
/// Distance at which content is asked for.
const NODES_AHEAD: u32 = 16;
/// Most bytes a slice moves (and the last edge may go beyond).
const MOVED_BYTES: usize = 32 * 1024;

impl<A: Alphabet> RadixTree<A> {
    /// Does about `max_entries` entries' worth of compaction. True when nothing is left to do.
    pub(super) fn compact_slice(&mut self, max_entries: usize) -> bool {
        if self.compaction.is_none() {
            if !self.slab.is_fragmented() || !self.slab.retire() {
                return true;
            }
            self.compaction = Some(Compaction { next_node: 0 });
        }
        let Some(pass) = &mut self.compaction else { return true };
        let end = self.nodes.end();
        let stop = end.min(pass.next_node.saturating_add((max_entries * NODES_PER_ENTRY) as u32));
        let mut moved_bytes = 0;
        while pass.next_node < stop && moved_bytes < MOVED_BYTES {
            let id = pass.next_node;
            pass.next_node += 1;
            if let Some(soon) = retiring_edge(&self.nodes, &self.slab, id + NODES_AHEAD) {
                self.slab.prefetch(soon.start, soon.len);
                self.table.prefetch(child_key(soon.parent, soon.key));
            }
            let Some(node) = retiring_edge(&self.nodes, &self.slab, id) else { continue };
            moved_bytes += node.len as usize * size_of::<A::Item>();
            let start = self.slab.relocate(node.start, node.len, &mut self.garbage);
            self.nodes[id].start = start;
            self.table.renew(&self.nodes, id);
        }
        if pass.next_node < end {
            return false;
        }
        self.slab.stop_retiring();
        self.compaction = None;
        !self.slab.is_fragmented()
    }
}

/// The node `id`, if its content is to be moved.
fn retiring_edge<'a, T: Copy + Send + 'static>(
    nodes: &'a Arena<Node>,
    slab: &Slab<T>,
    id: u32,
) -> Option<&'a Node> {
    nodes.get(id).filter(|node| !node.is_root() && slab.is_retiring(node.start))
}
