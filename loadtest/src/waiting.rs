//! How a thread waits. One that sleeps is woken late, by the timer and by the scheduler, and later
//! still on a CPU that has gone to sleep as well; one that polls sees at once what happens.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
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
    /// An event counter.
    counter: Watched,
}

impl Rounds {
    /// Call it inside the runtime.
    pub fn new() -> io::Result<Self> {
        // SAFETY: plain system call.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        Ok(Self { counter: Watched::new(fd)? })
    }

    /// Returns when sockets and timers have been looked at.
    pub async fn one(&self) -> io::Result<()> {
        let fd = self.counter.as_raw_fd();
        let mut count = [0u8; 8];
        // SAFETY: eight bytes are there to write to. The descriptor does not block, and whether
        // there was something to read does not matter.
        unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
        let mut counted = pin!(self.counter.readable());
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

/// A descriptor to be waited for: monoio watches descriptors through its socket types only, and
/// nothing is ever read or written through this one.
pub(crate) struct Watched(UnixStream);

impl Watched {
    /// Takes the result of a system call that made a descriptor. Call it inside the runtime.
    pub fn new(fd: RawFd) -> io::Result<Self> {
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just created and has no other owner.
        UnixStream::from_std(unsafe { std::os::unix::net::UnixStream::from_raw_fd(fd) }).map(Self)
    }

    /// Returns when there is something to read. A signal that has a handler is none.
    pub async fn readable(&self) -> io::Result<()> {
        loop {
            match self.0.readable(false).await {
                // With epoll, monoio asks poll(2) as well, which a signal can interrupt.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }
}

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::clock::{cpu_ns, now_ns};
    use crate::timer::PreciseTimer;

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

    async fn wait_often(waiting: Waiting) -> io::Result<()> {
        let timer = PreciseTimer::new(waiting)?;
        for _ in 0..50 {
            timer.wait_until(now_ns() + 2_000_000).await?;
        }
        Ok(())
    }

    #[test]
    fn signals_do_not_end_a_wait() {
        extern "C" fn note(_: libc::c_int) {}
        // SAFETY: the handler does nothing; no other test uses this signal.
        unsafe { libc::signal(libc::SIGUSR2, note as extern "C" fn(libc::c_int) as usize) };
        // SAFETY: plain library call.
        let waiting_thread = unsafe { libc::pthread_self() };
        let is_over = AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    // SAFETY: the thread outlives this scope.
                    unsafe { libc::pthread_kill(waiting_thread, libc::SIGUSR2) };
                    std::thread::yield_now();
                }
            });
            let ended = [Waiting::Sleep, Waiting::BusyPoll]
                .map(|waiting| crate::runtime::block_on(|_| waiting.during(wait_often(waiting))));
            is_over.store(true, Relaxed);
            ended
        });
        assert!(matches!(ended, [Ok(Ok(Ok(()))), Ok(Ok(Ok(())))]), "{ended:?}");
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
