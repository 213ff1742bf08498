//! The requests of a trace.

use std::sync::Arc;

use super::{Request, block, mix};
use crate::engine::{Nanos, Sequence};
use crate::trace::{Spread, Trace};

/// A trace in its own time or faster, once or again and again.
#[derive(Debug, Clone)]
pub struct Replayed {
    trace: Arc<Trace>,
    /// Arrivals of one pass, spread and scaled.
    times: Arc<[Nanos]>,
    /// From the start of one pass to the start of the next.
    pass: Nanos,
    taken: u64,
    limit: u64,
}

/// Keeps what one request generates apart from all blocks of the trace.
const ANSWERS: u64 = 1 << 63;

impl Replayed {
    /// `requests` of the trace (all of it if `None`), its ticks spread, its times divided by `scale`.
    /// Beyond its end it begins again, with blocks of their own for each pass.
    pub fn new(
        trace: Arc<Trace>,
        spread: Spread,
        scale: f64,
        requests: Option<u64>,
        seed: u64,
    ) -> Self {
        let mut times = trace.times();
        spread.apply(&mut times, seed);
        for time in &mut times {
            *time = (*time as f64 / scale) as Nanos;
        }
        let last = times.last().copied().unwrap_or(0);
        let mean_gap = last / (times.len() as u64 - 1).max(1);
        Self {
            limit: requests.unwrap_or(trace.len() as u64),
            trace,
            times: times.into(),
            pass: last + mean_gap,
            taken: 0,
        }
    }

    pub(super) fn next_at(&self) -> Option<Nanos> {
        let length = self.times.len() as u64;
        let (pass, at) = (self.taken / length, (self.taken % length) as usize);
        (self.taken < self.limit).then(|| pass * self.pass + self.times[at])
    }

    pub(super) fn take(&mut self) -> Option<(Nanos, Request)> {
        let at = self.next_at()?;
        let length = self.times.len() as u64;
        let pass = self.taken / length;
        let record = self.trace.get((self.taken % length) as usize)?;
        let identity = |&id: &u64| if pass == 0 { id } else { mix(id ^ pass) };
        let block_tokens = self.block_tokens();
        let full = record.input_tokens / block_tokens;
        let all = (record.input_tokens + record.output_tokens) / block_tokens;
        let mut blocks = Vec::with_capacity(all as usize);
        blocks.extend(record.blocks[..full as usize].iter().map(identity));
        // What an answer's blocks are called in a later prompt the trace does not say.
        blocks.extend((full..all).map(|index| block(ANSWERS | self.taken, index)));
        self.taken += 1;
        let request = Request {
            tail: record.blocks.get(full as usize).map(identity),
            sequence: Sequence {
                prompt_tokens: record.input_tokens,
                answer_tokens: record.output_tokens,
                blocks,
                answer_seed: 0,
            },
            shared_blocks: full,
            session: None,
        };
        Some((at, request))
    }

    pub(super) fn block_tokens(&self) -> u32 {
        self.trace.block_tokens()
    }

    pub(super) fn longest_request(&self) -> u32 {
        self.trace.longest_request()
    }
}
