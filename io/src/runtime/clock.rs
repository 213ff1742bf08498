//! The gateway's monotonic clock: milliseconds and microseconds since the process started.

use std::sync::OnceLock;
use std::time::Instant;

static START: OnceLock<Instant> = OnceLock::new();

/// Milliseconds since the first call in this process.
pub fn now_ms() -> u64 {
    START.get_or_init(Instant::now).elapsed().as_millis() as u64
}

/// 64 bits that differ between processes and calls, to seed tie-breaks and request ids. Not a
/// secret: nothing that needs to be unguessable is derived from it.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
