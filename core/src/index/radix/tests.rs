use std::collections::HashMap;

use super::super::alphabet::Alphabet;
use super::super::{Garbage, Limits, Pages, RadixTree, TextTree, TokenTree};
use super::MAX_HOLDERS;
use crate::fleet::WorkerId;

fn worker(slot: u32) -> WorkerId {
    WorkerId { slot, generation: 0 }
}

/// A tree whose clock ticks once per record.
struct Clocked<A: Alphabet> {
    tree: RadixTree<A>,
    clock: u64,
}

impl<A: Alphabet> Clocked<A> {
    fn record(&mut self, namespace: Option<u64>, prompt: &A::Prompt, slot: u32) {
        self.clock += 1;
        let found = self.tree.find(namespace, prompt, |_| true);
        self.tree.record(&found, prompt, worker(slot), self.clock);
    }

    /// Matched units and the slots of the holders.
    fn find(&self, namespace: Option<u64>, prompt: &A::Prompt) -> (u64, Vec<u32>) {
        let found = self.tree.find(namespace, prompt, |_| true);
        (found.matched_units, found.holders().iter().map(|worker| worker.slot).collect())
    }

    fn matched(&self, prompt: &A::Prompt) -> u64 {
        self.find(None, prompt).0
    }

    /// A whole sweep.
    fn sweep(&mut self) {
        let budget = self.tree.limits().budget_units;
        assert!((0..10_000).any(|_| self.tree.evict_slice(budget, 7).done));
        self.tree.check();
    }
}

fn text(budget_units: u64) -> Clocked<super::Text> {
    Clocked { tree: TextTree::new(Limits::new(budget_units)), clock: 0 }
}

fn tokens(page_tokens: u32) -> Clocked<Pages> {
    Clocked { tree: TokenTree::new(Limits::new(1 << 20), page_tokens), clock: 0 }
}

/// Ten characters that share nothing with those of another number.
fn ten(number: u8) -> String {
    char::from(b'A' + number).to_string().repeat(10)
}

#[test]
fn the_deepest_node_says_who_holds_the_match() {
    let mut t = text(1000);
    t.record(None, "hello world", 1);
    t.record(None, "hello world", 2);
    t.record(None, "hello", 3);
    assert_eq!(t.find(None, "hello world"), (11, vec![2, 1]));
    assert_eq!(t.find(None, "hello"), (5, vec![3, 2, 1]));
    assert_eq!(t.find(None, "hello there"), (6, vec![2, 1]));
    assert_eq!(t.find(None, "help"), (3, vec![3, 2, 1]));
    assert_eq!(t.find(None, "x"), (0, vec![]));
    assert_eq!(t.find(None, ""), (0, vec![]));
}

#[test]
fn lengths_are_characters() {
    let mut t = text(1000);
    t.record(None, "é漢字🙂", 0);
    let found = t.tree.find(None, "é漢字X", |_| true);
    assert_eq!((found.matched_units, found.total_units, found.ratio()), (3, 4, 0.75));
    // è shares its first byte with é, 🙃 three bytes with 🙂
    assert_eq!(t.matched("è"), 0);
    assert_eq!(t.matched("é漢字🙃"), 3);
    assert_eq!(t.tree.units(), 4);
    t.record(None, "é漢字🙃", 0);
    assert_eq!(t.tree.units(), 5);
    t.tree.check();
}

#[test]
fn an_empty_prompt_leaves_no_trace() {
    let mut t = text(1000);
    t.record(None, "", 0);
    t.record(Some(4), "", 0);
    assert_eq!((t.tree.units(), t.tree.entries(), t.tree.tenants()), (0, 0, 0));
    assert_eq!(t.tree.find(None, "", |_| true).ratio(), 0.0);
}

#[test]
fn each_holder_counts_once() {
    let mut t = text(1000);
    t.record(None, "hello", 0);
    assert_eq!(t.tree.units(), 5);
    t.record(None, "hello", 1);
    assert_eq!(t.tree.units(), 10);
    t.record(None, "help!", 0);
    assert_eq!(t.tree.units(), 12);
    t.record(None, "hello", 0);
    t.record(None, "hel", 0);
    assert_eq!(t.tree.units(), 12);
    assert_eq!((t.tree.worker_units(worker(0)), t.tree.worker_units(worker(1))), (7, 5));
    assert_eq!(t.tree.tenants(), 2);
    t.tree.check();
}

