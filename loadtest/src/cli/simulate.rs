//! `smg-loadtest simulate`.

mod fleet;
mod gateway;
mod work;

use std::path::PathBuf;
use std::time::Instant;

use smg_core::fleet::MAX_WORKERS;
use smg_loadtest::clock::cpu_ns;
use smg_loadtest::simulate::{Options, Policy, Report, run};

pub use work::SpreadKind;

use super::{Failure, print_report};

/// Simulate routing in virtual time: the gateway's decisions over simulated engines, without sockets.
///
/// Every policy gets the same requests and is one row of the table. One seed gives one result, byte
/// for byte. Beside the gateway's policies there are oracles: oracle-infinite is one cache without
/// limits, the bound of the hit share; oracle-clairvoyant sends each request to the engine whose true
/// cache and queue give the soonest first token; oracle-longest-hit to the longest true hit that the
/// spill gate lets pass.
#[derive(clap::Args)]
pub struct Args {
    /// Policies and oracles, one row each
    #[arg(
        short,
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "cache_aware,round_robin,oracle-clairvoyant,oracle-infinite"
    )]
    policy: Vec<Policy>,

    #[command(flatten)]
    work: work::WorkArgs,

    #[command(flatten)]
    fleet: fleet::FleetArgs,

    #[command(flatten)]
    gateway: gateway::GatewayArgs,

    /// Longest good time to first token
    #[arg(long, value_name = "MS", default_value_t = 1_000.0)]
    slo_ms: f64,

    /// Seed of arrivals, ties and phases
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Write the rows as JSON to this file, - for stdout
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub fn main(args: Args) -> Result<(), Failure> {
    if !(0.0..=1e9).contains(&args.slo_ms) {
        return Err(Failure::Usage(format!("--slo-ms {} is not a time", args.slo_ms)));
    }
    let workload = args.work.workload(args.seed)?;
    let profile = args.fleet.profile(&workload)?;
    let engines = args.fleet.engines as usize;
    if engines > MAX_WORKERS {
        return Err(Failure::Usage(format!("--engines {engines}: at most {MAX_WORKERS}")));
    }
    let options = Options {
        engines,
        engine_failures: args.fleet.failures()?,
        gateway: args.gateway.options(&workload.requests)?,
        gateways: args.gateway.gateways as usize,
        shared_index: args.gateway.shared_state,
        gateway_restarts: args.gateway.restarts()?,
        slo: (args.slo_ms * 1e6) as u64,
        seed: args.seed,
        profile,
    };
    let mut report = Report {
        workload: workload.about.clone(),
        fleet: args.fleet.about(&options, &workload),
        gateways: args.gateway.about(),
        seed: args.seed,
        slo_ms: args.slo_ms,
        arms: Vec::new(),
    };
    for policy in args.policy {
        let (start, cpu_start) = (Instant::now(), cpu_ns());
        let (arm, decisions) = run(&options, policy, workload.requests.clone());
        let seconds = start.elapsed().as_secs_f64();
        if decisions > 0 {
            let cpu_seconds = (cpu_ns() - cpu_start) as f64 / 1e9;
            let rate = |seconds: f64| decisions as f64 / seconds;
            eprintln!(
                "{policy}: {decisions} decisions in {seconds:.2} s, {:.0} per second, {:.0} per \
                 second of CPU time",
                rate(seconds),
                rate(cpu_seconds)
            );
        }
        report.arms.push(arm);
    }
    print_report(&report, args.json.as_deref())?;
    Ok(())
}

/// Reads `SECONDS` or `SECONDS:NUMBER` (0 without it): when, in nanoseconds, and which.
fn moment(flag: &str, text: &str) -> Result<(u64, usize), Failure> {
    let (seconds, number) = text.split_once(':').unwrap_or((text, "0"));
    let parsed = seconds.parse::<f64>().ok().filter(|s| (0.0..=1e9).contains(s));
    match (parsed, number.parse()) {
        (Some(seconds), Ok(number)) => Ok(((seconds * 1e9) as u64, number)),
        _ => Err(Failure::Usage(format!("{flag} '{text}' is not SECONDS or SECONDS:NUMBER"))),
    }
}
