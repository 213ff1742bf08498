//! Recount: walks the whole tree and compares it with everything the tree keeps count of.

use std::collections::{HashMap, HashSet};

use super::super::alphabet::Alphabet;
use super::super::arena::NIL;
use super::super::buckets::Chained;
use super::super::tenants::{NO_TENANT, Tenant};
use super::holders::{Stamp, TENANT_BITS, tenant_of};
use super::node::{Node, ROOT};
use super::{RadixTree, Size};

/// (node, tenant) to whether some child has the tenant.
type Holds = HashMap<(u32, Tenant), u32>;

impl<A: Alphabet> RadixTree<A> {
    /// Panics unless every count, list and link is what a walk over the tree finds.
    pub(super) fn check(&self) {
        let holds = self.check_holders();
        self.check_links();
        self.check_sizes();
        self.check_lists(&holds);
    }

    /// All nodes with their ids.
    pub(super) fn each_node(&self) -> impl Iterator<Item = (u32, &Node)> {
        (0..self.nodes.end()).filter_map(|id| self.nodes.get(id).map(|node| (id, node)))
    }

    /// The stamps of a node's holders.
    pub(super) fn stamps(&self, node_id: u32) -> Vec<Stamp> {
        let mut stamps = Vec::new();
        self.each_holder(node_id, |stamp| {
            stamps.push(stamp);
            true
        });
        stamps
    }

    /// Holders are found by tenant, hold the parent too, are never older there, and know how many
    /// children they hold.
    fn check_holders(&self) -> Holds {
        let mut holds = Holds::new();
        for (id, node) in self.each_node() {
            let stamps = self.stamps(id);
            assert_eq!(stamps.is_empty(), node.is_root(), "node {id} has holders {stamps:?}");
            for stamp in stamps {
                let tenant = tenant_of(stamp);
                assert_ne!(tenant, NO_TENANT);
                let handle = self.holder(id, tenant).unwrap();
                assert_eq!({ self.entry(handle).stamp }, stamp);
                assert_eq!(self.node_of(handle), id);
                holds.entry((id, tenant)).or_default();
                if !self.nodes[node.parent].is_root() {
                    let above = self.holder(node.parent, tenant).unwrap();
                    assert!(self.entry(above).stamp >= stamp);
                    *holds.entry((node.parent, tenant)).or_default() += 1;
                }
            }
        }
        for (&(id, tenant), &kids) in &holds {
            assert_eq!({ self.entry(self.holder(id, tenant).unwrap()).kids }, kids);
        }
        holds
    }

    /// Parents know their children, the table has the others, and siblings differ in their first
    /// unit.
    fn check_links(&self) {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        let (mut roots, mut tabled) = (HashSet::new(), 0);
        for (id, node) in self.each_node() {
            if node.is_root() {
                assert!(
                    roots.insert((id != ROOT).then_some(node.start)),
                    "a namespace has two roots"
                );
                assert_eq!(self.root((id != ROOT).then_some(node.start)), Some(id));
                tabled += usize::from(id != ROOT);
            } else {
                children.entry(node.parent).or_default().push(id);
            }
        }
        for (id, node) in self.each_node() {
            let children = children.remove(&id).unwrap_or_default();
            let own = children.iter().filter(|&&child| child == node.child).count();
            assert_eq!(own, usize::from(node.child != NIL));
            assert_eq!(children.len() - own, node.tabled as usize);
            assert!(node.child == NIL || node.tabled == 0);
            assert!(!children.is_empty() || !node.is_root() || id == ROOT);
            tabled += node.tabled as usize;
            for child in children {
                self.check_child(id, node, child);
            }
        }
        assert!(children.is_empty(), "orphans {children:?}");
        assert_eq!(self.table.len(), tabled);
    }

    fn check_child(&self, parent_id: u32, parent: &Node, id: u32) {
        let child = &self.nodes[id];
        let edge = self.edge(child);
        assert_eq!(child.key, self.alphabet.key(edge));
        assert_eq!(u64::from(child.units), self.alphabet.units(edge));
        assert_eq!(self.alphabet.storable(edge), edge.len());
        assert_eq!(self.child(parent, parent_id, edge), Some((id, edge.len())));
        if id != parent.child {
            let mut at = self.table.first(self.nodes.key(id)).id;
            while at != id {
                assert_ne!(at, NIL, "node {id} is not in the table");
                at = self.nodes[at].chain;
            }
        }
    }

    /// Counted sizes and the slab's live part are the sums over the nodes.
    fn check_sizes(&self) {
        let mut size = Size::default();
        let mut per_tenant = vec![(0, 0); usize::from(self.tenants.end())];
        let mut live_items = 0;
        for (id, node) in self.each_node().filter(|(_, node)| !node.is_root()) {
            live_items += u64::from(node.len);
            for stamp in self.stamps(id) {
                let (units, entries) = &mut per_tenant[usize::from(tenant_of(stamp))];
                *units += u64::from(node.units);
                *entries += 1;
            }
        }
        for (tenant, (units, entries)) in per_tenant.into_iter().enumerate() {
            let state = self.tenants.state(tenant as Tenant);
            assert_eq!((state.units, state.entries), (units, entries), "tenant {tenant}");
            size.entries += entries;
            if self.tenants.is_live(tenant as Tenant) {
                size.live_units += units;
                size.tenants += usize::from(entries > 0);
            } else {
                size.removed_units += units;
            }
        }
        assert_eq!(self.size, size);
        assert_eq!(self.workers().count(), size.tenants);
        let (live, filled) = self.slab.usage();
        assert_eq!(live, live_items);
        assert!(live <= filled);
        assert!(size.live_units + size.removed_units <= self.limits.ceiling_units);
    }

    /// Lists are in the order of touches, and every leaf is on its worker's.
    fn check_lists(&self, holds: &Holds) {
        let mut listed = HashSet::new();
        for tenant in 0..self.tenants.end() {
            let state = self.tenants.state(tenant);
            let (mut at, mut older, mut touch) = (state.oldest, NIL, 0);
            while at != NIL {
                let entry = self.entry(at);
                assert!(entry.is_listed());
                let place = (entry.tenant(), entry.older);
                assert_eq!(place, (tenant, older));
                assert!(entry.stamp >> TENANT_BITS > touch, "list of {tenant} is out of order");
                touch = entry.stamp >> TENANT_BITS;
                listed.insert((self.node_of(at), tenant));
                (older, at) = (at, entry.newer);
            }
            assert_eq!(state.newest, older);
        }
        for (hold, &kids) in holds {
            let (node, tenant) = *hold;
            let is_listed = self.entry(self.holder(node, tenant).unwrap()).is_listed();
            assert_eq!(is_listed, listed.contains(hold));
            assert!(kids > 0 || is_listed, "leaf {hold:?} is on no list");
        }
    }
}
