use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::{HashIndex, Heads, hash_heads};
use crate::fleet::WorkerId;

fn worker(slot: u32) -> WorkerId {
    WorkerId { slot, generation: 0 }
}

fn heads(boundaries: &[u32], namespace: Option<u64>, tokens: &[u32]) -> Heads {
    let mut heads = Heads::default();
    hash_heads(boundaries, namespace, tokens, &mut heads);
    heads
}

/// An index with boundaries 4 and 8 and a TTL of 1,000 ms.
fn index() -> HashIndex {
    HashIndex::new(&[4, 8], 1000, 5)
}

/// Heads of `len` tokens from `first` on.
fn run(first: u32, len: u32) -> Heads {
    heads(&[4, 8], None, &(first..first + len).collect::<Vec<_>>())
}

/// Level and slots of the holders.
fn find(index: &HashIndex, heads: &Heads, now_ms: u64) -> (u32, Vec<u32>) {
    let found = index.find(heads, now_ms, |_| true);
    (found.level, found.holders().iter().map(|worker| worker.slot).collect())
}

#[test]
fn the_published_vectors() {
    assert_eq!(heads(&[4], None, &[1, 2, 3, 4]).hashes(), [0x6fc1_ebd4_f4d6_ea31]);
    let salted = Some(0x5a75_9d17_a627_c050);
    assert_eq!(heads(&[4], salted, &[1, 2, 3, 4]).hashes(), [0x4c16_b549_65c2_35c4]);
}

#[test]
fn one_pass_gives_the_hash_of_every_head() {
    let tokens: Vec<u32> = (0..5000).collect();
    let together = heads(&[1, 16, 1024, 3000, 5000, 5001], Some(9), &tokens);
    assert_eq!(together.hashes().len(), 5);
    for (at, boundary) in [1, 16, 1024, 3000, 5000].into_iter().enumerate() {
        let alone = heads(&[boundary], Some(9), &tokens);
        assert_eq!(together.hashes()[at], alone.hashes()[0]);
    }
}

#[test]
fn the_deepest_boundary_with_a_holder_wins() {
    let mut index = index();
    index.record(&run(1, 6), worker(0), 0);
    assert_eq!(index.entries(), 1);
    let ten = heads(&[4, 8], None, &[1, 2, 3, 4, 50, 51, 52, 53, 54, 55]);
    assert_eq!(find(&index, &ten, 1), (4, vec![0]));
    index.record(&ten, worker(1), 1);
    assert_eq!(index.entries(), 2);
    assert_eq!(find(&index, &ten, 2), (8, vec![1]));
    assert_eq!(find(&index, &run(1, 6), 2), (4, vec![1, 0]));
    assert_eq!(find(&index, &run(9, 8), 2), (0, vec![]));
}

#[test]
fn a_boundary_applies_at_its_own_length_and_not_below() {
    assert!(run(1, 3).is_short());
    assert_eq!(run(1, 4).hashes().len(), 1);
    assert_eq!(run(1, 8).hashes().len(), 2);
    let mut index = index();
    index.record(&run(1, 3), worker(0), 0);
    assert_eq!((index.entries(), find(&index, &run(1, 3), 0)), (0, (0, vec![])));
}

#[test]
fn an_ineligible_deep_holder_gives_way_to_a_shallower_head() {
    let mut index = index();
    index.record(&run(1, 8), worker(0), 0);
    index.record(&run(1, 4), worker(1), 0);
    let found = index.find(&run(1, 8), 0, |worker| worker.slot == 1);
    assert_eq!((found.level, found.holders()), (4, &[worker(1)][..]));
}

#[test]
fn holders_live_for_the_ttl_inclusive_and_use_refreshes_them() {
    let mut index = index();
    index.record(&run(1, 4), worker(0), 0);
    assert_eq!(find(&index, &run(1, 4), 1000), (4, vec![0]));
    assert_eq!(find(&index, &run(1, 4), 1001), (0, vec![]));
    index.record(&run(1, 4), worker(0), 800);
    assert_eq!(find(&index, &run(1, 4), 1800), (4, vec![0]));
    assert!(index.sweep(1800, 10).done);
    assert_eq!(index.entries(), 1);
    assert_eq!(index.sweep(1801, 10).entries, 1);
    assert_eq!(index.entries(), 0);
}

#[test]
fn a_fourth_holder_replaces_the_stalest() {
    let mut index = index();
    for (slot, now_ms) in [(0, 0), (1, 10), (2, 20), (0, 30), (3, 40)] {
        index.record(&run(1, 4), worker(slot), now_ms);
    }
    let (level, mut slots) = find(&index, &run(1, 4), 50);
    slots.sort_unstable();
    assert_eq!((level, slots), (4, vec![0, 2, 3]));
}

