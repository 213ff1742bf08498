//! A shard: one pinned thread that accepts, reads, routes and relays, and owns the indexes of its
//! models.

mod accept;
mod decide;
mod keys;
mod mailbox;
mod routing;
mod start;

use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use smg_core::fleet::WorkerId;
use smg_core::policy::PolicyState;
use smg_core::policy::prefix_hash::PrefixHashConfig;
use smg_core::prompt::Extractor;
use smg_core::retry::{RetryBudget, RetryConfig};
use smg_core::rng::Rng;

use crate::http::admission;
use crate::http::pool::Pools;
use crate::metrics::ShardCells;
use crate::owner::Owner;
use crate::runtime::clock;
use crate::shared::Shared;

pub use routing::{Step, Waiting};
pub use start::{ShardStart, start};

/// State of one shard. Only its thread has it.
pub struct Shard {
    /// Position of the shard.
    pub index: usize,
    /// Shared by all threads.
    pub shared: Arc<Shared>,
    /// Idle connections to workers.
    pub pools: RefCell<Pools>,
    /// Indexes of the models this shard owns, or its part of them.
    pub owner: RefCell<Owner>,
    /// Scratch space for reading prompts.
    pub extractor: RefCell<Extractor>,
    /// Scratch space for `x-smg-routing-tokens`.
    pub tokens: RefCell<Vec<u32>>,
    /// Scratch space of policies that decide here.
    pub policy: RefCell<PolicyState>,
    /// Scratch space for the eligible workers of a decision.
    pub workers: RefCell<Vec<WorkerId>>,
    /// Settings of `prefix_hash`.
    pub prefix_hash: PrefixHashConfig,
    /// Retries this shard may still make.
    pub retry_budget: RefCell<RetryBudget>,
    /// Settings of retries.
    pub retry_config: RetryConfig,
    /// Tie-breaks, jitter and request ids.
    pub rng: RefCell<Rng>,
    /// Requests that wait for another shard's decision.
    pub waiting: RefCell<Waiting>,
    /// Requests that wait for a permit on this shard.
    pub queue: RefCell<admission::Queue>,
    /// Open client connections.
    pub connections: RefCell<Connections>,
    /// The listening socket, and whether accepted ones must not block (epoll).
    listener: Cell<Option<(RawFd, bool)>>,
    closing: Cell<bool>,
}

impl Shard {
    /// Shard `index` of `shared`.
    pub fn new(index: usize, shared: Arc<Shared>, retry_budget: RetryBudget) -> Rc<Self> {
        let idle = shared.config.limits.upstream_pool_idle_timeout_secs;
        let idle = (idle > 0).then(|| Duration::from_secs(idle));
        Rc::new(Self {
            index,
            pools: RefCell::new(Pools::new(idle)),
            owner: RefCell::new(Owner::new(
                &shared.config,
                shared.parts,
                shared.active_keys.clone(),
            )),
            extractor: RefCell::new(Extractor::new()),
            tokens: RefCell::default(),
            policy: RefCell::default(),
            workers: RefCell::default(),
            prefix_hash: crate::policies::prefix_hash_config(&shared.config),
            retry_budget: RefCell::new(retry_budget),
            retry_config: crate::policies::retry_config(&shared.config),
            rng: RefCell::new(Rng::new(clock::seed())),
            waiting: RefCell::default(),
            queue: RefCell::default(),
            connections: RefCell::default(),
            listener: Cell::new(None),
            closing: Cell::new(false),
            shared,
        })
    }

    /// This shard's counters.
    pub fn cells(&self) -> &ShardCells {
        &self.shared.cells.shards[self.index]
    }

    /// Whether connections are to end after the answer under way.
    pub fn closing(&self) -> bool {
        self.closing.get()
    }
}

/// The open client connections of a shard, so that idle ones can be ended at shutdown.
#[derive(Default)]
pub struct Connections {
    entries: Vec<Option<Rc<ConnectionState>>>,
    free: Vec<usize>,
}

/// What is known about an open client connection from outside its task.
#[derive(Debug)]
pub struct ConnectionState {
    fd: std::os::fd::RawFd,
    /// No request is under way.
    pub idle: Cell<bool>,
    /// It has not had its first request yet, which may be on its way.
    pub fresh: Cell<bool>,
}

impl Connections {
    /// Notes a connection; the position to give back to [`Connections::remove`].
    pub fn insert(&mut self, fd: std::os::fd::RawFd) -> (usize, Rc<ConnectionState>) {
        let state = Rc::new(ConnectionState { fd, idle: Cell::new(true), fresh: Cell::new(true) });
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at] = Some(state.clone());
                at
            }
            None => {
                self.entries.push(Some(state.clone()));
                self.entries.len() - 1
            }
        };
        (at, state)
    }

    /// Forgets a connection whose descriptor is about to close.
    pub fn remove(&mut self, at: usize) {
        self.entries[at] = None;
        self.free.push(at);
    }

    /// Ends every connection that has no request under way and has had one before.
    pub fn end_idle(&self) {
        for state in
            self.entries.iter().flatten().filter(|state| state.idle.get() && !state.fresh.get())
        {
            crate::http::transport::shutdown(state.fd);
        }
    }
}
