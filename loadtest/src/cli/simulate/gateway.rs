//! The gateways; flags that the gateway has too are called and mean the same.

use clap::ValueEnum;
use smg_core::policy::cache_aware::CacheAwareConfig;
use smg_core::policy::kv_pressure::KvPressure;
use smg_core::policy::prefix_hash::PrefixHashConfig;
use smg_core::policy::ranking::Ranking;
use smg_core::policy::spill_gate::SpillMargins;
use smg_loadtest::simulate::workload::Workload;
use smg_loadtest::simulate::{GatewayOptions, IndexOptions, Prompts};

use super::moment;
use crate::cli::{Failure, seconds};

#[derive(clap::Args)]
#[command(next_help_heading = "Gateways (flags of smg mean the same here)")]
pub struct GatewayArgs {
    /// Gateways that clients go to in turn, each with its own state
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub gateways: u32,

    /// One prefix index for all gateways: the ideal of shared state
    #[arg(long)]
    pub shared_state: bool,

    /// A gateway starts anew, without what it knew: when, and which one (0 without it); may be
    /// repeated
    #[arg(long, value_name = "SECONDS[:GATEWAY]")]
    gateway_restart_at: Vec<String>,

    /// What prompts look like to the gateway
    #[arg(long, value_enum, default_value_t = PromptKind::Text)]
    prompts: PromptKind,

    /// Index whole prompts instead of blocks: slow, to check the other
    #[arg(long)]
    whole_prompts: bool,

    #[arg(long, value_name = "RATIO", default_value_t = CacheAwareConfig::default().cache_threshold)]
    cache_threshold: f32,