#[test]
fn a_dead_holder_is_replaced_before_a_live_one() {
    let mut index = index();
    for (slot, now_ms) in [(0, 0), (1, 900), (2, 950)] {
        index.record(&run(1, 4), worker(slot), now_ms);
    }
    index.remove_worker(worker(2));
    index.record(&run(1, 4), worker(3), 960);
    assert_eq!(find(&index, &run(1, 4), 970).1.len(), 3, "0, 1 and 3");
    index.record(&run(1, 4), worker(4), 1100);
    let (_, mut slots) = find(&index, &run(1, 4), 1100);
    slots.sort_unstable();
    assert_eq!(slots, [1, 3, 4], "0 expired");
}

#[test]
fn namespaces_and_levels_are_part_of_the_key() {
    let mut index = index();
    let tokens = [1, 2, 3, 4, 5, 6, 7, 8];
    index.record(&heads(&[4, 8], Some(1), &tokens), worker(0), 0);
    assert_eq!(find(&index, &heads(&[4, 8], Some(2), &tokens), 0), (0, vec![]));
    assert_eq!(find(&index, &heads(&[4, 8], None, &tokens), 0), (0, vec![]));
    assert_eq!(find(&index, &heads(&[4, 8], Some(1), &tokens), 0), (8, vec![0]));
    // the same hash under another namespace is another head
    let forged = Heads { namespace: None, ..heads(&[4, 8], Some(1), &tokens) };
    assert_eq!(find(&index, &forged, 0), (0, vec![]));
}

#[test]
fn a_removed_worker_is_gone_at_once_and_its_entries_with_the_sweep() {
    let mut index = index();
    index.record(&run(1, 8), worker(0), 0);
    index.record(&run(1, 4), worker(1), 0);
    index.remove_worker(worker(0));
    assert_eq!(find(&index, &run(1, 8), 0), (4, vec![1]));
    index.record(&run(100, 8), worker(0), 0);
    assert_eq!(find(&index, &run(100, 8), 0), (0, vec![]), "a late record");
    assert!(!index.sweep(0, 1).done);
    assert!((0..5000).any(|_| index.sweep(0, 10).done));
    assert_eq!(index.entries(), 1);
    let back = WorkerId { slot: 0, generation: 1 };
    index.record(&run(100, 8), back, 0);
    assert_eq!(index.find(&run(100, 8), 0, |_| true).holders(), [back]);
}

#[test]
fn at_the_cap_the_head_used_longest_ago_is_dropped() {
    let mut index = HashIndex::with_capacity(&[4, 8], 1000, 5, 3);
    for (first, now_ms) in [(10, 0), (20, 1), (30, 2), (10, 3), (40, 4)] {
        index.record(&run(first, 4), worker(0), now_ms);
    }
    assert_eq!(index.entries(), 3);
    let left: Vec<_> = [10, 20, 30, 40].map(|first| find(&index, &run(first, 4), 5).0).into();
    assert_eq!(left, [4, 0, 4, 4]);
}

/// One step of a random history.
#[derive(Debug, Clone)]
enum Step {
    Record { namespace: Option<u64>, tokens: Vec<u32>, worker: u32 },
    Find { namespace: Option<u64>, tokens: Vec<u32>, eligible: u8 },
    Wait { ms: u64 },
    Remove { worker: u32 },
    Readd { worker: u32 },
    Sweep { max_entries: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let tokens = || prop::collection::vec(0u32..2, 0..7);
    let namespace = || prop_oneof![Just(None), Just(Some(0)), Just(Some(7))];
    prop_oneof![
        8 => (namespace(), tokens(), 0u32..6)
            .prop_map(|(namespace, tokens, worker)| Step::Record { namespace, tokens, worker }),
        8 => (namespace(), tokens(), any::<u8>())
            .prop_map(|(namespace, tokens, eligible)| Step::Find { namespace, tokens, eligible }),
        4 => (0u64..60).prop_map(|ms| Step::Wait { ms }),
        1 => (0u32..6).prop_map(|worker| Step::Remove { worker }),
        1 => (0u32..6).prop_map(|worker| Step::Readd { worker }),
        2 => (1usize..9).prop_map(|max_entries| Step::Sweep { max_entries }),
    ]
}

const BOUNDARIES: [u32; 3] = [1, 3, 5];
const TTL_MS: u64 = 100;
const CAP: usize = 12;

/// Heads by their tokens, with holders and the time of their use.
#[derive(Default)]
struct Model {
    heads: BTreeMap<(Option<u64>, Vec<u32>), Head>,
    removed: BTreeSet<WorkerId>,
    /// Workers that have ever recorded; whether one of them was removed since the last sweep.
    recorded: BTreeSet<WorkerId>,
    has_purge: bool,
    records: u64,
}

#[derive(Default)]
struct Head {
    /// In the order of use.
    holders: Vec<(WorkerId, u64)>,
    /// Number of the record that used it last.
    used: u64,
}

impl Model {
    fn is_live(&self, &(worker, time): &(WorkerId, u64), now_ms: u64) -> bool {
        now_ms - time <= TTL_MS && !self.removed.contains(&worker)
    }

