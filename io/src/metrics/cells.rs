//! What each shard counts.

use std::sync::OnceLock;

use smg_core::policy::Branch;
use smg_core::prompt::Endpoint;
use smg_core::usage::Usage;

use crate::config::PolicyName;
use crate::http::answer::ErrorCode;
use crate::http::route::{METHOD_LABELS, Route};
use crate::metrics::workers::WorkerCells;
use crate::metrics::{Counter, Gauge, Histogram, StreamCells};

/// Distinct `model` label values; later models count under `other`.
pub const MODEL_LABELS: usize = 1024;
/// Bounds of `smg_cache_aware_match_ratio`.
pub const RATIO_BOUNDS: [f64; 11] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
/// Bounds between the ages of requests under way in seconds.
pub const AGE_BOUNDS_SECS: [u64; 11] =
    [30, 60, 180, 300, 600, 1200, 3600, 7200, 14_400, 28_800, 86_400];
/// Statuses told apart, 100 to 599.
const STATUSES: usize = 500;

/// Counts of all shards, and of the control core.
pub struct SharedCells {
    /// One per shard.
    pub shards: Box<[ShardCells]>,
}

impl SharedCells {
    /// Cells for `shards` shards with the given duration bounds in seconds.
    pub fn new(shards: usize, duration_bounds: &[f64]) -> Self {
        let bounds: std::sync::Arc<[f64]> = duration_bounds.into();
        Self { shards: (0..shards).map(|_| ShardCells::new(bounds.clone())).collect() }
    }
}

/// Counts of one shard. Only its thread writes them.
pub struct ShardCells {
    duration_bounds: std::sync::Arc<[f64]>,
    /// Requests read, per route and method.
    pub requests: Box<[[Counter; METHOD_LABELS.len()]]>,
    durations: Box<[[OnceLock<Histogram>; METHOD_LABELS.len()]]>,
    responses: Box<[OnceLock<Box<[Counter]>>]>,
    errors: Box<[OnceLock<Box<[Counter]>>]>,
    /// Requests whose answer has not ended.
    pub requests_active: Gauge,
    /// Client connections open.
    pub connections: Gauge,
    /// Connections refused for want of a place.
    pub connections_refused: Counter,
    /// Inference requests that got a permit, and that were refused one.
    pub admission: [Counter; 2],
    /// Requests refused because the queue was full, and because they waited too long.
    pub admission_rejected: [Counter; 2],
    /// Bodies lent to the pool, by reason.
    pub lent: [Counter; Lent::ALL.len()],
    /// Connection tasks ended by a panic.
    pub panics: Counter,
    /// TLS handshakes of clients that came to nothing.
    pub handshake_failures: [Counter; HandshakeFailure::ALL.len()],
    /// Answers of workers per attempt and status.
    upstream_responses: Box<[Counter]>,
    /// Requests sent again because a pooled connection had been closed.
    pub upstream_send_retries: Counter,
    /// Retries per endpoint.
    pub retries: [Counter; Endpoint::ALL.len()],
    /// Requests whose last attempt failed too.
    pub retries_exhausted: [Counter; Endpoint::ALL.len()],
    /// Pauses before retries, by number of the attempt that follows.
    backoffs: [OnceLock<Histogram>; Self::BACKOFFS],
    /// Counts per worker.
    pub workers: WorkerCells,
    /// Requests under way by age, as of the last look; see [`AGE_BOUNDS_SECS`].
    pub ages: [Gauge; AGE_BOUNDS_SECS.len() + 1],
    /// Failures towards workers.
    pub worker_errors: [Counter; WorkerErrorKind::ALL.len()],
    /// `cache_aware` decisions over a tree, per branch (positions of [`ShardCells::BRANCHES`]).
    pub tree_branches: [Counter; Self::BRANCHES.len()],
    /// All `cache_aware` decisions.
    decisions: [[Counter; Self::BRANCHES.len()]; Self::INDEXES.len()],
    match_ratio: Histogram,
    /// Decisions made on load alone because the owner's mailbox was full.
    pub owner_overloaded: Counter,
    /// Requests answered 503 because overload protection left nobody: when a worker was to be chosen,
    /// and when the request was to be sent to the one that had been.
    pub sheds: [Counter; 2],
    /// Requests with a sticky key: from the body's `rid`, from a header.
    pub key_sources: [Counter; 2],
    /// Sticky keys this shard keeps.
    pub pinned_keys: Gauge,
    policy_branches: [[Counter; BranchFamily::MOST]; BranchFamily::ALL.len()],
    models: Box<[OnceLock<Box<ModelCells>>]>,
}

