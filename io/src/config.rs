//! Everything an operator can set, checked and resolved: what the rest of the gateway reads instead
//! of flags, files or the environment.
//!
//! The program builds one [`Config`] from its flags before anything binds. Every value is within
//! its documented range, so readers need no second check. Times carry their unit in the name.
//! `Default` is the gateway with no flag given; the defaults shown by `--help` are taken from it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

pub use api_keys::{ApiKeys, KeyFile, KeyFileError};
pub use origins::{AllowedOrigins, origin};
pub use smg_core::policy::PolicyKind;
/// [`PolicyKind`] for callers that say `PolicyName`.
pub use smg_core::policy::PolicyKind as PolicyName;
pub use worker_url::{WorkerUrl, WorkerUrlError};

use crate::tls::{Identity, WorkerTlsConfig};

mod api_keys;
mod origins;
mod worker_url;

/// The whole configuration of one gateway process.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Address the inference and admin routes listen on.
    pub host: IpAddr,
    /// Port of `host`, never 0.
    pub port: u16,
    /// Certificate and key of the main listener; `None` is plain HTTP.
    pub tls: Option<Identity>,
    /// TLS to workers whose URL begins with `https`.
    pub worker_tls: WorkerTlsConfig,
    /// Port of a second listener for the probe routes alone, on `host`.
    pub health_check_port: Option<u16>,
    /// Workers registered at start, in order, without repeats. May be empty.
    pub worker_urls: Vec<WorkerUrl>,
    /// Other names a model answers to, as (alias, canonical name). No alias appears twice.
    pub model_aliases: Vec<(String, String)>,
    /// Policy of every model whose workers carry no `policy` label.
    pub policy: PolicyKind,
    /// Operator said that workers come and go: no minimum number of workers at start.
    pub enable_igw: bool,
    /// Answer `x-smg-explain` requests with `x-smg-route`, worker URLs included.
    pub enable_explain: bool,
    /// Leave `x-smg-routed-worker-id` out of responses.
    pub hide_worker_id: bool,
    /// Request headers searched for a request ID, in order; lower case.
    pub request_id_headers: Vec<String>,
    /// Key of the inference routes, and of the admin routes if they have none of their own.
    pub api_key: Option<Secret>,
    /// More of them, in a file that is read again on SIGHUP.
    pub api_key_file: Option<KeyFile>,
    /// Key of the admin routes.
    pub admin_api_key: Option<Secret>,
    /// Origins whose web pages may use the gateway; `None` says nothing to browsers.
    pub cors_allowed_origins: Option<AllowedOrigins>,
    /// Prefix indexes, spill gate and KV pressure.
    pub cache: CacheConfig,
    /// Scorer constants of `least_load`.
    pub least_load: LeastLoadConfig,
    /// `prefix_hash` policy.
    pub prefix_hash: PrefixHashConfig,
    /// Sticky sessions and the `manual` policy.
    pub sticky: StickyConfig,
    /// Load reports.
    pub load_monitor: LoadMonitorConfig,
    /// Fleet-wide thresholds of overload protection.
    pub overload: OverloadConfig,
    /// Registration of workers.
    pub startup: StartupConfig,
    /// Health probes.
    pub health: HealthConfig,
    /// Attempts per request.
    pub retry: RetryConfig,
    /// Circuit breaker per worker.
    pub breaker: BreakerConfig,
    /// Concurrency limit and queue.
    pub admission: AdmissionConfig,
    /// Sizes and times of one connection or request.
    pub limits: LimitsConfig,
    /// Threads, CPUs and I/O driver.
    pub runtime: RuntimeConfig,
    /// Drain on SIGTERM and on removal of a worker.
    pub shutdown: ShutdownConfig,
    /// Exposition of metrics.
    pub prometheus: PrometheusConfig,
    /// Log output.
    pub log: LogConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port: 30_000,
            tls: None,
            worker_tls: WorkerTlsConfig::default(),
            health_check_port: None,
            worker_urls: Vec::new(),
            model_aliases: Vec::new(),
            policy: PolicyKind::CacheAware,
            enable_igw: false,
            enable_explain: false,
            hide_worker_id: false,
            request_id_headers: ["x-request-id", "x-correlation-id", "x-trace-id", "request-id"]
                .map(String::from)
                .to_vec(),
            api_key: None,
            api_key_file: None,
            admin_api_key: None,
            cors_allowed_origins: None,
            cache: CacheConfig::default(),
            least_load: LeastLoadConfig::default(),
            prefix_hash: PrefixHashConfig::default(),
            sticky: StickyConfig::default(),
            load_monitor: LoadMonitorConfig::default(),
            overload: OverloadConfig::default(),
            startup: StartupConfig::default(),
            health: HealthConfig::default(),
            retry: RetryConfig::default(),
            breaker: BreakerConfig::default(),
            admission: AdmissionConfig::default(),
            limits: LimitsConfig::default(),
            runtime: RuntimeConfig::default(),
            shutdown: ShutdownConfig::default(),
            prometheus: PrometheusConfig::default(),
            log: LogConfig::default(),
        }
    }
}

