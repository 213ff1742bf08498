//! Independent requests with shared prefixes: groups of one prefix each, none at all, or groups that
//! come and go.

use smg_core::rng::Rng;

use super::{Request, block};
use crate::engine::{Nanos, Sequence};
use crate::load::schedule::{Schedule, Spacing};

/// Requests of groups.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupOptions {
    pub requests: u64,
    /// Arrivals per second, at random (Poisson) times.
    pub rate_per_s: f64,
    /// Groups at any one time, all equally likely; 0: every request is new from its first token.
    pub groups: u32,
    /// How long a group lives: then another takes its place. `None`: for ever.
    pub lifetime: Option<Nanos>,
    pub prefix_tokens: u32,
    /// Tokens of a prompt behind the prefix.
    pub question_tokens: u32,
    pub answer_tokens: u32,
    pub block_tokens: u32,
    pub seed: u64,
}

/// See [`GroupOptions`].
#[derive(Debug, Clone)]
pub struct Groups {
    options: GroupOptions,
    schedule: Schedule,
    rng: Rng,
    taken: u64,
}

/// Numbers of texts of single requests begin here, those of prefixes at 0.
const OWN_TEXTS: u64 = 1 << 62;

impl Groups {
    pub fn new(options: GroupOptions) -> Self {
        let limit = Some(options.requests);
        let times = (0, Nanos::MAX);
        let schedule =
            Schedule::new(Spacing::Poisson, options.rate_per_s, times, limit, options.seed);
        Self { rng: Rng::new(options.seed ^ 0x67_726f_7570), schedule, options, taken: 0 }
    }

    pub fn options(&self) -> &GroupOptions {
        &self.options
    }

    pub(super) fn next_at(&self) -> Option<Nanos> {
        self.schedule.peek()
    }

    pub(super) fn take(&mut self) -> Option<(Nanos, Request)> {
        let at = self.schedule.take()?;
        let GroupOptions { groups, prefix_tokens, question_tokens, answer_tokens, .. } =
            self.options;
        let block_tokens = self.options.block_tokens;
        let place = self.rng.below(groups as usize) as u64;
        let group = place | self.generation(place, at) << 32;
        let own = OWN_TEXTS | self.taken;
        self.taken += 1;
        let prefix_tokens = if groups == 0 { 0 } else { prefix_tokens };
        let prompt_tokens = (prefix_tokens + question_tokens).max(1);
        let shared = prefix_tokens / block_tokens;
        let all = (prompt_tokens + answer_tokens) / block_tokens;
        let identity = |index| block(if index < shared { group } else { own }, index);
        let has_tail = !prompt_tokens.is_multiple_of(block_tokens);
        let request = Request {
            tail: has_tail.then(|| block(own, u32::MAX)),
            sequence: Sequence {
                prompt_tokens,
                answer_tokens,
                blocks: (0..all).map(identity).collect(),
                answer_seed: 0,
            },
            shared_blocks: shared,
            session: (groups > 0).then_some(group),
        };
        Some((at, request))
    }

    /// How many groups had this place before; the places change hands one after the other.
    fn generation(&self, place: u64, at: Nanos) -> u64 {
        let Some(lifetime) = self.options.lifetime.filter(|&lifetime| lifetime > 0) else {
            return 0;
        };
        let groups = u64::from(self.options.groups.max(1));
        let phase = (u128::from(lifetime) * u128::from(place) / u128::from(groups)) as u64;
        (at + phase) / lifetime
    }

    pub(super) fn block_tokens(&self) -> u32 {
        self.options.block_tokens
    }

    pub(super) fn longest_request(&self) -> u32 {
        let GroupOptions { prefix_tokens, question_tokens, answer_tokens, .. } = self.options;
        (prefix_tokens + question_tokens).max(1) + answer_tokens
    }
}
