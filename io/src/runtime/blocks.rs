//! Memory of indexes, in blocks that can be backed by huge pages. In an index larger than the CPU's caches
//! most look-ups miss its TLB too, and a page of 2 MiB spares those.
//!
//! A block is cut into units; a piece is a run of them. A thread takes pieces of its own blocks alone, of the
//! first one with room, so that the last ones drain. Wherever a piece is freed its units are the thread's
//! again at once; a block goes with its last piece.

use std::alloc::Layout;
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use smg_core::index::Allotment;

/// Bytes of a block, and their alignment.
pub const BLOCK_BYTES: usize = 2 << 20;
const UNITS: u32 = 32;
const UNIT_BYTES: usize = BLOCK_BYTES / UNITS as usize;
/// Smaller pieces would leave more than half of a unit unused.
const SMALLEST: usize = UNIT_BYTES / 2;
/// Larger ones would leave up to half of a block unused.
const LARGEST: usize = BLOCK_BYTES / 2;
/// Pieces by size: up to 1, 2, 4, 8 and 16 units.
const CLASSES: usize = (LARGEST / UNIT_BYTES).ilog2() as usize + 1;
/// Blocks that are looked at for room before there is a new one: each may be a cache miss.
const LOOKS: usize = 1024;

/// Where blocks come from.
#[derive(Debug, Clone, Copy)]
pub struct Provider {
    /// [`BLOCK_BYTES`] aligned to as many, for nobody else until they are given back; nothing if there is
    /// no memory.
    pub take: fn() -> Option<NonNull<u8>>,
    /// Takes a block of [`Provider::take`] back, on any thread.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub give: unsafe fn(NonNull<u8>),
}

thread_local! {
    static OWN: RefCell<Blocks> = RefCell::default();
}

/// A block, and which of its units are in use, one bit each.
#[derive(Debug)]
struct Block {
    start: NonNull<u8>,
    used: AtomicU32,
    /// Its place among the blocks of its thread.
    index: AtomicUsize,
    hints: Arc<Hints>,
    give: unsafe fn(NonNull<u8>),
}

/// For each class of pieces the first block that may have room for one. Those before it had none when they
/// were looked at, and nothing as large as that was freed there since.
#[derive(Debug, Default)]
struct Hints([AtomicUsize; CLASSES]);

impl Hints {
    /// The block at `index` may have room for pieces of any class.
    fn look_at(&self, index: usize) {
        for hint in &self.0 {
            hint.fetch_min(index, Ordering::Relaxed);
        }
    }
}

// SAFETY: a block only says where its memory is; what is there belongs to who has the piece.
unsafe impl Send for Block {}
// SAFETY: the same; the bits are atomic.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: each piece had a share of this, so that there are none.
        unsafe { (self.give)(self.start) };
    }
}

/// A piece for `layout`, of a block of the calling thread's; `None` if it does not belong in one, or there
/// is no memory for another.
pub fn take(provider: &Provider, layout: Layout) -> Option<(NonNull<u8>, Arc<dyn Allotment>)> {
    let units = units_of(layout)?;
    let (place, block) = OWN.with_borrow_mut(|own| own.take(provider, units))?;
    Some((place, block))
}

