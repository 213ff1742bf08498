//! The signals that steer the process.

use std::io;
use std::time::Instant;

/// The signals the main thread waits for; every thread started later inherits the mask.
pub struct Signals(libc::sigset_t);

/// What a signal means.
pub(super) enum Signal {
    /// SIGTERM or SIGINT.
    Stop,
    /// A thread has ended.
    Fault,
    /// SIGHUP.
    Reload,
}

impl Signals {
    /// Masks them. Call it before any other thread exists.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn block() -> io::Result<Self> {
        // SAFETY: an initialised set is passed to each call.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1] {
                libc::sigaddset(&mut set, signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) {
                0 => Ok(Self(set)),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// Wakes [`Signals::wait`] from another thread.
    pub(super) fn reporter(&self) -> impl Fn() + Send + Clone + 'static {
        || {
            // SAFETY: a plain syscall on this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
        }
    }

    /// Waits for a signal until `deadline`.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> io::Result<Option<Signal>> {
        loop {
            let timeout = deadline.map(|deadline| {
                let left = deadline.saturating_duration_since(Instant::now());
                libc::timespec {
                    tv_sec: left.as_secs() as libc::time_t,
                    tv_nsec: left.subsec_nanos().into(),
                }
            });
            let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: the set and the timeout live through the call.
            match unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), timeout) } {
                libc::SIGUSR1 => return Ok(Some(Signal::Fault)),
                libc::SIGTERM | libc::SIGINT => return Ok(Some(Signal::Stop)),
                libc::SIGHUP => return Ok(Some(Signal::Reload)),
                _ => {
                    let error = io::Error::last_os_error();
                    match error.raw_os_error() {
                        Some(libc::EAGAIN) => return Ok(None),
                        Some(libc::EINTR) => {}
                        _ => return Err(error),
                    }
                }
            }
        }
    }
}
