//! What arrives in a simulation: requests of a trace, or generated ones.

mod chats;
mod groups;
mod replayed;

pub use chats::{ChatOptions, Chats};
pub use groups::{GroupOptions, Groups};
pub use replayed::Replayed;

use crate::engine::{Nanos, Sequence};

/// One request, as a gateway and an engine see it.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its full blocks, prompt and answer, and their lengths.
    pub sequence: Sequence,
    /// Identity of the prompt's last block if that is not full.
    pub tail: Option<u64>,
    /// How many leading blocks of `sequence` another request may have too. The others are its own.
    pub shared_blocks: u32,
    /// The conversation it belongs to, for policies that go by a key.
    pub session: Option<u64>,
}

impl Request {
    /// Full blocks of the prompt.
    pub fn prompt_blocks(&self, block_tokens: u32) -> &[u64] {
        &self.sequence.blocks[..(self.sequence.prompt_tokens / block_tokens) as usize]
    }
}

/// A source of requests, the same whenever it is made from the same options.
#[derive(Debug, Clone)]
pub enum Workload {
    Replayed(Replayed),
    Groups(Groups),
    Chats(Chats),
}

impl Workload {
    /// When the next request arrives, as far as is known now: the end of another one may bring an
    /// earlier one.
    pub fn next_at(&self) -> Option<Nanos> {
        match self {
            Self::Replayed(trace) => trace.next_at(),
            Self::Groups(groups) => groups.next_at(),
            Self::Chats(chats) => chats.next_at(),
        }
    }

    /// Takes the next request.
    pub fn take(&mut self) -> Option<(Nanos, Request)> {
        match self {
            Self::Replayed(trace) => trace.take(),
            Self::Groups(groups) => groups.take(),
            Self::Chats(chats) => chats.take(),
        }
    }

    /// A request of `session` was answered at `at`, or failed.
    pub fn ended(&mut self, session: Option<u64>, at: Nanos) {
        if let (Self::Chats(chats), Some(session)) = (self, session) {
            chats.ended(session, at);
        }
    }

    /// Tokens per block of its requests.
    pub fn block_tokens(&self) -> u32 {
        match self {
            Self::Replayed(trace) => trace.block_tokens(),
            Self::Groups(groups) => groups.block_tokens(),
            Self::Chats(chats) => chats.block_tokens(),
        }
    }

    /// Longest prompt and answer together, in tokens.
    pub fn longest_request(&self) -> u32 {
        match self {
            Self::Replayed(trace) => trace.longest_request(),
            Self::Groups(groups) => groups.longest_request(),
            Self::Chats(chats) => chats.longest_request(),
        }
    }
}

/// Identity of block `index` of the text that `text` numbers.
fn block(text: u64, index: u32) -> u64 {
    mix(mix(text) ^ u64::from(index))
}

/// The finalizer of SplitMix64: a bijection that spreads a number over all bits.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