/// A key that must not reach a log: `Debug` prints a placeholder.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `value`; never empty in a [`Config`].
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The key, if it can stand in a header: visible ASCII characters without spaces, at least one.
    pub fn checked(value: &str) -> Option<Self> {
        let fits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(value.to_owned()))
    }

    /// The key itself. Compare it in constant time.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Prefix indexes of `cache_aware`, its spill gate and its KV pressure check.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheConfig {
    /// Affinity only above this share of the request matched, 0 to 1.
    pub threshold: f32,
    /// Spill gate: in-flight requests above the fleet mean.
    pub balance_abs: usize,
    /// Spill gate: multiple of the fleet mean, at least 1.
    pub balance_rel: f64,
    /// Affinity is skipped when KV usage spreads more than this; 1 or more never fires. Above 0.
    pub balance_token_usage: f64,
    /// Affinity is skipped when any KV usage exceeds this; 1 or more never fires. Above 0.
    pub overload_token_usage: f64,
    /// Decay of a holder's score per request-length of waiting prefill; 0 is off. Finite, not negative.
    pub overlap_decay: f64,
    /// Softmax temperature over groups of equal score; 0 takes the best. Finite, not negative.
    pub selection_temperature: f64,
    /// Between two sweeps of trees, hash index and sticky map; at least 1.
    pub eviction_interval_secs: u64,
    /// Budget per model and tree, in characters or tokens, each holder counted; at least 1.
    pub max_tree_size: usize,
    /// Parts each model's trees are split into, on as many shards; at least 1.
    pub index_shards: usize,
    /// Tokens per page; at least 1.
    pub block_size: usize,
    /// Which index requests are looked up in.
    pub index: CacheIndex,
    /// Head lengths in tokens, positive and strictly ascending. Not empty with [`CacheIndex::Hash`].
    pub boundaries: Vec<usize>,
    /// Life of a holder in the hash index; at least 1.
    pub ttl_secs: u64,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            threshold: 0.3,
            balance_abs: 64,
            balance_rel: 1.5,
            balance_token_usage: 1.0,
            overload_token_usage: 1.0,
            overlap_decay: 0.0,
            selection_temperature: 0.0,
            eviction_interval_secs: 120,
            max_tree_size: 1 << 26,
            index_shards: 1,
            block_size: 16,
            index: CacheIndex::Tree,
            boundaries: Vec::new(),
            ttl_secs: 180,
        }
    }
}

/// `--cache-index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheIndex {
    /// Radix trees over text and tokens.
    Tree,
    /// Exact match of request heads at fixed lengths.
    Hash,
}

/// Constants of the expected-wait score under `least_load` (the other policies use the defaults).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeastLoadConfig {
    /// Seconds added per unit of `k/(1-k)`, k the mean KV usage. Finite, not negative.
    pub kv_pressure_weight: f64,
    /// Tokens per second of a worker that reports none. Finite, above 0.
    pub default_throughput: f64,
    /// Tokens of a request whose length is not known; at least 1.
    pub mean_prefill_tokens: u32,
    /// Workers with more waiting requests than this are passed over; 0 is off.
    pub max_waiting_requests: u32,
}

impl Default for LeastLoadConfig {
    fn default() -> Self {
        Self {
            kv_pressure_weight: 0.15,
            default_throughput: 2000.0,
            mean_prefill_tokens: 1024,
            max_waiting_requests: 0,
        }
    }
}

/// `prefix_hash` policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrefixHashConfig {
    /// Leading tokens hashed; at least 1.
    pub token_count: usize,
    /// A worker above this multiple of the mean in-flight count is walked past; at least 1.
    pub load_factor: f64,
    /// ... unless it is within this many requests of the mean.
    pub balance_abs: usize,
}

impl Default for PrefixHashConfig {
    fn default() -> Self {
        Self { token_count: 256, load_factor: 1.25, balance_abs: 10 }
    }
}

/// Sticky sessions over any policy, and the `manual` policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StickyConfig {
    /// `--routing-key-override`: requests with a key stay on one worker under any policy.
    pub enabled: bool,
    /// Request headers searched for the key, in order; lower case, not empty.
    pub headers: Vec<String>,
    /// How a new key gets its worker; unset is `Random` under `manual` and `Delegate` otherwise.
    pub assignment_mode: Option<AssignmentMode>,
    /// Keys unused this long are forgotten; 0 never.
    pub max_idle_secs: u64,
}

