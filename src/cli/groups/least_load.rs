//! Expected-wait constants of `least_load`.

use clap::Args;
use smg_io::config::LeastLoadConfig;

use crate::cli::error::ConfigError;
use crate::cli::values::{number, positive, require, whole};

/// Expected-wait constants of `least_load`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Policy least_load")]
pub struct LeastLoadArgs {
    /// Seconds of wait a KV cache that is half full counts for
    #[arg(long, value_name = "SECS", value_parser = number::<f64>,
          default_value_t = LeastLoadConfig::default().kv_pressure_weight)]
    least_load_kv_pressure_weight: f64,
    /// Speed of a worker that reports none, in tokens per second
    #[arg(long, value_name = "TOKENS/S", value_parser = number::<f64>,
          default_value_t = LeastLoadConfig::default().default_throughput)]
    least_load_default_throughput: f64,
    /// Length of a request whose tokens are not known
    #[arg(long, value_name = "TOKENS", value_parser = whole::<u32>,
          default_value_t = LeastLoadConfig::default().mean_prefill_tokens)]
    least_load_mean_prefill_tokens: u32,
    /// Pass over workers with more waiting requests than this; 0 is off
    #[arg(long, value_name = "REQUESTS", value_parser = whole::<u32>,
          default_value_t = LeastLoadConfig::default().max_waiting_requests)]
    least_load_max_waiting_requests: u32,
}

impl LeastLoadArgs {
    pub fn resolve(self) -> Result<LeastLoadConfig, ConfigError> {
        let weight = self.least_load_kv_pressure_weight;
        require(
            weight.is_finite() && weight >= 0.0,
            "least_load_kv_pressure_weight",
            weight,
            "Must be finite and >= 0.0",
        )?;
        let throughput = self.least_load_default_throughput;
        require(
            throughput.is_finite() && throughput > 0.0,
            "least_load_default_throughput",
            throughput,
            "Must be finite and > 0.0",
        )?;
        Ok(LeastLoadConfig {
            kv_pressure_weight: weight,
            default_throughput: throughput,
            mean_prefill_tokens: positive(
                "least_load_mean_prefill_tokens",
                self.least_load_mean_prefill_tokens,
            )?,
            max_waiting_requests: self.least_load_max_waiting_requests,
        })
    }
}
