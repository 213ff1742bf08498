//! `smg-loadtest engines`.

use std::time::Duration;

use smg_loadtest::engine::Profile;
use smg_loadtest::server::{EngineKind, Fleet, FleetOptions, InstantOptions};

use super::{CpuList, Failure, milliseconds, usable_cpu_list, waiting};

/// Start simulated engines, one port each, until stopped.
///
/// They speak the HTTP of vLLM and SGLang: /v1/chat/completions, /v1/completions and /generate,
/// streaming or not, and /health, /v1/models, /get_model_info, /server_info, /version, /v1/loads,
/// /metrics, /reset_prefix_cache, and /sim/fault to make them fail. Base URLs are printed to stdout,
/// one per line, once all ports are open.
#[derive(clap::Args)]
#[command(after_help = "Example: four engines with small caches, to put load on:\n  \
    smg-loadtest engines -n 4 --base-port 9100 --profile demo")]
pub struct Args {
    /// Number of engines
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    count: u16,

    /// First port; engine i listens on PORT + i. 0 picks free ports
    #[arg(short, long, value_name = "PORT", default_value_t = 0)]
    base_port: u16,

    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    host: String,

    /// Model name the engines serve
    #[arg(long, default_value = "sim-8b")]
    model: String,

    /// CPUs the engines may use, such as 1 or 0-3,8
    #[arg(long, value_name = "LIST", value_parser = usable_cpu_list)]
    cpus: Option<CpuList>,

    /// Never sleep while there is nothing to do, at the cost of a whole CPU
    #[arg(long)]
    busy_poll: bool,

    #[command(flatten)]
    simulation: Simulation,

    #[command(flatten)]
    instant: Instant,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Simulation (what is not given is as the profile has it)")]
struct Simulation {
    // The list of profiles makes the text.
    #[arg(long, default_value = "8b-h100", help = profile_help(), conflicts_with = "instant")]
    profile: String,

    /// KV cache size in blocks
    #[arg(long, value_name = "N", conflicts_with = "instant",
          value_parser = clap::value_parser!(u32).range(1..))]
    cache_blocks: Option<u32>,

    /// Tokens per KV block
    #[arg(long, value_name = "N", conflicts_with = "instant",
          value_parser = clap::value_parser!(u32).range(1..))]
    block_size: Option<u32>,

    /// Requests running at once; the others wait
    #[arg(long, value_name = "N", conflicts_with = "instant",
          value_parser = clap::value_parser!(u32).range(1..))]
    max_batch: Option<u32>,

    /// Microseconds of prefill per token that is not cached
    #[arg(long, value_name = "US", conflicts_with = "instant")]
    prefill_us_per_token: Option<f64>,

    /// Milliseconds every step takes, whatever it computes
    #[arg(long, value_name = "MS", conflicts_with = "instant")]
    step_ms: Option<f64>,

    /// Microseconds each decoding request adds to a step
    #[arg(long, value_name = "US", conflicts_with = "instant")]
    decode_us_per_request: Option<f64>,

    /// Tokens of an answer when the request names no limit
    #[arg(long, value_name = "N", conflicts_with = "instant",
          value_parser = clap::value_parser!(u32).range(1..))]
    answer_tokens: Option<u32>,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Instant answers")]
struct Instant {
    /// Simulate nothing: answer every request at once with prepared bytes. The cheapest possible
    /// engine, for measuring what stands in front of it
    #[arg(long)]
    instant: bool,

    /// Size of the JSON answer
    #[arg(long, value_name = "BYTES", default_value_t = 600, requires = "instant")]
    answer_bytes: usize,

    /// Events of a stream (for requests that say "stream": true in the first or last 512 bytes of
    /// their body)
    #[arg(long, value_name = "N", default_value_t = 200, requires = "instant",
          value_parser = clap::value_parser!(u32).range(1..))]
    events: u32,

    /// Size of one event
    #[arg(long, value_name = "BYTES", default_value_t = 250, requires = "instant")]
    event_bytes: usize,

    /// Milliseconds between events
    #[arg(long, value_name = "MS", default_value = "5", requires = "instant",
          value_parser = milliseconds)]
    interval_ms: Duration,
}

pub fn main(args: Args) -> Result<(), Failure> {
    let kind = if args.instant.instant {
        EngineKind::Instant(InstantOptions {
            answer_bytes: args.instant.answer_bytes,
            events: args.instant.events,
            event_bytes: args.instant.event_bytes,
            interval: args.instant.interval_ms,
        })
    } else {
        EngineKind::Simulated(args.simulation.profile()?)
    };
    let options = FleetOptions {
        count: usize::from(args.count),
        host: args.host,
        base_port: args.base_port,
        model: args.model,
        kind,
        waiting: waiting(args.busy_poll),
        cpus: args.cpus.map(|list| list.0).unwrap_or_default(),
    };
    let fleet = Fleet::start(&options).map_err(Failure::run)?;
    for url in fleet.urls() {
        super::print(format_args!("{url}\n"))?;
    }
    eprintln!("{} engines serve '{}'; stop with Ctrl-C", options.count, options.model);
    fleet.wait().map_err(Failure::run)
}

impl Simulation {
    /// The named profile with what the flags change.
    fn profile(&self) -> Result<Profile, Failure> {
        let mut profile = Profile::named(&self.profile).map_err(Failure::usage)?;
        let set = |to: &mut u32, from: Option<u32>| *to = from.unwrap_or(*to);
        set(&mut profile.cache_blocks, self.cache_blocks);
        set(&mut profile.block_tokens, self.block_size);
        set(&mut profile.max_batch, self.max_batch);
        set(&mut profile.default_answer_tokens, self.answer_tokens);
        let time = |to: &mut u64, from: Option<f64>, unit_ns: f64| match from {
            None => Ok(()),
            Some(value) if (0.0..=1e9).contains(&value) => {
                *to = (value * unit_ns).round() as u64;
                Ok(())
            }
            Some(value) => Err(Failure::Usage(format!("{value} is not a time"))),
        };
        time(&mut profile.prefill_token_ns, self.prefill_us_per_token, 1e3)?;
        time(&mut profile.step_base_ns, self.step_ms, 1e6)?;
        time(&mut profile.decode_request_ns, self.decode_us_per_request, 1e3)?;
        Ok(profile)
    }
}

fn profile_help() -> String {
    let mut help = String::from("Speed and sizes of an engine:");
    for profile in Profile::all() {
        help.push_str(&format!("\n  {:<11} {}", profile.name, profile.about));
    }
    help.push('\n');
    help
}
