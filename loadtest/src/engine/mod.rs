//! A simulated inference engine without I/O: virtual time and prompts in, token emissions out.
//!
//! The model follows vLLM's scheduler closely enough that a routing policy meets the same
//! incentives: continuous batching in steps, chunked prefill under a token budget, a block pool
//! whose unused blocks stay cached in LRU order, prefix hits in whole leading blocks, preemption
//! when the pool runs dry. [`Engine`] is driven with timestamps the caller chooses, so the HTTP
//! server ([`crate::server`]) runs it against the wall clock and a simulation can run it against
//! none.

mod pool;
mod profile;
mod sim;
mod tokens;

pub use profile::{Profile, UnknownProfile};
pub use sim::{Counters, Engine, Load, Progress, RequestId, SubmitError};
pub use tokens::{ANSWER_TOKEN_CHARS, CHARS_PER_TOKEN, Sequence, SequenceBuilder, answer_token};

/// Virtual time and durations in nanoseconds, from an origin the caller chooses.
pub type Nanos = u64;

#[cfg(test)]
mod properties;
