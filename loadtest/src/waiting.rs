//! How a thread waits. One that sleeps is woken late, by the timer and by the scheduler, and later
//! still on a CPU that has gone to sleep as well; one that polls sees at once what happens.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::pin::pin;
use std::task::Poll;

use monoio::net::UnixStream;
use serde::Serialize;

/// What a thread does while there is nothing to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// It sleeps.
    #[default]
    Sleep,
    /// It looks again and again, and never blocks: that takes a whole CPU.
    BusyPoll,
}

impl Waiting {
    /// Drives `work`; until it ends, everything on this thread's runtime waits in this way. Fails
    /// when the process has no file descriptor left.
    pub async fn during<T>(self, work: impl Future<Output = T>) -> io::Result<T> {
        if self == Self::Sleep {
            return Ok(work.await);
        }
        let rounds = Rounds::new()?;
        let (mut work, mut forever) = (pin!(work), pin!(rounds.forever()));
        poll_fn(|cx| {
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            forever.as_mut().poll(cx).map(Err)
        })
        .await
    }
}

/// Rounds of the runtime that end at once. The runtime sees to its timers only when it has nothing
/// to do but wait, so a task that merely stays ready would stop them; this one lets it wait, for
/// something that has happened already.
pub(crate) struct Rounds {
    /// An event counter, as an io_uring or epoll knows sockets only through monoio.
    counter: UnixStream,
}

impl Rounds {
    /// Call it inside the runtime.
    pub fn new() -> io::Result<Self> {
        // SAFETY: plain system call.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        Ok(Self { counter: watched(fd)? })
    }

    /// Returns when sockets and timers have been looked at.
    pub async fn one(&self) -> io::Result<()> {
        let fd = self.counter.as_raw_fd();
        let mut count = [0u8; 8];
        // SAFETY: eight bytes are there to write to. The descriptor does not block, and whether
        // there was something to read does not matter.
        unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
        let mut counted = pin!(self.counter.readable(false));
        // It waits before the counter counts: epoll tells of changes only.
        let early = poll_fn(|cx| Poll::Ready(counted.as_mut().poll(cx))).await;
        if let Poll::Ready(result) = early {
            return result;
        }
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes are there to read from.
        if unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        counted.await
    }

    /// Returns only when a round fails.
    async fn forever(&self) -> io::Error {
        loop {
            if let Err(error) = self.one().await {
                return error;
            }
        }
    }
}

/// Takes a descriptor, the result of a system call that made it, for watching with `readable`:
/// monoio watches descriptors through its socket types only.
pub(crate) fn watched(fd: std::os::fd::RawFd) -> io::Result<UnixStream> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just created and has no other owner.
    UnixStream::from_std(unsafe { std::os::unix::net::UnixStream::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::clock::cpu_ns;

    #[test]
    fn timers_and_other_tasks_go_on_while_a_thread_polls() {
        let start = Instant::now();
        let (cpu, steps) = crate::runtime::block_on(|_| {
            Waiting::BusyPoll.during(async {
                let before = cpu_ns();
                let other = monoio::spawn(async {
                    for _ in 0..10 {
                        monoio::time::sleep(Duration::from_millis(3)).await;
                    }
                    10
                });
                monoio::time::sleep(Duration::from_millis(60)).await;
                (cpu_ns() - before, other.await)
            })
        })
        .unwrap()
        .unwrap();
        assert_eq!(steps, 10);
        assert!(start.elapsed() >= Duration::from_millis(60));
        // The machine may have had other work for some of that time.
        assert!(cpu > 2_000_000, "{cpu} ns: it slept");
    }

    #[test]
    fn a_thread_that_sleeps_uses_no_cpu() {
        let cpu = crate::runtime::block_on(|_| {
            Waiting::Sleep.during(async {
                let before = cpu_ns();
                monoio::time::sleep(Duration::from_millis(60)).await;
                cpu_ns() - before
            })
        });
        let cpu = cpu.unwrap().unwrap();
        assert!(cpu < 20_000_000, "{cpu} ns");
    }
}
