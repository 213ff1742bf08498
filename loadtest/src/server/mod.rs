//! Simulated engines as HTTP servers: any number of them on one thread, one port each.

mod answer;
mod connection;
mod endpoint;
mod fault;
mod host;
mod instant;
mod reader;
mod request;
mod routes;
mod stats;

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use monoio::net::TcpListener;

pub use self::instant::InstantOptions;
pub use self::stats::{EngineSnapshot, EngineStats};
use self::{
    endpoint::{Endpoint, Kind},
    host::Host,
    instant::Instant,
};
use crate::blocking;
use crate::engine::{Engine, Profile};
use crate::runtime::{self, Driver};
use crate::waiting::Waiting;

/// How many engines to start, and of which kind.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    pub count: usize,
    pub host: String,
    /// Engine `i` listens on `base_port + i`; 0 picks free ports.
    pub base_port: u16,
    pub model: String,
    pub kind: EngineKind,
    /// CPUs the engines' thread may use; empty leaves it as it is.
    pub cpus: Vec<usize>,
    pub waiting: Waiting,
}

/// What answers requests.
#[derive(Debug, Clone)]
pub enum EngineKind {
    Simulated(Profile),
    Instant(InstantOptions),
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            count: 4,
            host: "127.0.0.1".into(),
            base_port: 0,
            model: "sim-8b".into(),
            kind: EngineKind::Instant(InstantOptions::default()),
            cpus: Vec::new(),
            waiting: Waiting::Sleep,
        }
    }
}

/// Running engines. Dropping it stops them and waits for their thread.
pub struct Fleet {
    addresses: Vec<SocketAddr>,
    stats: Vec<Arc<EngineStats>>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// How long a reset or the wake-up of a listener may take.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(2);

impl Fleet {
    /// Binds the ports and starts the engines on a thread of their own.
    pub fn start(options: &FleetOptions) -> io::Result<Self> {
        let listeners = bind(options)?;
        let addresses = listeners.iter().map(StdListener::local_addr).collect::<io::Result<_>>()?;
        let stats: Vec<_> = listeners.iter().map(|_| Arc::new(EngineStats::default())).collect();
        let stopping = Arc::new(AtomicBool::new(false));
        let (options, stats_of_thread, stop) = (options.clone(), stats.clone(), stopping.clone());
        let thread = std::thread::Builder::new().name("engines".into()).spawn(move || {
            if !options.cpus.is_empty() {
                runtime::pin_to(&options.cpus)?;
            }
            let waiting = options.waiting;
            runtime::block_on(|driver| {
                waiting.during(serve(driver, options, listeners, stats_of_thread, stop))
            })??
        })?;
        Ok(Self { addresses, stats, stopping, thread: Some(thread) })
    }

    /// Base URL of each engine, `http://host:port`.
    pub fn urls(&self) -> Vec<String> {
        self.addresses.iter().map(|address| format!("http://{address}")).collect()
    }

    /// The counters of each engine, in the order of [`Fleet::urls`].
    pub fn snapshots(&self) -> Vec<EngineSnapshot> {
        self.stats.iter().map(|stats| stats.snapshot()).collect()
    }

    /// Empties the prefix cache of every engine. Counters go on.
    pub fn reset_caches(&self) -> io::Result<()> {
        for address in &self.addresses {
            let status = blocking::post(*address, "/reset_prefix_cache", CONTROL_TIMEOUT)?.status;
            if status != 200 {
                return Err(io::Error::other(format!("cache reset answered {status}")));
            }
        }
        Ok(())
    }

