//! How the gateway and its workers leave.

use clap::Args;
use smg_io::config::ShutdownConfig;

use crate::cli::error::ConfigError;
use crate::cli::values::{secs_within, whole};

/// How the gateway and its workers leave.
#[derive(Debug, Args)]
#[command(next_help_heading = "Shutdown and draining")]
pub struct ShutdownArgs {
    /// Time for requests to finish after SIGTERM or SIGINT
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = ShutdownConfig::default().grace_period_secs)]
    shutdown_grace_period_secs: u64,
    /// Time a stopping gateway keeps accepting, and a removed worker stays listed without new
    /// requests
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = ShutdownConfig::default().drain_settle_secs)]
    drain_settle_secs: u64,
}

impl ShutdownArgs {
    pub fn resolve(self) -> Result<ShutdownConfig, ConfigError> {
        Ok(ShutdownConfig {
            grace_period_secs: secs_within(
                "shutdown_grace_period_secs",
                self.shutdown_grace_period_secs,
            )?,
            drain_settle_secs: secs_within("drain_settle_secs", self.drain_settle_secs)?,
        })
    }
}