impl Default for StickyConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            headers: vec!["x-smg-routing-key".to_owned()],
            assignment_mode: None,
            max_idle_secs: 14_400,
        }
    }
}

/// How a routing key without a worker gets one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssignmentMode {
    Random,
    /// Fewest requests in flight.
    MinLoad,
    /// Fewest active keys.
    MinGroup,
    /// The configured policy chooses.
    Delegate,
}

/// Polling of load reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadMonitorConfig {
    /// Between two polls of one worker, and the `Retry-After` of a shed request; at least 1.
    pub interval_secs: u64,
    /// Poll only workers whose reports something reads.
    pub only_if_needed: bool,
    /// Operator wants the `smg_engine_*` gauges: reports count as read.
    pub engine_metrics: bool,
}

impl Default for LoadMonitorConfig {
    fn default() -> Self {
        Self { interval_secs: 10, only_if_needed: false, engine_metrics: false }
    }
}

/// When a worker is left out as overloaded. Both unset is off; a worker's own block wins per signal.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OverloadConfig {
    /// Waiting requests, summed over ranks, from which a worker is overloaded; at least 1.
    pub waiting_requests: Option<u32>,
    /// Mean KV usage from which a worker is overloaded; above 0, at most 1.
    pub token_usage: Option<f64>,
}

/// Registration of the workers given at start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartupConfig {
    /// A worker that is not healthy by then fails to register; at least 1.
    pub worker_timeout_secs: u64,
    /// Between two looks at a worker that is not up yet; at least 1.
    pub worker_check_interval_secs: u64,
}

impl Default for StartupConfig {
    fn default() -> Self {
        Self { worker_timeout_secs: 1800, worker_check_interval_secs: 30 }
    }
}

/// Health probes of registered workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthConfig {
    /// False with `--disable-health-check`: a registered worker counts as healthy.
    pub enabled: bool,
    /// Between two probes of one worker; at least 1.
    pub interval_secs: u64,
    /// A probe without an answer by then failed; at least 1.
    pub timeout_secs: u64,
    /// Consecutive failures that take a worker out; at least 1.
    pub failure_threshold: u32,
    /// Consecutive successes that bring it back; at least 1.
    pub success_threshold: u32,
    /// Path probed, with its leading slash.
    pub endpoint: String,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            interval_secs: 60,
            timeout_secs: 5,
            failure_threshold: 3,
            success_threshold: 2,
            endpoint: "/health".to_owned(),
        }
    }
}

/// Attempts per request and the pause between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryConfig {
    /// False with `--disable-retries`: one attempt.
    pub enabled: bool,
    /// Attempts in total, the first included; at least 1.
    pub max_attempts: u32,
    /// Pause before the second attempt; at least 1.
    pub initial_backoff_ms: u64,
    /// Longest pause, also for a worker's `Retry-After`; at least `initial_backoff_ms`.
    pub max_backoff_ms: u64,
    /// Growth of the pause per attempt; finite, at least 1.
    pub backoff_multiplier: f64,
    /// Each pause is scaled by a factor drawn from 1 ± this; 0 to 1.
    pub jitter_factor: f64,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            max_attempts: 5,
            initial_backoff_ms: 50,
            max_backoff_ms: 30_000,
            backoff_multiplier: 1.5,
            jitter_factor: 0.2,
        }
    }
}

/// Circuit breaker of each worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerConfig {
    /// False with `--disable-circuit-breaker`.
    pub enabled: bool,
    /// Consecutive failures that open it; at least 1.
    pub failure_threshold: u32,
    /// Consecutive successes in half-open that close it; at least 1.
    pub success_threshold: u32,
    /// Time open before a probe request is let through; at least 1.
    pub timeout_secs: u64,
    /// Failures older than this do not count as consecutive; at least 1.
    pub window_secs: u64,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            failure_threshold: 10,
            success_threshold: 3,
            timeout_secs: 60,
            window_secs: 120,
        }
    }
}

/// Limits of concurrency and rate over all shards, and their queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Inference requests at a time; `None` is no limit and no queue. At least 1.
    pub max_concurrent_requests: Option<usize>,
    /// Inference requests let in per second on average; `None` is no limit. At least 1.
    pub requests_per_sec: Option<u32>,
    /// Requests that may wait for a permit; 0 answers 429 at once.
    pub queue_size: usize,
    /// Longest wait in the queue; at least 1.
    pub queue_timeout_secs: u64,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            max_concurrent_requests: None,
            requests_per_sec: None,
            queue_size: 100,
            queue_timeout_secs: 60,
        }
    }
}

