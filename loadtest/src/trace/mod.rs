//! Traces of real traffic in Mooncake's format: when requests came, how long they were, and which
//! blocks of their prompts are the same.
//!
//! One JSON object per line: `timestamp` (ms), `input_length` and `output_length` (tokens), and
//! `hash_ids`, one number per block of 512 prompt tokens, the last block perhaps shorter. Equal
//! numbers mean equal prompts up to the end of that block. Other fields are ignored.

pub mod expand;
mod read;
mod spread;

pub use read::{Trace, TraceError};
pub use spread::Spread;

use crate::engine::Nanos;

/// Tokens per block in Mooncake's traces.
pub const BLOCK_TOKENS: u32 = 512;

/// One request of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Since the trace's first request.
    pub at: Nanos,
    pub input_tokens: u32,
    pub output_tokens: u32,
    /// Identity of each block of the prompt: spread over all 64 bits, equal where the trace's
    /// numbers are equal.
    pub blocks: &'a [u64],
}
