//! Connections to workers, kept per shard and per worker for reuse.
//!
//! An idle connection keeps a read armed, so a worker that closed it, or said something unasked, is
//! known before the connection is used again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use monoio::net::TcpStream;
use smg_core::fleet::WorkerId;

use crate::fleet::Worker;
use crate::http::stalls::{STALLED_AFTER, Stall};
use crate::http::transport::{Reader, Writer, split};
use crate::runtime::reachability;
use crate::shard::Shard;
use crate::tls;

/// Idle connections kept per worker and shard.
pub const MAX_IDLE_PER_WORKER: usize = 512;
/// Bytes of the buffer a response head is first read into.
pub const RESPONSE_BUFFER: usize = 4 * 1024;

/// A connection to a worker.
pub struct Upstream {
    /// Receiving half; armed while idle and while a response is awaited.
    pub reader: Reader,
    /// Sending half.
    pub writer: Writer,
    /// It served a request before.
    pub reused: bool,
}

impl Upstream {
    /// Opens a connection to `worker`, over TLS if its URL says so.
    ///
    /// # Errors
    /// What the kernel or TLS says; `TimedOut` after `timeout`.
    pub async fn connect(
        shard: &Rc<Shard>,
        worker: &Worker,
        timeout: Duration,
    ) -> io::Result<Self> {
        let opening = async {
            let stream = connect(shard, worker).await?;
            reachability::watch(stream.as_raw_fd());
            let transport = split(stream);
            match shard.shared.tls.workers.session(&worker.url) {
                None => Ok(transport),
                Some(session) => Box::pin(tls::secure(shard, session?, transport)).await,
            }
        };
        let (reader, writer) = monoio::time::timeout(timeout, opening)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok(Self { reader, writer, reused: false })
    }

    /// Arms a read for a response unless one is armed already.
    pub fn arm(&mut self) {
        if !self.reader.armed() {
            self.reader.arm(Vec::with_capacity(RESPONSE_BUFFER));
        }
    }
}

/// Connects to a worker's host. One that has said nothing for a while is avoided meanwhile; the host is
/// its kernel: what an engine is slow to do, such as a TLS handshake, is not its fault.
async fn connect(shard: &Rc<Shard>, worker: &Worker) -> io::Result<TcpStream> {
    let mut connecting = std::pin::pin!(TcpStream::connect_addr(worker.addr));
    if let Ok(outcome) = monoio::time::timeout(STALLED_AFTER, connecting.as_mut()).await {
        return outcome;
    }
    let _stall = Stall::begin(&shard.shared, worker.id);
    connecting.await
}

struct Idle {
    upstream: Upstream,
    since: Instant,
}

/// The idle connections of one shard.
pub struct Pools {
    by_slot: Vec<Option<Pool>>,
    idle_timeout: Option<Duration>,
}

struct Pool {
    worker: WorkerId,
    /// Most recently used at the back.
    idle: VecDeque<Idle>,
}

impl Pools {
    /// Pools whose connections close after `idle_timeout` without use.
    pub fn new(idle_timeout: Option<Duration>) -> Self {
        Self { by_slot: Vec::new(), idle_timeout }
    }

    /// A live idle connection to `worker`, most recently used first.
    pub fn take(&mut self, worker: WorkerId) -> Option<Upstream> {
        let pool = self.by_slot.get_mut(worker.slot as usize)?.as_mut()?;
        if pool.worker != worker {
            return None;
        }
        while let Some(idle) = pool.idle.pop_back() {
            let mut upstream = idle.upstream;
            let fresh = self.idle_timeout.is_none_or(|timeout| idle.since.elapsed() < timeout);
            if fresh && upstream.reader.peek().is_none() {
                upstream.reused = true;
                return Some(upstream);
            }
        }
        None
    }

    /// Keeps a connection whose response has ended cleanly.
    pub fn put(&mut self, worker: WorkerId, mut upstream: Upstream) {
        upstream.arm();
        if upstream.reader.peek().is_some() {
            return;
        }
        let slot = worker.slot as usize;
        if self.by_slot.len() <= slot {
            self.by_slot.resize_with(slot + 1, || None);
        }
        let pool = match &mut self.by_slot[slot] {
            Some(pool) if pool.worker == worker => pool,
            place => place.insert(Pool { worker, idle: VecDeque::new() }),
        };
        if pool.idle.len() == MAX_IDLE_PER_WORKER {
            pool.idle.pop_front();
        }
        pool.idle.push_back(Idle { upstream, since: Instant::now() });
    }

    /// Closes every idle connection to `worker`.
    pub fn forget(&mut self, worker: WorkerId) {
        if let Some(place) = self.by_slot.get_mut(worker.slot as usize)
            && place.as_ref().is_some_and(|pool| pool.worker == worker)
        {
            *place = None;
        }
    }

    /// Closes what has been idle too long or was closed by its worker.
    pub fn sweep(&mut self) {
        let timeout = self.idle_timeout;
        for pool in self.by_slot.iter_mut().flatten() {
            pool.idle.retain_mut(|idle| {
                timeout.is_none_or(|timeout| idle.since.elapsed() < timeout)
                    && idle.upstream.reader.peek().is_none()
            });
        }
    }
}