/// Bounds of one connection or request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Largest request body in bytes; at least 1.
    pub max_payload_size: usize,
    /// Bytes of request bodies held at a time over all connections; `None` is half of the memory the
    /// process may use.
    pub max_body_memory: Option<usize>,
    /// Client connections open at a time over all shards; at least 1.
    pub max_connections: usize,
    /// From dispatch to the worker's response head; at least 1.
    pub request_timeout_secs: u64,
    /// To open a connection to a worker; at least 1.
    pub connect_timeout_secs: u64,
    /// For a client to complete a request head; at least 1.
    pub header_read_timeout_secs: u64,
    /// Longest pause of a client in the middle of a request body, and the time in which a large one must
    /// grow by a sixteenth; at least 1.
    pub stream_body_stall_timeout_secs: u64,
    /// Longest pause of a worker in the middle of a response body; `None` is off. At least 1.
    pub stream_idle_timeout_secs: Option<u64>,
    /// Idle connections to workers close after this; 0 never.
    pub upstream_pool_idle_timeout_secs: u64,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            max_payload_size: 512 << 20,
            max_body_memory: None,
            max_connections: 65_536,
            request_timeout_secs: 1800,
            connect_timeout_secs: 2,
            header_read_timeout_secs: 30,
            stream_body_stall_timeout_secs: 300,
            stream_idle_timeout_secs: None,
            upstream_pool_idle_timeout_secs: 3,
        }
    }
}

/// How often a body that is compressed or chunked may be in memory.
const TIMES_IN_MEMORY: usize = 3;

impl LimitsConfig {
    /// These limits where the process may use so much memory, if that is known, and the bytes that all
    /// request bodies may take together. By default the largest body has room there as it came, decoded,
    /// and while its buffer doubles.
    pub fn within(mut self, usable_bytes: Option<u64>) -> (Self, usize) {
        if let Some(given) = self.max_body_memory {
            return (self, given);
        }
        let half = usable_bytes.map(|bytes| usize::try_from(bytes / 2).unwrap_or(usize::MAX));
        let budget = half.unwrap_or(TIMES_IN_MEMORY.saturating_mul(self.max_payload_size));
        self.max_payload_size = self.max_payload_size.min(budget / TIMES_IN_MEMORY).max(1);
        (self, budget)
    }
}

/// Threads, CPUs and I/O driver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuntimeConfig {
    /// Number of shards, at least 1; `None` is one per data CPU.
    pub shards: Option<usize>,
    /// CPUs the shards are pinned to, ascending, without repeats, not empty.
    pub data_cpus: Option<Vec<usize>>,
    /// CPUs of the control threads, ascending, without repeats, not empty.
    pub control_cpus: Option<Vec<usize>>,
    /// I/O driver of every ring.
    pub io_driver: IoDriver,
}

/// `--io-driver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoDriver {
    /// The best that works here.
    #[default]
    Auto,
    /// io_uring or no start.
    Uring,
    /// epoll.
    Epoll,
}

/// Drain of the process and of a removed worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownConfig {
    /// For requests in flight to finish after SIGTERM; 0 cuts them at once.
    pub grace_period_secs: u64,
    /// Listeners stay open, and a removed worker stays registered, this long after the decision.
    pub drain_settle_secs: u64,
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        Self { grace_period_secs: 180, drain_settle_secs: 5 }
    }
}

/// Exposition of metrics on a listener of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct PrometheusConfig {
    /// Address of the listener.
    pub host: IpAddr,
    /// Port of `host`, never 0.
    pub port: u16,
    /// Upper bounds of every duration histogram in seconds: positive, finite, strictly ascending.
    pub duration_buckets: Vec<f64>,
}

impl Default for PrometheusConfig {
    fn default() -> Self {
        Self {
            host: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port: 29_000,
            duration_buckets: vec![
                0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0,
                45.0, 60.0, 90.0, 120.0, 180.0, 240.0, 300.0, 480.0, 900.0, 1200.0, 1800.0, 2700.0,
                3600.0, 5400.0, 7200.0,
            ],
        }
    }
}

/// Log output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Least severe level of the gateway's own events. Dependencies log from warn.
    pub level: LogLevel,
    /// Directives of `RUST_LOG`, if set and not empty; they replace `level`.
    pub filter: Option<String>,
    /// One JSON object per line.
    pub json: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: LogLevel::Info, filter: None, json: false }
    }
}

/// `--log-level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_not_show_in_debug_output() {
        let config =
            Config { api_key: Some(Secret::new("sk-local".to_owned())), ..Config::default() };
        assert!(!format!("{config:?}").contains("sk-local"));
    }
}
