//! `smg-loadtest run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use smg_loadtest::load::bodies::{Bodies, RequestOptions, Shape};
use smg_loadtest::load::schedule::Spacing;
use smg_loadtest::load::{Load, Observer, Progress, RunOptions, Target, run};
use smg_loadtest::runtime;

use super::{CpuList, Failure, cpu_list, print_report, seconds, signal};

/// Put load on a server and measure it.
///
/// Closed loop by default: each connection sends its next request when the last one is answered.
/// With --rate, an open loop: requests are due at that rate whatever the server does, and latency
/// counts from when a request was due, so a stall is seen by every request it delays.
#[derive(clap::Args)]
#[command(after_help = "Example: streams at 20 requests per second for a minute:\n  \
    smg-loadtest run http://127.0.0.1:30000 --rate 20 --poisson --stream --duration 60")]
pub struct Args {
    /// Base URL of a server or gateway, such as http://127.0.0.1:30000
    url: String,

    #[command(flatten)]
    load: LoadArgs,

    #[command(flatten)]
    body: BodyArgs,

    /// Write the report as JSON to this file as well; - prints it instead of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// CPUs to run on, such as 1 or 0-3,8
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    cpus: Option<CpuList>,

    /// No progress line
    #[arg(short, long)]
    quiet: bool,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Load")]
struct LoadArgs {
    /// Connections; with --rate the most that are opened [default: 32, with --rate 512]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: Option<u32>,

    /// Open loop: requests per second
    #[arg(short, long, value_name = "PER_SECOND", value_parser = rate)]
    rate: Option<f64>,

    /// With --rate: random (exponential) gaps instead of even ones
    #[arg(long, requires = "rate")]
    poisson: bool,

    /// Seconds to measure
    #[arg(short, long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    duration: Duration,

    /// Seconds before that which do not count
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    warmup: Duration,

    /// Stop after this many requests, warm-up included
    #[arg(short = 'n', long, value_name = "N")]
    requests: Option<u64>,

    /// Seconds until an unanswered request has failed
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,

    /// Seed of texts, order and random gaps
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Requests")]
struct BodyArgs {
    /// Generated chats; every request is new at its end
    #[arg(short, long, value_enum, default_value_t = BodyShape::Short)]
    body: BodyShape,

    /// Bodies from a file instead, one JSON object per line; ten @ in a line become a number that
    /// grows with each request
    #[arg(long, value_name = "FILE", conflicts_with_all = ["body", "stream", "max_tokens"])]
    body_file: Option<PathBuf>,

    /// Ask for a stream
    #[arg(short, long)]
    stream: bool,

    /// Path behind the base URL
    #[arg(long, default_value = "/v1/chat/completions")]
    path: String,

    /// Model to ask for [default: the first one the server lists]
    #[arg(long)]
    model: Option<String>,

    /// Limit of each answer in tokens
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_tokens: u32,

    /// Header line to add, 'name: value'; may be repeated
    #[arg(short = 'H', long, value_name = "HEADER", value_parser = header)]
    header: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum BodyShape {
    /// ~600 B: 50 system prompts, 40 questions each
    Short,
    /// ~20 kB: 25 conversations, 12 continuations each
    #[value(name = "20k")]
    Chat20k,
    /// ~100 kB: 8 conversations, 8 continuations each
    #[value(name = "100k")]
    Chat100k,
}

pub fn main(args: Args) -> Result<(), Failure> {
    let target = Target::parse(&args.url).map_err(Failure::usage)?;
    if !args.body.path.starts_with('/') {
        return Err(Failure::Usage(format!("path '{}' must start with /", args.body.path)));
    }
    if let Some(cpus) = &args.cpus {
        runtime::pin_to(&cpus.0)
            .map_err(|error| Failure::Run(format!("cannot pin to CPUs {:?}: {error}", cpus.0)))?;
    }
    let model = match &args.body.model {
        Some(model) => model.clone(),
        None if args.body.body_file.is_some() => String::new(),
        None => target.first_model().ok_or_else(|| {
            Failure::Run(format!(
                "{} lists no model at /v1/models: is an engine ready there? Or name one with --model",
                args.url
            ))
        })?,
    };
    let options = RunOptions {
        load: args.load.load(),
        warmup: args.load.warmup,
        duration: args.load.duration,
        max_requests: args.load.requests,
        timeout: args.load.timeout,
        bodies: match &args.body.body_file {
            Some(path) => Bodies::Lines(path.clone()),
            None => Bodies::Generated(args.body.body.shape()),
        },
        request: RequestOptions {
            authority: target.authority.clone(),
            path: format!("{}{}", target.base_path, args.body.path),
            model,
            stream: args.body.stream,
            max_tokens: args.body.max_tokens,
            headers: args.body.header.clone(),
        },
        seed: args.load.seed,
        first_number: 0,
        target,
    };
    signal::catch_interrupts();
    let report = run(&options, &mut Lines { quiet: args.quiet }).map_err(Failure::run)?;
    print_report(&report, args.json.as_deref())?;
    if report.succeeded == 0 && report.failed > 0 {
        return Err(Failure::Run("no request succeeded".into()));
    }
    Ok(())
}

impl LoadArgs {
    fn load(&self) -> Load {
        let connections = |default| self.connections.map_or(default, |n| n as usize);
        match self.rate {
            None => Load::Closed { connections: connections(32) },
            Some(rate_per_s) => Load::Open {
                rate_per_s,
                spacing: if self.poisson { Spacing::Poisson } else { Spacing::Uniform },
                max_connections: connections(512),
            },
        }
    }
}

impl BodyShape {
    fn shape(self) -> Shape {
        match self {
            Self::Short => Shape::Short,
            Self::Chat20k => Shape::Chat20k,
            Self::Chat100k => Shape::Chat100k,
        }
    }
}

/// A progress line per second on stderr.
pub(super) struct Lines {
    pub quiet: bool,
}

impl Observer for Lines {
    fn tick(&mut self, progress: &Progress<'_>) {
        if !self.quiet {
            let phase = if progress.warming_up { "  (warm-up)" } else { "" };
            eprintln!(
                "{:>5.0} s  {:>8} done  {:>6} failed  {:>6} in flight{phase}",
                progress.elapsed.as_secs_f64(),
                progress.completed,
                progress.failed,
                progress.in_flight,
            );
        }
    }

    fn should_stop(&self) -> bool {
        signal::interrupted()
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1e7 => Ok(rate),
        _ => Err(format!("'{text}' is not a number of requests per second")),
    }
}

pub(super) fn header(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        Some((name, value))
            if !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_graphic())
                && !value.bytes().any(|b| b.is_ascii_control()) =>
        {
            Ok(format!("{name}: {}", value.trim()))
        }
        _ => Err(format!("'{text}' is not a header line 'name: value'")),
    }
}
