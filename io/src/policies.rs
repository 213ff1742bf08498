//! From the operator's configuration to the settings of the core's policies.

use smg_core::breaker::BreakerConfig;
use smg_core::policy::cache_aware::CacheAwareConfig;
use smg_core::policy::expected_wait::Scorer;
use smg_core::policy::kv_pressure::KvPressure;
use smg_core::policy::prefix_hash::PrefixHashConfig;
use smg_core::policy::ranking::Ranking;
use smg_core::policy::spill_gate::SpillMargins;
use smg_core::policy::sticky::Assignment;
use smg_core::retry::RetryConfig;

use crate::config::{AssignmentMode, Config};

/// Settings of `cache_aware`.
pub fn cache_aware_config(config: &Config) -> CacheAwareConfig {
    let cache = &config.cache;
    CacheAwareConfig {
        cache_threshold: cache.threshold,
        spill: SpillMargins {
            abs: u32::try_from(cache.balance_abs).unwrap_or(u32::MAX),
            rel: cache.balance_rel,
        },
        kv_pressure: KvPressure {
            overload: cache.overload_token_usage,
            balance: cache.balance_token_usage,
        },
        ranking: Ranking {
            overlap_decay: cache.overlap_decay,
            temperature: cache.selection_temperature,
        },
        block_size: u32::try_from(cache.block_size).unwrap_or(u32::MAX),
    }
}

/// Constants of `least_load`.
pub fn least_load_scorer(config: &Config) -> Scorer {
    let least_load = config.least_load;
    Scorer {
        kv_weight_secs: least_load.kv_pressure_weight,
        default_throughput: least_load.default_throughput,
        mean_prefill_tokens: least_load.mean_prefill_tokens,
        max_waiting_requests: least_load.max_waiting_requests,
    }
}

/// Settings of `prefix_hash`.
pub fn prefix_hash_config(config: &Config) -> PrefixHashConfig {
    let prefix_hash = config.prefix_hash;
    PrefixHashConfig {
        token_count: prefix_hash.token_count,
        load_factor: prefix_hash.load_factor,
        balance_abs: u32::try_from(prefix_hash.balance_abs).unwrap_or(u32::MAX),
        boundaries: config.cache.boundaries.clone(),
    }
}

/// How a sticky key without a worker gets one.
pub fn assignment(mode: AssignmentMode) -> Assignment {
    match mode {
        AssignmentMode::Random => Assignment::Random,
        AssignmentMode::MinLoad => Assignment::MinLoad,
        AssignmentMode::MinGroup => Assignment::MinGroup,
        AssignmentMode::Delegate => Assignment::Delegate,
    }
}

/// Settings of the circuit breakers.
pub fn breaker_config(config: &Config) -> BreakerConfig {
    let breaker = config.breaker;
    BreakerConfig {
        enabled: breaker.enabled,
        failure_threshold: breaker.failure_threshold,
        success_threshold: breaker.success_threshold,
        timeout_ms: breaker.timeout_secs * 1000,
        window_ms: breaker.window_secs * 1000,
        max_skip_ms: config.retry.max_backoff_ms,
    }
}

/// Settings of retries.
pub fn retry_config(config: &Config) -> RetryConfig {
    let retry = config.retry;
    RetryConfig {
        max_attempts: if retry.enabled { retry.max_attempts } else { 1 },
        initial_backoff_ms: retry.initial_backoff_ms,
        max_backoff_ms: retry.max_backoff_ms,
        backoff_multiplier: retry.backoff_multiplier,
        jitter_factor: retry.jitter_factor,
    }
}
