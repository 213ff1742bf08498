//! A timer finer than the runtime's, which counts in whole milliseconds.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

use monoio::net::UnixStream;

use crate::engine::Nanos;

/// Wakes one waiter at a given time, to some tens of microseconds: a timerfd watched by the ring.
pub struct PreciseTimer {
    /// monoio watches file descriptors through its socket types only. Nothing is ever read through
    /// this one but the timer's eight-byte counter.
    fd: UnixStream,
}

impl PreciseTimer {
    /// A new timer. Call it inside the runtime.
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: plain system call.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just created and has no other owner.
        let owned = unsafe { std::os::unix::net::UnixStream::from_raw_fd(fd) };
        Ok(Self { fd: UnixStream::from_std(owned)? })
    }

    /// Returns at `at` on the clock of [`crate::clock::now_ns`], at once if that is past.
    pub async fn wait_until(&self, at: Nanos) -> io::Result<()> {
        let value = libc::timespec {
            tv_sec: (at / 1_000_000_000) as libc::time_t,
            // An all-zero value would disarm the timer.
            tv_nsec: (at % 1_000_000_000).max(1) as libc::c_long,
        };
        let interval = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = libc::itimerspec { it_interval: interval, it_value: value };
        let fd = self.fd.as_raw_fd();
        // SAFETY: `fd` is open as long as `self`, `spec` is valid for the call.
        let set = unsafe {
            libc::timerfd_settime(fd, libc::TFD_TIMER_ABSTIME, &spec, std::ptr::null_mut())
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
        self.fd.readable(false).await?;
        let mut expirations = [0u8; 8];
        // SAFETY: eight bytes are there to write to. The result is of no interest: the timer is
        // set anew before the next wait, which clears what was not read.
        unsafe { libc::read(fd, expirations.as_mut_ptr().cast(), expirations.len()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now_ns;

    #[test]
    fn it_never_fires_early_and_can_be_used_again() {
        let early = crate::runtime::block_on(|_| async {
            let timer = PreciseTimer::new().unwrap();
            let mut early = 0;
            for step in [300_000, 0, 1_700_000, 50_000] {
                let at = now_ns() + step;
                timer.wait_until(at).await.unwrap();
                early += u32::from(now_ns() < at);
            }
            early
        });
        assert_eq!(early.unwrap(), 0);
    }
}
