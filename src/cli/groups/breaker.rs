//! When a worker that keeps failing is left alone for a while.

use clap::Args;
use smg_io::config::BreakerConfig;

use crate::cli::error::ConfigError;
use crate::cli::values::{positive, positive_secs, whole};

/// When a worker that keeps failing is left alone for a while.
#[derive(Debug, Args)]
#[command(next_help_heading = "Circuit breaker")]
pub struct BreakerArgs {
    /// Failures in a row that open a worker's breaker
    #[arg(long, value_name = "FAILURES", value_parser = whole::<u32>,
          default_value_t = BreakerConfig::default().failure_threshold)]
    cb_failure_threshold: u32,
    /// Successes in a row that close it again
    #[arg(long, value_name = "SUCCESSES", value_parser = whole::<u32>,
          default_value_t = BreakerConfig::default().success_threshold)]
    cb_success_threshold: u32,
    /// Time it stays open before one request is let through to try
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = BreakerConfig::default().timeout_secs)]
    cb_timeout_duration_secs: u64,
    /// Failures older than this do not count
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = BreakerConfig::default().window_secs)]
    cb_window_duration_secs: u64,
    /// Keep sending to workers that fail
    #[arg(long)]
    disable_circuit_breaker: bool,
}

impl BreakerArgs {
    pub fn resolve(self) -> Result<BreakerConfig, ConfigError> {
        Ok(BreakerConfig {
            enabled: !self.disable_circuit_breaker,
            failure_threshold: positive("cb_failure_threshold", self.cb_failure_threshold)?,
            success_threshold: positive("cb_success_threshold", self.cb_success_threshold)?,
            timeout_secs: positive_secs("cb_timeout_duration_secs", self.cb_timeout_duration_secs)?,
            window_secs: positive_secs("cb_window_duration_secs", self.cb_window_duration_secs)?,
        })
    }
}
