//! The naive tree: a sorted map of the prefixes at which some recorded prompt ended or parted from
//! another, with who holds each and since when. Everything is found by looking at all of them.

use std::collections::BTreeMap;

use super::super::Limits;
use crate::fleet::WorkerId;

/// A prefix, unit by unit, in a namespace.
pub(super) type Prefix<U> = (Option<u64>, Vec<U>);

/// Workers and the touch of their latest use.
pub(super) type Holders = BTreeMap<WorkerId, u64>;

/// The naive tree over units that weigh `weight` each.
#[derive(Debug)]
pub(super) struct Model<U> {
    pub nodes: BTreeMap<Prefix<U>, Holders>,
    /// Removed workers that still have entries or were never seen, in the order of removal.
    removed: Vec<WorkerId>,
    limits: Limits,
    weight: u64,
    clock: u64,
}

/// What the naive tree says about a prompt.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub matched_units: u64,
    pub holders: Vec<WorkerId>,
    pub all_holders: Vec<WorkerId>,
}

impl<U: Clone + Ord> Model<U> {
    pub fn new(limits: Limits, weight: u64) -> Self {
        Self { nodes: BTreeMap::new(), removed: Vec::new(), limits, weight, clock: 0 }
    }

    /// The longest prefix a registered worker holds, and its holders: eligible first, then youngest.
    pub fn find(
        &self,
        namespace: Option<u64>,
        prompt: &[U],
        eligible: impl Fn(WorkerId) -> bool,
    ) -> Answer {
        let is_live = |holders: &Holders| holders.keys().any(|w| !self.removed.contains(w));
        let Some((len, node)) = self.longest(namespace, prompt, is_live) else {
            return Answer { matched_units: 0, holders: vec![], all_holders: vec![] };
        };
        let mut holders: Vec<_> =
            self.nodes[&node].iter().filter(|(w, _)| !self.removed.contains(w)).collect();
        holders.sort_by_key(|&(&worker, &touch)| (!eligible(worker), std::cmp::Reverse(touch)));
        let all_holders: Vec<_> = holders.into_iter().map(|(&worker, _)| worker).collect();
        Answer {
            matched_units: len as u64 * self.weight,
            holders: all_holders.iter().copied().take(8).collect(),
            all_holders,
        }
    }

    pub fn record(&mut self, namespace: Option<u64>, prompt: &[U], worker: WorkerId, touch: u64) {
        if prompt.is_empty() {
            return;
        }
        let superseded = self.workers().find(|w| {
            w.slot == worker.slot && w.generation < worker.generation && !self.removed.contains(w)
        });
        self.removed.extend(superseded);
        if self.removed.iter().any(|w| w.slot == worker.slot && w.generation >= worker.generation) {
            return;
        }
        if !self.make_room(namespace, prompt, worker) {
            return;
        }
        self.clock = touch.max(self.clock + 1);
        if let Some((len, node)) = self.longest(namespace, prompt, |_| true)
            && len < node.1.len()
        {
            let holders = self.nodes[&node].clone();
            self.nodes.insert((namespace, prompt[..len].to_vec()), holders);
        }
        self.nodes.entry((namespace, prompt.to_vec())).or_default();
        for ((ns, prefix), holders) in &mut self.nodes {
            if *ns == namespace && prompt.starts_with(prefix) {
                holders.insert(worker, self.clock);
            }
        }
    }

    pub fn remove(&mut self, worker: WorkerId) {
        let older = self
            .workers()
            .filter(|w| w.slot == worker.slot && w.generation <= worker.generation)
            .filter(|w| !self.removed.contains(w));
        let older: Vec<_> = older.chain([worker]).collect();
        for worker in older {
            if !self.removed.contains(&worker) {
                self.removed.push(worker);
            }
        }
    }

    /// Frees up to `max_entries` entries; returns (entries, units) freed.
    pub fn evict(&mut self, target_units: u64, max_entries: usize) -> (usize, u64) {
        self.release(target_units, self.limits.max_entries, max_entries)
    }

    /// (units of registered workers, units of removed ones, entries of all).
    pub fn sizes(&self) -> (u64, u64, u64) {
        let mut sizes = (0, 0, 0);
        for (node, holders) in &self.nodes {
            for worker in holders.keys() {
                let units = self.edge_units(node);
                let side = if self.removed.contains(worker) { &mut sizes.1 } else { &mut sizes.0 };
                *side += units;
                sizes.2 += 1;
            }
        }
        sizes
    }