#[test]
fn the_oldest_go_first_and_only_as_many_as_needed() {
    let mut t = text(45);
    (0..8).for_each(|i| t.record(None, &ten(i), 0));
    t.sweep();
    assert_eq!(t.tree.units(), 40);
    assert!((0..4).all(|i| t.matched(&ten(i)) == 0));
    assert!((4..8).all(|i| t.matched(&ten(i)) == 10));

    // equal to the budget: nothing goes
    let mut t = text(40);
    (0..4).for_each(|i| t.record(None, &ten(i), 0));
    t.sweep();
    assert_eq!(t.tree.units(), 40);
}

#[test]
fn the_budget_is_shared_by_all_workers() {
    let mut t = text(40);
    (0..8).for_each(|i| t.record(None, &ten(i), i.into()));
    t.sweep();
    assert_eq!(t.tree.units(), 40);
    assert_eq!(t.tree.tenants(), 4);
    assert!((4..8).all(|i| t.find(None, &ten(i)) == (10, vec![i.into()])));
}

#[test]
fn use_protects() {
    let mut t = text(45);
    (0..4).for_each(|i| t.record(None, &ten(i), 0));
    t.record(None, &ten(0), 0);
    (4..6).for_each(|i| t.record(None, &ten(i), 0));
    t.sweep();
    let left: Vec<_> = (0..6).filter(|&i| t.matched(&ten(i)) == 10).collect();
    assert_eq!(left, [0, 3, 4, 5]);
}

#[test]
fn a_shared_prefix_outlives_its_old_tails() {
    let mut t = text(45);
    let head = "s".repeat(20);
    (0..6).for_each(|i| t.record(None, &format!("{head}{}", ten(i)), 0));
    t.sweep();
    assert_eq!(t.tree.units(), 40);
    assert_eq!(t.matched(&head), 20);
    assert_eq!(t.matched(&format!("{head}{}", ten(5))), 30);
    assert_eq!(t.matched(&format!("{head}{}", ten(0))), 20);
}

#[test]
fn a_node_that_becomes_a_leaf_is_as_young_as_its_youngest_child() {
    let mut t = text(1000);
    t.record(None, "head-tail", 0); // 1
    t.record(None, "other", 0); // 2
    t.record(None, "head-more", 0); // 3
    t.record(None, "third", 0); // 4
    // oldest first: "tail" (1), "other" (2), then "more" (3) and with it "head-" (3), then "third"
    let order = [("head-tail", 5), ("other", 0), ("head-more", 5), ("head-", 0), ("third", 0)];
    for (prompt, left) in order {
        let units = t.tree.units();
        assert_eq!(t.tree.evict_slice(units - 1, 1).entries, 1);
        assert_eq!(t.matched(prompt), left, "{prompt}");
    }
    assert_eq!(t.tree.units(), 0);
}

#[test]
fn a_prompt_used_after_its_extensions_outlives_them() {
    let mut t = text(1000);
    t.record(None, "question and answer", 0); // 1
    t.record(None, "question", 0); // 2
    t.record(None, "other", 0); // 3
    let mut evict = |left| {
        t.tree.evict_slice(left, 100);
        (t.matched("question and answer"), t.matched("other"))
    };
    assert_eq!(evict(13), (8, 5));
    assert_eq!(evict(12), (0, 5));
}

#[test]
fn the_older_holder_of_a_shared_head_goes_first() {
    let mut t = text(150);
    let head = "q".repeat(10);
    let (a, b) = (head.clone() + &"a".repeat(90), head.clone() + &"b".repeat(90));
    t.record(None, &a, 0);
    t.record(None, &b, 1);
    assert_eq!(t.tree.units(), 200);
    t.sweep();
    assert_eq!(t.tree.units(), 110);
    assert_eq!(t.find(None, &b), (100, vec![1]));
    assert_eq!(t.find(None, &a), (10, vec![1, 0]));
}

#[test]
fn a_text_beyond_the_budget_is_evicted_whole() {
    let mut t = text(20);
    t.record(None, &"x".repeat(50), 0);
    assert_eq!(t.tree.units(), 50);
    t.sweep();
    assert_eq!((t.tree.units(), t.tree.tenants()), (0, 0));
}

