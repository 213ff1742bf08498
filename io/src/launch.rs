//! From a configuration to a running gateway, and from a signal to its end.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use smg_core::retry::RetryBudget;
use socket2::{Domain, Protocol, Socket, Type};
use tracing::{error, info, warn};

use crate::config::Config;
use crate::control::{self, COMMAND_QUEUE, ControlSockets};
use crate::messages::Message;
use crate::offload;
use crate::reload::{self, Reloader};
use crate::runtime::cpus::{self, CpuError, CpuPlan};
use crate::runtime::descriptors;
use crate::runtime::driver::DriverError;
use crate::runtime::huge_pages;
use crate::shard::{self, ShardStart, StartError};
use crate::shared::{Memory, Phase, Shared};
use crate::tls::{Tls, TlsError};

use signals::Signal;
pub use signals::Signals;

mod signals;

/// Connections the kernel holds for a listener until they are accepted.
const BACKLOG: i32 = 4096;
/// Between two looks at whether the last requests have ended.
const DRAIN_POLL: Duration = Duration::from_millis(20);

/// For shards to take what waits in their backlogs once they stop accepting.
const CLOSE_SETTLE: Duration = Duration::from_millis(200);

/// How long a port in use is tried again: a process that has ended can hold its sockets for some
/// 20 ms more, while the kernel takes down its rings.
const BIND_PATIENCE: Duration = Duration::from_millis(500);
/// Between two tries.
const BIND_PAUSE: Duration = Duration::from_millis(10);

/// Why the gateway did not start, or ended with a fault.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A CPU list that cannot be used.
    #[error(transparent)]
    Cpus(#[from] CpuError),
    /// A certificate or key that cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An address that cannot be listened on.
    #[error("cannot listen on {addr} ({flag}): {error}{remedy}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The flag it came from.
        flag: &'static str,
        /// What the kernel said.
        error: io::Error,
        /// What to do about it.
        remedy: &'static str,
    },
    /// No acceptable I/O driver.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A thread, eventfd or signal mask that could not be had.
    #[error("start-up failed: {0}{remedy}", remedy = descriptors::remedy(.0))]
    Io(#[from] io::Error),
    /// A thread that must not end has ended.
    #[error("{0}")]
    ThreadEnded(String),
    /// A second signal during shutdown.
    #[error("stopped by a second signal before the requests in flight had finished")]
    SecondSignal,
}

impl From<StartError> for LaunchError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Driver(error) => Self::Driver(error),
            StartError::Io(error) => Self::Io(error),
        }
    }
}

impl LaunchError {
    /// Whether the operator's configuration is at fault, rather than the machine or the program.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Cpus(_) | Self::Tls(_))
    }
}

/// Runs a gateway until a signal ends it. `memory` is what the program's allocator can do.
///
/// # Errors
/// See [`LaunchError`]; the message says what to do.
pub fn launch(config: Config, memory: Memory, signals: &Signals) -> Result<(), LaunchError> {
    descriptors::raise_limit();
    huge_pages::for_indexes_only(memory);
    let running = Running::start(config, memory, signals.reporter())?;
    running.serve(signals)
}

/// A started gateway.
pub struct Running {
    shared: Arc<Shared>,
    listeners: Vec<std::os::fd::OwnedFd>,
    faults: mpsc::Receiver<String>,
    reloader: Reloader,
}

