//! Large pieces of an index: vectors whose memory is the allocator's, or of a source that whoever runs the
//! index has.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};

/// Memory for `layout`, which is not empty, for nobody else until it is released; `None` if that had better
/// be the allocator's.
pub type Source = fn(Layout) -> Option<(NonNull<u8>, Arc<dyn Allotment>)>;

/// Where memory of a [`Source`] goes back.
pub trait Allotment: Send + Sync {
    /// Takes back what came with this, on any thread.
    ///
    /// # Safety
    /// `place` and `layout` are those it came with, and nobody uses it any more.
    unsafe fn release(&self, place: NonNull<u8>, layout: Layout);
}

static SOURCE: OnceLock<Source> = OnceLock::new();

/// Has all indexes of this process use memory of `source` from here on. Only the first one counts.
pub fn use_source(source: Source) {
    SOURCE.get_or_init(|| source);
}

/// Items next to each other, with room for a number of them that is chosen once, or doubles.
pub(super) struct Chunk<T> {
    /// Dangling without capacity.
    items: NonNull<T>,
    len: u32,
    capacity: u32,
    /// Where the memory goes back, if not to the allocator.
    allotment: Option<Arc<dyn Allotment>>,
}

/// It fits a power of two, so that look-ups in vectors of them stay within lines.
const _: () = assert!(size_of::<Chunk<u8>>() == 32);

/// Capacity of a chunk that grows from nothing.
const FIRST_CAPACITY: usize = 4;

// SAFETY: it owns its items, as a vector does.
unsafe impl<T: Send> Send for Chunk<T> {}
// SAFETY: the same.
unsafe impl<T: Sync> Sync for Chunk<T> {}

impl<T> Default for Chunk<T> {
    fn default() -> Self {
        Self { items: NonNull::dangling(), len: 0, capacity: 0, allotment: None }
    }
}

impl<T> Chunk<T> {
    /// No items, and room for so many, 2^32 - 1 at most.
    pub fn with_capacity(capacity: usize) -> Self {
        const { assert!(size_of::<T>() > 0, "items without size take no memory") };
        if capacity == 0 {
            return Self::default();
        }
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        let layout = Self::layout(capacity);
        let (place, allotment) = match SOURCE.get().and_then(|source| source(layout)) {
            Some((place, allotment)) => (place, Some(allotment)),
            None => {
                // SAFETY: there are items, and none is without size.
                let place = NonNull::new(unsafe { alloc(layout) });
                (place.unwrap_or_else(|| handle_alloc_error(layout)), None)
            }
        };
        Self { items: place.cast(), len: 0, capacity, allotment }
    }

    /// How many items there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Adds an item; the capacity doubles if that is needed.
    #[inline]
    pub fn push(&mut self, item: T) {
        if self.len == self.capacity {
            self.grow();
        }
        // SAFETY: there is room for one more.
        unsafe { self.items.add(self.len()).write(item) };
        self.len += 1;
    }

    /// Removes the last item.
    pub fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: it was within the length, and is not any more.
        Some(unsafe { self.items.add(self.len()).read() })
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        let items: *mut [T] = &mut **self;
        self.len = 0;
        // SAFETY: they were within the length, and are not any more, even if a drop panics.
        unsafe { ptr::drop_in_place(items) };
    }

    /// Where the next item will be, if there is room for it.
    #[inline]
    pub fn next_place(&self) -> Option<&MaybeUninit<T>> {
        // SAFETY: within the capacity; nothing is said about its content.
        (self.len < self.capacity).then(|| unsafe { self.items.add(self.len()).cast().as_ref() })
    }

    #[cold]
    fn grow(&mut self) {
        assert!(self.capacity < u32::MAX, "room for as many items as there may be");
        let mut larger = Self::with_capacity((2 * self.capacity()).max(FIRST_CAPACITY));
        // SAFETY: the items move to other memory with room for them; here none is left.
        unsafe { larger.items.copy_from_nonoverlapping(self.items, self.len()) };
        larger.len = std::mem::take(&mut self.len);
        *self = larger;
    }

    fn layout(capacity: u32) -> Layout {
        Layout::array::<T>(capacity as usize)
            .unwrap_or_else(|_| handle_alloc_error(Layout::new::<T>()))
    }
}

impl<T: Copy> Chunk<T> {
    /// Adds items. There must be room for them.
    #[inline]
    pub fn append(&mut self, items: &[T]) {
        let room = self.capacity() - self.len();
        assert!(items.len() <= room, "no room for {} items", items.len());
        // SAFETY: there is room, and a slice cannot reach into room that is not filled.
        unsafe {
            let place = self.items.as_ptr().add(self.len());
            ptr::copy_nonoverlapping(items.as_ptr(), place, items.len());
        }
        self.len += items.len() as u32;
    }
}

impl<T> Drop for Chunk<T> {
    fn drop(&mut self) {
        if self.capacity == 0 {
            return;
        }
        self.clear();
        let (place, layout) = (self.items.cast(), Self::layout(self.capacity));
        // SAFETY: allocated so, there or here, and not used from here on.
        unsafe {
            match self.allotment.take() {
                Some(allotment) => allotment.release(place, layout),
                None => dealloc(place.as_ptr(), layout),
            }
        }
    }
}

impl<T> Deref for Chunk<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: so many items are there; without capacity there are none.
        unsafe { std::slice::from_raw_parts(self.items.as_ptr(), self.len as usize) }
    }
}

impl<T> DerefMut for Chunk<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the same.
        unsafe { std::slice::from_raw_parts_mut(self.items.as_ptr(), self.len as usize) }
    }
}

impl<T> fmt::Debug for Chunk<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("len", &self.len).field("capacity", &self.capacity).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    use super::*;

    #[test]
    fn it_grows_by_doubling_and_keeps_its_items() {
        let mut chunk = Chunk::default();
        assert!(chunk.is_empty() && chunk.next_place().is_none());
        let mut capacities = Vec::new();
        for n in 0..100_000_u64 {
            chunk.push(n);
            if capacities.last() != Some(&chunk.capacity()) {
                capacities.push(chunk.capacity());
            }
        }
        assert_eq!(capacities, (2..=17).map(|bits| 1 << bits).collect::<Vec<_>>());
        assert!(chunk.iter().copied().eq(0..100_000));
        assert_eq!((chunk.pop(), chunk.len()), (Some(99_999), 99_999));
        chunk[7] = 70;
        assert_eq!(chunk.get(7), Some(&70));
        chunk.clear();
        assert_eq!((chunk.pop(), chunk.len(), chunk.capacity()), (None, 0, 1 << 17));
    }

    #[test]
    fn items_are_appended_where_there_is_room_for_them() {
        let mut chunk = Chunk::with_capacity(5);
        chunk.append(b"abc");
        chunk.append(b"");
        chunk.append(b"de");
        assert_eq!((&*chunk, chunk.capacity()), (&b"abcde"[..], 5));
        assert!(catch_unwind(AssertUnwindSafe(|| chunk.append(b"f"))).is_err());
        assert_eq!(Chunk::<u8>::with_capacity(0).capacity(), 0);
    }

    #[test]
    fn its_items_are_dropped_once() {
        let item = Rc::new(());
        let mut chunk = Chunk::default();
        (0..10).for_each(|_| chunk.push(item.clone()));
        drop(chunk.pop());
        assert_eq!(Rc::strong_count(&item), 10);
        chunk.clear();
        chunk.push(item.clone());
        assert_eq!(Rc::strong_count(&item), 2);
        drop(chunk);
        assert_eq!(Rc::strong_count(&item), 1);
    }
}
