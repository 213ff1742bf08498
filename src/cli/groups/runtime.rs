//! Threads, CPUs and I/O driver.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use smg_io::config::{IoDriver, RuntimeConfig};

use crate::cli::error::ConfigError;
use crate::cli::values::{CpuList, MAX_CPU, positive, require, whole};

/// Threads, CPUs and I/O driver.
#[derive(Debug, Args)]
#[command(next_help_heading = "Threads and CPUs")]
pub struct RuntimeArgs {
    /// Threads that serve requests [default: one per CPU for them]
    #[arg(long, value_name = "THREADS", value_parser = whole::<usize>)]
    shards: Option<usize>,
    /// CPUs that serve requests, such as 0-5,8 [default: all allowed ones but the control CPU]
    #[arg(long, value_name = "CPUS")]
    data_cpus: Option<CpuList>,
    /// CPUs for load reports, health checks and eviction [default: one, when four or more are
    /// allowed]
    #[arg(long, value_name = "CPUS")]
    control_cpus: Option<CpuList>,
    /// How sockets are driven
    #[arg(long, value_name = "DRIVER", value_parser = driver_parser(), default_value = "auto")]
    io_driver: IoDriver,
}

impl RuntimeArgs {
    pub fn resolve(self) -> Result<RuntimeConfig, ConfigError> {
        if let Some(shards) = self.shards {
            positive("shards", shards)?;
            require(shards <= MAX_CPU + 1, "shards", shards, "Must be at most 8192")?;
        }
        Ok(RuntimeConfig {
            shards: self.shards,
            data_cpus: self.data_cpus.map(|list| list.0),
            control_cpus: self.control_cpus.map(|list| list.0),
            io_driver: self.io_driver,
        })
    }
}

fn driver_parser() -> impl TypedValueParser<Value = IoDriver> {
    PossibleValuesParser::new([
        PossibleValue::new("auto").help("the best that works here"),
        PossibleValue::new("uring").help("io_uring, or refuse to start"),
        PossibleValue::new("epoll").help("epoll"),
    ])
    .map(|name| match name.as_str() {
        "uring" => IoDriver::Uring,
        "epoll" => IoDriver::Epoll,
        _ => IoDriver::Auto,
    })
}
