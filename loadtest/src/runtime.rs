//! A monoio runtime on the calling thread, and what a thread needs around it: driver ladder,
//! pinning, scheduling group, panic guard.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use monoio::time::TimeDriver;
use monoio::{FusionRuntime, IoUringDriver, LegacyDriver, RuntimeBuilder};

type Runtime = FusionRuntime<TimeDriver<IoUringDriver>, TimeDriver<LegacyDriver>>;

/// Ring sizes to try: the second fits a 64 KiB memlock limit, the usual one in containers.
const RING_ENTRIES: [u32; 2] = [1024, 256];

/// What drives the I/O of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    IoUring,
    Epoll,
}

/// Builds a runtime and runs the future `main` returns to its end on this thread. The best driver
/// that works is taken: io_uring with cooperative task running, plain io_uring, epoll. With
/// `MONOIO_FORCE_LEGACY_DRIVER=1` in the environment it is epoll.
pub fn block_on<F: Future>(main: impl FnOnce(Driver) -> F) -> io::Result<F::Output> {
    let mut runtime = build()?;
    let driver = match runtime {
        FusionRuntime::Uring(_) => Driver::IoUring,
        FusionRuntime::Legacy(_) => Driver::Epoll,
    };
    Ok(runtime.block_on(main(driver)))
}

fn build() -> io::Result<Runtime> {
    if monoio::utils::detect_uring() {
        let mut cooperative = io_uring::IoUring::builder();
        cooperative.setup_single_issuer().setup_coop_taskrun();
        for flags in [cooperative, io_uring::IoUring::builder()] {
            for entries in RING_ENTRIES {
                let ring = RuntimeBuilder::<IoUringDriver>::new()
                    .uring_builder(flags.clone())
                    .with_entries(entries)
                    .enable_timer()
                    .build();
                if let Ok(runtime) = ring {
                    return Ok(runtime.into());
                }
            }
        }
    }
    Ok(RuntimeBuilder::<LegacyDriver>::new().enable_timer().build()?.into())
}

/// Spawns a connection's task. A panic in it ends this task only, with a line on stderr; monoio
/// would unwind the whole thread.
pub fn spawn_guarded(future: impl Future<Output = ()> + 'static) {
    monoio::spawn(Guarded(Some(Box::pin(future))));
}

struct Guarded(Option<Pin<Box<dyn Future<Output = ()>>>>);

impl Future for Guarded {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(future) = self.0.as_mut() else { return Poll::Ready(()) };
        // The future is dropped after a panic, so nobody sees it in a broken state.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(()),
            Err(_) => {
                eprintln!("a connection task panicked; its connection is closed");
                self.0 = None;
                Poll::Ready(())
            }
        }
    }
}

/// The CPUs this thread may run on, in ascending order.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: cpu_set_t is plain bits, for which all zeroes is a valid (empty) value; the call
    // writes at most the size it is given.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        set
    };
    // SAFETY: every index is below CPU_SETSIZE, the number of bits in the set.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Restricts this thread, and what it spawns or executes later, to these CPUs.
pub fn pin_to(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: see `allowed_cpus`; indexes beyond the set are filtered out.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as usize) {
            libc::CPU_SET(*cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Raises the scheduling weight of this session where the kernel groups tasks by session
/// (`sched_autogroup`): `nice` has no effect between sessions there. Needs privileges; without
/// them nothing changes, and numbers are noisier on a busy machine.
pub fn raise_autogroup() {
    let _ = std::fs::write("/proc/self/autogroup", "-10");
}

/// Lifts the soft limit on open files to the hard one, so that many connections fit.
pub fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read or write `limit`.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}
