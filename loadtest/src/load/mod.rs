//! Load on an inference server, measured without coordinated omission: every latency counts from
//! the time its request was due, not from when the client got round to sending it.

pub mod bodies;
mod client;
mod conversation;
pub mod made;
pub mod record;
mod replay;
mod report;
mod run;
pub mod schedule;
mod session;
mod target;
mod tickets;

pub use conversation::{ConversationOptions, run_conversations};
pub use replay::{ReplayApi, ReplayOptions, replay};
pub use report::{EngineView, Quantiles, Report};
pub use run::{Load, RunOptions, run};
pub use session::{Observer, Progress};
pub use target::{Target, TargetError};

#[cfg(test)]
mod tests;
