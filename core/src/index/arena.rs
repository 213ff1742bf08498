//! Storage for small records under stable 32-bit ids, in chunks: growth never moves a record, and a
//! chunk whose last record went is given back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Index, IndexMut};

use super::Garbage;
use super::chunk::Chunk;
use crate::prefetch::prefetch;

/// No record.
pub(super) const NIL: u32 = u32::MAX;

/// A record that can say that its place is free.
pub(super) trait Vacancy {
    /// A free place, followed by the free place `next` ([`NIL`] at the end).
    fn vacant(next: u32) -> Self;

    /// The next free place if this place is free.
    fn next_vacant(&self) -> Option<u32>;
}

/// Records of one kind.
#[derive(Debug)]
pub(super) struct Arena<T> {
    /// Apart from `chunks`, so that a look-up touches little; empty and without memory while no
    /// record lives there.
    places: Vec<Chunk<T>>,
    chunks: Vec<State>,
    /// Chunks with room. The lowest is filled first, so that the highest drain.
    open: BinaryHeap<Reverse<u32>>,
}

#[derive(Debug)]
struct State {
    first_vacant: u32,
    live: u32,
    is_open: bool,
}

const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { places: Vec::new(), chunks: Vec::new(), open: BinaryHeap::new() }
    }
}

impl<T: Vacancy + Send + 'static> Arena<T> {
    /// Number of records.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.live as usize).sum()
    }

    /// Stores `record`. The caller keeps the number of records below 2^31.
    pub fn insert(&mut self, record: T) -> u32 {
        let index = self.open_chunk();
        let chunk = &mut self.chunks[index as usize];
        let places = &mut self.places[index as usize];
        let place = match chunk.first_vacant {
            NIL => {
                places.push(record);
                places.len() as u32 - 1
            }
            place => {
                let slot = &mut places[place as usize];
                chunk.first_vacant = slot.next_vacant().unwrap_or(NIL);
                *slot = record;
                place
            }
        };
        // The next record will be written there, long after this one.
        match places.get(chunk.first_vacant as usize) {
            Some(next) => prefetch(next),
            None => places.next_place().into_iter().for_each(prefetch),
        }
        chunk.live += 1;
        if chunk.live as usize == CHUNK {
            chunk.is_open = false;
            self.open.pop();
        }
        index << CHUNK_BITS | place
    }

    /// Frees the record `id`.
    pub fn remove(&mut self, id: u32, garbage: &mut Garbage) {
        let (index, place) = split_id(id);
        let chunk = &mut self.chunks[index];
        let slot = &mut self.places[index][place];
        debug_assert!(slot.next_vacant().is_none(), "record {id} freed twice");
        *slot = T::vacant(chunk.first_vacant);
        chunk.first_vacant = place as u32;
        chunk.live -= 1;
        if chunk.live == 0 {
            chunk.first_vacant = NIL;
            garbage.push(std::mem::take(&mut self.places[index]));
        }
        if !chunk.is_open {
            chunk.is_open = true;
            self.open.push(Reverse(index as u32));
        }
    }

    /// One past the highest id in use.
    pub fn end(&self) -> u32 {
        (self.chunks.len() << CHUNK_BITS) as u32
    }

    /// The record `id`, if there is one.
    pub fn get(&self, id: u32) -> Option<&T> {
        let (index, place) = split_id(id);
        let record = self.places.get(index)?.get(place)?;
        record.next_vacant().is_none().then_some(record)
    }

    /// Starts loading the record `id`, if the arena reaches that far.
    #[inline]
    pub fn prefetch(&self, id: u32) {
        let (index, place) = split_id(id);
        if let Some(record) = self.places.get(index).and_then(|places| places.get(place)) {
            prefetch(record);
        }
    }

    fn open_chunk(&mut self) -> u32 {
        let index = match self.open.peek() {
            Some(&Reverse(index)) => index,
            None => {
                let index = self.chunks.len() as u32;
                self.chunks.push(State { first_vacant: NIL, live: 0, is_open: true });
                self.places.push(Chunk::default());
                self.open.push(Reverse(index));
                index
            }
        };
        // The first chunk grows as it fills, so that a small arena stays small.
        let places = &mut self.places[index as usize];
        if index > 0 && places.capacity() == 0 {
            *places = Chunk::with_capacity(CHUNK);
        }
        index
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;

    #[inline]
    fn index(&self, id: u32) -> &T {
        let (index, place) = split_id(id);
        &self.places[index][place]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        let (index, place) = split_id(id);
        &mut self.places[index][place]
    }
}

#[inline]
fn split_id(id: u32) -> (usize, usize) {
    ((id >> CHUNK_BITS) as usize, id as usize & (CHUNK - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum Record {
        Value(u32),
        Vacant(u32),
    }

    impl Vacancy for Record {
        fn vacant(next: u32) -> Self {
            Record::Vacant(next)
        }

        fn next_vacant(&self) -> Option<u32> {
            match self {
                Record::Value(_) => None,
                Record::Vacant(next) => Some(*next),
            }
        }
    }

    #[test]
    fn ids_are_stable_and_reused_lowest_chunk_first() {
        let (mut arena, mut garbage) = (Arena::default(), Garbage::default());
        let ids: Vec<_> = (0..9000).map(|i| arena.insert(Record::Value(i))).collect();
        assert_eq!(ids, (0..9000).collect::<Vec<_>>());
        for id in [5, 8500, 700] {
            arena.remove(id, &mut garbage);
        }
        assert_eq!(arena.len(), 8997);
        assert!(arena.get(700).is_none());
        assert_eq!(arena.insert(Record::Value(1)), 700);
        assert_eq!(arena.insert(Record::Value(2)), 5);
        assert_eq!(arena.insert(Record::Value(3)), 8500);
        assert_eq!(arena[8999], Record::Value(8999));
        assert!(garbage.is_empty());
    }

    #[test]
    fn an_empty_chunk_is_given_back_and_can_be_filled_again() {
        let (mut arena, mut garbage) = (Arena::default(), Garbage::default());
        for i in 0..8192 {
            arena.insert(Record::Value(i));
        }
        for id in 4096..8192 {
            arena.remove(id, &mut garbage);
        }
        assert!(!garbage.is_empty());
        assert!(arena.get(4096).is_none());
        assert_eq!(arena.insert(Record::Value(9)), 4096);
        assert_eq!(arena.end(), 8192);
    }
}
