//! Append-only storage of edge content in segments. A segment whose last edge went is given back;
//! one that is mostly dead is emptied by its owner, who moves the edges that still live there.

use super::Garbage;
use super::chunk::Chunk;
use crate::prefetch::prefetch_all;

/// Content of all edges of one tree.
#[derive(Debug)]
pub(super) struct Slab<T> {
    /// Content of the segments, apart from `states`, so that a look-up touches little.
    segments: Vec<Chunk<T>>,
    states: Vec<State>,
    /// Positions in `segments` without memory.
    vacant: Vec<u32>,
    /// The segment appended to; [`NO_SEGMENT`] before the first.
    current: usize,
    segment_items: usize,
    live_items: u64,
    filled_items: u64,
}

/// Where an edge's content starts: segment in the high half, offset in the low half.
pub(super) type Position = u64;

#[derive(Debug, Clone, Copy, Default)]
struct State {
    live: usize,
    /// Being emptied: nothing is left here when the compaction pass ends.
    retiring: bool,
}

/// Bytes of a full-size segment; the first ones are smaller, so that a small tree stays small.
pub(super) const SEGMENT_BYTES: usize = 1 << 20;
const FIRST_SEGMENT_BYTES: usize = 1 << 14;
/// Content to ask for ahead of a comparison.
const PREFETCH_BYTES: usize = 512;
const NO_SEGMENT: usize = usize::MAX;
/// Dead content worth a compaction pass: more than this share of the filled part.
const DEAD_SHARE: u64 = 64;
/// Most content one compaction pass moves, as a share of the live part: the copies exist beside
/// their originals until a segment is empty.
const MOVED_SHARE: u64 = 8;

impl<T: Copy + Send + 'static> Slab<T> {
    /// An empty slab with segments of this size.
    pub fn new(segment_bytes: usize) -> Self {
        Self {
            segments: Vec::new(),
            states: Vec::new(),
            vacant: Vec::new(),
            current: NO_SEGMENT,
            segment_items: segment_bytes / size_of::<T>(),
            live_items: 0,
            filled_items: 0,
        }
    }

    /// Stores `content` contiguously.
    pub fn append(&mut self, content: &[T]) -> Position {
        let room =
            self.segments.get(self.current).map_or(0, |items| items.capacity() - items.len());
        let index =
            if content.len() <= room { self.current } else { self.open_segment(content.len()) };
        let segment = &mut self.segments[index];
        let offset = segment.len();
        segment.append(content);
        self.states[index].live += content.len();
        self.live_items += content.len() as u64;
        self.filled_items += content.len() as u64;
        (index as u64) << 32 | offset as u64
    }

    /// The `len` items at `at`.
    #[inline]
    pub fn get(&self, at: Position, len: u32) -> &[T] {
        let offset = at as u32 as usize;
        &self.segments[(at >> 32) as usize][offset..offset + len as usize]
    }

    /// Starts loading the first [`PREFETCH_BYTES`] of the `len` items at `at`, if so much is there; the
    /// hardware follows from there.
    #[inline]
    pub fn prefetch(&self, at: Position, len: u32) {
        let offset = at as u32 as usize;
        let end = offset + (len as usize).min(PREFETCH_BYTES / size_of::<T>());
        let segment = self.segments.get((at >> 32) as usize);
        if let Some(items) = segment.and_then(|items| items.get(offset..end)) {
            prefetch_all(items);
        }
    }

    /// Gives up the `len` items at `at`.
    pub fn release(&mut self, at: Position, len: u32, garbage: &mut Garbage) {
        let index = (at >> 32) as usize;
        let state = &mut self.states[index];
        state.live -= len as usize;
        self.live_items -= u64::from(len);
        if state.live > 0 {
            return;
        }
        state.retiring = false;
        let segment = &mut self.segments[index];
        self.filled_items -= segment.len() as u64;
        if index == self.current {
            segment.clear();
        } else {
            garbage.push(std::mem::take(segment));
            self.vacant.push(index as u32);
        }
    }

    /// Copies the `len` items at `at` out of a retiring segment.
    pub fn relocate(&mut self, at: Position, len: u32, garbage: &mut Garbage) -> Position {
        let offset = at as u32 as usize;
        let source = (at >> 32) as usize;
        debug_assert!(self.states[source].retiring && source != self.current);
        // Taken out for the copy, because source and target are in one vector.
        let items = std::mem::take(&mut self.segments[source]);
        let moved = self.append(&items[offset..offset + len as usize]);
        self.segments[source] = items;
        self.release(at, len, garbage);
        moved
    }

    /// Whether the content at `at` is to be moved.
    #[inline]
    pub fn is_retiring(&self, at: Position) -> bool {
        self.states[(at >> 32) as usize].retiring
    }

    /// Whether dead content is worth a compaction pass.
    pub fn is_fragmented(&self) -> bool {
        let dead = self.filled_items - self.live_items;
        dead > self.filled_items / DEAD_SHARE && dead > self.segment_items as u64
    }

    /// Chooses the segments with the largest dead share for one compaction pass. False if none is
    /// worth it.
    pub fn retire(&mut self) -> bool {
        let mut candidates: Vec<_> = (0..self.segments.len())
            .filter(|&index| index != self.current && self.is_sparse(index))
            .collect();
        candidates.sort_unstable_by_key(|&index| {
            ((self.states[index].live as u64) << 20) / self.segments[index].len() as u64
        });
        let mut moved = self.live_items / MOVED_SHARE;
        for (rank, &index) in candidates.iter().enumerate() {
            let state = &mut self.states[index];
            let live = state.live as u64;
            if rank > 0 && live > moved {
                break;
            }
            state.retiring = true;
            moved = moved.saturating_sub(live);
        }
        !candidates.is_empty()
    }

    /// Ends a compaction pass.
    pub fn stop_retiring(&mut self) {
        self.states.iter_mut().for_each(|state| state.retiring = false);
    }

    /// (items of live edges, items in segments); the difference is dead space.
    #[cfg(any(test, debug_assertions))]
    pub fn usage(&self) -> (u64, u64) {
        (self.live_items, self.filled_items)
    }

    /// A segment with room for `len` items; it becomes the current one unless `len` is so large that
    /// what is left of the current one would be wasted.
    fn open_segment(&mut self, len: usize) -> usize {
        let full = self.segment_items;
        let first = full.min(FIRST_SEGMENT_BYTES / size_of::<T>());
        let alone = len > full / 8;
        let capacity =
            if alone { len } else { (self.filled_items as usize / 4).clamp(first, full).max(len) };
        let segment = Chunk::with_capacity(capacity);
        let index = match self.vacant.pop() {
            Some(index) => {
                self.segments[index as usize] = segment;
                index as usize
            }
            None => {
                self.segments.push(segment);
                self.states.push(State::default());
                self.segments.len() - 1
            }
        };
        if !alone {
            self.leave_current();
            self.current = index;
        }
        index
    }

    fn leave_current(&mut self) {
        if let Some(segment) = self.segments.get_mut(self.current)
            && segment.is_empty()
        {
            *segment = Chunk::default();
            self.vacant.push(self.current as u32);
        }
    }

    fn is_sparse(&self, index: usize) -> bool {
        let filled = self.segments[index].len();
        filled - self.states[index].live > filled / DEAD_SHARE as usize
    }
}
