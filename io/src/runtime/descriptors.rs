//! File descriptors: the limit on them, and whether one is ready.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Between two warnings of one listener that it cannot accept.
pub const WARN_EVERY: Duration = Duration::from_secs(5);

/// Which of `events` (`POLLIN` and its like) `fd` is ready for right now, and `POLLERR`, `POLLHUP` or
/// `POLLNVAL` if they apply; 0 if none.
pub fn ready_for(fd: RawFd, events: i16) -> i16 {
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one pollfd that lives through the call; the kernel checks the descriptor.
    match unsafe { libc::poll(&raw mut poll, 1, 0) } {
        1 => poll.revents,
        _ => 0,
    }
}

/// How many may be open.
pub fn limit() -> Option<u64> {
    limits().map(|limits| limits.rlim_cur)
}

/// Raises the soft limit to the hard one: every stream takes two descriptors.
pub fn raise_limit() {
    if let Some(mut limits) = limits().filter(|limits| limits.rlim_cur < limits.rlim_max) {
        limits.rlim_cur = limits.rlim_max;
        // SAFETY: the struct lives through the call.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) };
    }
}

fn limits() -> Option<libc::rlimit> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct lives through the call.
    let outcome = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) };
    (outcome == 0).then_some(limits)
}

/// Whether a connection failed for want of something of this machine or process: descriptors, memory,
/// local ports. It says nothing about the other side.
pub fn is_local_shortage(error: &io::Error) -> bool {
    let code = error.raw_os_error().or_else(|| {
        let mut source = error.get_ref().and_then(|inner| inner.source());
        while let Some(cause) = source {
            if let Some(io) = cause.downcast_ref::<io::Error>() {
                return io.raw_os_error();
            }
            source = cause.source();
        }
        None
    });
    matches!(
        code,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::EADDRNOTAVAIL)
    )
}

/// What to do about an error for want of descriptors, as the end of its message; empty for others.
pub fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE) => {
            "; raise the hard limit on open files (ulimit -n 65536, docker --ulimit nofile=65536, \
             systemd LimitNOFILE=65536)"
        }
        Some(libc::ENFILE) => "; this machine is out of open files: raise sysctl fs.file-max",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_here_is_told_from_a_fault_there() {
        let error = io::Error::from_raw_os_error;
        assert!(is_local_shortage(&error(libc::EMFILE)));
        assert!(is_local_shortage(&error(libc::EADDRNOTAVAIL)));
        assert!(!is_local_shortage(&error(libc::ECONNREFUSED)));
        assert!(!is_local_shortage(&io::ErrorKind::TimedOut.into()));
    }
}
