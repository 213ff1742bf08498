//! The smallest of many keys, found in one pass; ties by reservoir sampling.

use crate::fleet::WorkerId;
use crate::rng::Rng;

/// Scores that differ by less than this share of themselves are equal: equal quotients of different
/// numbers may differ in their last bit.
pub(super) const TIE: f64 = 1e-12;

/// A key that can be smallest.
pub(super) trait Key: Copy + PartialOrd {
    /// The range of keys that tie with this one: (below it is smaller, above it is larger).
    fn equals(self) -> (Self, Self);
}

impl Key for f64 {
    fn equals(self) -> (Self, Self) {
        (self * (1.0 - TIE), self * (1.0 + TIE))
    }
}

impl Key for u32 {
    fn equals(self) -> (Self, Self) {
        (self, self)
    }
}

/// The smallest key so far, and one of those who have it.
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

    /// Looks at all of `set`. Only a worker that would win or tie is asked whether it `may_serve`.
    #[inline]
    pub(super) fn find(
        &mut self,
        set: &[WorkerId],
        mut key: impl FnMut(WorkerId) -> K,
        mut may_serve: impl FnMut(WorkerId) -> bool,
        rng: &mut Rng,
    ) {
        let Self { mut value, mut lowest, mut floor, mut bar, mut count, at: mut chosen } = *self;
        for (at, &worker) in set.iter().enumerate() {
            let key = key(worker);
            if key > bar {
                continue;
            }
            if key < lowest {
                lowest = key;
            }
            if !may_serve(worker) {
                continue;
            }
            if key < floor || count == 0 {
                (value, count, chosen) = (key, 1, at);
                (floor, bar) = key.equals();
            } else {
                count += 1;
                if rng.below(count) == 0 {
                    chosen = at;
                }
            }
        }
        *self = Self { value, lowest, floor, bar, count, at: chosen };
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
