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
use crate::metrics::{AGE_BOUNDS_SECS, ShardCells};
use crate::owner::Owner;
use crate::runtime::clock;
use crate::shared::Shared;

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

    /// Publishes how old the requests under way are.
    fn count_ages(&self) {
        let ages = self.connections.borrow().ages(clock::now_ms());
        for (gauge, count) in self.cells().ages.iter().zip(ages) {
            gauge.set(count);
        }
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
    /// When the first byte of the request under way was read, on [`clock::now_ms`].
    pub busy_since_ms: Cell<u64>,
}

impl ConnectionState {
    /// The first byte of a request is there.
    pub fn begin_request(&self) {
        if self.idle.replace(false) {
            self.busy_since_ms.set(clock::now_ms());
        }
    }
}

impl Connections {
    /// Notes a connection; the position to give back to [`Connections::remove`].
    pub fn insert(&mut self, fd: std::os::fd::RawFd) -> (usize, Rc<ConnectionState>) {
        let state = Rc::new(ConnectionState {
            fd,
            idle: Cell::new(true),
            fresh: Cell::new(true),
            busy_since_ms: Cell::new(0),
        });
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

    /// How old the requests under way are, counted between [`AGE_BOUNDS_SECS`].
    pub fn ages(&self, now_ms: u64) -> [i64; AGE_BOUNDS_SECS.len() + 1] {
        let mut ages = [0; AGE_BOUNDS_SECS.len() + 1];
        for state in self.entries.iter().flatten().filter(|state| !state.idle.get()) {
            let age_ms = now_ms.saturating_sub(state.busy_since_ms.get());
            ages[AGE_BOUNDS_SECS.partition_point(|&secs| secs * 1000 < age_ms)] += 1;
        }
        ages
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_as_old_as_the_bound_it_has_not_passed() {
        let mut connections = Connections::default();
        let now_ms = 1_000_000_000;
        for age_secs in [0, 30, 31, 86_401] {
            let (_, state) = connections.insert(-1);
            state.idle.set(false);
            state.busy_since_ms.set(now_ms - age_secs * 1000);
        }
        connections.insert(-1);
        let ages = connections.ages(now_ms);
        assert_eq!((ages[0], ages[1], ages[11], ages.iter().sum::<i64>()), (2, 1, 1, 4));
    }
}
