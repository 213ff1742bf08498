//! The smallest of many keys, found in one pass; ties by reservoir sampling.

use crate::fleet::WorkerId;
use crate::rng::Rng;

/// Scores that differ by less than this share of themselves are equal: equal quotients of different
/// numbers may differ in their last bit.
pub(super) const TIE: f64 = 1e-12;

/// A key that can be smallest.
pub(super) trait Key: Copy + PartialOrd {
    /// No key is above it.
    const MOST: Self;
    /// The smaller one.
    fn min(self, other: Self) -> Self;
    /// The range of keys that tie with this one: (below it is smaller, above it is larger).
    fn equals(self) -> (Self, Self);
}

impl Key for f64 {
    const MOST: Self = Self::INFINITY;

    #[inline]
    fn min(self, other: Self) -> Self {
        // There is no NaN among them: one comparison, where `f64::min` takes more.
        if other < self { other } else { self }
    }

    fn equals(self) -> (Self, Self) {
        (self * (1.0 - TIE), self * (1.0 + TIE))
    }
}

impl Key for u32 {
    const MOST: Self = Self::MAX;

    #[inline]
    fn min(self, other: Self) -> Self {
        Ord::min(self, other)
    }

    fn equals(self) -> (Self, Self) {
        (self, self)
    }
}

/// Workers that are looked at together.
const CHUNK: usize = 8;

/// The smallest key so far, and one of those who have it.
#[derive(Clone, Copy)]
pub(super) struct Least<K> {
    value: K,
    /// Of all keys seen up to `value`, also of those that may not serve.
    lowest: K,
    floor: K,
    bar: K,
    count: usize,
    at: usize,
}

impl<K: Key> Least<K> {
    /// Nothing yet, and no interest in keys above `most`.
    pub(super) fn below(most: K) -> Self {
        Self { value: most, lowest: most, floor: most, bar: most, count: 0, at: 0 }
    }

    /// Looks at all of `set`. `bound` is never above a worker's `key`, and cheaper; only a worker
    /// whose bound could win or tie has its key looked up, and only one whose key would is asked
    /// whether it `may_serve`.
    #[inline]
    pub(super) fn find(
        &mut self,
        set: &[WorkerId],
        mut bound: impl FnMut(WorkerId) -> K,
        mut key: impl FnMut(WorkerId) -> K,
        mut may_serve: impl FnMut(WorkerId) -> bool,
        rng: &mut Rng,
    ) {
        let mut least = *self;
        for (chunk_at, chunk) in set.chunks(CHUNK).enumerate() {
            // No branch per worker: most chunks are passed over as a whole.
            let nearest = chunk.iter().map(|&worker| bound(worker));
            if nearest.fold(K::MOST, K::min) > least.bar {
                continue;
            }
            for (at, &worker) in chunk.iter().enumerate() {
                let key = key(worker);
                if key <= least.bar {
                    least.consider(chunk_at * CHUNK + at, key, || may_serve(worker), rng);
                }
            }
        }
        *self = least;
    }

    /// A key that is not above the bar.
    #[inline]
    fn consider(&mut self, at: usize, key: K, may_serve: impl FnOnce() -> bool, rng: &mut Rng) {
        self.lowest = self.lowest.min(key);
        if !may_serve() {
            return;
        }
        if key < self.floor || self.count == 0 {
            let (floor, bar) = key.equals();
            *self = Self { value: key, floor, bar, count: 1, at, ..*self };
        } else {
            self.count += 1;
            if rng.below(self.count) == 0 {
                self.at = at;
            }
        }
    }

    /// Position in the set and key of the chosen one.
    pub(super) fn found(&self) -> Option<(usize, K)> {
        (self.count > 0).then_some((self.at, self.value))
    }

    /// How many tie.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The smallest key of all, whether its worker may serve or not.
    pub(super) fn lowest(&self) -> K {
        self.lowest
    }
}
