//! What a tree's prompts are made of: characters of text, or token IDs in pages.

use super::folded;

/// How prompts of one kind are cut, compared and counted. Sealed: [`Text`] and [`Pages`].
pub trait Alphabet: sealed::Sealed {
    /// One stored item: a byte of UTF-8, or a token ID.
    type Item: Copy + Eq + Send + 'static;
    /// A prompt.
    type Prompt: ?Sized;

    /// The items of a prompt.
    fn items(prompt: &Self::Prompt) -> &[Self::Item];

    /// Number of leading items that may be stored: whole units, within the range of a 32-bit length.
    fn storable(&self, items: &[Self::Item]) -> usize;

    /// Length in items of the longest common prefix, cut back to whole units.
    fn common(&self, edge: &[Self::Item], rest: &[Self::Item]) -> usize;

    /// Digest of the first unit of a non-empty `rest`; equal first units have equal keys.
    fn key(&self, rest: &[Self::Item]) -> u32;

    /// Length in items of the first unit if its key says all about it; 0 if the key is only a digest.
    fn spelled_out(&self, key: u32) -> usize;

    /// Length in units.
    fn units(&self, items: &[Self::Item]) -> u64;
}

/// UTF-8 text counted in Unicode scalar values.
#[derive(Debug, Clone, Copy, Default)]
pub struct Text;

/// Token IDs, matched and stored in whole pages and counted one by one.
#[derive(Debug, Clone, Copy)]
pub struct Pages {
    page_tokens: u32,
    seed: u64,
}

impl Pages {
    /// Pages of `page_tokens` tokens (0 counts as 1), digested under `seed`.
    pub(super) fn new(page_tokens: u32, seed: u64) -> Self {
        Self { page_tokens: page_tokens.max(1), seed }
    }

    fn whole_pages(&self, tokens: usize) -> usize {
        tokens - tokens % self.page_tokens as usize
    }
}

impl Alphabet for Text {
    type Item = u8;
    type Prompt = str;

    fn items(prompt: &str) -> &[u8] {
        prompt.as_bytes()
    }

    fn storable(&self, items: &[u8]) -> usize {
        step_back(items, items.len().min(u32::MAX as usize))
    }

    #[inline]
    fn common(&self, edge: &[u8], rest: &[u8]) -> usize {
        step_back(rest, common_items(edge, rest))
    }

    /// The bytes of the first character, so that different first characters have different keys.
    #[inline]
    fn key(&self, rest: &[u8]) -> u32 {
        let len = match rest[0] {
            0..0xc0 => return u32::from(rest[0]),
            0xc0..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0.. => 4,
        };
        rest.iter().take(len).fold(0, |key, &byte| key << 8 | u32::from(byte))
    }

    #[inline]
    fn spelled_out(&self, key: u32) -> usize {
        (4 - key.leading_zeros() as usize / 8).max(1)
    }

    fn units(&self, items: &[u8]) -> u64 {
        count_chars(items)
    }
}

impl Alphabet for Pages {
    type Item = u32;
    type Prompt = [u32];

    fn items(prompt: &[u32]) -> &[u32] {
        prompt
    }

    fn storable(&self, items: &[u32]) -> usize {
        self.whole_pages(items.len().min(u32::MAX as usize))
    }

    #[inline]
    fn common(&self, edge: &[u32], rest: &[u32]) -> usize {
        self.whole_pages(common_items(edge, rest))
    }

    /// Sum over the first page's blocks of four tokens, each the product of two halves keyed by the seed
    /// and the block's place (the NH family: Black et al., UMAC, 1999), so that products overlap. What
    /// two blocks' keys differ by depends on the seed: were it known, blocks could change places unseen.
    fn key(&self, rest: &[u32]) -> u32 {
        let page = &rest[..rest.len().min(self.page_tokens as usize)];
        let (blocks, tail) = page.as_chunks::<4>();
        let mut last = [0; 4];
        last[..tail.len()].copy_from_slice(tail);
        let mut place = self.seed;
        let digest =
            blocks.iter().chain((!tail.is_empty()).then_some(&last)).fold(0u64, |sum, block| {
                place = place.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let secret = folded(place, 0xd6e8_feb8_6659_fd93);
                let half = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
                sum.wrapping_add(folded(
                    half(block[0], block[1]).wrapping_add(secret),
                    half(block[2], block[3]).wrapping_add(secret.rotate_left(32)),
                ))
            });
        (digest ^ digest >> 32) as u32
    }

    #[inline]
    fn spelled_out(&self, _: u32) -> usize {
        0
    }

    fn units(&self, items: &[u32]) -> u64 {
        items.len() as u64
    }
}

/// The largest character boundary of `text` at or before `at`.
#[inline]
fn step_back(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && text[at] & 0xc0 == 0x80 && at > 0 {
        at -= 1;
    }
    at
}

/// Number of characters in UTF-8 `text`: bytes that do not continue one. The sum of a block fits the
/// bytes it is made of, so the compiler adds in lanes of 8 bits: 50 GB/s, where a sum in 64 bits runs
/// at a twentieth of that.
fn count_chars(text: &[u8]) -> u64 {
    const BLOCK: usize = 192;
    let starts = |block: &[u8]| block.iter().map(|&byte| u8::from(byte as i8 >= -0x40)).sum::<u8>();
    text.chunks(BLOCK).map(|block| u64::from(starts(block))).sum()
}

