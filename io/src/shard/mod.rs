//! A shard: one pinned thread that accepts, reads, routes and relays, and owns the indexes of its
//! models.

mod accept;
mod connections;
mod decide;
mod keys;
mod mailbox;
mod routing;
mod start;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::future::Future;
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
use tracing::error;

use crate::http::admission;
use crate::http::pool::Pools;
use crate::metrics::ShardCells;
use crate::owner::Owner;
use crate::runtime::{clock, guard};
use crate::shared::Shared;

pub use connections::{ConnectionState, Connections, EndedBy};
pub use routing::{Step, Waiting, unreadable};
pub use start::{ShardStart, StartError, start};

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
    /// Refused connections that are being told so.
    refusing: Cell<usize>,
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
            refusing: Cell::new(0),
            closing: Cell::new(false),
            shared,
        })
    }

    /// This shard's counters.
    pub fn cells(&self) -> &ShardCells {
        &self.shared.cells.shards[self.index]
    }

    /// Publishes how old the requests under way are.
    fn count_ages(&self) {
        let ages = self.connections.borrow().ages(clock::now_ms());
        for (gauge, count) in self.cells().ages.iter().zip(ages) {
            gauge.set(count);
        }
    }

    /// Runs a task of a client connection; a panic in it ends that connection alone, and is counted.
    pub async fn contain(&self, task: impl Future<Output = ()>) {
        let outcome = guard::catch_panic(task).await;
        self.survivor(outcome);
    }

    /// What came out of a contained task of a client connection, unless it panicked.
    fn survivor<T>(&self, outcome: Result<T, String>) -> Option<T> {
        outcome
            .inspect_err(|message| {
                self.cells().panics.inc();
                error!(target: "smg::http", %message,
                    "a connection task panicked; its connection is closed");
            })
            .ok()
    }

    /// Whether connections are to end after the answer under way.
    pub fn closing(&self) -> bool {
        self.closing.get()
    }
}