impl ShardCells {
    /// Values of the `branch` label.
    pub const BRANCHES: [Branch; 8] = [
        Branch::TreeMatch,
        Branch::Spill,
        Branch::ExpectedWaitFallback,
        Branch::FirstHealthyFallback,
        Branch::KvPressureExpectedWait,
        Branch::HashHit,
        Branch::HashSpill,
        Branch::ShortRequest,
    ];
    /// Branches that `smg_cache_aware_policy_branch_total` knows: the first four.
    pub const TREE_BRANCHES: usize = 4;
    /// Attempts told apart in the pauses before them; later ones count with the last.
    pub const BACKOFFS: usize = 8;
    /// Values of the `index` label.
    pub const INDEXES: [&'static str; 4] = ["string", "token", "kv_event", "hash"];

    fn new(duration_bounds: std::sync::Arc<[f64]>) -> Self {
        fn table<T>(len: usize, cell: impl Fn() -> T) -> Box<[T]> {
            (0..len).map(|_| cell()).collect()
        }
        Self {
            duration_bounds,
            requests: table(Route::COUNT, Default::default),
            durations: table(Route::COUNT, Default::default),
            responses: table(Route::COUNT, OnceLock::new),
            errors: table(Route::COUNT, OnceLock::new),
            requests_active: Gauge::default(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            admission: Default::default(),
            admission_rejected: Default::default(),
            lent: Default::default(),
            panics: Counter::default(),
            handshake_failures: Default::default(),
            upstream_responses: table(STATUSES, Counter::default),
            upstream_send_retries: Counter::default(),
            retries: Default::default(),
            retries_exhausted: Default::default(),
            backoffs: Default::default(),
            workers: WorkerCells::default(),
            ages: Default::default(),
            worker_errors: Default::default(),
            tree_branches: Default::default(),
            decisions: Default::default(),
            match_ratio: Histogram::new(RATIO_BOUNDS.len()),
            owner_overloaded: Counter::default(),
            sheds: Default::default(),
            key_sources: Default::default(),
            pinned_keys: Gauge::default(),
            policy_branches: Default::default(),
            models: table(MODEL_LABELS + 1, OnceLock::new),
        }
    }

    /// Counts an answer with `status`, relayed or (with `code`) the gateway's own.
    pub fn response(&self, route: Route, status: u16, code: Option<ErrorCode>) {
        match code {
            Some(code) => {
                table_of(&self.errors[route.index()], ErrorCode::ALL.len())[code as usize].inc()
            }
            None => {
                if let Some(at) = status_index(status) {
                    table_of(&self.responses[route.index()], STATUSES)[at].inc();
                }
            }
        }
    }

    /// Counts one answer of a worker, whether or not it is relayed.
    pub fn upstream_response(&self, status: u16) {
        if let Some(at) = status_index(status) {
            self.upstream_responses[at].inc();
        }
    }

    /// Observes the time from the request's first byte to the answer's head, in seconds.
    pub fn duration(&self, route: Route, method: usize, seconds: f64) {
        self.durations[route.index()][method]
            .get_or_init(|| Histogram::new(self.duration_bounds.len()))
            .observe(&self.duration_bounds, seconds);
    }

    /// Counts a decision of `cache_aware` over the index at a position of [`ShardCells::INDEXES`]; one
    /// over a tree also counts its branch and match ratio.
    pub fn decision(&self, index: usize, branch: Branch, tree_ratio: Option<f64>) {
        let at = Self::BRANCHES.iter().position(|&listed| listed == branch);
        debug_assert!(at.is_some(), "{branch:?} is not a branch of cache_aware");
        let Some(at) = at else { return };
        self.decisions[index][at].inc();
        if let Some(ratio) = tree_ratio {
            self.tree_branches[at].inc();
            self.match_ratio.observe(&RATIO_BOUNDS, ratio);
        }
    }

    /// Counts a decision of another policy.
    pub fn branch(&self, family: BranchFamily, branch: Branch) {
        let at = family.branches().iter().position(|&listed| listed == branch);
        debug_assert!(at.is_some(), "{branch:?} is not a branch of {family:?}");
        if let Some(at) = at {
            self.policy_branches[family as usize][at].inc();
        }
    }

    /// Cells of a model label.
    pub fn model(&self, label: ModelLabel) -> &ModelCells {
        self.models[label.0].get_or_init(|| Box::new(ModelCells::default()))
    }

    /// Observes the time to the head of a relayed answer, in seconds.
    pub fn model_duration(&self, label: ModelLabel, endpoint: Endpoint, seconds: f64) {
        self.model(label).durations[endpoint as usize]
            .get_or_init(|| Histogram::new(self.duration_bounds.len()))
            .observe(&self.duration_bounds, seconds);
    }

    /// Cells of the streams of a model and endpoint.
    pub fn stream(&self, label: ModelLabel, endpoint: Endpoint) -> &StreamCells {
        self.model(label).streams[endpoint as usize]
            .get_or_init(|| Box::new(StreamCells::new(self.duration_bounds.clone())))
    }

    /// Observes the pause before an attempt, the second or a later one, in seconds.
    pub fn backoff(&self, attempt: usize, seconds: f64) {
        self.backoffs[attempt.clamp(2, Self::BACKOFFS + 1) - 2]
            .get_or_init(|| Histogram::new(self.duration_bounds.len()))
            .observe(&self.duration_bounds, seconds);
    }

    /// Reads, for the exposition.
    pub(super) fn read(&self) -> CellsView<'_> {
        CellsView { cells: self }
    }
}

/// Policies with a branch counter of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchFamily {
    /// `manual` and sticky sessions.
    Manual,
    ConsistentHashing,
    PrefixHash,
}