    fn record(&mut self, namespace: Option<u64>, tokens: &[u32], worker: WorkerId, now_ms: u64) {
        if self.removed.contains(&worker) || tokens.is_empty() {
            return;
        }
        self.recorded.insert(worker);
        for len in BOUNDARIES.map(|len| len as usize).into_iter().filter(|&len| len <= tokens.len())
        {
            self.records += 1;
            let key = (namespace, tokens[..len].to_vec());
            if !self.heads.contains_key(&key) && self.heads.len() == CAP {
                let oldest = self.heads.iter().min_by_key(|(_, head)| head.used).unwrap().0.clone();
                self.heads.remove(&oldest);
            }
            let mut head = self.heads.remove(&key).unwrap_or_default();
            head.holders.retain(|holder| holder.0 != worker && self.is_live(holder, now_ms));
            if head.holders.len() == 3 {
                head.holders.remove(0);
            }
            head.holders.push((worker, now_ms));
            head.used = self.records;
            self.heads.insert(key, head);
        }
    }

    fn find(
        &self,
        namespace: Option<u64>,
        tokens: &[u32],
        now_ms: u64,
        eligible: impl Fn(WorkerId) -> bool,
    ) -> (u32, Vec<WorkerId>) {
        for len in BOUNDARIES.into_iter().rev().filter(|&len| len as usize <= tokens.len()) {
            let head = self.heads.get(&(namespace, tokens[..len as usize].to_vec()));
            let holders = head.map_or(&[][..], |head| &head.holders[..]).iter();
            let holders =
                holders.filter(|holder| self.is_live(holder, now_ms) && eligible(holder.0));
            let mut holders: Vec<_> = holders.map(|holder| holder.0).collect();
            if !holders.is_empty() {
                holders.sort_unstable();
                return (len, holders);
            }
        }
        (0, vec![])
    }

    fn used(&self, now_ms: u64) -> usize {
        let is_used = |head: &&Head| head.holders.iter().any(|holder| self.is_live(holder, now_ms));
        self.heads.values().filter(is_used).count()
    }

    fn remove(&mut self, worker: WorkerId) {
        self.has_purge |= self.removed.insert(worker) && self.recorded.contains(&worker);
    }

    /// Drops unused heads from the one used longest ago up to the first that is in use; after a
    /// removal all of them.
    fn sweep(&mut self, now_ms: u64) {
        let is_used = |head: &Head| head.holders.iter().any(|holder| self.is_live(holder, now_ms));
        let in_use = self.heads.values().filter(|head| is_used(head)).map(|head| head.used);
        let first = in_use.min().unwrap_or(u64::MAX);
        let keep = |head: &Head| is_used(head) || head.used > first && !self.has_purge;
        let kept = self.heads.iter().filter(|(_, head)| keep(head)).map(|(key, _)| key.clone());
        let kept: BTreeSet<_> = kept.collect();
        self.heads.retain(|key, _| kept.contains(key));
        self.has_purge = false;
    }
}

proptest! {
    #![proptest_config(Config { cases: 60, failure_persistence: None, ..Config::default() })]

    #[test]
    fn the_index_equals_a_naive_map(steps in prop::collection::vec(step(), 1..200)) {
        let mut index = HashIndex::with_capacity(&BOUNDARIES, TTL_MS, 5, CAP);
        let (mut model, mut now_ms) = (Model::default(), 0);
        let mut generations = [0u32; 6];
        for step in steps {
            let id = |slot: u32| WorkerId { slot, generation: generations[slot as usize] };
            match step {
                Step::Record { namespace, tokens, worker } => {
                    index.record(&heads(&BOUNDARIES, namespace, &tokens), id(worker), now_ms);
                    model.record(namespace, &tokens, id(worker), now_ms);
                }
                Step::Find { namespace, tokens, eligible } => {
                    let eligible = |worker: WorkerId| eligible >> worker.slot & 1 == 1;
                    let found = index.find(&heads(&BOUNDARIES, namespace, &tokens), now_ms, eligible);
                    let mut holders = found.holders().to_vec();
                    holders.sort_unstable();
                    let expected = model.find(namespace, &tokens, now_ms, eligible);
                    prop_assert_eq!((found.level, holders), expected);
                }
                Step::Wait { ms } => now_ms += ms,
                Step::Remove { worker } => {
                    index.remove_worker(id(worker));
                    model.remove(id(worker));
                }
                Step::Readd { worker } => {
                    index.remove_worker(id(worker));
                    model.remove(id(worker));
                    generations[worker as usize] += 1;
                }
                Step::Sweep { max_entries } => {
                    index.sweep(now_ms, max_entries);
                    prop_assert!((0..5000).any(|_| index.sweep(now_ms, max_entries).done));
                    model.sweep(now_ms);
                    prop_assert_eq!(index.entries(), model.heads.len());
                }
            }
            prop_assert!(index.entries() >= model.used(now_ms) && index.entries() <= CAP);
        }
    }
}
