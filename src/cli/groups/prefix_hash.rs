//! What `prefix_hash` hashes and when it walks on.

use clap::Args;
use smg_io::config::PrefixHashConfig;

use crate::cli::error::ConfigError;
use crate::cli::values::{number, positive, require, whole};

/// What `prefix_hash` hashes and when it walks on.
#[derive(Debug, Args)]
#[command(next_help_heading = "Policy prefix_hash")]
pub struct PrefixHashArgs {
    /// Leading tokens to hash (for text, four characters each)
    #[arg(long, value_name = "TOKENS", value_parser = whole::<usize>,
          default_value_t = PrefixHashConfig::default().token_count)]
    prefix_token_count: usize,
    /// Walk past a worker with more than this multiple of the mean in flight; at least 1
    #[arg(long, value_name = "FACTOR", value_parser = number::<f64>,
          default_value_t = PrefixHashConfig::default().load_factor)]
    prefix_hash_load_factor: f64,
    /// ... unless it is within this many requests of the mean
    #[arg(long, value_name = "REQUESTS", value_parser = whole::<usize>,
          default_value_t = PrefixHashConfig::default().balance_abs)]
    prefix_hash_balance_abs_threshold: usize,
}

impl PrefixHashArgs {
    pub fn resolve(self) -> Result<PrefixHashConfig, ConfigError> {
        let factor = self.prefix_hash_load_factor;
        require(
            factor.is_finite() && factor >= 1.0,
            "prefix_hash_load_factor",
            factor,
            "Must be finite and >= 1.0",
        )?;
        Ok(PrefixHashConfig {
            token_count: positive("prefix_token_count", self.prefix_token_count)?,
            load_factor: factor,
            balance_abs: self.prefix_hash_balance_abs_threshold,
        })
    }
}
