//! From the identities of blocks to text or token IDs: a function of the identity alone, so that
//! prompts have equal prefixes exactly where their blocks are equal.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::engine::answer_token;

/// Token IDs are below this, as in the vocabularies of small models.
const VOCABULARY: u64 = 32_000;

/// Appends the text of a prompt of `tokens` tokens in blocks of `block_tokens`: four characters per
/// token, plain ASCII that JSON needs no escape for.
pub fn text(blocks: &[u64], block_tokens: u32, tokens: u32, out: &mut String) {
    for (identity, index) in each(blocks, block_tokens, tokens) {
        out.extend(answer_token(identity, index).map(char::from));
    }
}

/// Appends the token IDs of a prompt of `tokens` tokens in blocks of `block_tokens`.
pub fn tokens(blocks: &[u64], block_tokens: u32, tokens: u32, out: &mut Vec<u32>) {
    for (identity, index) in each(blocks, block_tokens, tokens) {
        out.push((xxh3_64_with_seed(&index.to_le_bytes(), identity) % VOCABULARY) as u32);
    }
}

/// Block and position within it of each token.
fn each(blocks: &[u64], block_tokens: u32, tokens: u32) -> impl Iterator<Item = (u64, u32)> {
    let of_block = move |&identity: &u64| (0..block_tokens).map(move |index| (identity, index));
    blocks.iter().flat_map(of_block).take(tokens as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_blocks_are_equal_text_and_tokens_and_the_last_may_be_short() {
        let text_of = |blocks: &[u64], tokens| {
            let mut text = String::new();
            super::text(blocks, 8, tokens, &mut text);
            text
        };
        let (short, long) = (text_of(&[1, 2], 11), text_of(&[1, 2, 3], 24));
        assert_eq!((short.len(), long.len()), (44, 96));
        assert!(long.starts_with(&short));
        assert_ne!(text_of(&[1, 9], 16)[32..], text_of(&[1, 2], 16)[32..]);
        let tokens_of = |blocks: &[u64], count| {
            let mut out = Vec::new();
            tokens(blocks, 8, count, &mut out);
            out
        };
        assert_eq!(tokens_of(&[1, 2], 11), tokens_of(&[1, 2, 3], 24)[..11]);
        assert_ne!(tokens_of(&[1], 8), tokens_of(&[2], 8));
        assert!(tokens_of(&[1, 2, 3], 24).iter().all(|&id| id < 32_000));
    }
}
