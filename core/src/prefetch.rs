//! Asking for memory before it is needed.
//!
//! With unsafe code, because a walk over data that does not fit the CPU's caches is a chain of loads
//! of 100 to 300 ns each, and no safe load overlaps with a comparison longer than the reorder buffer.
//! The numbers are in `benches/README.md`.

/// Starts loading the cache line at `place`.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    line(std::ptr::from_ref(place).cast());
}

/// Starts loading all of `items`.
#[inline]
pub fn prefetch_all<T>(items: &[T]) {
    let start: *const u8 = items.as_ptr().cast();
    for offset in (0..size_of_val(items)).step_by(LINE_BYTES) {
        line(start.wrapping_add(offset));
    }
}

const LINE_BYTES: usize = 64;

#[inline(always)]
fn line(place: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it changes nothing the program can observe and cannot fault,
        // whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
