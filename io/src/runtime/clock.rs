//! The gateway's monotonic clock, in milliseconds.

/// Milliseconds of the machine's monotonic clock as of its last tick (1 to 10 ms ago). Reading it
/// costs a few nanoseconds; what needs more precision uses `Instant`.
pub fn now_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct lives through the call; this clock exists since Linux 2.6.32.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// 64 bits that differ between processes and calls, to seed tie-breaks and request ids. Not a
/// secret: nothing that needs to be unguessable is derived from it.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