#[test]
fn at_most_eight_holders_eligible_and_young_ones_first() {
    let mut t = text(1000);
    (0..12).for_each(|slot| t.record(None, "shared", slot));
    let found = t.tree.find(None, "shared", |worker| worker.slot < 3);
    let slots: Vec<_> = found.holders().iter().map(|worker| worker.slot).collect();
    assert_eq!(slots, [2, 1, 0, 11, 10, 9, 8, 7]);
    assert_eq!(found.eligible().len(), 3);
    assert_eq!(found.holders().len(), MAX_HOLDERS);
    // the ninth holder and those after it are holders all the same
    assert!((0..12).all(|slot| t.tree.is_holder(&found, worker(slot))));
    assert!(!t.tree.is_holder(&found, worker(12)));
}

#[test]
fn thousands_of_holders_of_one_prefix() {
    let mut t = text(1 << 20);
    (0..3000).for_each(|slot| t.record(None, "system prompt", slot));
    assert_eq!((t.tree.units(), t.tree.tenants()), (39_000, 3000));
    (0..3000).step_by(3).for_each(|slot| t.tree.remove_worker(worker(slot)));
    t.sweep();
    let found = t.tree.find(None, "system prompt", |worker| worker.slot == 4);
    let slots: Vec<_> = found.holders().iter().map(|worker| worker.slot).collect();
    assert_eq!(slots, [4, 2999, 2998, 2996, 2995, 2993, 2992, 2990]);
    assert_eq!(t.tree.tenants(), 2000);
}

#[test]
fn the_ceiling_holds_between_sweeps() {
    let limits = Limits { ceiling_units: 100, ..Limits::new(80) };
    let mut t = Clocked { tree: TextTree::new(limits), clock: 0 };
    for i in 0..50 {
        t.record(None, &ten(i), (i % 3).into());
        assert!(t.tree.units() <= 100);
        assert_eq!(t.matched(&ten(i)), 10);
    }
    assert_eq!(t.tree.units(), 100);
    assert!((40..50).all(|i| t.matched(&ten(i)) == 10), "the youngest are left");
    // too large for any tree of these limits: nothing is evicted for it
    t.record(None, &"~".repeat(101), 0);
    assert_eq!((t.tree.units(), t.matched("~")), (100, 0));
}

#[test]
fn a_small_budget_leaves_room_until_the_sweep() {
    let mut t = text(10);
    (0..8).for_each(|i| t.record(None, &ten(i), 0));
    assert!((0..8).all(|i| t.matched(&ten(i)) == 10));
}

#[test]
fn default_limits() {
    let limits = Limits::new(67_108_864);
    assert_eq!(limits.ceiling_units, 83_886_080);
    assert_eq!(limits.max_entries, 16_777_216);
    assert_eq!(Limits::new(u64::MAX).ceiling_units, u64::MAX);
}

#[test]
fn very_short_edges_run_into_the_limit_of_entries() {
    let limits = Limits { max_entries: 20, ..Limits::new(1 << 20) };
    let mut t = Clocked { tree: TextTree::new(limits), clock: 0 };
    for len in 1..200 {
        t.record(None, &"ab".repeat(len), 0);
        assert!(t.tree.entries() <= 20);
        t.tree.evict_slice(1 << 20, 100);
    }
    t.tree.check();
}

#[test]
fn a_removed_worker_is_gone_at_once_and_its_memory_later() {
    let mut t = text(1000);
    t.record(None, "only on zero", 0);
    t.record(None, "shared", 0);
    t.record(None, "shared and one", 1);
    t.tree.remove_worker(worker(0));
    assert_eq!(t.find(None, "only on zero"), (0, vec![]));
    assert_eq!(t.find(None, "shared"), (6, vec![1]));
    assert_eq!((t.tree.units(), t.tree.tenants()), (14, 1));
    assert_eq!((t.tree.worker_units(worker(0)), t.tree.entries()), (0, 4));
    assert_eq!(t.tree.evict_slice(1000, 1).entries, 1);
    assert_eq!(t.tree.entries(), 3);
    t.sweep();
    assert_eq!((t.tree.units(), t.tree.entries()), (14, 2));
}

#[test]
fn a_match_ends_where_registered_holders_end() {
    let mut t = text(1000);
    t.record(None, "ab", 1);
    t.record(None, "abcd", 0);
    t.record(None, "abcdef", 0);
    assert_eq!(t.find(None, "abcdefgh"), (6, vec![0]));
    t.tree.remove_worker(worker(0));
    assert_eq!(t.find(None, "abcdefgh"), (2, vec![1]));
    assert_eq!(t.find(None, "abcde"), (2, vec![1]));
    t.tree.remove_worker(worker(1));
    assert_eq!(t.find(None, "abcdefgh"), (0, vec![]));
}

