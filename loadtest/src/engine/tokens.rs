//! Text to tokens to block identities, deterministically and without a vocabulary.
//!
//! Every message is cut into tokens of four characters (Unicode scalar values), the last one
//! shorter if need be; role and end markers are one token each. A generated token is always four
//! ASCII characters, so an answer that comes back as a message of the next turn yields the very
//! tokens that were generated, and the blocks the engine filled while decoding are found again.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Characters in one prompt token, the same convention the gateway uses for text.
pub const CHARS_PER_TOKEN: usize = 4;

/// Characters (and bytes: they are ASCII) of one generated token.
pub const ANSWER_TOKEN_CHARS: usize = CHARS_PER_TOKEN;

/// The tokens of one request as the block cache sees them: how many, and the identity of every
/// full block of prompt and answer together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Tokens of the prompt, at least 1.
    pub prompt_tokens: u32,
    /// Tokens the engine will generate, at least 1.
    pub answer_tokens: u32,
    /// Identity of each full block, in order. Equal identities mean equal tokens from the start of
    /// the sequence, up to 64-bit collisions.
    pub blocks: Vec<u64>,
    /// Seed of the answer's text, see [`answer_token`].
    pub answer_seed: u64,
}

/// Builds a [`Sequence`] from the parts of a prompt.
#[derive(Debug)]
pub struct SequenceBuilder {
    block_tokens: usize,
    /// Little-endian bytes of the tokens of the block being filled.
    partial: Vec<u8>,
    blocks: Vec<u64>,
    parent: u64,
    tokens: u32,
}

/// One-token markers. Their top bit keeps them apart from ASCII text, whose packed bytes never
/// have it set.
const MARKER: u32 = 0x8000_0000;
const END_OF_MESSAGE: u32 = MARKER;

impl SequenceBuilder {
    /// An empty prompt. Blocks hold `block_tokens` tokens; prompts with different `salt` share no
    /// block (vLLM's `cache_salt`; an empty salt is no salt).
    pub fn new(block_tokens: u32, salt: &str) -> Self {
        let block_tokens = block_tokens.max(1) as usize;
        let parent = if salt.is_empty() { 0 } else { xxh3_64_with_seed(salt.as_bytes(), 1) };
        Self {
            block_tokens,
            partial: Vec::with_capacity(block_tokens * 4),
            blocks: Vec::new(),
            parent,
            tokens: 0,
        }
    }

    /// One chat message: a role marker, the content, an end marker.
    pub fn message(&mut self, role: &str, content: &str) {
        self.message_start(role);
        self.text(content);
        self.message_end();
    }

    /// The role marker that opens a message (also the generation prompt, with no end).
    pub fn message_start(&mut self, role: &str) {
        let role = xxh3_64_with_seed(role.as_bytes(), 2) as u32;
        self.token(MARKER | role | 1);
    }

    /// The marker that closes a message.
    pub fn message_end(&mut self) {
        self.token(END_OF_MESSAGE);
    }

    /// Plain text: ⌈characters / 4⌉ tokens.
    pub fn text(&mut self, text: &str) {
        if text.is_ascii() {
            for chunk in text.as_bytes().chunks(CHARS_PER_TOKEN) {
                self.token(packed(chunk));
            }
            return;
        }
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.char_indices().nth(CHARS_PER_TOKEN).map_or(rest.len(), |(at, _)| at);
            let (head, tail) = rest.split_at(end);
            let bytes = head.as_bytes();
            self.token(if head.is_ascii() {
                packed(bytes)
            } else {
                MARKER | xxh3_64_with_seed(bytes, 3) as u32
            });
            rest = tail;
        }
    }

    /// One token by its id.
    pub fn token(&mut self, id: u32) {
        self.tokens = self.tokens.saturating_add(1);
        self.partial.extend_from_slice(&id.to_le_bytes());
        if self.partial.len() == self.block_tokens * 4 {
            self.parent = xxh3_64_with_seed(&self.partial, self.parent);
            self.blocks.push(self.parent);
            self.partial.clear();
        }
    }

    /// Tokens so far.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Ends the prompt and appends the answer of `answer_tokens` tokens (at least one), which is a
    /// function of the prompt alone. An empty prompt counts as one token.
    pub fn finish(mut self, answer_tokens: u32) -> Sequence {
        if self.tokens == 0 {
            self.token(END_OF_MESSAGE);
        }
        let prompt_tokens = self.tokens;
        let answer_tokens = answer_tokens.max(1);
        let answer_seed = xxh3_64_with_seed(&self.partial, self.parent);
        for index in 0..answer_tokens {
            self.token(packed(&answer_token(answer_seed, index)));
        }
        Sequence { prompt_tokens, answer_tokens, blocks: self.blocks, answer_seed }
    }
}

