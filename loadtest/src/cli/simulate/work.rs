//! What arrives.

use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use smg_loadtest::simulate::workload::{
    ChatOptions, Chats, GroupOptions, Groups, Replayed, Workload,
};
use smg_loadtest::trace::{BLOCK_TOKENS, Spread, Trace};

use crate::cli::{Failure, seconds};

#[derive(clap::Args)]
#[command(next_help_heading = "Requests")]
pub struct WorkArgs {
    /// Requests of a trace in Mooncake's format
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "rate"])]
    trace: Option<PathBuf>,

    /// Generated requests
    #[arg(long, value_enum, default_value_t = Kind::Chats)]
    workload: Kind,

    /// Requests in all [default: those of the trace; 10000 generated ones]
    #[arg(short = 'n', long, value_name = "N")]
    requests: Option<u64>,

    /// Trace: play it so many times as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    time_scale: f64,

    /// Trace: what to do with requests of one timestamp
    #[arg(long, value_enum, default_value_t = SpreadKind::Even)]
    spread: SpreadKind,

    /// Generated: requests per second, for chats new conversations per second
    #[arg(short, long, value_name = "PER_SECOND", default_value_t = 10.0)]
    rate: f64,

    /// Generated: prefixes or system prompts that requests share
    #[arg(long, value_name = "N", default_value_t = 24)]
    groups: u32,

    /// Generated: tokens of a prefix or system prompt
    #[arg(long, value_name = "TOKENS", default_value_t = 2_000)]
    prefix_tokens: u32,

    /// Generated: tokens of a prompt behind it, for chats per turn
    #[arg(long, value_name = "TOKENS", default_value_t = 200)]
    question_tokens: u32,

    /// Generated: tokens of an answer
    #[arg(long, value_name = "TOKENS", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    answer_tokens: u32,

    /// Churn: seconds after which another prefix takes a prefix's place
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    lifetime: std::time::Duration,

    /// Chats: turns of a conversation
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    turns: u32,

    /// Chats: seconds from an answer to the next question
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    think: std::time::Duration,

    /// Tokens per block: of the trace [default: 512], of generated requests [default: 16]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    block_size: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Conversations of several turns over shared system prompts
    Chats,
    /// Independent requests with shared prefixes
    Groups,
    /// Nothing is shared
    Unique,
    /// Groups that come and go
    Churn,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum SpreadKind {
    /// Evenly over the time to the next timestamp
    Even,
    /// At random times within it
    Random,
    /// Leave them at one instant
    None,
}

impl SpreadKind {
    pub fn spread(self) -> Spread {
        match self {
            Self::Even => Spread::Even,
            Self::Random => Spread::Random,
            Self::None => Spread::None,
        }
    }
}

/// Requests, in words, and how many different blocks they have if that is known.
pub struct Work {
    pub requests: Workload,
    pub about: String,
    pub distinct_blocks: Option<usize>,
}

impl WorkArgs {
    pub fn workload(&self, seed: u64) -> Result<Work, Failure> {
        for (flag, value) in [("--time-scale", self.time_scale), ("--rate", self.rate)] {
            if !(value > 0.0 && value <= 1e7) {
                return Err(Failure::Usage(format!("{flag} {value} must be above 0, up to 1e7")));
            }
        }
        match &self.trace {
            Some(path) => self.replayed(path, seed),
            None => self.generated(seed),
        }
    }

    fn replayed(&self, path: &std::path::Path, seed: u64) -> Result<Work, Failure> {
        let trace = Trace::open(path, self.block_size.unwrap_or(BLOCK_TOKENS))
            .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        let trace = Arc::new(trace);
        let count = self.requests.unwrap_or(trace.len() as u64);
        let distinct = trace.distinct_blocks();
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let about = format!(
            "{name}: {count} requests, {distinct} distinct blocks of {} tokens, {} times its speed",
            trace.block_tokens(),
            self.time_scale
        );
        let spread = self.spread.spread();
        let requests = Replayed::new(trace, spread, self.time_scale, self.requests, seed);
        Ok(Work { requests: Workload::Replayed(requests), about, distinct_blocks: Some(distinct) })
    }

    fn generated(&self, seed: u64) -> Result<Work, Failure> {
        let tokens = [self.prefix_tokens, self.question_tokens, self.turns];
        if tokens.iter().any(|&tokens| tokens > 1_000_000) {
            return Err(Failure::Usage("prompts of more than a million tokens".into()));
        }
        let (count, rate) = (self.requests.unwrap_or(10_000), self.rate);
        let Self { groups, prefix_tokens, question_tokens, answer_tokens, turns, .. } = *self;
        let block_tokens = self.block_size.unwrap_or(16);
        let nanos = |duration: std::time::Duration| duration.as_nanos() as u64;
        let requests = match self.workload {
            Kind::Chats => Workload::Chats(Chats::new(ChatOptions {
                requests: count,
                arrivals_per_s: rate,
                system_prompts: groups,
                system_tokens: prefix_tokens,
                turns,
                question_tokens,
                answer_tokens,
                think: nanos(self.think),
                block_tokens,
                seed,
            })),
            kind => Workload::Groups(Groups::new(GroupOptions {
                requests: count,
                rate_per_s: rate,
                groups: if kind == Kind::Unique { 0 } else { groups },
                lifetime: (kind == Kind::Churn).then(|| nanos(self.lifetime)),
                prefix_tokens,
                question_tokens,
                answer_tokens,
                block_tokens,
                seed,
            })),
        };
        let lengths = format!("{question_tokens} tokens each, answers of {answer_tokens}");
        let prefixes = format!("{groups} prefixes of {prefix_tokens} tokens");
        let about = match self.workload {
            Kind::Chats => format!(
                "{count} requests of chats over {prefixes}: {rate} new ones per second, {turns} \
                 turns of {lengths}"
            ),
            Kind::Groups => format!("{count} requests, {rate} per second: {prefixes}, {lengths}"),
            Kind::Unique => format!("{count} requests, {rate} per second: all new, {lengths}"),
            Kind::Churn => format!(
                "{count} requests, {rate} per second: {prefixes} at a time, each for {} s, {lengths}",
                self.lifetime.as_secs_f64()
            ),
        };
        Ok(Work { requests, about, distinct_blocks: None })
    }
}
