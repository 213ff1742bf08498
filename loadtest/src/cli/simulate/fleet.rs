//! The engines.

use smg_loadtest::engine::Profile;
use smg_loadtest::simulate::{EngineFailure, Options};

use super::moment;
use super::work::Work;
use crate::cli::{Failure, seconds};

#[derive(clap::Args)]
#[command(next_help_heading = "Engines")]
pub struct FleetArgs {
    /// Number of engines
    #[arg(short, long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub engines: u32,

    /// Speed and sizes of an engine, as for `engines`
    #[arg(long, default_value = "8b-h100")]
    profile: String,

    /// KV cache of an engine, in blocks of the workload [default: as many tokens as the profile has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
          conflicts_with = "cache_share")]
    cache_blocks: Option<u32>,

    /// Trace: KV caches of all engines together, as a share of its distinct blocks
    #[arg(long, value_name = "SHARE", requires = "trace")]
    cache_share: Option<f64>,

    /// An engine goes away with its requests and its cache: when, and which one (0 without it); may be
    /// repeated
    #[arg(long, value_name = "SECONDS[:ENGINE]")]
    fail_engine_at: Vec<String>,

    /// How long it stays away
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    engine_down_secs: std::time::Duration,
}

impl FleetArgs {
    /// The profile with the workload's blocks, and long enough for its requests.
    pub fn profile(&self, work: &Work) -> Result<Profile, Failure> {
        let profile = Profile::named(&self.profile).map_err(Failure::usage)?;
        let block_tokens = work.requests.block_tokens();
        let tokens = u64::from(profile.cache_blocks) * u64::from(profile.block_tokens);
        let cache_blocks = match (self.cache_blocks, self.cache_share, work.distinct_blocks) {
            (Some(blocks), ..) => blocks,
            (None, Some(share), Some(distinct)) => {
                if !(share > 0.0 && share <= 1e6) {
                    return Err(Failure::Usage(format!("--cache-share {share} is not a share")));
                }
                (share * distinct as f64 / f64::from(self.engines)).round() as u32
            }
            _ => (tokens / u64::from(block_tokens)) as u32,
        };
        Ok(Profile {
            block_tokens,
            cache_blocks: cache_blocks.max(1),
            max_model_len: profile.max_model_len.max(work.requests.longest_request()),
            ..profile
        })
    }

    pub fn failures(&self) -> Result<Vec<EngineFailure>, Failure> {
        let failure = |text: &String| {
            let (at, engine) = moment("--fail-engine-at", text)?;
            if engine >= self.engines as usize {
                return Err(Failure::Usage(format!(
                    "--fail-engine-at {text}: there are engines 0 to {}",
                    self.engines - 1
                )));
            }
            Ok(EngineFailure { at, engine, down: self.engine_down_secs.as_nanos() as u64 })
        };
        self.fail_engine_at.iter().map(failure).collect()
    }

    pub fn about(&self, options: &Options, work: &Work) -> String {
        let Profile { name, block_tokens, cache_blocks, .. } = options.profile;
        let mut about = format!(
            "{} engines {name}, each with {cache_blocks} blocks of {block_tokens} tokens",
            options.engines
        );
        if let Some(distinct) = work.distinct_blocks {
            let all = f64::from(cache_blocks) * options.engines as f64;
            about.push_str(&format!(
                ", together {:.1} % of the trace's",
                100.0 * all / distinct as f64
            ));
        }
        for failure in &options.engine_failures {
            let EngineFailure { at, engine, down } = failure;
            let (at, down) = (*at as f64 / 1e9, *down as f64 / 1e9);
            about.push_str(&format!("; engine {engine} away at {at} s for {down} s"));
        }
        about
    }
}
