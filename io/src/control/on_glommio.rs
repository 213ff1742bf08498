//! The control core on glommio: one executor, three task queues weighted by urgency.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::time::Duration;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::{Latency, LocalExecutor, LocalExecutorBuilder, Placement, Shares, TaskQueueHandle};

use super::seam::{Class, Runtime, Stream};

/// Shares of the three queues: events get most of the core, background work what is left.
const SHARES: [(Class, usize, Latency, &str); 3] = [
    (Class::Events, 1000, Latency::Matters(Duration::from_millis(1)), "events"),
    (Class::Loads, 300, Latency::Matters(Duration::from_millis(10)), "loads"),
    (Class::Background, 100, Latency::NotImportant, "background"),
];
/// Registered buffer memory in bytes; sockets need none of it, the library's minimum is this.
const IO_MEMORY: usize = 64 << 10;
/// Submission entries per ring; each executor has three rings.
const RING_DEPTH: usize = 128;

/// Locked memory glommio insists on, in bytes.
const MEMLOCK_NEEDED: u64 = 512 << 10;

/// Whether glommio may start here; it panics or refuses where io_uring or locked memory is missing.
pub fn available() -> Result<(), String> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct lives through the call.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } == 0;
    if known && limit.rlim_cur < MEMLOCK_NEEDED {
        return Err(format!(
            "the locked-memory limit is {} KiB and the control core needs {} KiB: raise it \
             (ulimit -l 8192, docker --ulimit memlock=8388608, systemd LimitMEMLOCK=8M)",
            limit.rlim_cur >> 10,
            MEMLOCK_NEEDED >> 10
        ));
    }
    Ok(())
}

/// Makes the executor on the calling thread.
pub fn executor() -> Result<LocalExecutor, String> {
    LocalExecutorBuilder::new(Placement::Unbound)
        .name("smg-control")
        .io_memory(IO_MEMORY)
        .ring_depth(RING_DEPTH)
        .make()
        .map_err(|error| format!("glommio: {error}"))
}

/// The queues of the executor this thread runs.
#[derive(Debug, Clone, Copy)]
pub struct Glommio {
    queues: [TaskQueueHandle; 3],
}

impl Glommio {
    /// Creates the task queues; call inside the executor.
    pub fn create_queues() -> Self {
        let queues = SHARES.map(|(_, shares, latency, name)| {
            glommio::executor().create_task_queue(Shares::Static(shares), latency, name)
        });
        Self { queues }
    }

    fn queue(&self, class: Class) -> TaskQueueHandle {
        // INVARIANT: SHARES lists every class.
        let at = SHARES.iter().position(|(of, ..)| *of == class).unwrap_or(0);
        self.queues[at]
    }
}

impl Runtime for Glommio {
    type Stream = TcpStream;
    type Listener = TcpListener;

    fn spawn(self, class: Class, task: impl Future<Output = ()> + 'static) {
        match glommio::spawn_local_into(task, self.queue(class)) {
            Ok(task) => drop(task.detach()),
            // The queues live as long as the executor.
            Err(error) => tracing::error!(%error, "control task not started"),
        }
    }

    async fn sleep(self, duration: Duration) {
        glommio::timer::sleep(duration).await;
    }

    async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(addr).await.map_err(io::Error::from)
    }

    fn listen(self, listener: std::net::TcpListener) -> io::Result<TcpListener> {
        listener.set_nonblocking(false)?;
        // SAFETY: the descriptor is a listening socket that is given away here.
        Ok(unsafe { TcpListener::from_raw_fd(listener.into_raw_fd()) })
    }

    async fn accept(self, listener: &TcpListener) -> io::Result<TcpStream> {
        listener.accept().await.map_err(io::Error::from)
    }
}

impl Stream for TcpStream {
    async fn read(&mut self, mut buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let start = buf.len();
        buf.resize(buf.capacity().max(start + 1), 0);
        let outcome = AsyncReadExt::read(self, &mut buf[start..]).await;
        buf.truncate(start + *outcome.as_ref().unwrap_or(&0));
        (outcome, buf)
    }

    async fn write_all(&mut self, data: Vec<u8>) -> io::Result<()> {
        AsyncWriteExt::write_all(self, &data).await
    }
}
