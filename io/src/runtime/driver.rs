//! The ladder of I/O drivers a shard may run on, best rung first, and why it is not on a better one.

use std::io;

use monoio::time::TimeDriver;
use monoio::{FusionRuntime, IoUringDriver, LegacyDriver, Runtime, RuntimeBuilder};

use crate::config::IoDriver;
use crate::runtime::descriptors;

/// Submission entries of a full ring. Larger ones exhaust the memlock limit of many containers.
const RING_ENTRIES: u32 = 1024;
/// Submission entries of the last ring tried before epoll (monoio's minimum).
const SMALL_RING_ENTRIES: u32 = 256;

/// A monoio runtime with timers on whichever driver could be had.
pub type ShardRuntime = FusionRuntime<TimeDriver<IoUringDriver>, TimeDriver<LegacyDriver>>;

/// The rung a ring runs on, for the log line and `smg_io_driver{driver,reason}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverReport {
    /// `uring-coop`, `uring`, `uring-small` or `epoll`.
    pub driver: &'static str,
    /// Why not a better rung; `best available` on the first.
    pub reason: String,
}

/// No acceptable driver.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// `--io-driver uring` was asked for and io_uring cannot be used.
    #[error("--io-driver uring: io_uring is not usable: {0}")]
    UringRefused(String),
    /// Not even epoll could be set up.
    #[error("cannot create an epoll instance: {0}{remedy}", remedy = descriptors::remedy(.0))]
    Epoll(io::Error),
}

/// Builds the best runtime `wanted` allows.
///
/// # Errors
/// When `wanted` is [`IoDriver::Uring`] and no ring can be made, or epoll itself fails.
pub fn build(wanted: IoDriver) -> Result<(ShardRuntime, DriverReport), DriverError> {
    if wanted == IoDriver::Epoll {
        return epoll("--io-driver epoll".into());
    }
    match uring() {
        Ok(found) => Ok(found),
        Err(reason) if wanted == IoDriver::Uring => Err(DriverError::UringRefused(reason)),
        Err(reason) => epoll(reason),
    }
}

fn uring() -> Result<(ShardRuntime, DriverReport), String> {
    if forced_legacy() {
        return Err("MONOIO_FORCE_LEGACY_DRIVER is set".into());
    }
    if !monoio::utils::detect_uring() {
        return Err(why_no_ring());
    }
    let mut reason = String::from("best available");
    for (driver, entries, coop) in [
        ("uring-coop", RING_ENTRIES, true),
        ("uring", RING_ENTRIES, false),
        ("uring-small", SMALL_RING_ENTRIES, false),
    ] {
        match ring(entries, coop) {
            Ok(runtime) => {
                return Ok((FusionRuntime::Uring(runtime), DriverReport { driver, reason }));
            }
            Err(error) => reason = explain(&error, entries, coop),
        }
    }
    Err(reason)
}

fn ring(entries: u32, coop: bool) -> io::Result<Runtime<TimeDriver<IoUringDriver>>> {
    let mut flags = io_uring::IoUring::builder();
    if coop {
        flags.setup_single_issuer().setup_coop_taskrun();
    }
    RuntimeBuilder::<IoUringDriver>::new()
        .with_entries(entries)
        .uring_builder(flags)
        .enable_timer()
        .build()
}

fn epoll(reason: String) -> Result<(ShardRuntime, DriverReport), DriverError> {
    let runtime =
        RuntimeBuilder::<LegacyDriver>::new().enable_timer().build().map_err(DriverError::Epoll)?;
    Ok((FusionRuntime::Legacy(runtime), DriverReport { driver: "epoll", reason }))
}

/// Whether io_uring may be used at all; `Err` says why not and what to do.
pub fn uring_available(wanted: IoDriver) -> Result<(), String> {
    if wanted == IoDriver::Epoll {
        return Err("--io-driver epoll".into());
    }
    if forced_legacy() {
        return Err("MONOIO_FORCE_LEGACY_DRIVER is set".into());
    }
    if monoio::utils::detect_uring() { Ok(()) } else { Err(why_no_ring()) }
}

fn forced_legacy() -> bool {
    std::env::var("MONOIO_FORCE_LEGACY_DRIVER")
        .is_ok_and(|value| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes"))
}

fn why_no_ring() -> String {
    match io_uring::IoUring::new(2) {
        Ok(_) => "the kernel lacks io_uring operations that are needed (Linux 5.11 or later has \
                  them)"
            .into(),
        Err(error) => explain(&error, 2, false),
    }
}

fn explain(error: &io::Error, entries: u32, coop: bool) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden: allow it in the seccomp profile (docker --security-opt \
             seccomp=...) or set sysctl kernel.io_uring_disabled=0"
                .into()
        }
        Some(libc::ENOSYS) => "this kernel has no io_uring".into(),
        Some(libc::ENOMEM) => format!(
            "the locked-memory limit is too small for a ring of {entries} entries: raise it \
             (ulimit -l 8192, docker --ulimit memlock=8388608, systemd LimitMEMLOCK=8M)"
        ),
        Some(libc::EINVAL) if coop => {
            "this kernel lacks IORING_SETUP_COOP_TASKRUN or SINGLE_ISSUER (Linux 6.0 has both)"
                .into()
        }
        _ => format!("io_uring_setup: {error}{}", descriptors::remedy(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoll_can_always_be_asked_for() {
        let (_, report) = build(IoDriver::Epoll).unwrap();
        assert_eq!(report.driver, "epoll");
        assert_eq!(report.reason, "--io-driver epoll");
    }

    #[test]
    fn reasons_name_their_remedy() {
        let because = |code, coop| explain(&io::Error::from_raw_os_error(code), 1024, coop);
        assert!(because(libc::EPERM, true).contains("seccomp"));
        assert!(because(libc::ENOMEM, false).contains("memlock"));
        assert!(because(libc::EINVAL, true).contains("COOP_TASKRUN"));
    }
}
