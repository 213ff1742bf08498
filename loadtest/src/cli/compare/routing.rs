//! The routing load.

use std::time::Duration;

use smg_loadtest::compare::RoutingOptions;
use smg_loadtest::engine::Profile;
use smg_loadtest::load::ConversationOptions;

use crate::cli::{Failure, seconds};

#[derive(clap::Args)]
#[command(next_help_heading = "Routing load")]
pub struct RoutingArgs {
    /// Simulated engines
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    engines: u16,

    /// Speed and sizes of an engine, as for `engines`
    #[arg(long, default_value = "8b-h100")]
    profile: String,

    /// KV cache of an engine in blocks of 16 tokens; small, so that seconds can fill it
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    cache_blocks: u32,

    /// New chats per second
    #[arg(long, value_name = "PER_SECOND", default_value_t = 24.0, value_parser = rate)]
    arrivals: f64,

    /// Shared system prompts
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    system_prompts: u32,

    /// Tokens of each system prompt
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    system_prompt_tokens: u32,

    /// Turns of a chat
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    turns: u32,

    /// Tokens of each answer
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    answer_tokens: u32,

    /// Seconds before the measured ones of a run; they begin with empty caches
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    routing_warmup: Duration,

    /// Seconds measured per run of the routing load
    #[arg(long, value_name = "SECONDS", default_value = "6", value_parser = seconds)]
    routing_seconds: Duration,

    /// Decides what is said and when
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl RoutingArgs {
    pub fn options(&self) -> Result<RoutingOptions, Failure> {
        let profile = Profile::named(&self.profile).map_err(Failure::usage)?;
        let profile = Profile { cache_blocks: self.cache_blocks, ..profile };
        // A chat grows by a question and an answer with every turn.
        let standard = RoutingOptions::default();
        let question =
            standard.conversations.question_chars / smg_loadtest::engine::CHARS_PER_TOKEN;
        let longest = u64::from(self.system_prompt_tokens)
            + u64::from(self.turns) * (question as u64 + u64::from(self.answer_tokens) + 16);
        if longest > u64::from(profile.longest_request()) {
            return Err(Failure::Usage(format!(
                "a chat of {longest} tokens is longer than an engine takes ({}): lower \
                 --system-prompt-tokens, --turns or --answer-tokens, or raise --cache-blocks",
                profile.longest_request()
            )));
        }
        Ok(RoutingOptions {
            engines: usize::from(self.engines),
            profile,
            conversations: ConversationOptions {
                arrivals_per_s: self.arrivals,
                system_prompts: self.system_prompts as usize,
                system_prompt_chars: self.system_prompt_tokens as usize
                    * smg_loadtest::engine::CHARS_PER_TOKEN,
                turns: self.turns as usize,
                answer_tokens: self.answer_tokens,
                warmup: self.routing_warmup,
                duration: self.routing_seconds,
                seed: self.seed,
                ..standard.conversations
            },
        })
    }
}

fn rate(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|rate| *rate > 0.0 && *rate <= 1e5)
        .ok_or_else(|| format!("'{text}' is not a rate above 0 and up to 100000 per second"))
}
