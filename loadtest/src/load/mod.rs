//! Load on an inference server, measured without coordinated omission: every latency counts from
//! the time its request was due, not from when the client got round to sending it.

pub mod bodies;
pub mod client;
pub mod record;
mod report;
mod run;
pub mod schedule;
mod target;
mod tickets;

pub use report::{Quantiles, Report};
pub use run::{Load, Observer, Progress, RunOptions, run, run_async};
pub use target::{Target, TargetError};

#[cfg(test)]
mod tests;
