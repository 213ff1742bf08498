//! What one who sees into an engine can say about a request before it is submitted.

use super::super::{Nanos, Sequence};
use super::{Engine, Request, Steps};

impl Engine {
    /// Tokens of a prompt that the cache would spare now.
    pub fn cached_tokens(&self, sequence: &Sequence) -> u32 {
        let lookup_blocks = sequence.prompt_tokens.saturating_sub(1) / self.profile.block_tokens;
        let lookup = &sequence.blocks[..lookup_blocks as usize];
        self.pool.leading_hits(lookup) as u32 * self.profile.block_tokens
    }

    /// How long after `now` a request submitted now would have its first token: what is left of the
    /// step under way, then steps that prefill all that was before it and its own `uncached` tokens
    /// beside what decodes now. An estimate: it knows no batch limit, no full pool and no arrivals.
    pub fn expected_first_token(&self, now: Nanos, uncached: u32) -> Nanos {
        let Some(Steps { start, each, .. }) = self.steps else {
            return self.prefill_time(u64::from(uncached.max(1)), 0);
        };
        let left = each - now.saturating_sub(start) % each;
        let prefilling = |r: &&Request| r.generated == 0;
        let unfinished = |r: &Request| u64::from(r.known() - r.computed - r.scheduled);
        let backlog: u64 = self.running.iter().filter(prefilling).map(unfinished).sum();
        let decoding = self.running.len() as u32;
        let tokens = backlog + self.waiting_uncached_tokens() + u64::from(uncached.max(1));
        left + self.prefill_time(tokens, decoding)
    }

    fn prefill_time(&self, tokens: u64, decoding: u32) -> Nanos {
        let room = u64::from(self.profile.step_tokens.saturating_sub(decoding).max(1));
        let steps = tokens.div_ceil(room);
        steps * self.profile.step_ns(decoding, 0) + tokens * self.profile.prefill_token_ns
    }
}
