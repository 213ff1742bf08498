//! The clocks of this crate.

use crate::engine::Nanos;

/// `CLOCK_MONOTONIC` in nanoseconds: one origin for every process of the machine, so a timestamp
/// written into a stream by an engine can be compared in the client.
pub fn now_ns() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time of this thread in nanoseconds, for what a computation cost on a machine that is shared.
pub fn cpu_ns() -> Nanos {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Seconds since the Unix epoch, for `created` fields and report dates only.
pub fn unix_seconds() -> u64 {
    read(libc::CLOCK_REALTIME) / 1_000_000_000
}

fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to. The call cannot fail for these clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
