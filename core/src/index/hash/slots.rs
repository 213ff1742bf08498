//! Open addressing over cache lines: a head lies at its home slot or in one of the slots behind it.
//!
//! A slot counts the heads that lie behind it because it was taken when they came. So a search ends
//! where nobody went further, removal leaves no tombstone, and no head ever moves within a table.
//!
//! Searches follow marks of two bytes per slot, which stay in the CPU's caches where the slots do not:
//! what is not there rarely costs a cache miss, what is there rarely more than one.

use super::super::arena::NIL;
use super::super::folded;
use super::super::tenants::{NO_TENANT, Tenant};
use super::MAX_HEAD_HOLDERS;
use crate::prefetch::prefetch;

/// A slot as words, so that a large table is memory the system hands out zeroed, page by page.
type Words = [u64; 8];

const HASH: usize = 0;
const NAMESPACE: usize = 1;
const HOLDERS: usize = 2;
const LINKS: usize = HOLDERS + MAX_HEAD_HOLDERS;
const STATE: usize = LINKS + 1;

const HAS_NAMESPACE: u64 = 1;
const LEVEL_SHIFT: u32 = 16;

/// What a search sees of a slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mark {
    /// Of the head in the slot; [`VACANT`] without one.
    tag: u8,
    /// Heads that went past this slot, whoever holds it, if anybody. Once [`MANY`], always: a search
    /// that goes on for nothing finds nothing wrong.
    passed: u8,
}

const VACANT: u8 = 0;
const MANY: u8 = u8::MAX;

/// What a table is searched by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub hash: u64,
    pub namespace: Option<u64>,
    /// Position of the boundary.
    pub level: u16,
}

impl Key {
    fn state(self) -> u64 {
        let namespace = if self.namespace.is_some() { HAS_NAMESPACE } else { 0 };
        u64::from(self.level) << LEVEL_SHIFT | namespace
    }
}

/// A worker and the time it was used: milliseconds in the upper 48 bits, tenant in the lower 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder(u64);

impl Holder {
    pub const NONE: Self = Self(NO_TENANT as u64);

    pub fn new(tenant: Tenant, used_ms: u64) -> Self {
        Self(used_ms << Tenant::BITS | u64::from(tenant))
    }

    pub fn tenant(self) -> Tenant {
        self.0 as Tenant
    }

    pub fn used_ms(self) -> u64 {
        self.0 >> Tenant::BITS
    }
}

/// Neighbours on the list of heads by use, or [`NIL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Links {
    pub older: u32,
    pub newer: u32,
}

/// A table of fixed capacity.
#[derive(Debug, Default)]
pub(super) struct Slots {
    words: Vec<Words>,
    marks: Vec<Mark>,
    /// Keys the homes, so that nobody can prepare heads that share one.
    seed: u64,
}

impl Slots {
    /// An empty table; its memory is touched as heads come.
    pub fn new(capacity: usize, seed: u64) -> Self {
        Self { words: vec![[0; 8]; capacity], marks: vec![Mark::default(); capacity], seed }
    }

    pub fn capacity(&self) -> usize {
        self.words.len()
    }

    /// Starts loading the home of `key`.
    pub fn prefetch(&self, key: &Key) {
        let (home, _) = self.home(key);
        if let (Some(mark), Some(words)) = (self.marks.get(home), self.words.get(home)) {
            prefetch(mark);
            prefetch(words);
        }
    }

    /// The slot that holds `key`.
    #[inline]
    pub fn find(&self, key: &Key) -> Option<usize> {
        let (mut at, tag) = self.home(key);
        // Where there are few slots, all of them may have been passed.
        for _ in 0..self.marks.len() {
            let mark = self.marks[at];
            if mark.tag == tag && self.is_in(at, key) {
                return Some(at);
            }
            if mark.passed == 0 {
                break;
            }
            at = self.next(at);
        }
        None
    }

    #[inline]
    fn is_in(&self, slot: usize, key: &Key) -> bool {
        let words = &self.words[slot];
        words[HASH] == key.hash
            && words[STATE] == key.state()
            && words[NAMESPACE] == key.namespace.unwrap_or(0)
    }

    /// Takes a slot for `key`, which is absent. The caller keeps some slots free.
    pub fn insert(&mut self, key: &Key) -> usize {
        let (mut at, tag) = self.home(key);
        while self.marks[at].tag != VACANT {
            let passed = &mut self.marks[at].passed;
            *passed = passed.saturating_add(1);
            at = self.next(at);
        }
        self.marks[at].tag = tag;
        self.words[at] = [key.hash, key.namespace.unwrap_or(0), 0, 0, 0, 0, key.state(), 0];
        self.set_holders(at, [Holder::NONE; MAX_HEAD_HOLDERS]);
        self.set_links(at, Links { older: NIL, newer: NIL });
        at
    }

    /// Frees a taken slot.
    pub fn remove(&mut self, slot: usize) {
        if let Some(key) = self.key(slot) {
            let (mut at, _) = self.home(&key);
            while at != slot {
                let passed = &mut self.marks[at].passed;
                *passed -= u8::from(*passed < MANY);
                at = self.next(at);
            }
            self.marks[slot].tag = VACANT;
        }
    }

