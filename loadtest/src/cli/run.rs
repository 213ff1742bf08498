//! `smg-loadtest run`.

mod witness;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use smg_loadtest::load::bodies::{Bodies, RequestOptions, Shape, proof_header};
use smg_loadtest::load::schedule::{Spacing, Step};
use smg_loadtest::load::{
    ConversationOptions, Load, Observer, Progress, Report, RunOptions, Target, run,
    run_conversations,
};
use smg_loadtest::runtime;

use witness::Witnesses;
use workload::{Workload, WorkloadArgs};

use super::{CpuList, Failure, print_report, seconds, signal, usable_cpu_list, waiting};

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

    #[command(flatten)]
    workload: WorkloadArgs,

    /// Prove that requests and answers arrive byte for byte: engines of smg-loadtest say what reached
    /// them and what they sent; an answer that was altered is a failure
    #[arg(long)]
    prove: bool,

    /// The engines behind the URL, of `smg-loadtest engines`: the report says how many requests each
    /// received and how many were open there at once
    #[arg(long, value_name = "URL,...", value_delimiter = ',')]
    engines: Vec<String>,

    /// Write the report as JSON to this file as well; - prints it instead of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// CPUs to run on, such as 1 or 0-3,8
    #[arg(long, value_name = "LIST", value_parser = usable_cpu_list)]
    cpus: Option<CpuList>,

    /// Never sleep while there is nothing to do, at the cost of a whole CPU: wake-up times of the
    /// machine are left out of the numbers
    #[arg(long)]
    busy_poll: bool,

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

    /// Open loop at rates that change: 10:60,50:30 is 10 per second for a minute, then 50 for half a
    /// minute. The first rate holds in the warm-up too
    #[arg(long, value_name = "RATE:SECONDS,...", value_delimiter = ',', value_parser = step,
          conflicts_with_all = ["rate", "duration"])]
    schedule: Vec<Step>,

    /// Open loop: random (exponential) gaps instead of even ones
    #[arg(long)]
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
    args.workload.check().map_err(Failure::Usage)?;
    let witnesses = Witnesses::summon(&args.engines)?;
    signal::catch_interrupts();
    let mut lines = Lines { quiet: args.quiet };
    let mut report = match args.workload.workload {
        Some(Workload::Chats) => converse(&args, target, model, &mut lines)?,
        _ => send(&args, target, model, &mut lines)?,
    };
    let heard = witnesses.hear();
    if let Ok(engines) = &heard {
        report.engines.clone_from(engines);
    }
    print_report(&report, args.json.as_deref())?;
    heard?;
    if report.altered > 0 {
        return Err(Failure::Run(format!(
            "{} answers, or the requests for them, did not arrive as they were sent",
            report.altered
        )));
    }
    if report.succeeded == 0 && report.failed > 0 {
        return Err(Failure::Run("no request succeeded".into()));
    }
    if report.succeeded + report.failed + report.unsent == 0 && !signal::interrupted() {
        return Err(Failure::Run(format!(
            "nothing was measured: all requests were due within the warm-up ({} s), which does not \
             count; send more of them, or give --warmup 0",
            args.load.warmup.as_secs_f64()
        )));
    }
    if args.prove && report.proved == 0 && report.unproved > 0 {
        return Err(Failure::Run(format!(
            "no answer had a proof: what answers is no simulated engine of smg-loadtest (not --instant), \
             or something between drops the header {} or comments in streams",
            smg_loadtest::proof::HEADER
        )));
    }
    Ok(())
}

