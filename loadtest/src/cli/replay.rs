//! `smg-loadtest replay`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use smg_loadtest::load::bodies::RequestOptions;
use smg_loadtest::load::{ReplayApi, ReplayOptions, Target, replay};
use smg_loadtest::trace::{BLOCK_TOKENS, Trace};

use super::run::{Lines, header};
use super::simulate::SpreadKind;
use super::{Failure, print_report, seconds, signal};

/// Send the requests of a trace to a server or gateway, when the trace says.
///
/// The trace is in Mooncake's format: one JSON object per line with timestamp (ms), input_length,
/// output_length and hash_ids. Each block becomes text or token IDs that depend on its number alone,
/// so prompts share what the trace's prompts shared. Latency counts from when a request was due.
#[derive(clap::Args)]
#[command(after_help = "Example: the first thousand requests at twice their speed:\n  \
    smg-loadtest replay http://127.0.0.1:30000 --trace conversation_trace.jsonl -n 1000 --time-scale 2")]
pub struct Args {
    /// Base URL of a server or gateway, such as http://127.0.0.1:30000
    url: String,

    /// The trace, in the order of its timestamps
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,

    /// Only so many requests, the first ones [default: all]
    #[arg(short = 'n', long, value_name = "N")]
    requests: Option<usize>,

    /// Play it so many times as fast; below 1 is slower
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    time_scale: f64,

    /// What to do with requests of one timestamp
    #[arg(long, value_enum, default_value_t = SpreadKind::Even)]
    spread: SpreadKind,

    /// How prompts are sent
    #[arg(long, value_enum, default_value_t = Api::Chat)]
    api: Api,

    /// Model to ask for [default: the first one the server lists]
    #[arg(long)]
    model: Option<String>,

    /// Longest answer asked for, in tokens [default: each as long as in the trace]
    #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true)]
    max_tokens: u32,

    /// Ask for whole answers instead of streams
    #[arg(long)]
    no_stream: bool,

    /// Connections at most
    #[arg(short, long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,

    /// Seconds until an unanswered request has failed
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    timeout: Duration,

    /// Tokens per block of the trace
    #[arg(long, value_name = "TOKENS", default_value_t = BLOCK_TOKENS,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    block_size: u32,

    /// Seed of --spread random
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Header line to add, 'name: value'; may be repeated
    #[arg(short = 'H', long, value_name = "HEADER", value_parser = header)]
    header: Vec<String>,

    /// Write the report as JSON to this file as well; - prints it instead of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// No progress line
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Api {
    /// One message of text: /v1/chat/completions
    Chat,
    /// Text: /v1/completions
    Completions,
    /// Token IDs: /generate
    Generate,
}

pub fn main(args: Args) -> Result<(), Failure> {
    if !(args.time_scale > 0.0 && args.time_scale <= 1e7) {
        return Err(Failure::Usage(format!(
            "--time-scale {} must be above 0, up to 1e7",
            args.time_scale
        )));
    }
    let target = Target::parse(&args.url).map_err(Failure::usage)?;
    let trace = Trace::open(&args.trace, args.block_size)
        .map_err(|error| Failure::Usage(format!("{}: {error}", args.trace.display())))?;
    let model = args.model.or_else(|| target.first_model()).ok_or_else(|| {
        Failure::Run(format!(
            "{} lists no model at /v1/models: is an engine ready there? Or name one with --model",
            args.url
        ))
    })?;
    let api = match args.api {
        Api::Chat => ReplayApi::Chat,
        Api::Completions => ReplayApi::Completions,
        Api::Generate => ReplayApi::Generate,
    };
    let options = ReplayOptions {
        trace: Arc::new(trace),
        spread: args.spread.spread(),
        time_scale: args.time_scale,
        requests: args.requests,
        api,
        max_answer_tokens: args.max_tokens.max(1),
        max_connections: args.connections as usize,
        timeout: args.timeout,
        request: RequestOptions {
            authority: target.authority.clone(),
            path: format!("{}{}", target.base_path, api.path()),
            model,
            stream: !args.no_stream,
            max_tokens: args.max_tokens,
            headers: args.header,
        },
        seed: args.seed,
        target,
    };
    signal::catch_interrupts();
    let report = replay(&options, &mut Lines { quiet: args.quiet }).map_err(Failure::run)?;
    print_report(&report, args.json.as_deref())?;
    if report.succeeded == 0 && report.failed > 0 {
        return Err(Failure::Run("no request succeeded".into()));
    }
    Ok(())
}