/// The text of generated token `index` of the answer with this seed: a three-letter syllable and a
/// space, plain ASCII that JSON needs no escape for.
pub fn answer_token(seed: u64, index: u32) -> [u8; ANSWER_TOKEN_CHARS] {
    const CONSONANTS: &[u8; 16] = b"bcdfghjklmnprstv";
    const VOWELS: &[u8; 4] = b"aeio";
    let draw = xxh3_64_with_seed(&index.to_le_bytes(), seed);
    [
        CONSONANTS[(draw & 15) as usize],
        VOWELS[((draw >> 4) & 3) as usize],
        CONSONANTS[((draw >> 6) & 15) as usize],
        b' ',
    ]
}

/// Up to four ASCII bytes as one token id.
fn packed(bytes: &[u8]) -> u32 {
    let mut id = [0u8; 4];
    for (to, from) in id.iter_mut().zip(bytes) {
        *to = *from;
    }
    u32::from_le_bytes(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_characters_make_a_token_and_markers_count_one_each() {
        let mut prompt = SequenceBuilder::new(16, "");
        prompt.message("user", "123456789"); // marker + 3 + end
        assert_eq!(prompt.tokens(), 5);
        prompt.text("四个汉字再加五个字"); // 9 characters: 3 tokens
        assert_eq!(prompt.tokens(), 8);
        prompt.text("ab四cd"); // 5 characters: 2 tokens
        assert_eq!(prompt.tokens(), 10);
    }

    #[test]
    fn equal_prefixes_share_blocks_and_a_change_changes_all_that_follow() {
        let of = |text: &str| {
            let mut prompt = SequenceBuilder::new(2, "");
            prompt.text(text);
            prompt.finish(1).blocks
        };
        let long = of("aaaabbbbccccddddeeeeffff"); // 6 tokens + 1: 3 blocks
        let other = of("aaaabbbbccccXdddeeeeffff");
        assert_eq!(long.len(), 3);
        assert_eq!(long[0], other[0]);
        assert_ne!(long[1], other[1]);
        assert_ne!(long[2], other[2], "the third block holds the same tokens after another past");
        assert_eq!(of("aaaabbbbcccc")[0], long[0]);
    }

    #[test]
    fn a_salt_shares_nothing_with_no_salt() {
        let of = |salt: &str| {
            let mut prompt = SequenceBuilder::new(1, salt);
            prompt.text("same text");
            prompt.finish(1).blocks
        };
        assert_ne!(of("tenant-1")[0], of("")[0]);
        assert_ne!(of("tenant-1")[0], of("tenant-2")[0]);
        assert_eq!(of("tenant-1"), of("tenant-1"));
    }

    #[test]
    fn the_next_turn_finds_the_answer_of_the_last_turn() {
        let turn = |history: &[(&str, &str)], answer: u32| {
            let mut prompt = SequenceBuilder::new(2, "");
            for (role, content) in history {
                prompt.message(role, content);
            }
            prompt.message_start("assistant");
            prompt.finish(answer)
        };
        let first = turn(&[("user", "hello there")], 5);
        assert_eq!(first.prompt_tokens, 6); // marker, 3, end, marker
        let text: Vec<u8> = (0..5).flat_map(|i| answer_token(first.answer_seed, i)).collect();
        let text = String::from_utf8(text).unwrap();
        let second = turn(&[("user", "hello there"), ("assistant", &text), ("user", "go on")], 1);
        // 6 prompt + 5 answer tokens: five full blocks, all of them a prefix of the second turn.
        assert_eq!(first.blocks.len(), 5);
        assert_eq!(second.blocks[..5], first.blocks[..]);
    }

    #[test]
    fn an_empty_prompt_is_one_token() {
        assert_eq!(SequenceBuilder::new(16, "").finish(0).prompt_tokens, 1);
        assert_eq!(SequenceBuilder::new(16, "").finish(0).answer_tokens, 1);
    }
}
