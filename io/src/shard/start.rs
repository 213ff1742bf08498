//! Starts a shard: its thread, its pin, its ring, its tasks.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use monoio::FusionRuntime;
use smg_core::retry::RetryBudget;
use tracing::warn;

use super::mailbox::{self, Bell};
use super::{Shard, accept};
use crate::runtime::driver::{self, DriverError};
use crate::runtime::{cpus, guard};
use crate::shared::Shared;

/// Between two looks at idle connections to workers.
const POOL_SWEEP: Duration = Duration::from_secs(1);

/// What a shard is started with.
pub struct ShardStart {
    /// Its position.
    pub index: usize,
    /// The CPU it is pinned to.
    pub cpu: usize,
    /// Shared state.
    pub shared: Arc<Shared>,
    /// Its own listening socket.
    pub listener: TcpListener,
    /// Its part of the retry budget.
    pub retry_budget: RetryBudget,
}

/// Of those, one in so many is also one at the ages of requests.
const SWEEPS_PER_AGES: u64 = 5;

/// Why a shard did not start.
#[derive(Debug)]
pub enum StartError {
    /// No acceptable I/O driver.
    Driver(DriverError),
    /// Its listener or its bell.
    Io(io::Error),
}

/// Starts the thread. Whether it serves is reported to `started`; its end after that, which comes only
/// with a fault, to `ended`.
///
/// # Errors
/// When the thread cannot be started.
pub fn start(
    shard: ShardStart,
    started: impl FnOnce(Result<(), StartError>) + Send + 'static,
    ended: impl FnOnce(&str) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let name = format!("smg-shard-{}", shard.index);
    std::thread::Builder::new().name(name).spawn(move || {
        if let Err(error) = cpus::pin(&[shard.cpu]) {
            warn!(target: "smg::runtime", shard = shard.index, cpu = shard.cpu, %error,
                "cannot pin the shard");
        }
        let (mut runtime, report) = match driver::build(shard.shared.config.runtime.io_driver) {
            Ok(built) => built,
            Err(error) => return started(Err(StartError::Driver(error))),
        };
        let ring = format!("shard-{}", shard.index);
        shard.shared.report_driver(&ring, report);
        let nonblocking = matches!(runtime, FusionRuntime::Legacy(_));
        let outcome = runtime.block_on(guard::catch_panic(async {
            match set_up(shard, nonblocking) {
                Ok((shard, bell)) => {
                    started(Ok(()));
                    Some(mailbox::run(shard, bell).await)
                }
                Err(error) => {
                    started(Err(StartError::Io(error)));
                    None
                }
            }
        }));
        let why = match outcome {
            Ok(None) => return,
            Ok(Some(Ok(()))) => "its tasks ended".to_owned(),
            Ok(Some(Err(error))) => error.to_string(),
            Err(panic) => panic,
        };
        ended(&why);
    })
}

/// Everything that can fail for want of descriptors, and then the tasks.
fn set_up(start: ShardStart, nonblocking: bool) -> io::Result<(Rc<Shard>, Bell)> {
    let bell = Bell::new(&start.shared.mesh, start.index)?;
    start.listener.set_nonblocking(true)?;
    let listener = monoio::net::TcpListener::from_std(start.listener)?;
    let shard = Shard::new(start.index, start.shared, start.retry_budget);
    shard.listener.set(Some((listener.as_raw_fd(), nonblocking)));
    let sweeper = shard.clone();
    drop(monoio::spawn(async move {
        for sweeps in 1u64.. {
            monoio::time::sleep(POOL_SWEEP).await;
            sweeper.pools.borrow_mut().sweep();
            if sweeps % SWEEPS_PER_AGES == 0 {
                sweeper.count_ages();
            }
        }
    }));
    let acceptor = shard.clone();
    drop(monoio::spawn(async move { accept::run(acceptor, listener).await }));
    Ok((shard, bell))
}
