//! Heads in a table that grows and shrinks a few slots at a time, and the list of them by use.

use super::super::Garbage;
use super::super::arena::NIL;
use super::MAX_HEAD_HOLDERS;
use super::slots::{Holder, Key, Links, Slots};

/// Slots of the smallest table.
const MIN_SLOTS: usize = 8;
/// Of so many slots one may be taken. Where 7 of 10 are and heads come and go for long, a search for
/// what is not there reads 26 slots on average, at 5 of 10 it is 3.
const SLOTS_PER_HEAD: usize = 2;
/// Slots that an insertion moves while the table changes its size. All are moved before the next change
/// can be due: growing doubles and shrinking, from a thirty-second taken, quarters the table, so that
/// more than a sixteenth of the old slots may be taken until then.
const MOVED_PER_INSERT: usize = 16;
const SHRINK_BELOW: usize = 32;
const SHRINK_BY: usize = 4;

/// Which of the two tables an id is of.
const OTHER_TABLE: u32 = 1 << 31;

/// Heads, each under an id that holds until the next insertion or [`Table::tidy`].
#[derive(Debug)]
pub(super) struct Table {
    /// One in use; heads move from the other one while the size changes.
    tables: [Slots; 2],
    current: usize,
    /// Next slot of the other table to be moved.
    moving: Option<usize>,
    /// Number of changes of size.
    changes: u64,
    len: usize,
    max_heads: usize,
    seed: u64,
    oldest: u32,
    newest: u32,
}

