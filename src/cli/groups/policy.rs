//! Which policy chooses a worker, and what clients are told about the choice.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use smg_io::config::PolicyKind;

/// Which policy chooses a worker, and what clients are told about the choice.
#[derive(Debug, Args)]
#[command(next_help_heading = "Routing")]
pub struct PolicyArgs {
    /// How a worker is chosen for a request
    #[arg(long, value_name = "POLICY", value_parser = policy_parser(), default_value = "cache_aware")]
    pub policy: PolicyKind,
    /// Answer requests that carry `x-smg-explain: 1` with how they were routed, in the header
    /// x-smg-route. Shows worker URLs to clients
    #[arg(long)]
    pub enable_explain: bool,
    /// Leave the header x-smg-routed-worker-id out of responses
    #[arg(long)]
    pub hide_worker_id: bool,
}

/// Reads the name of a policy.
pub fn policy_parser() -> impl TypedValueParser<Value = PolicyKind> {
    PossibleValuesParser::new(
        PolicyKind::ALL.map(|policy| PossibleValue::new(policy.as_str()).help(help(policy))),
    )
    .try_map(|name| {
        let known = PolicyKind::ALL.into_iter().find(|policy| policy.as_str() == name);
        known.ok_or("Must be the name of a policy")
    })
}

fn help(policy: PolicyKind) -> &'static str {
    match policy {
        PolicyKind::CacheAware => "the worker likely to hold the prompt's prefix, unless too busy",
        PolicyKind::RoundRobin => "each worker in turn",
        PolicyKind::Random => "any worker, all alike",
        PolicyKind::PowerOfTwo => "the better of two workers drawn at random",
        PolicyKind::LeastLoad => "the worker with the lowest expected wait",
        PolicyKind::PrefixHash => "a hash of the prompt's beginning, within a load bound",
        PolicyKind::ConsistentHashing => "a hash of the routing key, on a ring",
        PolicyKind::Manual => "routing keys stay on the worker they were first sent to",
        PolicyKind::Passthrough => "the first worker",
        PolicyKind::Bucket => "by prompt length, for prefill workers; elsewhere as random",
    }
}