impl Running {
    /// Binds, starts every thread, and returns once all of them serve. `report` is called from a
    /// thread that ends with a fault.
    ///
    /// # Errors
    /// See [`LaunchError`].
    pub fn start(
        config: Config,
        memory: Memory,
        report: impl Fn() + Send + Clone + 'static,
    ) -> Result<Self, LaunchError> {
        let CpuPlan { data, control: control_cpus } = cpus::plan(
            &cpus::allowed()?,
            cpus::quota(),
            config.runtime.shards,
            config.runtime.data_cpus.as_deref(),
            config.runtime.control_cpus.as_deref(),
        )?;
        let tls = Tls::load(&config)?;
        let addr = SocketAddr::new(config.host, config.port);
        let sockets = ControlSockets {
            metrics: listen(
                SocketAddr::new(config.prometheus.host, config.prometheus.port),
                "--prometheus-host/--prometheus-port",
                false,
            )?,
            probes: match config.health_check_port {
                Some(port) => {
                    let addr = SocketAddr::new(config.host, port);
                    Some(listen(addr, "--health-check-port", false)?)
                }
                None => None,
            },
        };
        // A first bind without port sharing: another process on the port must be noticed.
        drop(listen(addr, "--host/--port", false)?);
        let shards = data.len();
        let listeners = (0..shards)
            .map(|_| listen(addr, "--host/--port", true))
            .collect::<Result<Vec<_>, _>>()?;
        if config.cache.index_shards > shards {
            let index_shards = config.cache.index_shards;
            warn!(target: "smg", index_shards, shards,
                "a model's trees are split over all shards; there are not more");
        }
        let (commands, receiver) = async_channel::bounded(COMMAND_QUEUE);
        let shared = Arc::new(Shared::new(config, tls, memory, shards, commands)?);
        let (fault, faults) = mpsc::channel();
        let ended = |name: String| {
            let (fault, report) = (fault.clone(), report.clone());
            move |why: &str| {
                // The receiver is gone only when the process is ending anyway.
                let _ = fault.send(format!("{name} ended: {why}"));
                report();
            }
        };
        let threads = offload::threads_for(shards);
        shared.bodies.start(threads, control_cpus.as_deref(), memory.trim)?;
        control::start(
            shared.clone(),
            receiver,
            sockets,
            control_cpus,
            ended("the control core".into()),
        )?;
        let kept = listeners
            .iter()
            .map(|listener| listener.try_clone().map(std::os::fd::OwnedFd::from))
            .collect::<io::Result<Vec<_>>>()?;
        start_shards(&shared, listeners, &data, |index| ended(format!("shard {index}")))?;
        shared.enter(Phase::Running);
        log_drivers(&shared);
        let version = env!("CARGO_PKG_VERSION");
        let tls = shared.tls.clients.is_some();
        info!(target: "smg", %addr, tls, shards, ?data, version, "gateway is listening");
        let reloader = Reloader::start(shared.clone(), reload::sources(&shared))?;
        Ok(Self { shared, listeners: kept, faults, reloader })
    }

    /// The shared state, for an embedding program.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn serve(self, signals: &Signals) -> Result<(), LaunchError> {
        let settle = match self.wait(signals, None)? {
            Some(End::Fault) => return Err(self.fault()),
            Some(End::Stop) | None => {
                Duration::from_secs(self.shared.config.shutdown.drain_settle_secs)
            }
        };
        let grace = Duration::from_secs(self.shared.config.shutdown.grace_period_secs);
        let deadline = Instant::now() + grace;
        info!(target: "smg", settle_secs = settle.as_secs(), grace_secs = grace.as_secs(),
            "shutting down: readiness is 503, listeners close after the settle time");
        self.shared.enter(Phase::Settling);
        self.wait_without_a_second(signals, settle.min(grace))?;
        self.close();
        // What had connected by then is read first: only then is a count of zero the end.
        self.wait_without_a_second(signals, CLOSE_SETTLE)?;
        while self.shared.answers_under_way() {
            if Instant::now() >= deadline {
                let cut = self.shared.requests_active();
                warn!(target: "smg", cut, "the grace period is over; cutting what is left");
                break;
            }
            self.wait_without_a_second(signals, DRAIN_POLL)?;
        }
        info!(target: "smg", "stopped");
        Ok(())
    }

    /// Waits while the gateway stops, for a signal that ends it at once.
    fn wait_without_a_second(&self, signals: &Signals, limit: Duration) -> Result<(), LaunchError> {
        match self.wait(signals, Some(limit))? {
            Some(End::Fault) => Err(self.fault()),
            Some(End::Stop) => Err(LaunchError::SecondSignal),
            None => Ok(()),
        }
    }

    /// Waits for a signal that ends the gateway, at most `limit`; has files reloaded meanwhile.
    fn wait(&self, signals: &Signals, limit: Option<Duration>) -> io::Result<Option<End>> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            match signals.wait(deadline)? {
                Some(Signal::Stop) => return Ok(Some(End::Stop)),
                Some(Signal::Fault) => return Ok(Some(End::Fault)),
                Some(Signal::Reload) => self.reloader.reload(),
                None => return Ok(None),
            }
        }
    }

    /// Stops accepting and ends idle connections; requests in flight go on.
    pub fn close(&self) {
        self.shared.enter(Phase::Closing);
        let sender = self.shared.control_sender();
        for (shard, listener) in self.listeners.iter().enumerate() {
            if self.shared.mesh.send(sender, shard, Message::Close).is_err() {
                use std::os::fd::AsRawFd;
                warn!(target: "smg", shard, "mailbox is full; its idle connections stay open");
                crate::http::transport::shutdown(listener.as_raw_fd());
            }
        }
    }

    fn fault(&self) -> LaunchError {
        let why = self.faults.try_recv().unwrap_or_else(|_| "a thread ended".into());
        error!(target: "smg", %why, "a thread that must not end has ended; stopping");
        LaunchError::ThreadEnded(why)
    }
}