impl BranchFamily {
    /// Every family, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::Manual, Self::ConsistentHashing, Self::PrefixHash];
    /// Most branches of one family.
    const MOST: usize = 6;

    /// Name of its counter.
    pub fn metric(self) -> &'static str {
        match self {
            Self::Manual => "smg_manual_policy_branch_total",
            Self::ConsistentHashing => "smg_consistent_hashing_policy_branch_total",
            Self::PrefixHash => "smg_prefix_hash_policy_branch_total",
        }
    }

    /// Its branches, at most [`BranchFamily::MOST`].
    pub fn branches(self) -> &'static [Branch] {
        match self {
            Self::Manual => &[
                Branch::OccupiedHit,
                Branch::OccupiedMiss,
                Branch::Vacant,
                Branch::NoRoutingId,
                Branch::CapRespill,
                Branch::NoHealthyWorkers,
            ],
            Self::ConsistentHashing => &[
                Branch::TargetWorkerHit,
                Branch::TargetWorkerMiss,
                Branch::RoutingKeyHit,
                Branch::RandomFallback,
                Branch::NoHealthyWorkers,
            ],
            Self::PrefixHash => &[
                Branch::RingHit,
                Branch::LoadBalanceWalk,
                Branch::NoRoutingKey,
                Branch::FallbackLeastLoad,
                Branch::NoHealthyWorkers,
            ],
        }
    }
}

/// Which `model` label a model counts under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelLabel(usize);

impl ModelLabel {
    /// The label of the model with this dense id.
    pub fn of(model: smg_core::fleet::ModelId) -> Self {
        Self((model.0 as usize).min(MODEL_LABELS))
    }

    /// Position below [`MODEL_LABELS`] + 1; the last is `other`.
    pub fn index(self) -> usize {
        self.0
    }
}

/// Counts of one shard for one model.
#[derive(Default)]
pub struct ModelCells {
    /// Workers chosen, per policy.
    pub selections: [Counter; PolicyName::ALL.len()],
    /// Requests per endpoint: plain, streaming.
    pub requests: [[Counter; 2]; Endpoint::ALL.len()],
    /// Requests that ended in an error, per endpoint and kind.
    pub errors: [[Counter; ErrorKind::ALL.len()]; Endpoint::ALL.len()],
    durations: [OnceLock<Histogram>; Endpoint::ALL.len()],
    streams: [OnceLock<Box<StreamCells>>; Endpoint::ALL.len()],
    /// Tokens per endpoint: of prompts, generated.
    tokens: [[Counter; 2]; Endpoint::ALL.len()],
}

impl ModelCells {
    /// Counts the tokens of one answer.
    pub fn count_tokens(&self, endpoint: Endpoint, usage: Usage) {
        let counters = &self.tokens[endpoint as usize];
        for (counter, count) in counters.iter().zip([usage.input, usage.output]) {
            if let Some(count) = count {
                counter.add(count);
            }
        }
    }
}

/// Why a body is read by the pool: `reason` of `smg_bodies_lent_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lent {
    Compressed,
    Large,
}

impl Lent {
    /// Every reason, in the order of the tables.
    pub const ALL: [Self; 2] = [Self::Compressed, Self::Large];

    /// The label value.
    pub fn label(self) -> &'static str {
        match self {
            Self::Compressed => "compressed",
            Self::Large => "large",
        }
    }
}

