//! Random operations on a tree and on the naive one, compared after every step.

use std::borrow::Borrow;
use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::slab::Slab;
use super::super::{Limits, TextTree, TokenTree};
use super::holders::{TENANT_BITS, tenant_of};
use super::model::{Model, Prefix};
use super::node::ROOT;
use super::{Alphabet, Pages, RadixTree, Text};
use crate::fleet::WorkerId;

/// One step. Prompts are lists of fragment numbers, so that they share prefixes often.
#[derive(Debug, Clone)]
enum Step {
    Find { namespace: u8, prompt: Vec<u8>, eligible: u8 },
    Record { namespace: u8, prompt: Vec<u8>, worker: u8, late: bool },
    Evict { keep_percent: u64, max_entries: usize },
    Remove { worker: u8 },
    Readd { worker: u8 },
}

fn step(max_fragments: usize, workers: u8) -> impl Strategy<Value = Step> {
    let prompt = || {
        prop_oneof![
            4 => prop::collection::vec(0u8..4, 0..max_fragments),
            4 => prop::collection::vec(0u8..12, 0..max_fragments),
            2 => (0..max_fragments).prop_map(|n| vec![0; n]),
        ]
    };
    prop_oneof![
        6 => (0u8..3, prompt(), any::<u8>())
            .prop_map(|(namespace, prompt, eligible)| Step::Find { namespace, prompt, eligible }),
        12 => (0u8..3, prompt(), 0..workers, prop::bool::weighted(0.1)).prop_map(
            |(namespace, prompt, worker, late)| Step::Record { namespace, prompt, worker, late }
        ),
        2 => (0u64..110, 1usize..12)
            .prop_map(|(keep_percent, max_entries)| Step::Evict { keep_percent, max_entries }),
        1 => (0..workers).prop_map(|worker| Step::Remove { worker }),
        1 => (0..workers).prop_map(|worker| Step::Readd { worker }),
    ]
}

/// How prompts of one kind are made and read back.
trait Kind: std::fmt::Debug {
    type Alphabet: Alphabet;
    type Prompt: Borrow<<Self::Alphabet as Alphabet>::Prompt>;
    type Unit: Clone + Ord + std::fmt::Debug;

    fn tree(&self, limits: Limits) -> RadixTree<Self::Alphabet>;
    fn prompt(&self, fragments: &[u8]) -> Self::Prompt;
    fn units(&self, items: &[<Self::Alphabet as Alphabet>::Item]) -> Vec<Self::Unit>;
    fn weight(&self) -> u64;
}

/// Text of one, two, three and four byte characters; equal lead bytes, combining marks. Each fragment
/// comes this many times in a row.
#[derive(Debug, Clone, Copy)]
struct Chars(usize);

/// Tokens in pages, each fragment `repeat` times in a row.
#[derive(Debug, Clone, Copy)]
struct Tokens {
    page: u32,
    repeat: usize,
}

const TEXT_FRAGMENTS: [&str; 12] = [
    "a",
    "b",
    "é",
    "🙂",
    "è",
    "🙃",
    "漢字",
    "漢語",
    "e\u{301}",
    "aa",
    "the system prompt ",
    "aaaaaaaa",
];
const TOKEN_FRAGMENTS: [&[u32]; 12] = [
    &[1],
    &[2],
    &[1, 1],
    &[2, 1],
    &[1, 2, 3, 4],
    &[1, 2, 3, 5],
    &[0],
    &[u32::MAX],
    &[1, 1, 1, 1],
    &[7, 7, 7],
    &[1, 2],
    &[1; 16],
];

impl Kind for Chars {
    type Alphabet = Text;
    type Prompt = String;
    type Unit = char;

    fn tree(&self, limits: Limits) -> TextTree {
        TextTree::new(limits)
    }

    fn prompt(&self, fragments: &[u8]) -> String {
        fragments.iter().map(|&at| TEXT_FRAGMENTS[usize::from(at)].repeat(self.0)).collect()
    }

    fn units(&self, items: &[u8]) -> Vec<char> {
        std::str::from_utf8(items).unwrap().chars().collect()
    }

    fn weight(&self) -> u64 {
        1
    }
}

impl Kind for Tokens {
    type Alphabet = Pages;
    type Prompt = Vec<u32>;
    type Unit = Vec<u32>;

    fn tree(&self, limits: Limits) -> TokenTree {
        TokenTree::new(limits, self.page)
    }

    fn prompt(&self, fragments: &[u8]) -> Vec<u32> {
        fragments
            .iter()
            .flat_map(|&at| TOKEN_FRAGMENTS[usize::from(at)].repeat(self.repeat))
            .collect()
    }

    fn units(&self, items: &[u32]) -> Vec<Vec<u32>> {
        items.chunks_exact(self.page as usize).map(<[u32]>::to_vec).collect()
    }

    fn weight(&self) -> u64 {
        self.page.into()
    }
}

