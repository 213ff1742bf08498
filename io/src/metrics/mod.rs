//! Counters of the data plane, and their exposition.
//!
//! Every shard counts in cells of its own ([`ShardCells`]); a scrape adds the shards up. Nothing on
//! the hot path takes a lock or shares a written cache line with another shard.

mod cell;
mod cells;
pub mod exposition;
mod streams;
mod workers;

pub use cell::{Counter, Gauge, Histogram};
pub use cells::{
    AGE_BOUNDS_SECS, BranchFamily, ErrorKind, HandshakeFailure, Lent, ModelCells, ModelLabel,
    ShardCells, SharedCells, WorkerErrorKind,
};
pub use exposition::{Family, Text};
pub use streams::StreamCells;