/// Why a client's TLS handshake came to nothing: `reason` of `smg_tls_handshake_failures_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// What came was a request in the clear.
    PlainHttp,
    /// The client gave up and said why; most often it does not trust the certificate.
    Alert,
    /// No version, cipher or the like in common.
    Incompatible,
    /// What came is not TLS as it should be.
    Protocol,
    /// The connection ended or broke.
    Connection,
    /// It took longer than a request's head may.
    Timeout,
}

impl HandshakeFailure {
    /// Every reason, in the order of the tables.
    pub const ALL: [Self; 6] = [
        Self::PlainHttp,
        Self::Alert,
        Self::Incompatible,
        Self::Protocol,
        Self::Connection,
        Self::Timeout,
    ];

    /// The label value.
    pub fn label(self) -> &'static str {
        match self {
            Self::PlainHttp => "plain_http",
            Self::Alert => "alert",
            Self::Incompatible => "incompatible",
            Self::Protocol => "protocol",
            Self::Connection => "connection",
            Self::Timeout => "timeout",
        }
    }
}

/// `error_type` of `smg_router_request_errors_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    NoWorkers,
    Timeout,
    BackendError,
    ValidationError,
    InternalError,
}

impl ErrorKind {
    /// Every kind, in the order of the tables.
    pub const ALL: [Self; 5] = [
        Self::NoWorkers,
        Self::Timeout,
        Self::BackendError,
        Self::ValidationError,
        Self::InternalError,
    ];

    /// The label value.
    pub fn label(self) -> &'static str {
        match self {
            Self::NoWorkers => "no_workers",
            Self::Timeout => "timeout",
            Self::BackendError => "backend_error",
            Self::ValidationError => "validation_error",
            Self::InternalError => "internal_error",
        }
    }
}

/// `error_type` of `smg_worker_errors_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerErrorKind {
    Connect,
    Reset,
    Protocol,
    Timeout,
}

impl WorkerErrorKind {
    /// Every kind, in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Connect, Self::Reset, Self::Protocol, Self::Timeout];

    /// The label value.
    pub fn label(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Reset => "reset",
            Self::Protocol => "protocol",
            Self::Timeout => "timeout",
        }
    }
}

/// Read access to cells that only their shard may write.
pub(super) struct CellsView<'a> {
    cells: &'a ShardCells,
}

impl<'a> CellsView<'a> {
    pub fn durations(&self, route: usize, method: usize) -> Option<&'a Histogram> {
        self.cells.durations[route][method].get()
    }

    /// Answers per status, from 100.
    pub fn responses(&self, route: usize) -> Option<&'a [Counter]> {
        self.cells.responses[route].get().map(|table| &**table)
    }

    /// The gateway's own errors, in the order of [`ErrorCode::ALL`].
    pub fn errors(&self, route: usize) -> Option<&'a [Counter]> {
        self.cells.errors[route].get().map(|table| &**table)
    }

    /// Answers of workers per status, from 100.
    pub fn upstream_responses(&self) -> &'a [Counter] {
        &self.cells.upstream_responses
    }

    pub fn decisions(&self) -> &'a [[Counter; ShardCells::BRANCHES.len()]] {
        &self.cells.decisions
    }

    /// In the order of [`BranchFamily::branches`].
    pub fn policy_branches(&self, family: BranchFamily) -> &'a [Counter] {
        &self.cells.policy_branches[family as usize]
    }

    pub fn match_ratio(&self) -> &'a Histogram {
        &self.cells.match_ratio
    }

    pub fn model(&self, label: usize) -> Option<&'a ModelCells> {
        self.cells.models[label].get().map(|cells| &**cells)
    }

    pub fn backoffs(&self, at: usize) -> Option<&'a Histogram> {
        self.cells.backoffs[at].get()
    }

    pub fn stream(&self, label: usize, endpoint: usize) -> Option<&'a StreamCells> {
        self.model(label)?.streams[endpoint].get().map(|cells| &**cells)
    }

    /// Tokens of prompts, and generated.
    pub fn tokens(&self, label: usize, endpoint: usize) -> [u64; 2] {
        let counters = self.model(label).map(|cells| &cells.tokens[endpoint]);
        counters.map_or([0; 2], |counters| counters.each_ref().map(Counter::get))
    }

    pub fn model_duration(&self, label: usize, endpoint: usize) -> Option<&'a Histogram> {
        self.model(label)?.durations[endpoint].get()
    }
}

fn table_of(cell: &OnceLock<Box<[Counter]>>, len: usize) -> &[Counter] {
    cell.get_or_init(|| (0..len).map(|_| Counter::default()).collect())
}

fn status_index(status: u16) -> Option<usize> {
    usize::from(status).checked_sub(100).filter(|&at| at < STATUSES)
}