    /// What a slot holds, if anything.
    pub fn key(&self, slot: usize) -> Option<Key> {
        if self.marks[slot].tag == VACANT {
            return None;
        }
        let words = &self.words[slot];
        let state = words[STATE];
        Some(Key {
            hash: words[HASH],
            namespace: (state & HAS_NAMESPACE != 0).then_some(words[NAMESPACE]),
            level: (state >> LEVEL_SHIFT) as u16,
        })
    }

    /// Holders of the head in a slot, the latest used first.
    pub fn holders(&self, slot: usize) -> [Holder; MAX_HEAD_HOLDERS] {
        std::array::from_fn(|place| Holder(self.words[slot][HOLDERS + place]))
    }

    pub fn set_holders(&mut self, slot: usize, holders: [Holder; MAX_HEAD_HOLDERS]) {
        for (word, holder) in self.words[slot][HOLDERS..LINKS].iter_mut().zip(holders) {
            *word = holder.0;
        }
    }

    pub fn links(&self, slot: usize) -> Links {
        let word = self.words[slot][LINKS];
        Links { older: (word >> 32) as u32, newer: word as u32 }
    }

    pub fn set_links(&mut self, slot: usize, links: Links) {
        self.words[slot][LINKS] = u64::from(links.older) << 32 | u64::from(links.newer);
    }

    /// Where a search for `key` begins, spread evenly over any capacity, and the tag of its mark.
    #[inline]
    fn home(&self, key: &Key) -> (usize, u8) {
        let named = key.hash ^ u64::from(key.level).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = folded(folded(named ^ self.seed, 0x9fb2_1c65_1e98_df25), 0xd6e8_feb8_6659_fd93);
        let home = ((u128::from(mixed) * self.words.len() as u128) >> 64) as usize;
        (home, (mixed as u8).max(VACANT + 1))
    }

    #[inline]
    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.words.len() { 0 } else { slot + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn key(hash: u64) -> Key {
        Key { hash, namespace: None, level: 0 }
    }

    #[test]
    fn what_was_inserted_is_found_until_it_is_removed() {
        let mut rng = Rng::new(3);
        let mut slots = Slots::new(100, 7);
        let mut held: Vec<(Key, usize)> = Vec::new();
        for _ in 0..20_000 {
            if held.len() < 90 && (held.is_empty() || rng.below(9) < 5) {
                let new = Key { level: rng.below(3) as u16, ..key(rng.next_u64()) };
                assert_eq!(slots.find(&new), None);
                held.push((new, slots.insert(&new)));
            } else {
                let (key, slot) = held.swap_remove(rng.below(held.len()));
                slots.remove(slot);
                assert_eq!((slots.find(&key), slots.key(slot)), (None, None));
            }
            for (key, slot) in &held {
                assert_eq!((slots.find(key), slots.key(*slot)), (Some(*slot), Some(*key)));
            }
        }
        held.iter().for_each(|(_, slot)| slots.remove(*slot));
        assert!(slots.marks.iter().all(|mark| *mark == Mark::default()));
    }

    #[test]
    fn nobody_searches_past_where_others_went() {
        // One home for all: 3 heads in a row, the first slot passed by two of them.
        let mut slots = Slots::new(4, 0);
        let home = slots.home(&key(0)).0;
        let same: Vec<Key> =
            (0..).map(key).filter(|key| slots.home(key).0 == home).take(4).collect();
        let taken: Vec<usize> = same[..3].iter().map(|key| slots.insert(key)).collect();
        assert_eq!(taken, [home, (home + 1) % 4, (home + 2) % 4]);
        let passed = |slots: &Slots| taken.iter().map(|&at| slots.marks[at].passed).sum::<u8>();
        assert_eq!(passed(&slots), 3);
        // The one in the middle goes; the one behind it is found over the gap.
        slots.remove(taken[1]);
        assert_eq!((slots.find(&same[2]), passed(&slots)), (Some(taken[2]), 2));
        assert_eq!(slots.insert(&same[3]), taken[1], "gaps are taken first");
    }

    #[test]
    fn more_heads_than_a_mark_can_count_are_all_found() {
        // 600 slots: some are passed by more than the 255 a mark counts to.
        let mut slots = Slots::new(600, 5);
        let near = |key: &Key, slots: &Slots| slots.home(key).0 < 3;
        let mut keys: Vec<Key> = (0..).map(key).filter(|key| near(key, &slots)).take(500).collect();
        for key in &keys {
            slots.insert(key);
        }
        assert!(slots.marks.iter().any(|mark| mark.passed == MANY));
        for gone in keys.split_off(100) {
            let slot = slots.find(&gone).unwrap();
            slots.remove(slot);
            assert_eq!(slots.find(&gone), None);
        }
        assert!(keys.iter().all(|key| slots.find(key).is_some()));
    }

    #[test]
    fn a_table_without_slots_holds_nothing() {
        assert_eq!(Slots::default().find(&key(1)), None);
        Slots::default().prefetch(&key(1));
    }

    #[test]
    fn homes_under_one_seed_say_nothing_about_those_under_another() {
        let (one, other) = (Slots::new(1024, 1), Slots::new(1024, 2));
        let prepared: Vec<Key> = (0..1 << 20).map(key).filter(|key| one.home(key).0 == 0).collect();
        assert!(prepared.len() > 900);
        let mut counts = vec![0; 1024];
        prepared.iter().for_each(|key| counts[other.home(key).0] += 1);
        assert!(counts.into_iter().max() < Some(20));
    }
}
