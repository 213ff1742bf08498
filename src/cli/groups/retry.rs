//! Further attempts at another worker before the first response byte.

use clap::Args;
use smg_io::config::RetryConfig;

use crate::cli::error::ConfigError;
use crate::cli::values::{MAX_SECS, number, positive, require, whole};

/// Further attempts at another worker before the first response byte.
#[derive(Debug, Args)]
#[command(next_help_heading = "Retries")]
pub struct RetryArgs {
    /// Attempts per request in total, the first included
    #[arg(long, value_name = "ATTEMPTS", value_parser = whole::<u32>,
          default_value_t = RetryConfig::default().max_attempts)]
    retry_max_retries: u32,
    /// Pause before the second attempt
    #[arg(long, value_name = "MS", value_parser = whole::<u64>,
          default_value_t = RetryConfig::default().initial_backoff_ms)]
    retry_initial_backoff_ms: u64,
    /// Longest pause, also when a worker asks for one with Retry-After
    #[arg(long, value_name = "MS", value_parser = whole::<u64>,
          default_value_t = RetryConfig::default().max_backoff_ms)]
    retry_max_backoff_ms: u64,
    /// Growth of the pause from attempt to attempt; at least 1
    #[arg(long, value_name = "FACTOR", value_parser = number::<f64>,
          default_value_t = RetryConfig::default().backoff_multiplier)]
    retry_backoff_multiplier: f64,
    /// Spread of each pause around its length, 0 to 1
    #[arg(long, value_name = "FRACTION", value_parser = number::<f64>,
          default_value_t = RetryConfig::default().jitter_factor)]
    retry_jitter_factor: f64,
    /// Make one attempt per request
    #[arg(long)]
    disable_retries: bool,
}

impl RetryArgs {
    pub fn resolve(self) -> Result<RetryConfig, ConfigError> {
        let initial = positive("retry_initial_backoff_ms", self.retry_initial_backoff_ms)?;
        let max = self.retry_max_backoff_ms;
        require(
            max >= initial,
            "retry_max_backoff_ms",
            max,
            "Must be >= retry_initial_backoff_ms",
        )?;
        require(
            max <= MAX_SECS * 1000,
            "retry_max_backoff_ms",
            max,
            "Must be at most 315360000000 (ten years)",
        )?;
        let multiplier = self.retry_backoff_multiplier;
        require(
            multiplier.is_finite() && multiplier >= 1.0,
            "retry_backoff_multiplier",
            multiplier,
            "Must be finite and >= 1.0",
        )?;
        let jitter = self.retry_jitter_factor;
        require(
            (0.0..=1.0).contains(&jitter),
            "retry_jitter_factor",
            jitter,
            "Must be between 0.0 and 1.0",
        )?;
        Ok(RetryConfig {
            enabled: !self.disable_retries,
            max_attempts: positive("retry_max_retries", self.retry_max_retries)?,
            initial_backoff_ms: initial,
            max_backoff_ms: max,
            backoff_multiplier: multiplier,
            jitter_factor: jitter,
        })
    }
}
