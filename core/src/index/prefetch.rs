//! Asking for memory before it is needed.

/// Starts loading the cache line at `place`.
///
/// Unsafe code, because a walk over a tree that does not fit the CPU's caches is a chain of loads of
/// 100 to 300 ns each, and no safe load overlaps with a comparison longer than the reorder buffer.
/// The numbers are in `benches/README.md`.
#[inline(always)]
pub(super) fn prefetch<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it changes nothing the program can observe and cannot fault,
        // whatever the address; this one comes from a reference besides.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

/// Starts loading all of `items`.
#[inline]
pub(super) fn prefetch_all<T>(items: &[T]) {
    items.iter().step_by(LINE_BYTES / size_of::<T>()).for_each(prefetch);
}

const LINE_BYTES: usize = 64;
