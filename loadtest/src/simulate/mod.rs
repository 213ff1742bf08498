//! Routing simulated: the gateway's own decisions over simulated engines, in virtual time and
//! without sockets. One thread, one seed, one result.
//!
//! | module | |
//! |---|---|
//! | [`workload`] | what arrives: a trace, groups with shared prefixes, chats |
//! | [`index`], [`gateway`] | what a gateway remembers and how it decides, by `smg-core` |
//! | [`oracle`] | what could be had at best |
//! | [`world`], [`timeline`] | what happens when |
//! | [`record`], [`report`] | what came of it |

mod gateway;
mod index;
mod oracle;
mod record;
mod report;
mod timeline;
pub mod workload;
mod world;

use std::fmt;
use std::str::FromStr;

use smg_core::policy::PolicyKind;

pub use gateway::GatewayOptions;
pub use index::{IndexOptions, Prompts};
pub use oracle::Clairvoyant;
pub use record::ArmReport;
pub use report::Report;

use crate::engine::{Nanos, Profile};
use workload::Workload;
use world::World;

/// What is simulated, the policy and the workload excepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// At least 1, and at most [`smg_core::fleet::MAX_WORKERS`].
    pub engines: usize,
    /// Of every engine; its blocks are those of the workload.
    pub profile: Profile,
    pub gateway: GatewayOptions,
    /// Gateways, at least 1, that clients go to in turn.
    pub gateways: usize,
    /// All gateways look into one index and write to it; the rest of their state stays their own.
    pub shared_index: bool,
    /// When which gateway starts anew, without what it knew.
    pub gateway_restarts: Vec<(Nanos, usize)>,
    pub engine_failures: Vec<EngineFailure>,
    /// Longest good time to first token.
    pub slo: Nanos,
    pub seed: u64,
}

/// An engine goes away with its requests and comes back with an empty cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineFailure {
    pub at: Nanos,
    pub engine: usize,
    pub down: Nanos,
}

/// Who decides in one arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Gateway(PolicyKind),
    /// One cache without limits and no queues: the bound of the hit share.
    Infinite,
    Clairvoyant(Clairvoyant),
}

impl Policy {
    fn gateway(self) -> Option<PolicyKind> {
        match self {
            Self::Gateway(kind) => Some(kind),
            Self::Infinite | Self::Clairvoyant(_) => None,
        }
    }
}

const ORACLES: [(&str, Policy); 3] = [
    ("oracle-infinite", Policy::Infinite),
    ("oracle-clairvoyant", Policy::Clairvoyant(Clairvoyant::Soonest)),
    ("oracle-longest-hit", Policy::Clairvoyant(Clairvoyant::LongestHit)),
];

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway(kind) => f.write_str(kind.as_str()),
            oracle => {
                let name = ORACLES.iter().find(|(_, policy)| policy == oracle);
                f.write_str(name.map_or("oracle", |(name, _)| name))
            }
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some((_, oracle)) = ORACLES.iter().find(|(oracle, _)| *oracle == name) {
            return Ok(*oracle);
        }
        name.parse().map(Self::Gateway).map_err(|_unknown| {
            let kinds = PolicyKind::ALL.iter().map(|kind| kind.as_str());
            let all: Vec<&str> = kinds.chain(ORACLES.iter().map(|(name, _)| *name)).collect();
            format!("no policy is called '{name}'; there are: {}", all.join(", "))
        })
    }
}

/// Runs one arm to its end. Returns its row, and how many decisions it took.
pub fn run(options: &Options, policy: Policy, workload: Workload) -> (ArmReport, u64) {
    let (record, decisions) = match policy {
        Policy::Infinite => {
            let record = oracle::run_infinite(workload, &options.profile, options.slo);
            (record, 0)
        }
        _ => World::new(options, policy, workload).run(),
    };
    (record.report(policy.to_string()), decisions)
}

#[cfg(test)]
mod tests;
