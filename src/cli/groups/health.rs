//! Probes that take a worker out and back.

use clap::Args;
use smg_io::config::HealthConfig;

use crate::cli::error::ConfigError;
use crate::cli::values::{positive, positive_secs, require, whole};

/// Probes that take a worker out and back.
#[derive(Debug, Args)]
#[command(next_help_heading = "Health checks")]
pub struct HealthArgs {
    /// Time between two probes of a worker
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = HealthConfig::default().interval_secs)]
    health_check_interval_secs: u64,
    /// A probe without an answer after this time has failed
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = HealthConfig::default().timeout_secs)]
    health_check_timeout_secs: u64,
    /// Failures in a row that take a worker out
    #[arg(long, value_name = "PROBES", value_parser = whole::<u32>,
          default_value_t = HealthConfig::default().failure_threshold)]
    health_failure_threshold: u32,
    /// Successes in a row that bring it back
    #[arg(long, value_name = "PROBES", value_parser = whole::<u32>,
          default_value_t = HealthConfig::default().success_threshold)]
    health_success_threshold: u32,
    /// Path to probe; only status 200 is healthy
    #[arg(long, value_name = "PATH", default_value_t = HealthConfig::default().endpoint)]
    health_check_endpoint: String,
    /// Send no probes: a registered worker counts as healthy
    #[arg(long)]
    disable_health_check: bool,
}

impl HealthArgs {
    pub fn resolve(self) -> Result<HealthConfig, ConfigError> {
        let endpoint = self.health_check_endpoint;
        require(
            endpoint.starts_with('/') && endpoint.bytes().all(|byte| byte.is_ascii_graphic()),
            "health_check_endpoint",
            &endpoint,
            "Must be a path that begins with /",
        )?;
        Ok(HealthConfig {
            enabled: !self.disable_health_check,
            interval_secs: positive_secs(
                "health_check_interval_secs",
                self.health_check_interval_secs,
            )?,
            timeout_secs: positive_secs(
                "health_check_timeout_secs",
                self.health_check_timeout_secs,
            )?,
            failure_threshold: positive("health_failure_threshold", self.health_failure_threshold)?,
            success_threshold: positive("health_success_threshold", self.health_success_threshold)?,
            endpoint,
        })
    }
}
