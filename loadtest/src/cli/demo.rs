//! `smg-loadtest demo`.

use std::path::PathBuf;

use smg_loadtest::demo::{DemoOptions, GatewayHandle, demo};
use smg_loadtest::process::{CommandTemplate, Running, free_port};

use super::{Failure, seconds};

/// Show what policies do: the same chats through a gateway under one policy after the other.
///
/// Starts simulated engines with prefix caches, runs a multi-turn chat workload through the
/// gateway under each policy, and prints cache hits, time to first token and balance side by side.
/// Works with any gateway that can be started from a command line.
#[derive(clap::Args)]
pub struct Args {
    /// Command that starts the gateway. {port}, {metrics_port}, {policy} and {workers} (the
    /// engines' URLs) are filled in; it must answer 200 on /readiness when it is ready
    #[arg(long, value_name = "COMMAND", default_value = DEFAULT_GATEWAY)]
    gateway: String,

    /// Policies in the order to show them
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "round_robin,cache_aware"
    )]
    policies: Vec<String>,

    /// Number of engines
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    engines: u16,

    /// KV cache of each engine in blocks of 16 tokens [default: 1600]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cache_blocks: Option<u32>,

    /// New conversations per second [default: 10]
    #[arg(long, value_name = "PER_SECOND")]
    arrivals: Option<f64>,

    /// System prompts of 2000 tokens that conversations share [default: 24]
    #[arg(long, value_name = "N")]
    system_prompts: Option<usize>,

    /// Seconds to measure per policy, after 5 that are not [default: 11]
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<std::time::Duration>,

    /// Write the result as JSON to this file as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const DEFAULT_GATEWAY: &str = "smg launch --host 127.0.0.1 --port {port} --prometheus-host \
    127.0.0.1 --prometheus-port {metrics_port} --policy {policy} --log-level warn --worker-urls \
    {workers}";

pub fn main(args: Args) -> Result<(), Failure> {
    let command = CommandTemplate::parse(&args.gateway).map_err(Failure::usage)?;
    let mut options = DemoOptions {
        engines: usize::from(args.engines),
        policies: args.policies,
        ..DemoOptions::default()
    };
    if let Some(blocks) = args.cache_blocks {
        options.profile.cache_blocks = blocks;
    }
    match args.arrivals {
        None => {}
        Some(rate) if rate > 0.0 && rate <= 1e5 => options.conversations.arrivals_per_s = rate,
        Some(rate) => return Err(Failure::Usage(format!("{rate} is no rate of arrivals"))),
    }
    let conversations = &mut options.conversations;
    conversations.system_prompts = args.system_prompts.unwrap_or(conversations.system_prompts);
    conversations.duration = args.duration.unwrap_or(conversations.duration);
    let log = std::env::temp_dir().join(format!("smg-loadtest-demo-{}.log", std::process::id()));
    let start = |policy: &str, engines: &[String]| -> Result<GatewayHandle, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let (port, metrics) =
            (free_port().map_err(|e| text(&e))?, free_port().map_err(|e| text(&e))?);
        let words = command
            .fill(&[
                ("port", &[port.to_string()]),
                ("metrics_port", &[metrics.to_string()]),
                ("policy", &[policy.to_owned()]),
                ("workers", engines),
            ])
            .map_err(|error| text(&error))?;
        let process = Running::start(&words, &[], &log)
            .map_err(|error| format!("{}: {error}", command.program()))?;
        Ok(GatewayHandle::new(format!("http://127.0.0.1:{port}"), process))
    };
    let report = demo(&options, start)
        .map_err(|error| Failure::Run(format!("{error} (its output: {})", log.display())))?;
    let _ = std::fs::remove_file(&log);
    if let Some(path) = args.json {
        let json = serde_json::to_string_pretty(&report).map_err(Failure::run)?;
        std::fs::write(&path, json + "\n")
            .map_err(|error| Failure::Run(format!("cannot write {}: {error}", path.display())))?;
    }
    Ok(())
}
