//! `smg-loadtest compare`.

mod peers;
mod routing;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use smg_loadtest::compare::{CompareOptions, CompareReport, Scenario, compare, html};
use smg_loadtest::runtime::allowed_cpus;

use super::{CpuList, Failure, seconds, signal, usable_cpu_list};

/// Measure gateways side by side: what they cost, and what their routing is worth.
///
/// Each gateway in turn, pinned to one core, gets the same load from a client and engines on another
/// core: closed loops in front of instant engines for what a request costs, then chats in front of
/// engines with small prefix caches for what the choice of engine is worth. Order rotates from round
/// to round; CPU time is read from the kernel's accounting of the gateway's processes. Gateways that
/// are not installed are named and left out. scripts/compare builds and installs what it can first.
#[derive(clap::Args)]
#[command(args_override_self = true)]
pub struct Args {
    #[command(flatten)]
    peers: peers::PeerArgs,

    /// Loads to compare under
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "short,20k,100k,sse,routing"
    )]
    scenarios: Vec<Load>,

    /// Rounds; each has every arm once
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,

    /// Seconds measured per run of a cost load
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    seconds: Duration,

    #[command(flatten)]
    routing: routing::RoutingArgs,

    /// CPUs of the gateway [default: the first allowed one]
    #[arg(long, value_name = "LIST", value_parser = usable_cpu_list)]
    gateway_cpus: Option<CpuList>,

    /// CPUs of engines and client [default: the second allowed one]
    #[arg(long, value_name = "LIST", value_parser = usable_cpu_list)]
    load_cpus: Option<CpuList>,

    /// Write the result as JSON to this file as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a report with plots to this file: one page of HTML that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Load {
    /// Cost: chats of ~600 bytes
    Short,
    /// Cost: multi-turn chats of ~20 kB
    #[value(name = "20k")]
    Chat20k,
    /// Cost: multi-turn chats of ~100 kB
    #[value(name = "100k")]
    Chat100k,
    /// Cost: 100 streams of 250-byte events every 5 ms
    Sse,
    /// Routing: multi-turn chats over shared system prompts
    Routing,
}

pub fn main(args: Args) -> Result<(), Failure> {
    let allowed = allowed_cpus();
    let pick = |list: &Option<CpuList>, nth: usize| match list {
        Some(list) => list.0.clone(),
        None => allowed.get(nth).or(allowed.first()).copied().into_iter().collect(),
    };
    let routing = args.scenarios.contains(&Load::Routing);
    let options = CompareOptions {
        arms: args.peers.arms()?,
        scenarios: args.scenarios.iter().filter_map(|load| load.scenario()).collect(),
        routing: routing.then(|| args.routing.options()).transpose()?,
        runs: args.runs as usize,
        time: args.seconds,
        gateway_cpus: pick(&args.gateway_cpus, 0),
        load_cpus: pick(&args.load_cpus, 1),
        engines: 4,
        directory: std::env::temp_dir().join(format!("smg-compare-{}", std::process::id())),
        should_stop: signal::interrupted,
    };
    // Minutes later would be late to find out.
    for path in [&args.json, &args.html].into_iter().flatten() {
        check_writable(path)?;
    }
    signal::catch_interrupts();
    if options.gateway_cpus == options.load_cpus {
        eprintln!("only one CPU is allowed: the gateway shares it with its load");
    }
    let result = compare(&options, &mut |line| eprintln!("{line}"));
    let report = result.map_err(|error| {
        Failure::Run(format!("{error} (logs: {})", options.directory.display()))
    })?;
    let _ = std::fs::remove_dir_all(&options.directory);
    super::print(format_args!("{report}\n"))?;
    args.write_files(&report)?;
    if report.is_empty() {
        let why = if report.interrupted { "it was interrupted" } else { "no arm could be started" };
        return Err(Failure::Run(format!("nothing was measured: {why}")));
    }
    Ok(())
}

impl Args {
    fn write_files(&self, report: &CompareReport) -> Result<(), Failure> {
        if let Some(path) = &self.json {
            let json = serde_json::to_string_pretty(report).map_err(Failure::run)?;
            write(path, &(json + "\n"))?;
        }
        if let Some(path) = &self.html {
            write(path, &html(report))?;
            eprintln!("report: {}", path.display());
        }
        Ok(())
    }
}

fn check_writable(path: &Path) -> Result<(), Failure> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if path.is_dir() || parent.is_some_and(|parent| !parent.is_dir()) {
        let path = path.display();
        return Err(Failure::Usage(format!("{path} is no file in a directory that exists")));
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|error| Failure::Run(format!("cannot write {}: {error}", path.display())))
}

impl Load {
    /// None for the routing load.
    fn scenario(self) -> Option<Scenario> {
        match self {
            Self::Short => Some(Scenario::Short),
            Self::Chat20k => Some(Scenario::Chat20k),
            Self::Chat100k => Some(Scenario::Chat100k),
            Self::Sse => Some(Scenario::Sse),
            Self::Routing => None,
        }
    }
}
