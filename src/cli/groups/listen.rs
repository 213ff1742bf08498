//! Where the gateway listens.

use std::net::IpAddr;

use clap::Args;
use smg_io::config::Config;

use crate::cli::values::{ip, port};

/// Where the gateway listens.
#[derive(Debug, Args)]
#[command(next_help_heading = "Listening")]
pub struct ListenArgs {
    /// Address to listen on, an IP literal
    #[arg(long, value_name = "IP", value_parser = ip, default_value_t = Config::default().host)]
    pub host: IpAddr,
    /// Port of the inference and admin routes
    #[arg(long, value_name = "PORT", value_parser = port, default_value_t = Config::default().port)]
    pub port: u16,
    /// Port of an extra listener for the probe routes alone (/health, /liveness, /readiness)
    /// [default: none]
    #[arg(long, value_name = "PORT", value_parser = port)]
    pub health_check_port: Option<u16>,
}
