//! Multi-turn chats: conversations arrive at random times and share system prompts; each turn carries
//! all that was said before, and comes a while after the last answer.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use smg_core::rng::Rng;

use super::{Request, block};
use crate::engine::{Nanos, Sequence};
use crate::load::schedule::{Schedule, Spacing};

/// A chat workload, the one of `smg-loadtest demo` in tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatOptions {
    /// Requests in all; conversations begin until there are as many.
    pub requests: u64,
    /// New conversations per second, at random (Poisson) times.
    pub arrivals_per_s: f64,
    /// System prompts, of which each conversation has one, all equally likely; 0: none.
    pub system_prompts: u32,
    pub system_tokens: u32,
    pub turns: u32,
    pub question_tokens: u32,
    pub answer_tokens: u32,
    /// From the end of an answer to the next question.
    pub think: Nanos,
    pub block_tokens: u32,
    pub seed: u64,
}

/// See [`ChatOptions`]. Keeps a few bytes of each conversation under way.
#[derive(Debug, Clone)]
pub struct Chats {
    options: ChatOptions,
    arrivals: Schedule,
    rng: Rng,
    open: HashMap<u64, Chat>,
    /// Questions to come: when, and of which conversation.
    questions: BinaryHeap<Reverse<(Nanos, u64)>>,
    started: u64,
    taken: u64,
}

#[derive(Debug, Clone, Copy)]
struct Chat {
    system: u64,
    turn: u32,
}

/// Numbers of conversations begin here, those of system prompts at 0.
const CONVERSATIONS: u64 = 1 << 62;

impl Chats {
    pub fn new(options: ChatOptions) -> Self {
        let times = (0, Nanos::MAX);
        let arrivals =
            Schedule::new(Spacing::Poisson, options.arrivals_per_s, times, None, options.seed);
        Self {
            rng: Rng::new(options.seed ^ 0x63_6861_7473),
            arrivals,
            options,
            open: HashMap::new(),
            questions: BinaryHeap::new(),
            started: 0,
            taken: 0,
        }
    }

    pub(super) fn next_at(&self) -> Option<Nanos> {
        if self.taken >= self.options.requests {
            return None;
        }
        let question = self.questions.peek().map(|Reverse((at, _))| *at);
        let arrival = self.arrivals.peek();
        question.into_iter().chain(arrival).min()
    }

    pub(super) fn take(&mut self) -> Option<(Nanos, Request)> {
        let at = self.next_at()?;
        self.taken += 1;
        let due = self.questions.peek().is_some_and(|Reverse((question, _))| *question <= at);
        let session = if due {
            self.questions.pop().map(|Reverse((_, session))| session)?
        } else {
            self.arrivals.take()?;
            let session = CONVERSATIONS | self.started;
            self.started += 1;
            let system = self.rng.below(self.options.system_prompts as usize) as u64;
            self.open.insert(session, Chat { system, turn: 0 });
            session
        };
        let chat = *self.open.get(&session)?;
        Some((at, self.request(session, chat)))
    }

    pub(super) fn ended(&mut self, session: u64, at: Nanos) {
        let Some(chat) = self.open.get_mut(&session) else { return };
        chat.turn += 1;
        if chat.turn < self.options.turns {
            self.questions.push(Reverse((at + self.options.think, session)));
        } else {
            self.open.remove(&session);
        }
    }

    fn request(&self, session: u64, chat: Chat) -> Request {
        let ChatOptions { question_tokens, answer_tokens, block_tokens, .. } = self.options;
        let system_tokens = self.system_tokens();
        let said = chat.turn * (question_tokens + answer_tokens);
        let prompt_tokens = (system_tokens + said + question_tokens).max(1);
        let all = (prompt_tokens + answer_tokens) / block_tokens;
        let system_blocks = system_tokens / block_tokens;
        let identity =
            |index| block(if index < system_blocks { chat.system } else { session }, index);
        let has_tail = !prompt_tokens.is_multiple_of(block_tokens);
        Request {
            tail: has_tail.then(|| block(session, u32::MAX - chat.turn)),
            sequence: Sequence {
                prompt_tokens,
                answer_tokens,
                blocks: (0..all).map(identity).collect(),
                answer_seed: 0,
            },
            shared_blocks: all,
            session: Some(session),
        }
    }

    fn system_tokens(&self) -> u32 {
        if self.options.system_prompts == 0 { 0 } else { self.options.system_tokens }
    }

    pub(super) fn block_tokens(&self) -> u32 {
        self.options.block_tokens
    }

    pub(super) fn longest_request(&self) -> u32 {
        let ChatOptions { turns, question_tokens, answer_tokens, .. } = self.options;
        (self.system_tokens() + turns * (question_tokens + answer_tokens)).max(2)
    }
}