impl Allotment for Block {
    unsafe fn release(&self, place: NonNull<u8>, layout: Layout) {
        let Some(units) = units_of(layout) else { return };
        let at = (place.as_ptr().addr() - self.start.as_ptr().addr()) / UNIT_BYTES;
        let run = run_at(at as u32, units);
        // After everything that was done there, for the thread that sees the units free.
        let used = self.used.fetch_and(!run, Ordering::Release);
        debug_assert_eq!(used & run, run, "freed twice");
        // Up to that of pieces as long as the run, some of which are longer.
        let roomy = class_of(longest_run(used & !run));
        for hint in self.hints.0.iter().take(roomy + 1) {
            hint.fetch_min(self.index.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// How many units a piece takes, if it belongs in a block.
fn units_of(layout: Layout) -> Option<u32> {
    let fits = (SMALLEST..=LARGEST).contains(&layout.size()) && layout.align() <= UNIT_BYTES;
    fits.then(|| layout.size().div_ceil(UNIT_BYTES) as u32)
}

/// The class of pieces of so many units.
fn class_of(units: u32) -> usize {
    units.next_power_of_two().ilog2() as usize
}

/// The blocks of one thread.
#[derive(Debug, Default)]
struct Blocks {
    /// Some may be gone.
    blocks: Vec<Weak<Block>>,
    hints: Arc<Hints>,
}

impl Blocks {
    /// A piece of so many units.
    fn take(&mut self, provider: &Provider, units: u32) -> Option<(NonNull<u8>, Arc<Block>)> {
        let class = class_of(units);
        let mut at = self.hints.0[class].swap(usize::MAX, Ordering::Relaxed);
        let mut found = None;
        for _ in 0..LOOKS {
            let Some(block) = self.blocks.get(at) else { break };
            let Some(block) = block.upgrade() else {
                self.forget(at);
                continue;
            };
            if let Some(place) = block.take(units) {
                found = Some((place, block));
                break;
            }
            at += 1;
        }
        // Whatever was freed meanwhile, before this, is noted already.
        self.hints.0[class].fetch_min(at, Ordering::Relaxed);
        found.or_else(|| self.take_of_new(provider, units))
    }

    fn take_of_new(
        &mut self,
        provider: &Provider,
        units: u32,
    ) -> Option<(NonNull<u8>, Arc<Block>)> {
        let start = (provider.take)()?;
        debug_assert_eq!(start.as_ptr().addr() % BLOCK_BYTES, 0);
        let block = Arc::new(Block {
            start,
            used: AtomicU32::new(0),
            index: AtomicUsize::new(self.blocks.len()),
            hints: self.hints.clone(),
            give: provider.give,
        });
        self.hints.look_at(self.blocks.len());
        self.blocks.push(Arc::downgrade(&block));
        Some((block.take(units)?, block))
    }

    /// Has the last block take the place of one that is gone.
    fn forget(&mut self, at: usize) {
        self.blocks.swap_remove(at);
        if let Some(moved) = self.blocks.get(at).and_then(Weak::upgrade) {
            moved.index.store(at, Ordering::Relaxed);
            self.hints.look_at(at);
        }
    }
}

impl Block {
    /// A run of so many units. Only its thread takes any; others may free theirs meanwhile.
    fn take(&self, units: u32) -> Option<NonNull<u8>> {
        let at = first_run(self.used.load(Ordering::Acquire), units)?;
        self.used.fetch_or(run_at(at, units), Ordering::Relaxed);
        // SAFETY: the run is within the block.
        Some(unsafe { self.start.add(at as usize * UNIT_BYTES) })
    }
}

/// `units` bits from bit `at` on.
fn run_at(at: u32, units: u32) -> u32 {
    (u32::MAX >> (UNITS - units)) << at
}

/// Length of the longest run of clear bits.
fn longest_run(used: u32) -> u32 {
    let (mut free, mut length) = (!used, 0);
    while free != 0 {
        // What is left are the places where a run of one more begins.
        free &= free >> 1;
        length += 1;
    }
    length
}

/// Where the first run of so many clear bits begins.
fn first_run(used: u32, units: u32) -> Option<u32> {
    (0..=UNITS - units).find(|&at| used & run_at(at, units) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::{alloc, dealloc};

    const BLOCK: Layout = match Layout::from_size_align(BLOCK_BYTES, BLOCK_BYTES) {
        Ok(layout) => layout,
        Err(_) => panic!("it is a power of two"),
    };

    static TAKEN: AtomicUsize = AtomicUsize::new(0);

    /// Blocks of the allocator, three at most.
    const FEW: Provider = Provider { take: take_one, give: give_one };

    fn take_one() -> Option<NonNull<u8>> {
        if TAKEN.load(Ordering::Relaxed) == 3 {
            return None;
        }
        TAKEN.fetch_add(1, Ordering::Relaxed);
        // SAFETY: it is not empty.
        NonNull::new(unsafe { alloc(BLOCK) })
    }

    unsafe fn give_one(block: NonNull<u8>) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: it was allocated so.
        unsafe { dealloc(block.as_ptr(), BLOCK) };
    }

    type Piece = (NonNull<u8>, Arc<Block>);

    fn free((place, block): Piece, units: u32) {
        let layout = Layout::from_size_align(units as usize * UNIT_BYTES, 64).unwrap();
        // SAFETY: the tests free what they took.
        unsafe { block.release(place, layout) };
    }

    #[test]
    fn pieces_are_of_the_first_block_with_room_and_the_last_one_takes_its_block_along() {
        let mut own = Blocks::default();
        let taken = || TAKEN.load(Ordering::Relaxed);
        let after = |one: &Piece, other: &Piece| {
            (one.0.as_ptr().addr() - other.0.as_ptr().addr()) / UNIT_BYTES
        };
        let mut take = |units| own.take(&FEW, units);
        let first = take(16).unwrap();
        let second = take(16).unwrap();
        assert_eq!(after(&second, &first), 16);
        let third = take(16).unwrap();
        assert_eq!(taken(), 2);
        let (fourth, fifth) = (take(8).unwrap(), take(8).unwrap());
        assert_eq!((after(&fourth, &third), after(&fifth, &third)), (16, 24));
        let (sixth, seventh) = (take(16).unwrap(), take(16).unwrap());
        assert_eq!(taken(), 3);
        assert!(take(1).is_none(), "there is no fourth block");
        let place = second.0;
        free(second, 16);
        let eighth = take(8).unwrap();
        assert_eq!(eighth.0, place);
        for (piece, units) in [(third, 16), (fourth, 8), (fifth, 8)] {
            free(piece, units);
        }
        assert_eq!(taken(), 2);
        let ninth = take(4).unwrap();
        assert_eq!(after(&ninth, &first), 24);
        let place = sixth.0;
        free(sixth, 16);
        let tenth = take(16).unwrap();
        assert_eq!((tenth.0, taken()), (place, 2), "the third block is the second now");
        for (piece, units) in [(tenth, 16), (seventh, 16)] {
            free(piece, units);
        }
        assert_eq!(taken(), 1);
        for (piece, units) in [(first, 16), (eighth, 8), (ninth, 4)] {
            free(piece, units);
        }
        assert_eq!(taken(), 0);
        let again = own.take(&FEW, 16).unwrap();
        assert_eq!((taken(), own.blocks.len()), (1, 1), "what is gone is forgotten");
        free(again, 16);
    }

    #[test]
    fn pieces_taken_and_freed_at_random_never_overlap_and_leave_little_unused() {
        const PLENTY: Provider = Provider { take: take_any, give: give_any };
        fn take_any() -> Option<NonNull<u8>> {
            // SAFETY: it is not empty.
            NonNull::new(unsafe { alloc(BLOCK) })
        }
        unsafe fn give_any(block: NonNull<u8>) {
            // SAFETY: it was allocated so.
            unsafe { dealloc(block.as_ptr(), BLOCK) };
        }
        let mut own = Blocks::default();
        let mut rng = smg_core::rng::Rng::new(7);
        let mut pieces: Vec<(Piece, u32)> = Vec::new();
        for _ in 0..20_000 {
            if pieces.len() > 300 || (!pieces.is_empty() && rng.below(2) == 0) {
                let (piece, units) = pieces.swap_remove(rng.below(pieces.len()));
                free(piece, units);
                continue;
            }
            let units = [1, 4, 5, 16][rng.below(4)];
            let piece = own.take(&PLENTY, units).unwrap();
            let at = |piece: &Piece| piece.0.as_ptr().addr() / UNIT_BYTES;
            let start = at(&piece);
            let apart = |(other, its): &(Piece, u32)| {
                at(other) + *its as usize <= start || start + units as usize <= at(other)
            };
            assert!(pieces.iter().all(apart));
            pieces.push((piece, units));
        }
        let in_use: u32 = pieces.iter().map(|(_, units)| units).sum();
        let held = own.blocks.iter().filter(|block| block.strong_count() > 0).count();
        assert!(held as u32 * UNITS < in_use * 3 / 2 + UNITS, "{held} blocks for {in_use} units");
        pieces.into_iter().for_each(|(piece, units)| free(piece, units));
    }

    #[test]
    fn a_piece_that_is_freed_elsewhere_can_be_taken_again() {
        // SAFETY: it is not empty.
        const ONE: Provider = Provider { take: || NonNull::new(unsafe { alloc(BLOCK) }), give };
        unsafe fn give(block: NonNull<u8>) {
            // SAFETY: it was allocated so.
            unsafe { dealloc(block.as_ptr(), BLOCK) };
        }
        let mut own = Blocks::default();
        let kept = own.take(&ONE, 1).unwrap();
        let beside = own.take(&ONE, 15).unwrap();
        for round in 0..100 {
            let (place, block) = own.take(&ONE, 16).unwrap();
            assert_eq!(own.blocks.len(), 1);
            // SAFETY: within the piece.
            unsafe { place.write_bytes(round, 16 * UNIT_BYTES) };
            let place = place.as_ptr().addr();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let place = NonNull::new(block.start.as_ptr().with_addr(place)).unwrap();
                    free((place, block), 16);
                });
            });
        }
        free(kept, 1);
        free(beside, 15);
    }