/// Length of the longest common prefix: blocks compared by `memcmp`, then halved steps inside the
/// first block that differs.
#[inline]
fn common_items<T: Copy + Eq>(a: &[T], b: &[T]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let block = BLOCK_BYTES / size_of::<T>();
    let mut at = 0;
    loop {
        let end = len.min(at + block);
        if a[at..end] != b[at..end] {
            return at + mismatch(&a[at..end], &b[at..end]);
        }
        if end == len {
            return len;
        }
        at = end;
    }
}

/// Bytes compared before looking where a difference is: long enough for `memcmp` to run at full
/// speed, short enough that finding the difference inside costs little.
const BLOCK_BYTES: usize = 32768;

/// Position of the first difference of two unequal slices of one length.
fn mismatch<T: Copy + Eq>(a: &[T], b: &[T]) -> usize {
    let mut at = 0;
    for step_bytes in [4096, 512, 64] {
        let step = step_bytes / size_of::<T>();
        while a.len() - at >= step && a[at..at + step] == b[at..at + step] {
            at += step;
        }
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(x, y)| x == y).count()
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Text {}
    impl Sealed for super::Pages {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_found_at_every_length_and_position() {
        for len in (0..200).chain([511, 512, 513, 4095, 4096, 4097, 9000]) {
            let a = vec![7u32; len];
            assert_eq!(common_items(&a, &a), len);
            for at in (0..len).step_by(1 + len / 97) {
                let mut b = a.clone();
                b[at] = 8;
                assert_eq!(common_items(&a, &b), at, "length {len}");
                assert_eq!(common_items(&a, &b[..at]), at);
            }
        }
    }

    #[test]
    fn characters_are_counted_like_the_standard_library_counts_them() {
        for text in ["", "a", "é漢字🙂", "e\u{301}", &"ab🙂é".repeat(5000), &"x".repeat(385)]
        {
            assert_eq!(count_chars(text.as_bytes()), text.chars().count() as u64);
        }
    }

    #[test]
    fn a_match_never_ends_inside_a_character() {
        // é = c3 a9, è = c3 a8; 🙂 = f0 9f 99 82, 🙃 = f0 9f 99 83
        let common = |a: &str, b: &str| Text.common(a.as_bytes(), b.as_bytes());
        assert_eq!(common("é", "è"), 0);
        assert_eq!(common("aé", "aè"), 1);
        assert_eq!(common("x🙂", "x🙃"), 1);
        assert_eq!(common("x🙂", "x🙂y"), 5);
        assert_eq!(common("x🙂y", "x🙂"), 5);
    }

    #[test]
    fn the_key_of_a_character_is_its_bytes() {
        for c in (0..=char::MAX as u32).step_by(61).filter_map(char::from_u32) {
            let text = format!("{c}\u{301}x");
            let key = Text.key(text.as_bytes()).to_be_bytes();
            let bytes = &key[4 - c.len_utf8()..];
            assert_eq!(std::str::from_utf8(bytes).unwrap(), c.to_string());
            assert!(key[..4 - c.len_utf8()].iter().all(|&byte| byte == 0));
            assert_eq!(Text.spelled_out(Text.key(text.as_bytes())), c.len_utf8());
        }
    }

    #[test]
    fn pages_are_whole() {
        let pages = Pages::new(4, 0);
        assert_eq!(pages.storable(&[1; 7]), 4);
        assert_eq!(pages.storable(&[1; 3]), 0);
        assert_eq!(pages.common(&[1, 2, 3, 4, 5, 6, 7, 8], &[1, 2, 3, 4, 5, 6, 7, 9]), 4);
        assert_eq!(Pages::new(0, 0).storable(&[1; 3]), 3);
    }

    #[test]
    fn blocks_that_change_places_do_not_keep_the_key_whatever_is_added_to_them() {
        // Had blocks keys that differ by what is known, whoever adds the difference to what takes
        // another's place would keep the sum, under every seed.
        let step = 0x9e37_79b9_7f4a_7c15u64;
        let page = |halves: [u64; 4]| halves.map(|half| [(half >> 32) as u32, half as u32]);
        let first = [11u64, 22, 33, 44];
        for seed in 0..100u64 {
            let pages = Pages::new(8, seed.wrapping_mul(0xd6e8_feb8_6659_fd93));
            let key = pages.key(page(first).as_flattened());
            for carry in [0, 1] {
                for wrap in [0, 1 << 32] {
                    let turned = step.rotate_left(32).wrapping_add(carry).wrapping_sub(wrap);
                    let [a, b, c, d] = first;
                    let swapped = [
                        c.wrapping_add(step),
                        d.wrapping_add(turned),
                        a.wrapping_sub(step),
                        b.wrapping_sub(turned),
                    ];
                    assert_ne!(pages.key(page(swapped).as_flattened()), key, "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn the_key_depends_on_the_whole_first_page_and_on_nothing_else() {
        let pages = Pages::new(4, 9);
        assert_eq!(pages.key(&[1, 2, 3, 4, 5]), pages.key(&[1, 2, 3, 4, 6]));
        for at in 0..4 {
            let mut other = [1, 2, 3, 4];
            other[at] += 1;
            assert_ne!(pages.key(&[1, 2, 3, 4]), pages.key(&other));
        }
    }
}
