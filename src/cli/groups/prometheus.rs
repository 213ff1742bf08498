//! Where metrics are scraped.

use std::net::IpAddr;

use clap::Args;
use smg_io::config::PrometheusConfig;

use crate::cli::error::ConfigError;
use crate::cli::values::{ip, number, port, require};

/// Where metrics are scraped.
#[derive(Debug, Args)]
#[command(next_help_heading = "Metrics")]
pub struct PrometheusArgs {
    /// Address of the metrics listener, an IP literal
    #[arg(long, value_name = "IP", value_parser = ip,
          default_value_t = PrometheusConfig::default().host)]
    prometheus_host: IpAddr,
    /// Port of the metrics listener, path /metrics
    #[arg(long, value_name = "PORT", value_parser = port,
          default_value_t = PrometheusConfig::default().port)]
    prometheus_port: u16,
    /// Upper bounds of the duration histograms, in seconds, ascending [default: 29 from 1 ms to 2 h]
    #[arg(long, value_name = "SECS", num_args = 1.., value_delimiter = ',',
          value_parser = number::<f64>)]
    prometheus_duration_buckets: Vec<f64>,
}

impl PrometheusArgs {
    pub fn resolve(self) -> Result<PrometheusConfig, ConfigError> {
        let buckets = if self.prometheus_duration_buckets.is_empty() {
            PrometheusConfig::default().duration_buckets
        } else {
            self.prometheus_duration_buckets
        };
        require(
            buckets.iter().all(|bound| bound.is_finite() && *bound > 0.0)
                && buckets.is_sorted_by(|a, b| a < b),
            "prometheus_duration_buckets",
            format_args!("{buckets:?}"),
            "Buckets must be finite, > 0 and strictly ascending",
        )?;
        require(
            buckets.len() <= MAX_BUCKETS,
            "prometheus_duration_buckets",
            buckets.len(),
            "Must be at most 100 buckets",
        )?;
        Ok(PrometheusConfig {
            host: self.prometheus_host,
            port: self.prometheus_port,
            duration_buckets: buckets,
        })
    }
}

/// Most buckets of one histogram: each costs a series per label set.
const MAX_BUCKETS: usize = 100;