#[test]
fn a_returning_worker_starts_empty_and_late_records_of_the_old_one_are_dropped() {
    let (old, new) = (WorkerId { slot: 5, generation: 2 }, WorkerId { slot: 5, generation: 3 });
    let mut tree = TextTree::new(Limits::new(1000));
    let found = tree.find(None, "prompt", |_| true);
    tree.record(&found, "prompt", old, 1);
    tree.remove_worker(old);
    tree.record(&found, "prompt", old, 2);
    assert_eq!(tree.find(None, "prompt", |_| true).matched_units, 0);
    tree.record(&found, "prompt", new, 3);
    tree.remove_worker(old);
    assert_eq!(tree.find(None, "prompt", |_| true).holders(), [new]);
    assert_eq!((tree.units(), tree.tenants()), (6, 1));
    tree.check();
}

#[test]
fn a_newer_registration_ends_the_older_one() {
    let mut tree = TextTree::new(Limits::new(1000));
    for generation in 0..3 {
        let found = tree.find(None, "prompt", |_| true);
        assert_eq!(found.matched_units, if generation == 0 { 0 } else { 6 });
        tree.record(&found, "prompt", WorkerId { slot: 0, generation }, 1);
        assert_eq!((tree.units(), tree.tenants()), (6, 1));
        tree.check();
    }
}

#[test]
fn more_registrations_than_local_ids() {
    let mut t = text(1000);
    t.record(None, "one", 0);
    t.record(None, "two", 1);
    t.tree.remove_worker(worker(0));
    for generation in 0.. {
        let worker = WorkerId { slot: 2, generation };
        if t.tree.tenants.enter(worker).is_none() {
            break;
        }
        t.tree.remove_worker(worker);
    }
    assert!(t.tree.tenants.is_full());
    t.record(None, "three", 3);
    assert_eq!(t.find(None, "three"), (5, vec![3]));
    assert_eq!((t.tree.units(), t.tree.tenants(), t.tree.entries()), (8, 2, 4));
    assert_eq!(t.tree.tenants.removed(), 0);
    t.tree.check();
}

#[test]
fn namespaces_do_not_meet() {
    let mut t = text(1000);
    t.record(None, "prompt", 0);
    t.record(Some(1), "prompt", 1);
    t.record(Some(2), "promise", 2);
    assert_eq!(t.find(None, "prompt"), (6, vec![0]));
    assert_eq!(t.find(Some(1), "prompt"), (6, vec![1]));
    assert_eq!(t.find(Some(2), "prompt"), (4, vec![2]));
    assert_eq!(t.find(Some(3), "prompt"), (0, vec![]));
    assert_eq!(t.tree.units(), 19);
    t.tree.check();
    t.tree.evict_slice(0, 100);
    assert_eq!(t.tree.nodes.len(), 1, "roots of namespaces go with their last prompt");
}

#[test]
fn tokens_match_in_whole_pages_and_count_all_tokens() {
    let mut t = tokens(16);
    let ids: Vec<u32> = (1000..1064).collect();
    t.record(None, &ids[..15], 0);
    assert_eq!(t.tree.units(), 0, "below one page nothing is recorded");
    t.record(None, &ids[..31], 0);
    assert_eq!(t.tree.units(), 16);
    let found = t.tree.find(None, &ids[..31], |_| true);
    assert_eq!((found.matched_units, found.total_units), (16, 31));
    t.record(None, &ids, 0);
    assert_eq!(t.tree.units(), 64);
    let mut other = ids.clone();
    other[26] = 7;
    assert_eq!(t.matched(&other), 16);
    assert_eq!(t.matched(&ids[..63]), 48);
    t.tree.check();
}

