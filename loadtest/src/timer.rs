//! A timer finer than the runtime's, which counts in whole milliseconds.

use std::io;
use std::os::fd::AsRawFd;

use crate::clock::now_ns;
use crate::engine::Nanos;
use crate::waiting::{Rounds, Waiting, Watched};

/// Wakes one waiter at a given time, to some tens of microseconds: a timerfd watched by the ring.
/// Under [`Waiting::BusyPoll`] it looks at the clock instead, to some microseconds.
pub struct PreciseTimer(Kind);

enum Kind {
    Kernel(Watched),
    Clock(Rounds),
}

impl PreciseTimer {
    /// A new timer. Call it inside the runtime.
    pub fn new(waiting: Waiting) -> io::Result<Self> {
        Ok(Self(match waiting {
            Waiting::Sleep => {
                let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
                // SAFETY: plain system call.
                Kind::Kernel(Watched::new(unsafe {
                    libc::timerfd_create(libc::CLOCK_MONOTONIC, flags)
                })?)
            }
            Waiting::BusyPoll => Kind::Clock(Rounds::new()?),
        }))
    }

    /// Returns at `at` on the clock of [`crate::clock::now_ns`], at once if that is past. Dropped
    /// before, it leaves the timer fit for another wait.
    pub async fn wait_until(&self, at: Nanos) -> io::Result<()> {
        match &self.0 {
            Kind::Kernel(fd) => wait_for_kernel(fd, at).await,
            Kind::Clock(rounds) => {
                while now_ns() < at {
                    rounds.one().await?;
                }
                Ok(())
            }
        }
    }
}

async fn wait_for_kernel(timer: &Watched, at: Nanos) -> io::Result<()> {
    let value = libc::timespec {
        tv_sec: (at / 1_000_000_000) as libc::time_t,
        // An all-zero value would disarm the timer.
        tv_nsec: (at % 1_000_000_000).max(1) as libc::c_long,
    };
    let interval = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let spec = libc::itimerspec { it_interval: interval, it_value: value };
    let fd = timer.as_raw_fd();
    // SAFETY: `fd` is open as long as `timer`, `spec` is valid for the call.
    let set =
        unsafe { libc::timerfd_settime(fd, libc::TFD_TIMER_ABSTIME, &spec, std::ptr::null_mut()) };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    timer.readable().await?;
    let mut expirations = [0u8; 8];
    // SAFETY: eight bytes are there to write to. The result is of no interest: the timer is
    // set anew before the next wait, which clears what was not read.
    unsafe { libc::read(fd, expirations.as_mut_ptr().cast(), expirations.len()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_fires_early_and_can_be_used_again() {
        for waiting in [Waiting::Sleep, Waiting::BusyPoll] {
            let early = crate::runtime::block_on(|_| async move {
                let timer = PreciseTimer::new(waiting).unwrap();
                let mut early = 0;
                for step in [300_000, 0, 1_700_000, 50_000] {
                    let at = now_ns() + step;
                    timer.wait_until(at).await.unwrap();
                    early += u32::from(now_ns() < at);
                }
                early
            });
            assert_eq!(early.unwrap(), 0, "{waiting:?}");
        }
    }
}
