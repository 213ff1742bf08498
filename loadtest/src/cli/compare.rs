//! `smg-loadtest compare`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use smg_loadtest::compare::{ArmSpec, CompareOptions, Scenario, compare};
use smg_loadtest::process::CommandTemplate;
use smg_loadtest::runtime::allowed_cpus;

use super::{CpuList, Failure, cpu_list, seconds, signal};

/// Measure gateways side by side: throughput, latency, CPU per request, memory.
///
/// Each gateway in turn, pinned to one core, gets the same load from a client and instant engines
/// on another core. Rounds are interleaved and medians taken; CPU time is read from the kernel's
/// accounting of the gateway's processes. Gateways that are not installed are named and left out.
/// scripts/compare builds and installs what it can first.
#[derive(clap::Args)]
pub struct Args {
    /// What to compare
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "direct,nginx,smg,ours"
    )]
    peers: Vec<Peer>,

    /// Loads to compare under
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "short,20k,100k,sse"
    )]
    scenarios: Vec<Load>,

    /// Rounds; medians are taken over them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,

    /// Seconds measured per run
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    seconds: Duration,

    /// Command that starts our gateway. {port}, {metrics_port} and {workers} (the engines' URLs)
    /// are filled in
    #[arg(long, value_name = "COMMAND", default_value = OURS)]
    ours: String,

    /// Another gateway to compare, NAME=COMMAND with the same placeholders; may be repeated
    #[arg(long, value_name = "NAME=COMMAND")]
    arm: Vec<String>,

    /// SMG 1.11 as installed from PyPI
    #[arg(long, value_name = "PROGRAM", default_value = "target/compare/smg-1.11.0/bin/smg")]
    smg: PathBuf,

    /// nginx
    #[arg(long, value_name = "PROGRAM", default_value = "nginx")]
    nginx: PathBuf,

    /// CPUs of the gateway [default: the first allowed one]
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    gateway_cpus: Option<CpuList>,

    /// CPUs of engines and client [default: the second allowed one]
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    load_cpus: Option<CpuList>,

    /// Write the result as JSON to this file as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const OURS: &str = "target/release/smg launch --host 127.0.0.1 --port {port} --prometheus-host \
    127.0.0.1 --prometheus-port {metrics_port} --policy cache_aware --shards 1 --data-cpus 0 \
    --control-cpus 0 --log-level warn --worker-urls {workers}";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// No gateway
    Direct,
    /// nginx, one worker
    Nginx,
    /// SMG 1.11 from PyPI, cache_aware
    Smg,
    /// Our gateway, cache_aware
    Ours,
}

#[derive(Clone, Copy, ValueEnum)]
enum Load {
    /// Chats of ~600 bytes
    Short,
    /// Multi-turn chats of ~20 kB
    #[value(name = "20k")]
    Chat20k,
    /// Multi-turn chats of ~100 kB
    #[value(name = "100k")]
    Chat100k,
    /// 100 streams of 250-byte events every 5 ms
    Sse,
}

pub fn main(args: Args) -> Result<(), Failure> {
    let allowed = allowed_cpus();
    let pick = |list: &Option<CpuList>, nth: usize| match list {
        Some(list) => list.0.clone(),
        None => allowed.get(nth).or(allowed.first()).copied().into_iter().collect(),
    };
    let options = CompareOptions {
        arms: args.arms()?,
        scenarios: args.scenarios.iter().map(|load| load.scenario()).collect(),
        runs: args.runs as usize,
        time: args.seconds,
        gateway_cpus: pick(&args.gateway_cpus, 0),
        load_cpus: pick(&args.load_cpus, 1),
        engines: 4,
        directory: std::env::temp_dir().join(format!("smg-compare-{}", std::process::id())),
        should_stop: signal::interrupted,
    };
    signal::catch_interrupts();
    if options.gateway_cpus == options.load_cpus {
        eprintln!("only one CPU is allowed: the gateway shares it with its load");
    }
    let result = compare(&options, &mut |line| eprintln!("{line}"));
    let report = result.map_err(|error| {
        Failure::Run(format!("{error} (logs: {})", options.directory.display()))
    })?;
    let _ = std::fs::remove_dir_all(&options.directory);
    println!("{report}");
    if let Some(path) = args.json {
        let json = serde_json::to_string_pretty(&report).map_err(Failure::run)?;
        std::fs::write(&path, json + "\n")
            .map_err(|error| Failure::Run(format!("cannot write {}: {error}", path.display())))?;
    }
    Ok(())
}

impl Args {
    fn arms(&self) -> Result<Vec<ArmSpec>, Failure> {
        let gateway = |name: &str, command: &str, how_to_install: &str| {
            let command = CommandTemplate::parse(command).map_err(Failure::usage)?;
            let (name, how_to_install) = (name.to_owned(), how_to_install.to_owned());
            Ok(ArmSpec::Gateway { name, command, how_to_install })
        };
        let mut arms = Vec::new();
        for peer in &self.peers {
            arms.push(match peer {
                Peer::Direct => ArmSpec::Direct,
                Peer::Nginx => ArmSpec::Nginx { program: self.nginx.clone() },
                Peer::Smg => {
                    let command = format!(
                        "'{}' launch --host 127.0.0.1 --port {{port}} --worker-urls {{workers}} \
                         --policy cache_aware --prometheus-host 127.0.0.1 --prometheus-port \
                         {{metrics_port}} --disable-tokenizer-autoload --log-level warn",
                        self.smg.display()
                    );
                    let install = "python3 -m venv target/compare/smg-1.11.0 && \
                        target/compare/smg-1.11.0/bin/pip install smg==1.11.0";
                    gateway("smg", &command, install)?
                }
                Peer::Ours => gateway("ours", &self.ours, "cargo build --release")?,
            });
        }
        for arm in &self.arm {
            let (name, command) = arm
                .split_once('=')
                .filter(|(name, _)| {
                    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                })
                .ok_or_else(|| Failure::Usage(format!("'{arm}' is not NAME=COMMAND")))?;
            arms.push(gateway(name, command, "see its own manual")?);
        }
        Ok(arms)
    }
}

impl Load {
    fn scenario(self) -> Scenario {
        match self {
            Self::Short => Scenario::Short,
            Self::Chat20k => Scenario::Chat20k,
            Self::Chat100k => Scenario::Chat100k,
            Self::Sse => Scenario::Sse,
        }
    }
}
