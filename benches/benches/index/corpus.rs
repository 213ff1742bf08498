//! Multi-turn prompts: conversations that share one of eight system prompts (a fifth of the length)
//! and grow by equal turns, as characters and as token IDs.

use smg_core::fleet::WorkerId;
use smg_core::rng::Rng;

/// Characters that stand for one token.
pub const CHARS_PER_TOKEN: usize = 4;
/// Tokens per page.
pub const PAGE_TOKENS: usize = 16;
/// Workers the conversations are spread over.
pub const WORKERS: usize = 8;

const SYSTEM_PROMPTS: usize = 8;

/// Conversations of one length.
pub struct Corpus {
    /// Length of a full prompt in tokens.
    pub tokens: usize,
    /// Turns until a prompt has that length.
    pub turns: usize,
    /// Full prompts.
    pub prompts: Vec<Vec<u32>>,
}

impl Corpus {
    /// Conversations of `tokens` tokens until there are `total_tokens` of them.
    pub fn new(tokens: usize, turns: usize, total_tokens: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let system_tokens = tokens / 5 / PAGE_TOKENS * PAGE_TOKENS;
        let system: Vec<Vec<u32>> =
            (0..SYSTEM_PROMPTS).map(|_| random_tokens(&mut rng, system_tokens)).collect();
        let prompts = (0..total_tokens / tokens)
            .map(|_| {
                let mut prompt = system[rng.below(SYSTEM_PROMPTS)].clone();
                prompt.append(&mut random_tokens(&mut rng, tokens - system_tokens));
                prompt
            })
            .collect();
        Self { tokens, turns, prompts }
    }

    /// Length in tokens of a prompt at a turn, counted from 1.
    pub fn turn_tokens(&self, turn: usize) -> usize {
        let system_tokens = self.system_tokens();
        let part = (self.tokens - system_tokens) * turn / self.turns;
        if turn == self.turns {
            self.tokens
        } else {
            (system_tokens + part) / PAGE_TOKENS * PAGE_TOKENS
        }
    }

    /// Length in tokens of the part that conversations share with others.
    pub fn system_tokens(&self) -> usize {
        self.tokens / 5 / PAGE_TOKENS * PAGE_TOKENS
    }

    /// Conversations in a random order.
    pub fn shuffled(&self, rng: &mut Rng) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.prompts.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at + 1));
        }
        order
    }
}

/// The text of token IDs: four characters each.
pub fn text_of(tokens: &[u32]) -> String {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .";
    tokens
        .iter()
        .flat_map(|token| (0..CHARS_PER_TOKEN).map(move |at| token >> (6 * at) & 63))
        .map(|letter| char::from(LETTERS[letter as usize]))
        .collect()
}

/// The worker a conversation belongs to.
pub fn worker_of(conversation: usize) -> usize {
    conversation % WORKERS
}

/// Identity of worker number `worker`.
pub fn worker_id(worker: usize) -> WorkerId {
    WorkerId { slot: worker as u32, generation: 0 }
}

/// Tenant name of worker number `worker` for kv-index.
pub fn worker_name(worker: usize) -> &'static str {
    const NAMES: [&str; WORKERS] = [
        "http://worker-0:8000",
        "http://worker-1:8000",
        "http://worker-2:8000",
        "http://worker-3:8000",
        "http://worker-4:8000",
        "http://worker-5:8000",
        "http://worker-6:8000",
        "http://worker-7:8000",
    ];
    NAMES[worker]
}

fn random_tokens(rng: &mut Rng, len: usize) -> Vec<u32> {
    (0..len).map(|_| (rng.next_u64() >> 47) as u32).collect()
}