    #[arg(long, visible_alias = "spill-abs-threshold", value_name = "REQUESTS",
          default_value_t = SpillMargins::default().abs)]
    balance_abs_threshold: u32,

    #[arg(long, visible_alias = "spill-rel-threshold", value_name = "FACTOR",
          default_value_t = SpillMargins::default().rel)]
    balance_rel_threshold: f64,

    #[arg(long, value_name = "FRACTION", default_value_t = KvPressure::default().balance)]
    balance_token_usage_threshold: f64,

    #[arg(long, value_name = "FRACTION", default_value_t = KvPressure::default().overload)]
    overload_token_usage_threshold: f64,

    #[arg(long, value_name = "FACTOR", default_value_t = 0.0)]
    overlap_decay: f64,

    #[arg(long, value_name = "T", default_value_t = 0.0)]
    selection_temperature: f64,

    /// Characters or tokens, each holder counted
    #[arg(long, value_name = "UNITS", default_value_t = IndexOptions::default().max_tree_size,
          value_parser = clap::value_parser!(u64).range(1..=1 << 50))]
    max_tree_size: u64,

    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    eviction_interval: std::time::Duration,

    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    load_monitor_interval: std::time::Duration,

    /// Ask each engine for its load at a moment of its own instead of all in rounds
    #[arg(long)]
    polls_spread: bool,

    #[arg(long, value_enum, default_value_t = IndexKind::Tree)]
    cache_index: IndexKind,

    /// In whole blocks of the workload
    #[arg(long, value_name = "TOKENS,...", value_delimiter = ',')]
    cache_boundaries: Vec<u32>,

    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    cache_ttl_secs: u64,

    /// In whole blocks of the workload, at least one
    #[arg(long, value_name = "TOKENS", default_value_t = PrefixHashConfig::default().token_count)]
    prefix_token_count: usize,

    #[arg(long, value_name = "FACTOR", default_value_t = PrefixHashConfig::default().load_factor)]
    prefix_hash_load_factor: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum PromptKind {
    /// Text of four characters per token
    Text,
    /// Token IDs
    Tokens,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IndexKind {
    Tree,
    /// Needs --cache-boundaries and --prompts tokens
    Hash,
}

impl GatewayArgs {
    pub fn options(&self, workload: &Workload) -> Result<GatewayOptions, Failure> {
        self.check(workload)?;
        let boundaries = match self.cache_index {
            IndexKind::Tree => Vec::new(),
            IndexKind::Hash => self.cache_boundaries.clone(),
        };
        let defaults = GatewayOptions::default();
        Ok(GatewayOptions {
            cache_aware: CacheAwareConfig {
                cache_threshold: self.cache_threshold,
                spill: SpillMargins {
                    abs: self.balance_abs_threshold,
                    rel: self.balance_rel_threshold,
                },
                kv_pressure: KvPressure {
                    overload: self.overload_token_usage_threshold,
                    balance: self.balance_token_usage_threshold,
                },
                ranking: Ranking {
                    overlap_decay: self.overlap_decay,
                    temperature: self.selection_temperature,
                },
                ..CacheAwareConfig::default()
            },
            index: IndexOptions {
                prompts: match self.prompts {
                    PromptKind::Text => Prompts::Text,
                    PromptKind::Tokens => Prompts::Tokens,
                },
                whole_prompts: self.whole_prompts,
                max_tree_size: self.max_tree_size,
                boundaries,
                ttl_ms: self.cache_ttl_secs.saturating_mul(1_000),
            },
            eviction_interval: self.eviction_interval.as_nanos() as u64,
            load_interval: self.load_monitor_interval.as_nanos() as u64,
            polls_spread: self.polls_spread,
            prefix_hash: PrefixHashConfig {
                token_count: self.prefix_token_count,
                load_factor: self.prefix_hash_load_factor,
                boundaries: self.cache_boundaries.iter().map(|&tokens| tokens as usize).collect(),
                ..defaults.prefix_hash
            },
            ..defaults
        })
    }

    fn check(&self, workload: &Workload) -> Result<(), Failure> {
        let wrong = |what: String| Err(Failure::Usage(what));
        if !(0.0..=1.0).contains(&self.cache_threshold) {
            return wrong(format!("--cache-threshold {} must be 0 to 1", self.cache_threshold));
        }
        for (flag, value, least) in [
            ("--balance-rel-threshold", self.balance_rel_threshold, 1.0),
            ("--prefix-hash-load-factor", self.prefix_hash_load_factor, 1.0),
            ("--overlap-decay", self.overlap_decay, 0.0),
            ("--selection-temperature", self.selection_temperature, 0.0),
        ] {
            if !(value.is_finite() && value >= least) {
                return wrong(format!("{flag} {value} must be at least {least}"));
            }
        }
        for (flag, value) in [
            ("--balance-token-usage-threshold", self.balance_token_usage_threshold),
            ("--overload-token-usage-threshold", self.overload_token_usage_threshold),
        ] {
            if value.is_nan() || value <= 0.0 {
                return wrong(format!("{flag} {value} must be above 0 (1 and more is off)"));
            }
        }
        let intervals = [self.eviction_interval, self.load_monitor_interval];
        if intervals.iter().any(|interval| interval.as_millis() == 0) {
            return wrong("--eviction-interval and --load-monitor-interval: at least 1 ms".into());
        }
        let boundaries = &self.cache_boundaries;
        let block = workload.block_tokens();
        if !boundaries.is_sorted_by(|a, b| a < b)
            || boundaries.iter().any(|tokens| tokens % block > 0)
        {
            return wrong(format!(
                "--cache-boundaries {boundaries:?} must be ascending multiples of {block}, the \
                 workload's blocks"
            ));
        }
        let is_text = matches!(self.prompts, PromptKind::Text);
        if self.cache_index == IndexKind::Hash && (boundaries.is_empty() || is_text) {
            return wrong(
                "--cache-index hash needs --cache-boundaries and --prompts tokens".into(),
            );
        }
        Ok(())
    }

    pub fn restarts(&self) -> Result<Vec<(u64, usize)>, Failure> {
        let restart = |text: &String| {
            let (at, gateway) = moment("--gateway-restart-at", text)?;
            if gateway >= self.gateways as usize {
                return Err(Failure::Usage(format!(
                    "--gateway-restart-at {text}: there are gateways 0 to {}",
                    self.gateways - 1
                )));
            }
            Ok((at, gateway))
        };
        self.gateway_restart_at.iter().map(restart).collect()
    }

    pub fn about(&self) -> String {
        let prompts = match self.prompts {
            PromptKind::Text => "text",
            PromptKind::Tokens => "token IDs",
        };
        let mut about = match (self.gateways, self.shared_state) {
            (1, _) => format!("1, prompts are {prompts}"),
            (count, false) => format!("{count}, each for itself, prompts are {prompts}"),
            (count, true) => format!("{count} with one index, prompts are {prompts}"),
        };
        let restarts = self.gateway_restart_at.iter().map(|at| format!("; restart at {at} s"));
        about.extend(restarts);
        let flags = self.flags().into_iter().zip(Self::by_default().flags());
        let changed: String = flags
            .filter(|(own, default)| own != default)
            .map(|((flag, value), _)| match value.as_str() {
                "true" => format!(" {flag}"),
                _ => format!(" {flag} {value}"),
            })
            .collect();
        about.push_str(if changed.is_empty() { "; defaults" } else { ";" });
        about.push_str(&changed);
        about
    }

    /// Flags that decisions depend on, with their values.
    fn flags(&self) -> [(&'static str, String); 17] {
        let index = match self.cache_index {
            IndexKind::Tree => "tree",
            IndexKind::Hash => "hash",
        };
        let boundaries: Vec<String> = self.cache_boundaries.iter().map(u32::to_string).collect();
        [
            ("--cache-threshold", self.cache_threshold.to_string()),
            ("--balance-abs-threshold", self.balance_abs_threshold.to_string()),
            ("--balance-rel-threshold", self.balance_rel_threshold.to_string()),
            ("--balance-token-usage-threshold", self.balance_token_usage_threshold.to_string()),
            ("--overload-token-usage-threshold", self.overload_token_usage_threshold.to_string()),
            ("--overlap-decay", self.overlap_decay.to_string()),
            ("--selection-temperature", self.selection_temperature.to_string()),
            ("--max-tree-size", self.max_tree_size.to_string()),
            ("--eviction-interval", self.eviction_interval.as_secs_f64().to_string()),
            ("--load-monitor-interval", self.load_monitor_interval.as_secs_f64().to_string()),
            ("--polls-spread", self.polls_spread.to_string()),
            ("--whole-prompts", self.whole_prompts.to_string()),
            ("--cache-index", index.to_owned()),
            ("--cache-boundaries", boundaries.join(",")),
            ("--cache-ttl-secs", self.cache_ttl_secs.to_string()),
            ("--prefix-token-count", self.prefix_token_count.to_string()),
            ("--prefix-hash-load-factor", self.prefix_hash_load_factor.to_string()),
        ]
    }

    fn by_default() -> Self {
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            gateway: GatewayArgs,
        }
        <Alone as clap::Parser>::parse_from(["simulate"]).gateway
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_as_by_default_is_named() {
        let mut gateway = GatewayArgs::by_default();
        assert_eq!(gateway.about(), "1, prompts are text; defaults");
        gateway.balance_abs_threshold = 8;
        gateway.polls_spread = true;
        gateway.cache_boundaries = vec![512, 1024];
        assert_eq!(
            gateway.about(),
            "1, prompts are text; --balance-abs-threshold 8 --polls-spread --cache-boundaries 512,1024"
        );
    }
}