/// A tree, its model, and the fleet's generations.
struct Pair<'a, K: Kind> {
    kind: &'a K,
    tree: RadixTree<K::Alphabet>,
    model: Model<K::Unit>,
    generations: BTreeMap<u8, u32>,
    touch: u64,
}

impl<'a, K: Kind> Pair<'a, K> {
    fn new(kind: &'a K, limits: Limits) -> Self {
        let mut tree = kind.tree(limits);
        // So small that these trees have many segments and are compacted often.
        tree.slab = Slab::new(64);
        Self {
            kind,
            tree,
            model: Model::new(limits, kind.weight()),
            generations: BTreeMap::new(),
            touch: 0,
        }
    }

    fn worker(&self, slot: u8) -> WorkerId {
        let generation = self.generations.get(&slot).copied().unwrap_or(0);
        WorkerId { slot: slot.into(), generation }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Find { namespace, prompt, eligible } => {
                self.find(namespace_of(*namespace), prompt, *eligible);
            }
            Step::Record { namespace, prompt, worker, late } => {
                self.record(namespace_of(*namespace), prompt, *worker, *late);
            }
            Step::Evict { keep_percent, max_entries } => self.evict(*keep_percent, *max_entries),
            Step::Remove { worker } => {
                let worker = self.worker(*worker);
                self.tree.remove_worker(worker);
                self.model.remove(worker);
            }
            Step::Readd { worker } => *self.generations.entry(*worker).or_default() += 1,
        }
        self.compare();
    }

    fn find(&mut self, namespace: Option<u64>, fragments: &[u8], eligible: u8) {
        let prompt = self.kind.prompt(fragments);
        let items = K::Alphabet::items(prompt.borrow());
        let eligible = |worker: WorkerId| eligible >> (worker.slot % 8) & 1 == 1;
        let found = self.tree.find(namespace, prompt.borrow(), eligible);
        let units = self.kind.units(items);
        let answer = self.model.find(namespace, &units, eligible);
        assert_eq!(found.matched_units, answer.matched_units);
        assert_eq!(found.holders(), answer.holders);
        let count = answer.holders.iter().filter(|&&worker| eligible(worker)).count();
        assert_eq!(found.eligible(), &answer.holders[..count]);
        for slot in 0..16 {
            let worker = self.worker(slot);
            let holds = answer.all_holders.contains(&worker);
            assert_eq!(self.tree.is_holder(&found, worker), holds);
        }
    }

    /// Finds and records; a late record comes after another change to the tree.
    fn record(&mut self, namespace: Option<u64>, fragments: &[u8], worker: u8, late: bool) {
        let prompt = self.kind.prompt(fragments);
        let units = self.kind.units(K::Alphabet::items(prompt.borrow()));
        let found = self.tree.find(namespace, prompt.borrow(), |_| true);
        if late {
            self.record(namespace, &fragments[..fragments.len() / 2], worker ^ 1, false);
            self.evict(50, 2);
        }
        // A clock that stands still now and then still orders the records.
        self.touch += u64::from(worker % 3);
        let worker = self.worker(worker);
        self.tree.record(&found, prompt.borrow(), worker, self.touch);
        self.model.record(namespace, &units, worker, self.touch);
    }

    fn evict(&mut self, keep_percent: u64, max_entries: usize) {
        let target = self.tree.units() * keep_percent / 100;
        let slice = self.tree.evict_slice(target, max_entries);
        assert_eq!((slice.entries, slice.units), self.model.evict(target, max_entries));
        let (live, removed, entries) = self.model.sizes();
        let max_entries = self.tree.limits().max_entries;
        let is_within = live <= target && removed == 0 && entries <= max_entries;
        assert!(!slice.done || is_within && !self.tree.slab.is_fragmented());
        assert!(slice.done || !is_within || self.tree.compaction.is_some());
    }

    fn compare(&self) {
        self.tree.check();
        let (live, removed, entries) = self.model.sizes();
        assert_eq!(self.tree.units(), live);
        assert_eq!(self.tree.size.removed_units, removed);
        assert_eq!(self.tree.entries(), entries);
        assert_eq!(self.tree.tenants(), self.model.tenants());
        for slot in 0..16 {
            let worker = self.worker(slot);
            assert_eq!(self.tree.worker_units(worker), self.model.worker_units(worker));
        }
        assert_eq!(self.contents(), self.model.nodes);
    }

    /// The tree as the model sees it.
    fn contents(&self) -> BTreeMap<Prefix<K::Unit>, BTreeMap<WorkerId, u64>> {
        let tree = &self.tree;
        let mut contents = BTreeMap::new();
        for (id, _) in tree.each_node().filter(|(_, node)| !node.is_root()) {
            let (mut at, mut edges) = (id, Vec::new());
            while !tree.nodes[at].is_root() {
                edges.push(tree.edge(&tree.nodes[at]));
                at = tree.nodes[at].parent;
            }
            edges.reverse();
            let namespace = (at != ROOT).then_some(tree.nodes[at].start);
            let holders = tree
                .stamps(id)
                .into_iter()
                .map(|stamp| (tree.tenants.worker(tenant_of(stamp)), stamp >> TENANT_BITS));
            let prefix = (namespace, self.kind.units(&edges.concat()));
            assert!(contents.insert(prefix, holders.collect()).is_none());
        }
        contents
    }
}

