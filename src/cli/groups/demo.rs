//! Flags of `smg demo`.

use clap::Args;
use smg_io::config::PolicyKind;

use super::policy_parser;
use crate::cli::error::ConfigError;
use crate::cli::values::{require, whole};

/// Flags of `smg demo`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct DemoArgs {
    /// Simulated engines, each with a prefix cache of its own
    #[arg(long, value_name = "ENGINES", value_parser = whole::<usize>, default_value_t = 4)]
    pub engines: usize,
    /// Length of the workload under each policy
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>, default_value_t = 20)]
    pub seconds: u64,
    /// Policies to compare, in order
    #[arg(long = "policy", value_name = "POLICY", num_args = 1.., value_delimiter = ',',
          value_parser = policy_parser(), default_values = ["round_robin", "cache_aware"])]
    pub policies: Vec<PolicyKind>,
}

impl DemoArgs {
    /// Checks the ranges.
    pub fn resolve(self) -> Result<Self, ConfigError> {
        require(
            (1..=64).contains(&self.engines),
            "engines",
            self.engines,
            "Must be between 1 and 64",
        )?;
        require(
            (1..=3600).contains(&self.seconds),
            "seconds",
            self.seconds,
            "Must be between 1 and 3600",
        )?;
        Ok(self)
    }
}