    /// Waits until the engines' thread ends, which it does only when something fails.
    pub fn wait(mut self) -> io::Result<()> {
        join(self.thread.take())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if self.thread.is_none() {
            return;
        }
        self.stopping.store(true, Relaxed);
        for address in &self.addresses {
            // An accept cannot be cancelled without leaking its descriptor: give it a connection.
            let _ = std::net::TcpStream::connect_timeout(address, CONTROL_TIMEOUT);
        }
        let _ = join(self.thread.take());
    }
}

fn join(thread: Option<JoinHandle<io::Result<()>>>) -> io::Result<()> {
    match thread.map(JoinHandle::join) {
        Some(Ok(result)) => result,
        Some(Err(_panic)) => Err(io::Error::other("the engines' thread panicked")),
        None => Ok(()),
    }
}

/// How long a port may still be held by engines that ended just before: the kernel closes the
/// descriptors of a ring after its process is gone.
const BIND_PATIENCE: Duration = Duration::from_secs(2);
const BIND_PAUSE: Duration = Duration::from_millis(20);

fn bind(options: &FleetOptions) -> io::Result<Vec<StdListener>> {
    let give_up = std::time::Instant::now() + BIND_PATIENCE;
    let bind_one = |port: u16| loop {
        match StdListener::bind((options.host.as_str(), port)) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && std::time::Instant::now() < give_up =>
            {
                std::thread::park_timeout(BIND_PAUSE);
            }
            outcome => break outcome,
        }
    };
    let port = |index: usize| match options.base_port {
        0 => Ok(0),
        base => u16::try_from(usize::from(base) + index)
            .map_err(|_| io::Error::other("the engines' ports would go beyond 65535")),
    };
    (0..options.count)
        .map(|index| {
            let port = port(index)?;
            bind_one(port).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("cannot listen on {}:{port}: {error}", options.host),
                )
            })
        })
        .collect()
}

async fn serve(
    driver: Driver,
    options: FleetOptions,
    listeners: Vec<StdListener>,
    stats: Vec<Arc<EngineStats>>,
    stopping: Arc<AtomicBool>,
) -> io::Result<()> {
    let mut acceptors = Vec::with_capacity(listeners.len());
    for (index, (listener, stats)) in listeners.into_iter().zip(stats).enumerate() {
        let kind = match &options.kind {
            EngineKind::Simulated(profile) => {
                let host = Host::new(Engine::new(profile.clone()), stats.clone());
                monoio::spawn(host.clone().run_steps());
                Kind::Simulated(host)
            }
            EngineKind::Instant(instant) => Kind::Instant(Instant::new(*instant, &options.model)),
        };
        let endpoint = Rc::new(Endpoint::new(index, &options.model, kind, stats));
        // epoll needs it; on the ring it would turn waiting accepts into errors.
        listener.set_nonblocking(driver == Driver::Epoll)?;
        let listener = TcpListener::from_std(listener)?;
        acceptors.push(monoio::spawn(accept(listener, endpoint, stopping.clone())));
    }
    for acceptor in acceptors {
        acceptor.await?;
    }
    Ok(())
}

async fn accept(
    listener: TcpListener,
    endpoint: Rc<Endpoint>,
    stopping: Arc<AtomicBool>,
) -> io::Result<()> {
    loop {
        match listener.accept().await {
            _ if stopping.load(Relaxed) => return Ok(()),
            Ok((stream, _)) => {
                runtime::spawn_guarded(connection::serve(stream, endpoint.clone()));
            }
            // Out of descriptors, most likely: those in use will come back.
            Err(_) => monoio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

#[cfg(test)]
impl Fleet {
    /// One simulated engine for the model `m` whose steps last `step_ns` and a little.
    pub(crate) fn of_one(step_ns: u64) -> Self {
        let profile = Profile {
            step_base_ns: step_ns,
            decode_request_ns: 1_000,
            prefill_token_ns: 100,
            ..Profile::named("demo").unwrap()
        };
        Self::start(&FleetOptions {
            count: 1,
            model: "m".into(),
            kind: EngineKind::Simulated(profile),
            ..FleetOptions::default()
        })
        .unwrap()
    }
}

#[cfg(test)]
mod fault_tests;
