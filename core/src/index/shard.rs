//! Splitting one hot model's trees over shards: a pure function from the head of a prompt to a shard.
//!
//! With `--index-shards 1` (the default) there is one tree and nothing here matters. Above it, each
//! shard has its own tree and the limits are divided. Prompts that share their head meet in one tree
//! and behave as with one; prompts that part within the head no longer see each other.
//!
//! - Tokens: the head is the first page. Nothing shorter ever matches, so no match is lost.
//! - Text: the head is the first [`TEXT_SHARD_CHARS`] characters. A lost match is shorter than that,
//!   so it could only have passed the threshold `t` in a prompt shorter than `TEXT_SHARD_CHARS / t`.

use xxhash_rust::xxh3::Xxh3;

/// Characters of text that decide the shard. Of prompts without a system prompt, the kind that loses
/// most, a split by 32 leaves 0.8 % of the matches above a threshold of 0.3 in another part, by 64
/// 2.1 %, by 128 5.4 %; by 16 the busiest of four parts gets 1.44 times the mean
/// (`cargo bench -p smg-benches --bench index -- split`).
pub const TEXT_SHARD_CHARS: usize = 32;

/// Shard in `0..shards` (0 when `shards` is 0) of a text prompt.
pub fn text_shard(namespace: Option<u64>, text: &str, shards: usize) -> usize {
    let end = text.char_indices().nth(TEXT_SHARD_CHARS).map_or(text.len(), |(at, _)| at);
    let mut hasher = hasher(namespace);
    hasher.update(&text.as_bytes()[..end]);
    spread(hasher.digest(), shards)
}

/// Shard in `0..shards` (0 when `shards` is 0) of a token prompt under pages of `page_tokens`.
pub fn token_shard(
    namespace: Option<u64>,
    tokens: &[u32],
    page_tokens: u32,
    shards: usize,
) -> usize {
    let mut hasher = hasher(namespace);
    for token in tokens.iter().take(page_tokens.max(1) as usize) {
        hasher.update(&token.to_le_bytes());
    }
    spread(hasher.digest(), shards)
}

fn hasher(namespace: Option<u64>) -> Xxh3 {
    let mut hasher = Xxh3::new();
    if let Some(namespace) = namespace {
        hasher.update(&namespace.to_le_bytes());
    }
    hasher
}

/// A uniform hash to `0..shards` by multiply-shift.
fn spread(hash: u64, shards: usize) -> usize {
    ((u128::from(hash) * shards as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shard_takes_everything() {
        assert_eq!(text_shard(None, "anything", 1), 0);
        assert_eq!(token_shard(Some(7), &[1, 2, 3], 16, 1), 0);
        assert_eq!(text_shard(None, "", 0), 0);
    }

    #[test]
    fn only_the_head_decides() {
        let head = "é".repeat(TEXT_SHARD_CHARS);
        let shard = text_shard(None, &head, 1000);
        assert_eq!(text_shard(None, &format!("{head}x"), 1000), shard);
        assert_eq!(text_shard(None, &format!("{head}y and more"), 1000), shard);
        assert_ne!(text_shard(None, &head[2..], 1000), shard);
        let page: Vec<u32> = (0..16).collect();
        let longer: Vec<u32> = (0..40).collect();
        assert_eq!(token_shard(None, &page, 16, 1000), token_shard(None, &longer, 16, 1000));
        assert_ne!(token_shard(None, &page, 16, 1000), token_shard(None, &longer, 17, 1000));
    }

    #[test]
    fn different_heads_spread_evenly() {
        let mut counts = [0; 4];
        for i in 0..4000 {
            counts[text_shard(None, &format!("prompt {i}"), 4)] += 1;
        }
        assert!(counts.iter().all(|&count| (900..1100).contains(&count)), "{counts:?}");
    }

    #[test]
    fn namespaces_spread_too() {
        let shards: std::collections::HashSet<_> =
            (0..100).map(|n| token_shard(Some(n), &[1; 16], 16, 8)).collect();
        assert_eq!(shards.len(), 8);
    }
}
