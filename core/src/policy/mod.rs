//! Which worker gets a request.
//!
//! Every policy is a plain function of one [`Candidates`], the fleet as one decision sees it, and
//! answers with a [`Choice`] or with the reason why nobody can be chosen. Policies that look into an
//! index get its answer as a plain value; none of them reads an index, a clock or a random source.
//!
//! | policy | module |
//! |---|---|
//! | `cache_aware` | [`cache_aware`], built from [`kv_pressure`], [`ranking`], [`spill_gate`], [`expected_wait`] |
//! | `least_load`, `power_of_two` | [`least_load`], [`power_of_two`] over [`expected_wait`] |
//! | `round_robin`, `random`, `passthrough`, `bucket` | [`rotation`], [`sampling`], [`kind::PolicyKind`] |
//! | `prefix_hash`, `consistent_hashing` | [`prefix_hash`], [`consistent_hashing`] over [`ring`] |
//! | `manual`, `--routing-key-override` | [`sticky`] |
//!
//! Load reports: [`load_report`] reads them, [`loads`] publishes them as epochs and keeps the credits.

pub mod branch;
pub mod cache_aware;
pub mod candidates;
pub mod consistent_hashing;
pub mod engine_metrics;
pub mod expected_wait;
pub mod kind;
pub mod kv_pressure;
pub mod least_load;
pub mod load_report;
pub mod load_rounds;
pub mod loads;
pub mod power_of_two;
pub mod prefix_hash;
pub mod ranking;
pub mod ring;
pub mod rotation;
pub mod sampling;
pub mod spill_gate;
pub mod state;
pub mod sticky;

pub use branch::Branch;
pub use candidates::{Candidates, Eligible, NoWorker};
pub use kind::PolicyKind;
pub use loads::{LoadTable, Loads};
pub use state::PolicyState;

#[cfg(test)]
mod fake_fleet;
#[cfg(test)]
mod simulation;

use crate::fleet::WorkerId;

/// The worker a policy decided for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Where the request goes.
    pub worker: WorkerId,
    /// How the decision came about; the label of the policy's counter.
    pub branch: Branch,
    /// The scorer's number for `worker`, if the scorer chose it: seconds of expected wait, or
    /// requests in flight while nobody reports.
    pub score: Option<f64>,
}
