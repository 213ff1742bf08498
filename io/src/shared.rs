//! What all threads of the gateway share: the configuration, the published epochs, the exact counts
//! and the mailboxes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use smg_core::breaker::Breakers;
use smg_core::fleet::InFlight;
use smg_core::policy::Loads;
use smg_core::policy::rotation::RoundRobin;
use smg_core::policy::sticky::ActiveKeys;

use crate::body_memory::BodyMemory;
use crate::config::{ApiKeys, Config};
use crate::control::Command;
use crate::fleet::Fleet;
use crate::http::admission::Admission;
use crate::http::stalls::Stalls;
use crate::messages::Message;
use crate::metrics::SharedCells;
use crate::offload::Pool;
use crate::owner::Parts;
use crate::reload;
use crate::runtime::driver::DriverReport;
use crate::runtime::mailbox::Mesh;
use crate::runtime::memory;
use crate::tls::Tls;

/// Shared by every thread; cheap to reach, written only through its own parts.
pub struct Shared {
    /// Checked once, never changed.
    pub config: Config,
    /// What the allocator can do.
    pub memory: Memory,
    /// How the trees of a model are split over shards.
    pub parts: Parts,
    /// The fleet epoch.
    pub fleet: ArcSwap<Fleet>,
    /// The load-report epoch.
    pub loads: ArcSwap<Loads>,
    /// The epoch of the keys clients may use.
    pub api_keys: ArcSwap<ApiKeys>,
    /// Outcomes of reloads.
    pub reloads: reload::Counts,
    /// Exact in-flight counts.
    pub in_flight: InFlight,
    /// Circuit breakers.
    pub breakers: Breakers,
    /// Counters per shard.
    pub cells: SharedCells,
    /// Mailboxes of the shards; the control core is sender [`Shared::control_sender`].
    pub mesh: Arc<Mesh<Message>>,
    /// Commands to the control core.
    pub control: async_channel::Sender<Command>,
    /// Which driver each ring runs on, filled in as they start.
    pub drivers: ArcSwap<Vec<(String, DriverReport)>>,
    /// Turns of `round_robin`, exact over all shards.
    pub round_robin: RoundRobin,
    /// Sticky keys with a request in flight, per worker.
    pub active_keys: ActiveKeys,
    /// Permits of inference requests.
    pub admission: Admission,
    /// Threads that read bodies which would hold a shard for too long.
    pub bodies: Pool,
    /// Memory of request bodies, bounded by `--max-body-memory`.
    pub body_memory: Arc<BodyMemory>,
    /// Client connections over all shards, bounded by `--max-connections`.
    pub connections: AtomicUsize,
    /// HTTP/2 connections that have had a request, over all shards.
    pub http2_connections: AtomicUsize,
    /// TLS towards clients and workers.
    pub tls: Tls,
    /// Workers whose hosts leave something unanswered.
    pub stalls: Stalls,
    phase: AtomicU8,
}

/// What the program's allocator can do so that memory which is free does not stay with the process.
/// Indexes are freed on the control thread and not where they were allocated, hence the two steps.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Takes back what other threads have freed of the calling thread's memory; some microseconds.
    pub reclaim: fn(),
    /// Gives what is free in the process back to the system; some milliseconds.
    pub trim: fn(),
    /// From here on it does not ask for huge pages.
    pub ask_for_small_pages: fn(),
}

/// Where the process is between start and exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not every shard serves yet; readiness answers 503.
    Starting = 0,
    /// Serving.
    Running = 1,
    /// Readiness answers 503; everything else as before.
    Settling = 2,
    /// No new connections; requests in flight finish.
    Closing = 3,
}

impl Shared {
    /// Assembles the shared state; `shards` is their number, `tls` what it says about TLS, loaded.
    pub fn new(
        mut config: Config,
        tls: Tls,
        memory: Memory,
        shards: usize,
        control: async_channel::Sender<Command>,
    ) -> std::io::Result<Self> {
        let asked = config.limits.max_payload_size;
        let (limits, body_memory) = config.limits.within(memory::usable());
        config.limits = limits;
        let allowed = limits.max_payload_size;
        if allowed < asked {
            tracing::warn!(
                "bodies over {allowed} bytes are refused, though --max-payload-size is {asked}: \
                 that is a sixth of the memory this process may use; give it more, or set \
                 --max-body-memory"
            );
        }
        Ok(Self {
            cells: SharedCells::new(shards, &config.prometheus.duration_buckets),
            breakers: Breakers::new(crate::policies::breaker_config(&config)),
            admission: Admission::new(&config.admission, shards),
            bodies: Pool::default(),
            body_memory: BodyMemory::new(body_memory),
            connections: AtomicUsize::new(0),
            http2_connections: AtomicUsize::new(0),
            tls,
            stalls: Stalls::default(),
            parts: Parts::new(&config.cache, shards),
            api_keys: ArcSwap::from_pointee(ApiKeys::of(&config)),
            reloads: reload::Counts::default(),
            config,
            memory,
            fleet: ArcSwap::default(),
            loads: ArcSwap::default(),
            in_flight: InFlight::default(),
            mesh: Mesh::new(shards, shards + 1)?,
            control,
            drivers: ArcSwap::default(),
            round_robin: RoundRobin::default(),
            active_keys: ActiveKeys::default(),
            phase: AtomicU8::new(Phase::Starting as u8),
        })
    }

    /// The sender position of the control core in the mesh.
    pub fn control_sender(&self) -> usize {
        self.cells.shards.len()
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.cells.shards.len()
    }

    /// Where the process is.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Starting,
            1 => Phase::Running,
            2 => Phase::Settling,
            _ => Phase::Closing,
        }
    }

    /// Moves on; never back.
    pub fn enter(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
    }

    /// Requests whose answer has not ended, over all shards.
    pub fn requests_active(&self) -> i64 {
        self.cells.shards.iter().map(|cells| cells.requests_active.get()).sum()
    }

    /// Whether something of an answer is still to reach a client. What HTTP/2 holds of one is sent
    /// before its connection ends.
    pub fn answers_under_way(&self) -> bool {
        self.requests_active() > 0 || self.http2_connections.load(Ordering::Relaxed) > 0
    }

    /// Notes the driver of a ring.
    pub fn report_driver(&self, ring: &str, report: DriverReport) {
        self.drivers.rcu(|drivers| {
            let mut drivers = Vec::clone(drivers);
            drivers.retain(|(name, _)| name != ring);
            drivers.push((ring.to_owned(), report.clone()));
            drivers
        });
    }
}
