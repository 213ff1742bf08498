//! Prefix indexes, spill gate and KV pressure of `cache_aware`.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use smg_io::config::{CacheConfig, CacheIndex};

use crate::cli::error::ConfigError;
use crate::cli::values::{number, positive, positive_secs, require, whole};

/// Prefix indexes, spill gate and KV pressure of `cache_aware`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cache-aware routing")]
pub struct CacheArgs {
    /// Prefer the holders of a prefix only if more than this share of the request matched, 0 to 1
    #[arg(long, visible_alias = "cache-match-threshold", value_name = "RATIO",
          value_parser = number::<f32>, default_value_t = CacheConfig::default().threshold)]
    cache_threshold: f32,
    /// A holder is passed over as too busy when it has this many more requests in flight than the
    /// mean, and more than --balance-rel-threshold times the mean
    #[arg(long, visible_alias = "spill-abs-threshold", value_name = "REQUESTS",
          value_parser = whole::<usize>, default_value_t = CacheConfig::default().balance_abs)]
    balance_abs_threshold: usize,
    /// See --balance-abs-threshold; at least 1
    #[arg(long, visible_alias = "spill-rel-threshold", value_name = "FACTOR",
          value_parser = number::<f64>, default_value_t = CacheConfig::default().balance_rel)]
    balance_rel_threshold: f64,
    /// Ignore prefixes while the KV usage of the fullest and the emptiest worker differ by more than
    /// this; 1 or more is off
    #[arg(long, value_name = "FRACTION", value_parser = number::<f64>,
          default_value_t = CacheConfig::default().balance_token_usage)]
    balance_token_usage_threshold: f64,
    /// Ignore prefixes while the KV usage of any worker exceeds this; 1 or more is off
    #[arg(long, value_name = "FRACTION", value_parser = number::<f64>,
          default_value_t = CacheConfig::default().overload_token_usage)]
    overload_token_usage_threshold: f64,
    /// How much a holder's backlog of prefill work lowers its rank; 0 is off
    #[arg(long, value_name = "FACTOR", value_parser = number::<f64>,
          default_value_t = CacheConfig::default().overlap_decay)]
    overlap_decay: f64,
    /// Above 0, holders of lower rank are drawn at times, the more often the higher; 0 takes the best
    #[arg(long, value_name = "T", value_parser = number::<f64>,
          default_value_t = CacheConfig::default().selection_temperature)]
    selection_temperature: f64,
    /// Time between two sweeps that bring trees back within --max-tree-size, in seconds
    #[arg(long, visible_alias = "eviction-interval-secs", value_name = "SECS",
          value_parser = whole::<u64>,
          default_value_t = CacheConfig::default().eviction_interval_secs)]
    eviction_interval: u64,
    /// Budget of each model's text tree in characters and token tree in tokens; a prefix counts once
    /// per worker that holds it
    #[arg(long, value_name = "UNITS", value_parser = whole::<usize>,
          default_value_t = CacheConfig::default().max_tree_size)]
    max_tree_size: usize,
    /// Shards a model's trees are split over, by the beginning of the prompt: for one model that
    /// keeps a CPU busy with decisions. Each has its share of --max-tree-size; there are never more
    /// than --shards
    #[arg(long, value_name = "SHARDS", value_parser = whole::<usize>,
          default_value_t = CacheConfig::default().index_shards)]
    index_shards: usize,
    /// Tokens per page of the token tree: the engines' KV cache page size
    #[arg(long, value_name = "TOKENS", value_parser = whole::<usize>,
          default_value_t = CacheConfig::default().block_size)]
    block_size: usize,
    /// Where prefixes are looked up
    #[arg(long, value_name = "INDEX", value_parser = index_parser(), default_value = "tree")]
    cache_index: CacheIndex,
    /// Lengths at which the hash index compares request heads, in tokens, ascending, such as
    /// 2048,8192,32768. prefix_hash hashes at them too [default: none]
    #[arg(long, value_name = "TOKENS,...", value_delimiter = ',', value_parser = boundary)]
    cache_boundaries: Vec<usize>,
    /// How long the hash index remembers where a head went
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = CacheConfig::default().ttl_secs)]
    cache_ttl_secs: u64,
}