/// One line that says what every ring runs on, and why not on something better.
fn log_drivers(shared: &Shared) {
    let drivers = shared.drivers.load();
    let of = |wanted: fn(&str) -> bool| {
        let mut found: Vec<String> = drivers
            .iter()
            .filter(|(ring, _)| wanted(ring))
            .map(|(_, report)| format!("{} ({})", report.driver, report.reason))
            .collect();
        found.sort();
        found.dedup();
        found.join(", ")
    };
    let (data, control) = (of(|ring| ring != "control"), of(|ring| ring == "control"));
    info!(target: "smg::runtime", %data, %control, "I/O drivers");
}

fn start_shards<E: FnOnce(&str) + Send + 'static>(
    shared: &Arc<Shared>,
    listeners: Vec<TcpListener>,
    data: &[usize],
    ended: impl Fn(usize) -> E,
) -> Result<(), LaunchError> {
    let budget = RetryBudget::default();
    let (started, outcomes) = mpsc::channel();
    for (index, listener) in listeners.into_iter().enumerate() {
        let started = started.clone();
        let start = ShardStart {
            index,
            cpu: data[index],
            shared: shared.clone(),
            listener,
            retry_budget: budget.for_another_shard(),
        };
        shard::start(
            start,
            move |outcome| {
                // The receiver waits for every shard.
                let _ = started.send(outcome);
            },
            ended(index),
        )?;
    }
    drop(started);
    for _ in data {
        match outcomes.recv() {
            Ok(outcome) => outcome?,
            Err(_) => return Err(LaunchError::ThreadEnded("a shard ended at start".into())),
        }
    }
    Ok(())
}

fn listen(addr: SocketAddr, flag: &'static str, share: bool) -> Result<TcpListener, LaunchError> {
    let bind = || {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if share {
            socket.set_reuse_port(true)?;
        }
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        io::Result::Ok(TcpListener::from(socket))
    };
    let give_up = Instant::now() + BIND_PATIENCE;
    let bound = loop {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < give_up => {
                std::thread::park_timeout(BIND_PAUSE);
            }
            outcome => break outcome,
        }
    };
    bound.map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "; another process has this port: stop it or choose another port"
            }
            io::ErrorKind::PermissionDenied => {
                "; ports below 1024 need the capability CAP_NET_BIND_SERVICE: choose a higher one"
            }
            io::ErrorKind::AddrNotAvailable => "; this machine does not have that address",
            _ => descriptors::remedy(&error),
        };
        LaunchError::Listen { addr, flag, error, remedy }
    })
}

/// Why the gateway is to end.
enum End {
    /// Asked to.
    Stop,
    /// A thread has ended.
    Fault,
}
