//! The fleet epoch of the io crate: the placement every decision reads, plus what the relay needs to
//! reach each worker.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use smg_core::fleet::{ModelId, Placement, WorkerId};
use smg_core::policy::PolicyKind;
use smg_core::policy::ring::HashRing;

use crate::config::{OverloadConfig, WorkerUrl};

/// Longest name of a model, and of what else workers are told or say about themselves, in bytes.
pub const MAX_NAME_BYTES: usize = 512;

/// Whether `name` can be one: it goes into labels of metrics, into log lines and answers.
///
/// # Errors
/// Why not, beginning with `what`.
pub fn check_name(what: &str, name: &str) -> Result<(), String> {
    if name.len() > MAX_NAME_BYTES {
        return Err(format!("{what} is longer than {MAX_NAME_BYTES} bytes"));
    }
    if name.chars().any(char::is_control) {
        return Err(format!("{what} must not contain control characters"));
    }
    Ok(())
}

/// One immutable epoch, published by the control plane.
#[derive(Debug, Default)]
pub struct Fleet {
    /// Models and their ready workers.
    pub placement: Placement,
    /// Registered workers by slot.
    pub workers: Vec<Option<Arc<Worker>>>,
    /// The policy of each model, at the positions of [`Placement::models`].
    pub policies: Vec<ModelPolicy>,
    /// What the decisions of some model need of a request.
    pub wants: Wants,
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

    /// The policy of a model of this epoch.
    pub fn policy(&self, model: ModelId) -> PolicyKind {
        self.policies.get(model.0 as usize).map_or(PolicyKind::LeastLoad, |policy| policy.kind)
    }

    /// The ring of a model whose policy needs one.
    pub fn ring(&self, model: ModelId) -> Option<&HashRing> {
        self.policies.get(model.0 as usize)?.ring.as_deref()
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

/// How the requests of one model are routed.
#[derive(Debug, Clone)]
pub struct ModelPolicy {
    /// The policy.
    pub kind: PolicyKind,
    /// The model's workers, for policies that hash.
    pub ring: Option<Arc<HashRing>>,
}

impl ModelPolicy {
    /// A policy for a model without workers.
    pub fn new(kind: PolicyKind) -> Self {
        let hashes = matches!(kind, PolicyKind::PrefixHash | PolicyKind::ConsistentHashing);
        Self { kind, ring: hashes.then(Arc::default) }
    }

    /// Takes a worker in.
    pub fn join(&mut self, worker: WorkerId, url: &WorkerUrl) {
        if let Some(ring) = &mut self.ring {
            Arc::make_mut(ring).insert(worker, url.as_str());
        }
    }

    /// Leaves a worker out.
    pub fn leave(&mut self, worker: WorkerId) {
        if let Some(ring) = &mut self.ring {
            Arc::make_mut(ring).remove(worker);
        }
    }
}

/// What has to be read of a request before its model, and so its policy, is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wants {
    /// Text and token IDs: an index, or a hash of the prompt's head.
    pub prompt: bool,
    /// Token IDs where they are given, to credit a worker with a prompt's length.
    pub tokens: bool,
}

impl Wants {
    /// Also what `policy` reads.
    pub fn also(self, policy: PolicyKind) -> Self {
        let reads_prompt = matches!(policy, PolicyKind::CacheAware | PolicyKind::PrefixHash);
        Self { prompt: self.prompt || reads_prompt, tokens: self.tokens || policy.reads_loads() }
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
    /// When it is left out as overloaded; in place of the fleet's thresholds, signal by signal.
    pub overload: OverloadConfig,
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
            overload: OverloadConfig::default(),
            runtime: None,
        }
    }
}
