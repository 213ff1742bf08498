//! Load reports of the engines, and leaving overloaded workers out.

use clap::Args;
use smg_io::config::{LoadMonitorConfig, OverloadConfig};

use crate::cli::error::ConfigError;
use crate::cli::values::{number, positive_secs, require, whole};

/// KV usage from which a worker counts as overloaded when protection is on without thresholds.
const DEFAULT_OVERLOAD_TOKEN_USAGE: f64 = 0.9;

/// Load reports of the engines, and leaving overloaded workers out.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load reports and overload protection")]
pub struct LoadArgs {
    /// Time between two load reports of a worker, in seconds
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = LoadMonitorConfig::default().interval_secs)]
    load_monitor_interval: u64,
    /// Ask workers for load reports only if the policy, --engine-metrics or overload protection
    /// needs them
    #[arg(long)]
    disable_load_monitoring: bool,
    /// Always ask for load reports, to show them as smg_engine_* metrics
    #[arg(long)]
    engine_metrics: bool,
    /// Send nothing to workers over a threshold; without thresholds, over 0.9 of their KV cache
    #[arg(long)]
    worker_overload_protection: bool,
    /// A worker with this many waiting requests is overloaded. Turns protection on [default: none]
    #[arg(long, value_name = "REQUESTS", value_parser = whole::<u32>)]
    worker_overload_waiting_requests: Option<u32>,
    /// A worker with this share of its KV cache in use is overloaded. Turns protection on
    /// [default: none]
    #[arg(long, value_name = "FRACTION", value_parser = number::<f64>)]
    worker_overload_token_usage: Option<f64>,
}

/// What [`LoadArgs`] come to.
pub struct Load {
    pub monitor: LoadMonitorConfig,
    pub overload: OverloadConfig,
}

impl LoadArgs {
    pub fn resolve(self) -> Result<Load, ConfigError> {
        Ok(Load {
            overload: self.overload()?,
            monitor: LoadMonitorConfig {
                interval_secs: positive_secs(
                    "load_monitor_interval_secs",
                    self.load_monitor_interval,
                )?,
                only_if_needed: self.disable_load_monitoring,
                engine_metrics: self.engine_metrics,
            },
        })
    }

    fn overload(&self) -> Result<OverloadConfig, ConfigError> {
        if let Some(waiting) = self.worker_overload_waiting_requests {
            require(
                waiting >= 1,
                "worker_overload_waiting_requests",
                waiting,
                "Must be >= 1 (0 would mark every worker overloaded)",
            )?;
        }
        if let Some(usage) = self.worker_overload_token_usage {
            require(
                usage > 0.0 && usage <= 1.0,
                "worker_overload_token_usage",
                usage,
                "Must be a fraction in (0.0, 1.0]",
            )?;
        }
        let given = OverloadConfig {
            waiting_requests: self.worker_overload_waiting_requests,
            token_usage: self.worker_overload_token_usage,
        };
        let bare = self.worker_overload_protection && given == OverloadConfig::default();
        let token_usage = if bare { Some(DEFAULT_OVERLOAD_TOKEN_USAGE) } else { given.token_usage };
        Ok(OverloadConfig { token_usage, ..given })
    }
}
