//! Bounds of one connection or request.

use clap::Args;
use smg_io::config::LimitsConfig;

use crate::cli::error::ConfigError;
use crate::cli::values::{positive, positive_secs, secs_within, whole};

/// Bounds of one connection or request.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sizes and timeouts")]
pub struct LimitArgs {
    /// Largest request body; larger ones are answered 413, as are those beyond the default of
    /// --max-body-memory
    #[arg(long, value_name = "BYTES", value_parser = whole::<usize>,
          default_value_t = LimitsConfig::default().max_payload_size)]
    max_payload_size: usize,
    /// Memory for request bodies over all connections, at least --max-payload-size; a request that
    /// finds no more room is answered 503, unless it is alone. Bodies up to 64 KiB are not counted
    /// [default: half of the memory the process may use]
    #[arg(long, value_name = "BYTES", value_parser = whole::<usize>)]
    max_body_memory: Option<usize>,
    /// Client connections open at a time over the whole gateway
    #[arg(long, value_name = "CONNECTIONS", value_parser = whole::<usize>,
          default_value_t = LimitsConfig::default().max_connections)]
    max_connections: usize,
    /// Longest wait for a worker to begin its response, then 504
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = LimitsConfig::default().request_timeout_secs)]
    request_timeout_secs: u64,
    /// Longest wait for a connection to a worker, then another worker is tried
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = LimitsConfig::default().connect_timeout_secs)]
    connect_timeout_secs: u64,
    /// Longest time a client may take to send a request head, then 408
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = LimitsConfig::default().header_read_timeout_secs)]
    header_read_timeout_secs: u64,
    /// Longest pause of a client within a request body, then 408; a body over 64 KiB must grow by a
    /// sixteenth in this time
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = LimitsConfig::default().stream_body_stall_timeout_secs)]
    stream_body_stall_timeout_secs: u64,
    /// Longest pause of a worker within a response body, then the worker counts as dead; 0 is off
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>, default_value_t = 0)]
    stream_idle_timeout_secs: u64,
    /// Close idle connections to workers after this time, which must be less than the engines'
    /// keep-alive; 0 never
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = LimitsConfig::default().upstream_pool_idle_timeout_secs)]
    upstream_pool_idle_timeout_secs: u64,
}

impl LimitArgs {
    pub fn resolve(self) -> Result<LimitsConfig, ConfigError> {
        let idle = secs_within("stream_idle_timeout_secs", self.stream_idle_timeout_secs)?;
        let max_payload_size = positive("max_payload_size", self.max_payload_size)?;
        if let Some(bytes) = self.max_body_memory
            && bytes < max_payload_size
        {
            return Err(ConfigError::Incompatible(format!(
                "--max-body-memory {bytes} is less than --max-payload-size {max_payload_size}, so that \
                 the largest body would never find room; raise the one or lower the other"
            )));
        }
        Ok(LimitsConfig {
            max_payload_size,
            max_body_memory: self.max_body_memory,
            max_connections: positive("max_connections", self.max_connections)?,
            request_timeout_secs: positive_secs("request_timeout_secs", self.request_timeout_secs)?,
            connect_timeout_secs: positive_secs("connect_timeout_secs", self.connect_timeout_secs)?,
            header_read_timeout_secs: positive_secs(
                "header_read_timeout_secs",
                self.header_read_timeout_secs,
            )?,
            stream_body_stall_timeout_secs: positive_secs(
                "stream_body_stall_timeout_secs",
                self.stream_body_stall_timeout_secs,
            )?,
            stream_idle_timeout_secs: Some(idle).filter(|&secs| secs > 0),
            upstream_pool_idle_timeout_secs: secs_within(
                "upstream_pool_idle_timeout_secs",
                self.upstream_pool_idle_timeout_secs,
            )?,
        })
    }
}