#[test]
fn first_pages_of_one_digest_are_told_apart() {
    let pages = Pages::new(2, 0);
    let mut seen = HashMap::new();
    let (a, b) = (0..1_000_000u32)
        .map(|i| [i, i.wrapping_mul(0x9e37_79b1)])
        .find_map(|page| seen.insert(pages.key(&page), page).map(|other| (other, page)))
        .unwrap();
    let (a, b) = ([a, [1, 1]].concat(), [b, [1, 1]].concat());
    let mut t = tokens(2);
    t.record(None, &a, 0);
    assert_eq!(t.matched(&b), 0);
    t.record(None, &b, 1);
    assert_eq!(t.find(None, &a), (4, vec![0]));
    assert_eq!(t.find(None, &b), (4, vec![1]));
    t.tree.check();
}

#[test]
fn thousands_of_children_under_one_root() {
    let mut t = tokens(1);
    (0..20_000).for_each(|i| t.record(None, &[i, 7], 0));
    assert_eq!(t.tree.units(), 40_000);
    assert!((0..20_000).step_by(97).all(|i| t.matched(&[i, 7]) == 2));
    assert_eq!(t.matched(&[20_000, 7]), 0);
    assert!((0..1000).any(|_| t.tree.evict_slice(200, 512).done));
    assert_eq!((t.tree.units(), t.tree.entries()), (200, 100));
    assert!((19_900..20_000).all(|i| t.matched(&[i, 7]) == 2));
    t.tree.check();
}

#[test]
fn long_self_similar_prompts() {
    const LEN: usize = 100_000;
    let a = "a".repeat(LEN);
    let mut t = text(1 << 30);
    t.record(None, &a, 0);
    for at in [0, 1, 63, 4095, 4096, 4097, 65_535, LEN - 1] {
        let other = format!("{}漢{}", &a[..at], &a[at..]);
        assert_eq!(t.find(None, &other).0, at as u64);
        t.record(None, &other, 1);
        assert_eq!(t.find(None, &other), (LEN as u64 + 1, vec![1]));
    }
    // one copy for worker 0; for worker 1 the head up to the last difference and eight tails
    let tails: usize =
        [0, 1, 63, 4095, 4096, 4097, 65_535, LEN - 1].map(|at| LEN - at + 1).iter().sum();
    assert_eq!(t.tree.units(), (LEN + LEN - 1 + tails) as u64);
    t.tree.check();
}

#[test]
fn a_long_chain_of_turns() {
    let mut t = tokens(1);
    let prompt: Vec<u32> = (0..400).collect();
    (1..=prompt.len()).for_each(|len| t.record(None, &prompt[..len], 0));
    assert_eq!(t.tree.entries(), 400);
    t.tree.evict_slice(150, 10_000);
    assert_eq!((t.matched(&prompt), t.tree.entries()), (150, 150));
    t.tree.check();
}

#[test]
fn a_lookup_from_before_a_change_is_looked_up_again() {
    let mut t = text(1000);
    t.record(None, "one two three", 0);
    let before = t.tree.find(None, "one two four", |_| true);
    t.record(None, "one", 1); // splits the edge that `before` ended in
    t.tree.evict_slice(3, 100);
    assert!(!t.tree.is_holder(&before, worker(1)), "only what was seen then is known");
    t.tree.record(&before, "one two four", worker(2), 10);
    assert_eq!(t.find(None, "one two four"), (12, vec![2]));
    t.tree.check();
}

#[test]
fn what_is_evicted_is_handed_out() {
    fn is_send<T: Send>(_: &T) {}
    let mut t = tokens(16);
    let mut prompt: Vec<u32> = (0..1024).collect();
    for first in 0..2000 {
        prompt[0] = first;
        t.record(None, &prompt, 0);
    }
    let mut garbage = Garbage::default();
    while t.tree.entries() > 0 {
        let slice = t.tree.evict_slice(0, 512);
        is_send(&slice.garbage);
        garbage.0.extend(slice.garbage.0);
    }
    // 8 MB of tokens in segments of less than a megabyte
    assert!(garbage.0.len() >= 8);
    assert_eq!(t.tree.slab.usage(), (0, 0));
}

#[test]
fn the_clock_may_stand_still_or_run_back() {
    let mut tree = TextTree::new(Limits::new(1000));
    for (prompt, touch) in [("first", 9), ("second", 9), ("third", 3)] {
        let found = tree.find(None, prompt, |_| true);
        tree.record(&found, prompt, worker(0), touch);
    }
    tree.evict_slice(11, 100);
    assert_eq!(tree.find(None, "first", |_| true).matched_units, 0);
    tree.evict_slice(5, 100);
    assert_eq!(tree.find(None, "third", |_| true).matched_units, 5);
    tree.check();
}