impl CacheArgs {
    pub fn resolve(self) -> Result<CacheConfig, ConfigError> {
        self.check_ranges()?;
        check_boundaries(&self.cache_boundaries)?;
        if self.cache_index == CacheIndex::Hash && self.cache_boundaries.is_empty() {
            return Err(ConfigError::invalid(
                "cache_index",
                "hash",
                "cache_index=hash requires non-empty cache_boundaries",
            ));
        }
        let index_shards = positive("index_shards", self.index_shards)?;
        require(
            index_shards == 1 || self.cache_index == CacheIndex::Tree,
            "index_shards",
            index_shards,
            "Must be 1 with cache_index=hash, which is not split",
        )?;
        Ok(CacheConfig {
            threshold: self.cache_threshold,
            balance_abs: self.balance_abs_threshold,
            balance_rel: self.balance_rel_threshold,
            balance_token_usage: self.balance_token_usage_threshold,
            overload_token_usage: self.overload_token_usage_threshold,
            overlap_decay: self.overlap_decay,
            selection_temperature: self.selection_temperature,
            eviction_interval_secs: positive_secs(
                "eviction_interval_secs",
                self.eviction_interval,
            )?,
            max_tree_size: positive("max_tree_size", self.max_tree_size)?,
            index_shards,
            block_size: positive("block_size", self.block_size)?,
            index: self.cache_index,
            boundaries: self.cache_boundaries,
            ttl_secs: positive_secs("cache_ttl_secs", self.cache_ttl_secs)?,
        })
    }

    fn check_ranges(&self) -> Result<(), ConfigError> {
        let threshold = self.cache_threshold;
        require(
            (0.0..=1.0).contains(&threshold),
            "cache_threshold",
            threshold,
            "Must be between 0.0 and 1.0",
        )?;
        let rel = self.balance_rel_threshold;
        require(rel >= 1.0, "balance_rel_threshold", rel, "Must be >= 1.0")?;
        for (field, usage) in [
            ("balance_token_usage_threshold", self.balance_token_usage_threshold),
            ("overload_token_usage_threshold", self.overload_token_usage_threshold),
        ] {
            require(usage > 0.0, field, usage, "Must be > 0.0 (use >= 1.0 to disable)")?;
        }
        let decay = self.overlap_decay;
        require(
            decay.is_finite() && decay >= 0.0,
            "overlap_decay",
            decay,
            "Must be finite and >= 0.0 (0.0 disables)",
        )?;
        let temperature = self.selection_temperature;
        require(
            temperature.is_finite() && temperature >= 0.0,
            "selection_temperature",
            temperature,
            "Must be finite and >= 0.0 (0.0 is argmax)",
        )
    }
}

fn check_boundaries(boundaries: &[usize]) -> Result<(), ConfigError> {
    let field = "cache_boundaries";
    require(boundaries.first() != Some(&0), field, 0, "Boundaries must be > 0")?;
    require(
        boundaries.is_sorted_by(|a, b| a < b),
        field,
        format_args!("{boundaries:?}"),
        "Boundaries must be strictly ascending",
    )
}

fn boundary(text: &str) -> Result<usize, String> {
    whole(text)
        .map_err(|_| "Must be a comma-separated list of whole numbers such as 2048,8192".to_owned())
}

fn index_parser() -> impl TypedValueParser<Value = CacheIndex> {
    PossibleValuesParser::new([
        PossibleValue::new("tree").help("prefix trees over text and tokens"),
        PossibleValue::new("hash").help("heads at --cache-boundaries, for --cache-ttl-secs"),
    ])
    .map(|name| if name == "hash" { CacheIndex::Hash } else { CacheIndex::Tree })
}
