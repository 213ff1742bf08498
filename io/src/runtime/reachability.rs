//! Noticing that a host is gone: it says nothing and resets nothing, so a connection to it looks like
//! one whose peer takes its time, until the kernel has asked in vain.

use std::os::fd::RawFd;
use std::time::Duration;

/// What was sent and nobody has acknowledged for this long ends a connection. Kernels acknowledge at
/// once, however busy the program is; a host that moves or reboots its network is back sooner.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// Silence after which the kernel asks whether the peer is still there,
const ASK_AFTER: Duration = Duration::from_secs(15);
/// how often it repeats that without an answer, and how often in all.
const ASK_EVERY: Duration = Duration::from_secs(5);
const ASK_TIMES: i32 = 3;

/// Has the kernel end the connection within about half a minute after its peer's host is gone.
pub fn watch(fd: RawFd) {
    // A socket that refuses an option still works; the request's own timeout ends it later.
    set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, ASK_AFTER.as_secs() as i32);
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, ASK_EVERY.as_secs() as i32);
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, ASK_TIMES);
    set(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, UNACKNOWLEDGED.as_millis() as i32);
}

/// What became of the bytes sent over a connection, as far as the kernel knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The peer's kernel has acknowledged all of them.
    Acknowledged,
    /// Some are on their way, and nothing is wrong with that.
    UnderWay,
    /// Some were sent, and sent again, and the peer's host has said nothing for this long.
    Silence(Duration),
}

/// Looks at a connection. What cannot be looked at counts as acknowledged.
pub fn delivery(fd: RawFd) -> Delivery {
    let Some(info) = tcp_info(fd) else { return Delivery::Acknowledged };
    if info.tcpi_unacked > 0 && info.tcpi_retransmits > 0 {
        return Delivery::Silence(Duration::from_millis(info.tcpi_last_ack_recv.into()));
    }
    // What waits for the peer's window is in the queue and not unacknowledged.
    if queued(fd) > 0 { Delivery::UnderWay } else { Delivery::Acknowledged }
}

fn tcp_info(fd: RawFd) -> Option<libc::tcp_info> {
    // SAFETY: a struct of integers, for which all zeroes are a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: both live through the call, which writes no more than `length` bytes; the kernel checks
    // the descriptor.
    let outcome = unsafe {
        let info = (&raw mut info).cast();
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info, &raw mut length)
    };
    (outcome == 0).then_some(info)
}

/// Bytes written to a socket and not acknowledged.
fn queued(fd: RawFd) -> i32 {
    let mut bytes = 0i32;
    // SAFETY: SIOCOUTQ (TIOCOUTQ by its other name) writes one int, which lives through the call.
    let outcome = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    if outcome == 0 { bytes } else { 0 }
}

fn set(fd: RawFd, level: i32, option: i32, value: i32) {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value lives through the call; the kernel checks the descriptor.
    unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), length) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    fn get(fd: RawFd, level: i32, option: i32) -> i32 {
        let (mut value, mut length) = (0i32, size_of::<i32>() as libc::socklen_t);
        // SAFETY: both live through the call.
        let outcome = unsafe {
            libc::getsockopt(fd, level, option, (&raw mut value).cast(), &raw mut length)
        };
        assert_eq!(outcome, 0);
        value
    }

    #[test]
    fn the_kernel_watches() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = stream.as_raw_fd();
        watch(fd);
        assert_eq!(get(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
        for (option, value) in [
            (libc::TCP_KEEPIDLE, 15),
            (libc::TCP_KEEPINTVL, 5),
            (libc::TCP_KEEPCNT, 3),
            (libc::TCP_USER_TIMEOUT, 30_000),
        ] {
            assert_eq!(get(fd, libc::IPPROTO_TCP, option), value);
        }
    }
}