/// Independent requests.
fn send(args: &Args, target: Target, model: String, lines: &mut Lines) -> Result<Report, Failure> {
    let made = args.workload.workload.and_then(|workload| args.workload.made(workload));
    let options = RunOptions {
        load: args.load.load()?,
        warmup: args.load.warmup,
        duration: args.load.duration(),
        max_requests: args.load.requests,
        timeout: args.load.timeout,
        bodies: match (made, &args.body.body_file) {
            (Some(made), _) => Bodies::Made(made),
            (None, Some(path)) => Bodies::Lines(path.clone()),
            (None, None) => Bodies::Generated(args.body.body.shape()),
        },
        request: RequestOptions {
            authority: target.authority.clone(),
            path: format!("{}{}", target.base_path, args.body.path),
            model,
            stream: args.body.stream,
            max_tokens: args.body.max_tokens,
            headers: [args.body.header.clone(), proof_header(args.prove)].concat(),
        },
        proves: args.prove,
        waiting: waiting(args.busy_poll),
        seed: args.load.seed,
        first_number: 0,
        target,
    };
    run(&options, lines).map_err(Failure::run)
}

/// Conversations.
fn converse(
    args: &Args,
    target: Target,
    model: String,
    lines: &mut Lines,
) -> Result<Report, Failure> {
    let LoadArgs { rate, poisson, requests, connections, .. } = &args.load;
    let is_default_path = args.body.path == "/v1/chat/completions";
    for (is_given, flag) in [
        (!args.load.schedule.is_empty(), "--schedule"),
        (*poisson, "--poisson: conversations begin at random times anyway"),
        (requests.is_some(), "--requests"),
        (connections.is_some(), "--connections: each conversation has its own"),
        (!args.body.header.is_empty(), "--header"),
        (!is_default_path, "--path"),
    ] {
        if is_given {
            return Err(Failure::Usage(format!("--workload chats goes without {flag}")));
        }
    }
    let Some(arrivals_per_s) = *rate else {
        return Err(Failure::Usage(
            "--workload chats needs --rate, new conversations per second".into(),
        ));
    };
    let options = ConversationOptions {
        targets: vec![target],
        model,
        arrivals_per_s,
        system_prompts: args.workload.groups as usize,
        system_prompt_chars: args.workload.prefix_chars as usize,
        turns: args.workload.turns as usize,
        question_chars: args.workload.question_chars as usize,
        answer_tokens: args.body.max_tokens,
        think_time: args.workload.think,
        warmup: args.load.warmup,
        duration: args.load.duration(),
        timeout: args.load.timeout,
        script: args.workload.script(),
        proves: args.prove,
        waiting: waiting(args.busy_poll),
        seed: args.load.seed,
    };
    run_conversations(&options, lines).map_err(Failure::run)
}

impl LoadArgs {
    fn load(&self) -> Result<Load, Failure> {
        let connections = |default| self.connections.map_or(default, |n| n as usize);
        let spacing = if self.poisson { Spacing::Poisson } else { Spacing::Uniform };
        let max_connections = connections(512);
        Ok(match self.rate {
            Some(rate_per_s) => Load::Open { rate_per_s, spacing, max_connections },
            None if !self.schedule.is_empty() => {
                Load::Stepped { steps: self.schedule.clone(), spacing, max_connections }
            }
            None if self.poisson => {
                return Err(Failure::Usage("--poisson needs --rate or --schedule".into()));
            }
            None => Load::Closed { connections: connections(32) },
        })
    }

    /// The time that is measured.
    fn duration(&self) -> Duration {
        if self.schedule.is_empty() {
            return self.duration;
        }
        self.schedule.iter().map(|step| step.time).fold(Duration::ZERO, Duration::saturating_add)
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

fn step(text: &str) -> Result<Step, String> {
    let wrong = || format!("'{text}' is not RATE:SECONDS, such as 10:60; a rate of 0 is a pause");
    let (per_second, time) = text.split_once(':').ok_or_else(wrong)?;
    let rate_per_s = match per_second.parse::<f64>() {
        Ok(0.0) => 0.0,
        _ => rate(per_second).map_err(|_| wrong())?,
    };
    Ok(Step { rate_per_s, time: seconds(time).map_err(|_| wrong())? })
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
