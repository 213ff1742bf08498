//! The limit on open files.

use std::io;

/// Raises the soft limit to the hard one: every stream takes two descriptors.
pub fn raise_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct lives through both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < limit.rlim_max
        {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
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
