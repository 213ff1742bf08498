//! Ctrl-C as a wish to stop instead of sudden death.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on the first SIGINT or SIGTERM is only noted; the second one kills.
pub fn catch_interrupts() {
    extern "C" fn note(signal: libc::c_int) {
        if INTERRUPTED.swap(true, Relaxed) {
            // SAFETY: both calls are async-signal-safe.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler touches an atomic and async-signal-safe functions only.
        unsafe { libc::signal(signal, note as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

/// Whether a signal came.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Relaxed)
}
