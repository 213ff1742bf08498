//! The flags of the gateway, one group per subject. A group owns its flags, their help and their
//! checks, and turns into one part of [`Config`].

use clap::Args;
use smg_io::config::{Config, LogConfig, PolicyKind};

use super::error::ConfigError;

mod admission;
mod auth;
mod breaker;
mod cache;
mod cors;
mod demo;
mod health;
mod least_load;
mod limits;
mod listen;
mod load;
mod log;
mod policy;
mod prefix_hash;
mod prometheus;
mod retry;
mod runtime;
mod shutdown;
mod sticky;
mod tls;
mod workers;

pub use demo::DemoArgs;
use policy::policy_parser;

/// Every flag of `smg launch`.
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// Read settings from a TOML file: flag names with underscores, for example
    /// `cache_threshold = 0.5`, `worker_urls = ["http://10.0.0.7:8000"]`, `log_json = true`.
    /// A flag beats the file; a switch is turned off again with --flag=false
    #[arg(long, value_name = "FILE", help_heading = "Configuration file")]
    pub config: Option<String>,
    #[command(flatten)]
    listen: listen::ListenArgs,
    #[command(flatten)]
    tls: tls::TlsArgs,
    #[command(flatten)]
    workers: workers::WorkerArgs,
    #[command(flatten)]
    policy: policy::PolicyArgs,
    #[command(flatten)]
    cache: cache::CacheArgs,
    #[command(flatten)]
    least_load: least_load::LeastLoadArgs,
    #[command(flatten)]
    prefix_hash: prefix_hash::PrefixHashArgs,
    #[command(flatten)]
    sticky: sticky::StickyArgs,
    #[command(flatten)]
    load: load::LoadArgs,
    #[command(flatten)]
    health: health::HealthArgs,
    #[command(flatten)]
    retry: retry::RetryArgs,
    #[command(flatten)]
    breaker: breaker::BreakerArgs,
    #[command(flatten)]
    admission: admission::AdmissionArgs,
    #[command(flatten)]
    limits: limits::LimitArgs,
    #[command(flatten)]
    auth: auth::AuthArgs,
    #[command(flatten)]
    cors: cors::CorsArgs,
    #[command(flatten)]
    runtime: runtime::RuntimeArgs,
    #[command(flatten)]
    shutdown: shutdown::ShutdownArgs,
    #[command(flatten)]
    prometheus: prometheus::PrometheusArgs,
    #[command(flatten)]
    log: log::LogArgs,
}

impl LaunchArgs {
    /// Checks every group and what holds between them. `rust_log` is the value of `RUST_LOG`.
    pub fn resolve(self, rust_log: Option<String>) -> Result<Config, ConfigError> {
        let auth = self.auth.resolve()?;
        let load = self.load.resolve()?;
        let workers = self.workers.resolve()?;
        let tls = self.tls.resolve()?;
        let config = Config {
            host: self.listen.host,
            port: self.listen.port,
            tls: tls.clients,
            worker_tls: tls.workers,
            health_check_port: self.listen.health_check_port,
            worker_urls: workers.urls,
            model_aliases: workers.aliases,
            policy: self.policy.policy,
            enable_igw: workers.enable_igw,
            enable_explain: self.policy.enable_explain,
            hide_worker_id: self.policy.hide_worker_id,
            request_id_headers: self.log.request_id_headers()?,
            api_key: auth.api_key,
            api_key_file: auth.api_key_file,
            admin_api_key: auth.admin_api_key,
            cors_allowed_origins: self.cors.resolve()?,
            cache: self.cache.resolve()?,
            least_load: self.least_load.resolve()?,
            prefix_hash: self.prefix_hash.resolve()?,
            sticky: self.sticky.resolve()?,
            load_monitor: load.monitor,
            overload: load.overload,
            startup: workers.startup,
            health: self.health.resolve()?,
            retry: self.retry.resolve()?,
            breaker: self.breaker.resolve()?,
            admission: self.admission.resolve()?,
            limits: self.limits.resolve()?,
            runtime: self.runtime.resolve()?,
            shutdown: self.shutdown.resolve()?,
            prometheus: self.prometheus.resolve()?,
            log: LogConfig { filter: rust_log, ..self.log.resolve() },
        };
        check_together(&config)?;
        Ok(config)
    }
}

fn check_together(config: &Config) -> Result<(), ConfigError> {
    if config.policy == PolicyKind::PowerOfTwo && config.worker_urls.len() < 2 && !config.enable_igw
    {
        return Err(ConfigError::Incompatible(
            "Power-of-two policy requires at least 2 workers".to_owned(),
        ));
    }
    // Listeners share ports on purpose (one per shard), so the kernel would not notice.
    if config.health_check_port == Some(config.port) {
        return Err(ConfigError::invalid(
            "health_check_port",
            config.port,
            "Must differ from port",
        ));
    }
    let metrics = &config.prometheus;
    let overlaps = metrics.host == config.host
        || metrics.host.is_unspecified()
        || config.host.is_unspecified();
    if overlaps && (metrics.port == config.port || Some(metrics.port) == config.health_check_port) {
        return Err(ConfigError::invalid(
            "prometheus_port",
            metrics.port,
            "Must differ from port and health_check_port",
        ));
    }
    Ok(())
}
