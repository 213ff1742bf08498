//! What is logged and how.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use smg_io::config::{Config, LogConfig, LogLevel};

use crate::cli::error::ConfigError;
use crate::cli::values::{distinct_lower, is_header_name, require};

/// What is logged and how.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// Least severe level to log. The environment variable RUST_LOG beats it, for example
    /// RUST_LOG=info,smg::policies::cache_aware=debug
    #[arg(long, value_name = "LEVEL", value_parser = level_parser(), default_value = "info")]
    log_level: LogLevel,
    /// Log one JSON object per line
    #[arg(long)]
    log_json: bool,
    /// Request headers to read a request ID from, in order; without one an ID is made
    #[arg(long, value_name = "HEADER", num_args = 1..,
          default_values_t = Config::default().request_id_headers)]
    request_id_headers: Vec<String>,
}

impl LogArgs {
    pub fn resolve(&self) -> LogConfig {
        LogConfig { level: self.log_level, json: self.log_json, filter: None }
    }

    pub fn request_id_headers(&self) -> Result<Vec<String>, ConfigError> {
        for name in &self.request_id_headers {
            require(is_header_name(name), "request_id_headers", name, "Invalid header name")?;
        }
        Ok(distinct_lower(self.request_id_headers.clone()))
    }
}

fn level_parser() -> impl TypedValueParser<Value = LogLevel> {
    PossibleValuesParser::new(["error", "warn", "info", "debug", "trace"]).map(|name| {
        match name.as_str() {
            "error" => LogLevel::Error,
            "warn" => LogLevel::Warn,
            "debug" => LogLevel::Debug,
            "trace" => LogLevel::Trace,
            _ => LogLevel::Info,
        }
    })
}
