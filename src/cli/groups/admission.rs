//! How many inference requests run at a time and begin per second, and what happens to the others.

use clap::Args;
use smg_io::config::AdmissionConfig;

use crate::cli::error::ConfigError;
use crate::cli::values::{positive_secs, require, whole};

/// How many inference requests run at a time, and what happens to the others.
#[derive(Debug, Args)]
#[command(next_help_heading = "Admission")]
pub struct AdmissionArgs {
    /// Inference requests at a time over the whole gateway; -1, and 0 as well, is no limit
    #[arg(long, value_name = "REQUESTS", value_parser = whole::<i64>, default_value_t = -1)]
    max_concurrent_requests: i64,
    /// Inference requests let in per second over the whole gateway; 0 is no limit. A token is one
    /// request, whatever its size: it is taken when the request is let in, is not given back when
    /// the request ends, and retries take none. Unused ones are kept for a burst of up to
    /// --max-concurrent-requests, or of a second's worth without that limit
    #[arg(long, value_name = "REQUESTS", value_parser = whole::<u32>, default_value_t = 0)]
    rate_limit_tokens_per_second: u32,
    /// Requests that may wait for their turn; further ones are answered 429
    #[arg(long, value_name = "REQUESTS", value_parser = whole::<usize>,
          default_value_t = AdmissionConfig::default().queue_size)]
    queue_size: usize,
    /// Longest wait, then 503
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = AdmissionConfig::default().queue_timeout_secs)]
    queue_timeout_secs: u64,
}

impl AdmissionArgs {
    pub fn resolve(self) -> Result<AdmissionConfig, ConfigError> {
        let limit = self.max_concurrent_requests;
        let reason = "Must be > 0 (0 and -1 are no limit)";
        require(limit >= -1, "max_concurrent_requests", limit, reason)?;
        Ok(AdmissionConfig {
            // 0 is SMG's other spelling of no limit.
            max_concurrent_requests: usize::try_from(limit).ok().filter(|&limit| limit > 0),
            requests_per_sec: Some(self.rate_limit_tokens_per_second).filter(|&rate| rate > 0),
            queue_size: self.queue_size,
            queue_timeout_secs: positive_secs("queue_timeout_secs", self.queue_timeout_secs)?,
        })
    }
}