fn namespace_of(number: u8) -> Option<u64> {
    [None, Some(0), Some(0xdead_beef_0000_0001)][usize::from(number)]
}

fn roomy() -> Limits {
    Limits::new(1 << 20)
}

/// Limits that records run into.
fn tight() -> Limits {
    Limits { budget_units: 40, ceiling_units: 50, max_entries: 25, seed: 3 }
}

fn run<K: Kind>(kind: &K, limits: Limits, steps: &[Step]) {
    let mut pair = Pair::new(kind, limits);
    for step in steps {
        pair.apply(step);
    }
    assert!((0..1000).any(|_| pair.tree.evict_slice(0, 10).done), "eviction does not end");
    assert_eq!((pair.tree.units(), pair.tree.entries(), pair.tree.tenants()), (0, 0, 0));
    assert_eq!(pair.tree.nodes.len(), 1);
    pair.tree.check();
}

/// Runs sequences of up to `most` steps and says how many steps they were. There are ten sequences in
/// every test run, or one in `rarity` of what `SMG_PROPTEST_CASES` asks for.
#[expect(clippy::disallowed_macros, reason = "a test says how much it has done")]
fn compare<K: Kind>(
    most: usize,
    step: impl Strategy<Value = Step>,
    kinds: impl Strategy<Value = K>,
    limits: Limits,
    rarity: u32,
) {
    let asked = std::env::var("SMG_PROPTEST_CASES").ok().and_then(|n| n.parse::<u32>().ok());
    let cases = (asked.unwrap_or(0) / rarity).max(10);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let operations = Cell::new(0);
    let strategy = (prop::collection::vec(step, 1..most), kinds);
    let outcome = TestRunner::new(config).run(&strategy, |(steps, kind)| {
        run(&kind, limits, &steps);
        operations.set(operations.get() + steps.len());
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    println!("{} operations compared", operations.get());
}

#[test]
fn text_tree_equals_the_naive_tree() {
    compare(60, step(8, 6), Just(Chars(1)), roomy(), 1);
}

#[test]
fn text_tree_equals_the_naive_tree_at_its_limits() {
    compare(60, step(8, 6), Just(Chars(1)), tight(), 1);
}

#[test]
fn token_tree_equals_the_naive_tree() {
    compare(60, step(8, 6), (1u32..6).prop_map(|page| Tokens { page, repeat: 1 }), roomy(), 1);
}

#[test]
fn token_tree_equals_the_naive_tree_at_its_limits() {
    compare(60, step(8, 6), (1u32..6).prop_map(|page| Tokens { page, repeat: 1 }), tight(), 1);
}

/// A record passes the limit of entries by a path new to its worker; a slice of one entry then reaches
/// the target in units and not yet the limit.
#[test]
fn a_slice_within_the_units_and_beyond_the_entries() {
    let record = |namespace, prompt: &[u8], worker, late| Step::Record {
        namespace,
        prompt: prompt.to_vec(),
        worker,
        late,
    };
    let steps = [
        record(0, &[1], 0, false),
        record(1, &[0], 0, false),
        record(0, &[0, 0], 0, false),
        record(2, &[0], 0, false),
        record(0, &[0, 1], 0, false),
        Step::Readd { worker: 1 },
        record(2, &[0, 0, 0, 0], 2, false),
        record(0, &[4, 0], 4, true),
        record(0, &[0, 3, 0], 0, false),
        record(2, &[2, 1], 1, false),
        record(0, &[4, 2], 1, false),
        record(2, &[0, 0, 0], 3, false),
        Step::Evict { keep_percent: 97, max_entries: 1 },
    ];
    run(&Tokens { page: 1, repeat: 1 }, tight(), &steps);
}

/// Short prompts and many workers: nodes with dozens of holders.
#[test]
fn crowds_equal_the_naive_tree() {
    compare(120, step(3, 40), Just(Chars(1)), roomy(), 1);
}

/// Prompts of up to 100,000 characters under a ceiling of a few of them.
#[test]
fn long_texts_equal_the_naive_tree() {
    let limits = Limits { budget_units: 400_000, ceiling_units: 500_000, ..roomy() };
    compare(8, step(8, 6), Just(Chars(700)), limits, 100);
}

/// The same in tokens.
#[test]
fn long_token_prompts_equal_the_naive_tree() {
    let limits = Limits { budget_units: 400_000, ceiling_units: 500_000, ..roomy() };
    compare(8, step(8, 6), (1u32..40).prop_map(|page| Tokens { page, repeat: 800 }), limits, 100);
}
