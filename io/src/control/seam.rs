//! The thin seam between control tasks and the runtime they run on: spawn, sleep, connect, accept.
//!
//! Tasks are written once against [`Runtime`]. It is implemented by glommio ([`super::on_glommio`])
//! and, where io_uring or locked memory is missing, by monoio's epoll driver on a plain thread
//! ([`super::on_monoio`]).

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// How urgent a task is against the others of the control core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// What routing waits for: placement changes and engine events.
    Events,
    /// Health probes, registration and load reports.
    Loads,
    /// Eviction pacing, gauges, exposition.
    Background,
}

/// A single-threaded runtime that control tasks run on.
pub trait Runtime: Copy + 'static {
    /// A connected byte stream.
    type Stream: Stream;
    /// A listening socket.
    type Listener: 'static;

    /// Runs `task` until it ends.
    fn spawn(self, class: Class, task: impl Future<Output = ()> + 'static);
    /// Waits for `duration`.
    fn sleep(self, duration: Duration) -> impl Future<Output = ()>;
    /// Opens a connection.
    fn connect(self, addr: SocketAddr) -> impl Future<Output = io::Result<Self::Stream>>;
    /// Takes over a bound, listening socket.
    fn listen(self, listener: std::net::TcpListener) -> io::Result<Self::Listener>;
    /// Accepts one connection.
    fn accept(self, listener: &Self::Listener) -> impl Future<Output = io::Result<Self::Stream>>;
}

/// A connected byte stream with owned buffers.
pub trait Stream: 'static {
    /// Receives into the spare capacity of `buf`; 0 at the end of the stream.
    fn read(&mut self, buf: Vec<u8>) -> impl Future<Output = (io::Result<usize>, Vec<u8>)>;
    /// Sends all of `data`.
    fn write_all(&mut self, data: Vec<u8>) -> impl Future<Output = io::Result<()>>;
}

/// Runs `task`, or gives up after `limit`.
pub async fn timeout<R: Runtime, T>(
    runtime: R,
    limit: Duration,
    task: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    futures_lite::future::or(task, async {
        runtime.sleep(limit).await;
        Err(io::ErrorKind::TimedOut.into())
    })
    .await
}