    #[test]
    fn runs_of_free_units_are_found() {
        assert_eq!(first_run(!0b0111_0011_0000, 3), Some(8));
        assert_eq!(first_run(!0b0111_0011_0000, 2), Some(4));
        assert_eq!(first_run(!0b0111_0011_0000, 4), None);
        assert_eq!((first_run(0, 32), first_run(1, 32)), (Some(0), None));
        assert_eq!((run_at(0, 32), run_at(31, 1), run_at(2, 3)), (u32::MAX, 1 << 31, 0b11100));
        assert_eq!((longest_run(0), longest_run(u32::MAX)), (32, 0));
        assert_eq!(longest_run(0b1000_0000_0001), 20);
        assert_eq!(longest_run(!0b0111_0011_0000), 3);
        assert_eq!([1, 2, 3, 4, 9, 16].map(class_of), [0, 1, 2, 2, 4, 4]);
    }

    #[test]
    fn what_is_too_small_or_too_large_is_the_allocators() {
        let units = |size| units_of(Layout::from_size_align(size, 64).unwrap());
        assert_eq!((units(SMALLEST - 1), units(SMALLEST)), (None, Some(1)));
        assert_eq!((units(UNIT_BYTES), units(UNIT_BYTES + 1)), (Some(1), Some(2)));
        assert_eq!((units(1 << 20), units((1 << 20) + 1)), (Some(16), None));
    }
}