impl Table {
    /// An empty table for at most `max_heads` heads.
    pub fn new(max_heads: usize, seed: u64) -> Self {
        Self {
            tables: [Slots::default(), Slots::default()],
            current: 0,
            moving: None,
            changes: 0,
            len: 0,
            max_heads,
            seed,
            oldest: NIL,
            newest: NIL,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether another head has no place.
    pub fn is_full(&self) -> bool {
        self.len >= self.max_heads
    }

    /// The head used longest ago, or [`NIL`].
    pub fn oldest(&self) -> u32 {
        self.oldest
    }

    /// Starts loading where `key` would be.
    pub fn prefetch(&self, key: &Key) {
        self.tables[self.current].prefetch(key);
        if self.moving.is_some() {
            self.tables[1 - self.current].prefetch(key);
        }
    }

    #[inline]
    pub fn find(&self, key: &Key) -> Option<u32> {
        if let Some(slot) = self.tables[self.current].find(key) {
            return Some(id_of(self.current, slot));
        }
        self.moving?;
        let other = 1 - self.current;
        self.tables[other].find(key).map(|slot| id_of(other, slot))
    }

    /// Enters `key`, which is absent, as the head used last. The caller keeps the number of heads at
    /// or below the table's most.
    pub fn insert(&mut self, key: &Key, garbage: &mut Garbage) -> u32 {
        debug_assert!(!self.is_full());
        if self.len >= most_taken(self.tables[self.current].capacity()) {
            self.move_slots(usize::MAX, garbage);
            self.resize((2 * self.tables[self.current].capacity()).min(slots_for(self.max_heads)));
        }
        self.move_slots(MOVED_PER_INSERT, garbage);
        let id = id_of(self.current, self.tables[self.current].insert(key));
        self.len += 1;
        self.list_newest(id);
        id
    }

    pub fn remove(&mut self, id: u32) {
        self.unlist(id);
        let (table, slot) = place_of(id);
        self.tables[table].remove(slot);
        self.len -= 1;
    }

    /// Notes a use.
    pub fn used(&mut self, id: u32) {
        self.unlist(id);
        self.list_newest(id);
    }

    pub fn holders(&self, id: u32) -> [Holder; MAX_HEAD_HOLDERS] {
        let (table, slot) = place_of(id);
        self.tables[table].holders(slot)
    }

    pub fn set_holders(&mut self, id: u32, holders: [Holder; MAX_HEAD_HOLDERS]) {
        let (table, slot) = place_of(id);
        self.tables[table].set_holders(slot, holders);
    }

    /// Moves up to `slots` slots, and makes a table that is nearly empty smaller; says whether nothing
    /// is left to do.
    pub fn tidy(&mut self, slots: usize, garbage: &mut Garbage) -> bool {
        let capacity = self.tables[self.current].capacity();
        if self.moving.is_none() && capacity > MIN_SLOTS && self.len < capacity / SHRINK_BELOW {
            self.resize(capacity / SHRINK_BY);
        }
        self.move_slots(slots, garbage);
        let capacity = self.tables[self.current].capacity();
        self.moving.is_none() && (capacity <= MIN_SLOTS || self.len >= capacity / SHRINK_BELOW)
    }

    /// Number of changes of size; those that go through the table by [`Table::id_at`] begin again when
    /// it grows.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether heads are being moved.
    pub fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.tables[self.current].capacity()
    }

    /// The head in a slot below [`Table::slots`].
    pub fn id_at(&self, slot: usize) -> Option<u32> {
        self.tables[self.current].key(slot).map(|_| id_of(self.current, slot))
    }

    /// Begins to move all heads to a table of `capacity` slots.
    fn resize(&mut self, capacity: usize) {
        self.changes += 1;
        self.current = 1 - self.current;
        self.tables[self.current] = Slots::new(capacity.max(MIN_SLOTS), self.seed);
        self.moving = Some(0);
    }

    fn move_slots(&mut self, slots: usize, garbage: &mut Garbage) {
        let Some(from) = self.moving else { return };
        let other = 1 - self.current;
        let end = self.tables[other].capacity();
        let to = end.min(from.saturating_add(slots));
        for slot in from..to {
            if let Some(key) = self.tables[other].key(slot) {
                self.move_head(&key, id_of(other, slot));
            }
        }
        self.moving = (to < end).then_some(to);
        if self.moving.is_none() {
            garbage.push(std::mem::take(&mut self.tables[other]));
        }
    }

    fn move_head(&mut self, key: &Key, from: u32) {
        let (holders, links) = (self.holders(from), self.links(from));
        let (table, slot) = place_of(from);
        self.tables[table].remove(slot);
        let to = id_of(self.current, self.tables[self.current].insert(key));
        self.set_holders(to, holders);
        self.set_links(to, links);
        self.set_newer_of(links.older, to);
        self.set_older_of(links.newer, to);
    }

    fn list_newest(&mut self, id: u32) {
        let older = self.newest;
        self.set_links(id, Links { older, newer: NIL });
        self.set_newer_of(older, id);
        self.newest = id;
    }

    fn unlist(&mut self, id: u32) {
        let Links { older, newer } = self.links(id);
        self.set_newer_of(older, newer);
        self.set_older_of(newer, older);
    }

    /// Of the list's end, if `id` is [`NIL`].
    fn set_newer_of(&mut self, id: u32, newer: u32) {
        match id {
            NIL => self.oldest = newer,
            id => self.set_links(id, Links { newer, ..self.links(id) }),
        }
    }

    fn set_older_of(&mut self, id: u32, older: u32) {
        match id {
            NIL => self.newest = older,
            id => self.set_links(id, Links { older, ..self.links(id) }),
        }
    }

    fn links(&self, id: u32) -> Links {
        let (table, slot) = place_of(id);
        self.tables[table].links(slot)
    }

    fn set_links(&mut self, id: u32, links: Links) {
        let (table, slot) = place_of(id);
        self.tables[table].set_links(slot, links);
    }
}

/// Heads that may be in so many slots.
fn most_taken(slots: usize) -> usize {
    slots / SLOTS_PER_HEAD
}

/// Slots for so many heads.
fn slots_for(heads: usize) -> usize {
    heads * SLOTS_PER_HEAD
}

fn id_of(table: usize, slot: usize) -> u32 {
    slot as u32 | if table == 1 { OTHER_TABLE } else { 0 }
}

fn place_of(id: u32) -> (usize, usize) {
    (usize::from(id & OTHER_TABLE != 0), (id & !OTHER_TABLE) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Heads by their number, and the list of them by use.
    struct Checked {
        table: Table,
        garbage: Garbage,
        by_use: Vec<u64>,
    }

    fn key(number: u64) -> Key {
        Key { hash: number, namespace: None, level: 0 }
    }

    impl Checked {
        fn new(max_heads: usize) -> Self {
            let table = Table::new(max_heads, 9);
            Self { table, garbage: Garbage::default(), by_use: Vec::new() }
        }

        fn insert(&mut self, number: u64) {
            let id = self.table.insert(&key(number), &mut self.garbage);
            let holder = Holder::new(1, number);
            self.table.set_holders(id, [holder, Holder::NONE, Holder::NONE]);
            self.by_use.push(number);
        }

        fn id(&self, number: u64) -> u32 {
            let id = self.table.find(&key(number)).expect("it was inserted");
            assert_eq!(self.table.holders(id)[0].used_ms(), number);
            id
        }

        fn use_again(&mut self, at: usize) {
            let number = self.by_use.remove(at);
            self.table.used(self.id(number));
            self.by_use.push(number);
        }

        fn remove(&mut self, at: usize) {
            let number = self.by_use.remove(at);
            self.table.remove(self.id(number));
            assert_eq!(self.table.find(&key(number)), None);
        }

        /// Every head is found, and the list has them in the order of their use.
        fn check(&self) {
            assert_eq!(self.table.len(), self.by_use.len());
            let (mut at, mut before) = (self.table.oldest(), NIL);
            for number in &self.by_use {
                assert_eq!((at, self.table.links(at).older), (self.id(*number), before));
                (before, at) = (at, self.table.links(at).newer);
            }
            assert_eq!((at, self.table.newest), (NIL, before));
        }
    }

    #[test]
    fn heads_and_their_order_survive_every_change_of_size() {
        let mut rng = Rng::new(4);
        let mut checked = Checked::new(3_000);
        let (mut sizes, mut next) = (Vec::new(), 0);
        for round in 0..6_000 {
            let is_growing = round % 3_000 < 1_800;
            match rng.below(10) {
                0..6 if is_growing && checked.by_use.len() < 3_000 => {
                    (0..3).for_each(|at| checked.insert(next + at));
                    next += 3;
                }
                0..6 if !is_growing && checked.by_use.len() > 9 => {
                    (0..9).for_each(|_| checked.remove(rng.below(checked.by_use.len())));
                    checked.table.tidy(rng.below(9), &mut checked.garbage);
                }
                _ if !checked.by_use.is_empty() => {
                    checked.use_again(rng.below(checked.by_use.len()));
                }
                _ => {}
            }
            if round % 50 == 0 {
                checked.check();
            }
            sizes.push(checked.table.slots());
        }
        assert_eq!(sizes.iter().max(), Some(&slots_for(3_000)), "it was full");
        assert!(sizes.windows(2).any(|pair| pair[1] < pair[0]), "and shrank");
        while !checked.table.tidy(5, &mut checked.garbage) {}
        checked.check();
    }

    #[test]
    fn moving_ends_before_the_next_growth_is_due() {
        let mut checked = Checked::new(100_000);
        let mut changes = 0;
        for number in 0..100_000 {
            let was_moving = checked.table.is_moving();
            checked.insert(number);
            assert!(checked.table.changes() == changes || !was_moving, "at {number}");
            changes = checked.table.changes();
        }
        // 8, 16, ... 131,072 slots, then as many as 100,000 heads need.
        assert_eq!((changes, checked.table.slots()), (16, 200_000));
    }

    #[test]
    fn a_table_emptied_gives_its_memory_back() {
        let mut checked = Checked::new(10_000);
        (0..10_000).for_each(|number| checked.insert(number));
        (0..9_990).for_each(|_| checked.remove(0));
        checked.garbage = Garbage::default();
        let mut slices = 0;
        while !checked.table.tidy(100, &mut checked.garbage) {
            slices += 1;
        }
        // 20,000 slots, then 5,000, 1,250 and 312, of which 10 heads are more than a thirty-second: 200,
        // 50 and 13 slices, the last of which says that it is done.
        assert_eq!((checked.table.slots(), slices), (312, 262));
        assert!(!checked.garbage.is_empty());
        checked.check();
    }
}
