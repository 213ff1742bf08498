//! The fleet epoch of the io crate: the placement every decision reads, plus what the relay needs to
//! reach each worker.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use smg_core::fleet::{ModelId, Placement, WorkerId};

use crate::config::WorkerUrl;

/// One immutable epoch, published by the control plane.
#[derive(Debug, Default)]
pub struct Fleet {
    /// Models and their ready workers.
    pub placement: Placement,
    /// Registered workers by slot.
    pub workers: Vec<Option<Arc<Worker>>>,
    /// Registered workers that are ready.
    pub ready: usize,
    /// Registered workers.
    pub total: usize,
}

impl Fleet {
    /// The worker of this registration, unless it has been removed.
    pub fn worker(&self, id: WorkerId) -> Option<&Arc<Worker>> {
        self.workers.get(id.slot as usize)?.as_ref().filter(|worker| worker.id == id)
    }

    /// Registered workers in order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Worker>> {
        self.workers.iter().flatten()
    }

    /// Some ready worker that accepts plain requests, for questions any of them can answer.
    pub fn any_ready(&self) -> Option<&Arc<Worker>> {
        self.iter().find(|worker| worker.state == WorkerState::Ready)
    }
}

/// Where a registered worker is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// Healthy: takes requests.
    Ready,
    /// Failed its health probes; probed until it answers again.
    NotReady,
    /// Being removed: takes no new requests.
    Draining,
}

impl WorkerState {
    /// The `status` of `GET /workers`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotReady => "not_ready",
            Self::Draining => "draining",
        }
    }
}

/// One registered worker in one epoch.
#[derive(Debug, Clone)]
pub struct Worker {
    /// This registration.
    pub id: WorkerId,
    /// Name in `/workers/{id}`.
    pub uuid: Arc<str>,
    /// Where it is, and its name in labels and logs.
    pub url: WorkerUrl,
    /// Resolved address.
    pub addr: SocketAddr,
    /// State in this epoch.
    pub state: WorkerState,
    /// The model it serves.
    pub model: ModelId,
    /// Name of that model.
    pub model_name: Arc<str>,
    /// `Bearer <key>` for this worker, if it has a key of its own.
    pub authorization: Option<Arc<[u8]>>,
    /// What was asked for at registration and learned from the engine.
    pub spec: Arc<WorkerSpec>,
}

/// What the operator said about a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerSpec {
    /// Its URL.
    pub url: WorkerUrl,
    /// Key sent to it, never shown.
    pub api_key: Option<crate::config::Secret>,
    /// Model it serves, if told; else learned.
    pub model: Option<String>,
    /// Free labels; learned ones are added.
    pub labels: BTreeMap<String, String>,
    /// Shown back; no policy reads it.
    pub priority: u32,
    /// Shown back; no policy reads it.
    pub cost: f64,
    /// Engine kind: `vllm`, `sglang`, ... once known.
    pub runtime: Option<String>,
}

impl WorkerSpec {
    /// A worker about which only the URL is known.
    pub fn new(url: WorkerUrl) -> Self {
        Self {
            url,
            api_key: None,
            model: None,
            labels: BTreeMap::new(),
            priority: 50,
            cost: 1.0,
            runtime: None,
        }
    }
}