    /// Units held by one registered worker.
    pub fn worker_units(&self, worker: WorkerId) -> u64 {
        let held = self.nodes.iter().filter(|(_, holders)| holders.contains_key(&worker));
        held.filter(|_| !self.removed.contains(&worker))
            .map(|(node, _)| self.edge_units(node))
            .sum()
    }

    /// Registered workers that hold something.
    pub fn tenants(&self) -> usize {
        let mut workers: Vec<_> = self.workers().filter(|w| !self.removed.contains(w)).collect();
        workers.sort();
        workers.dedup();
        workers.len()
    }

    fn workers(&self) -> impl Iterator<Item = WorkerId> {
        self.nodes.values().flat_map(|holders| holders.keys().copied())
    }

    /// Longest common prefix of the prompt with the nodes `of_interest`, and the shortest such node.
    fn longest(
        &self,
        namespace: Option<u64>,
        prompt: &[U],
        of_interest: impl Fn(&Holders) -> bool,
    ) -> Option<(usize, Prefix<U>)> {
        let nodes = self.nodes.iter().filter(|((ns, _), h)| *ns == namespace && of_interest(h));
        nodes
            .map(|(node, _)| (node.1.iter().zip(prompt).take_while(|(a, b)| a == b).count(), node))
            .filter(|&(len, _)| len > 0)
            .max_by_key(|&(len, node)| (len, std::cmp::Reverse(node.1.len())))
            .map(|(len, node)| (len, node.clone()))
    }

    fn edge_units(&self, (namespace, prefix): &Prefix<U>) -> u64 {
        let above = self.nodes.keys().filter(|(other_namespace, other)| {
            other_namespace == namespace && other.len() < prefix.len() && prefix.starts_with(other)
        });
        let above = above.map(|(_, other)| other.len()).max();
        (prefix.len() - above.unwrap_or(0)) as u64 * self.weight
    }

    fn make_room(&mut self, namespace: Option<u64>, prompt: &[U], worker: WorkerId) -> bool {
        loop {
            let held = self.longest(namespace, prompt, |holders| holders.contains_key(&worker));
            let held = held.map_or(0, |(len, _)| len);
            let growth = (prompt.len() - held) as u64 * self.weight;
            if growth > self.limits.ceiling_units {
                return false;
            }
            let target = self.limits.ceiling_units - growth;
            let target_entries = self.limits.max_entries - 1;
            let (live, removed, entries) = self.sizes();
            if live + removed <= target && entries <= target_entries
                || self.release(target, target_entries, 512).0 == 0
            {
                return true;
            }
        }
    }

    fn release(&mut self, units: u64, entries: u64, max_entries: usize) -> (usize, u64) {
        let mut released = (0, 0);
        while released.0 < max_entries {
            let (live, _, count) = self.sizes();
            let victim = match self.removed.iter().find_map(|&w| self.oldest_leaf(|x| x == w)) {
                Some(victim) => Some(victim),
                None if live > units || count > entries => self.oldest_leaf(|_| true),
                None => None,
            };
            let Some((node, worker)) = victim else { break };
            released.0 += 1;
            released.1 += self.edge_units(&node);
            let holders = self.nodes.get_mut(&node).unwrap();
            holders.remove(&worker);
            if holders.is_empty() {
                self.nodes.remove(&node);
            }
        }
        released
    }

    /// The oldest entry whose worker holds nothing below it.
    fn oldest_leaf(&self, of: impl Fn(WorkerId) -> bool) -> Option<(Prefix<U>, WorkerId)> {
        let is_leaf = |(ns, prefix): &Prefix<U>, worker: WorkerId| {
            !self.nodes.iter().any(|((other_ns, other), holders)| {
                other_ns == ns
                    && other.len() > prefix.len()
                    && other.starts_with(prefix)
                    && holders.contains_key(&worker)
            })
        };
        let entries =
            self.nodes.iter().flat_map(|(node, holders)| holders.iter().map(move |h| (node, h)));
        entries
            .filter(|(node, (worker, _))| of(**worker) && is_leaf(node, **worker))
            .min_by_key(|(_, (_, touch))| **touch)
            .map(|(node, (worker, _))| (node.clone(), *worker))
    }
}
