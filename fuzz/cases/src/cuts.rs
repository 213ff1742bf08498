//! The same bytes in other pieces.

/// Ways to cut `bytes`: whole, byte by byte (up to 256), and at a few places that follow from the
/// bytes, so that an input is all that a finding needs.
pub fn of(bytes: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut ways = vec![vec![bytes]];
    if bytes.len() <= 256 {
        ways.push(bytes.chunks(1).collect());
    }
    let mut random = Random::of(bytes);
    for most in [2, 5] {
        let mut ends: Vec<usize> = (0..most).map(|_| random.below(bytes.len() + 1)).collect();
        ends.push(bytes.len());
        ends.sort_unstable();
        let starts = std::iter::once(0).chain(ends.clone());
        ways.push(starts.zip(&ends).map(|(start, &end)| &bytes[start..end]).collect());
    }
    ways
}

/// Numbers that follow from an input: xorshift, begun with a hash.
pub struct Random(u64);

impl Random {
    /// The same numbers for the same bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(bytes) | 1)
    }

    /// One of `0..end`; `end` is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}
