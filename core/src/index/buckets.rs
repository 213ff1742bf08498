//! Bucket heads of a hash table whose chains run through the records themselves. Linear hashing
//! (Litwin 1980): an insertion splits at most two buckets and a removal merges at most four, so no
//! operation ever rehashes the table.

use super::Garbage;
use super::arena::NIL;
use super::chunk::Chunk;
use super::folded;
use super::slab::Position;
use crate::prefetch::prefetch;

/// Records that can be chained.
pub(super) trait Chained {
    /// The record's key; records of one key are in one chain.
    fn key(&self, id: u32) -> u64;
    /// The next record of the chain.
    fn next(&self, id: u32) -> u32;
    /// Sets the next record of the chain.
    fn set_next(&mut self, id: u32, next: u32);
    /// Where the record's content is, and its length in items.
    fn content(&self, id: u32) -> (Position, u32);
    /// Starts loading the record, if there is one.
    fn prefetch(&self, id: u32);
}

/// The first record of a chain. Its content is only a hint what to load together with the record:
/// what is there may be another's by now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// The record; [`NIL`] if the chain is empty.
    pub id: u32,
    /// Length of the content in items.
    pub len: u32,
    /// Where the content is.
    pub start: Position,
}

impl Head {
    const EMPTY: Self = Self { id: NIL, len: 0, start: 0 };
}

/// Heads of the chains.
#[derive(Debug)]
pub(super) struct Buckets {
    chunks: Vec<Chunk<Head>>,
    buckets: u32,
    len: u32,
    /// Keys the hash, so that nobody can prepare keys that make a long chain.
    seed: u64,
}

const CHUNK_BITS: u32 = 12;
const CHUNK: u32 = 1 << CHUNK_BITS;
/// Buckets a table never shrinks below; a power of two.
const MIN_BUCKETS: u32 = 16;
/// So that a chain rarely has a record that is not looked for: visiting one is a cache miss.
const BUCKETS_PER_RECORD: u32 = 2;

impl Buckets {
    /// No records; the hash of their keys is keyed by `seed`.
    pub fn new(seed: u64) -> Self {
        let mut first = Chunk::with_capacity(MIN_BUCKETS as usize);
        (0..MIN_BUCKETS).for_each(|_| first.push(Head::EMPTY));
        Self { chunks: vec![first], buckets: MIN_BUCKETS, len: 0, seed }
    }

    /// First record of the chain that holds the records with this key.
    #[inline]
    pub fn first(&self, key: u64) -> Head {
        self.head(self.bucket(key))
    }

    /// Starts loading the head of a chain.
    #[inline]
    pub fn prefetch(&self, key: u64) {
        let bucket = self.bucket(key);
        prefetch(&self.chunks[(bucket >> CHUNK_BITS) as usize][(bucket & (CHUNK - 1)) as usize]);
    }

    /// Starts loading the records that the buckets split next have first: what a split reads.
    #[inline]
    fn prefetch_splits(&self, records: &impl Chained) {
        let low = prev_power_of_two(self.buckets);
        for old in (self.buckets - low..low).take(2) {
            records.prefetch(self.head(old).id);
        }
    }

    /// Adds the record `id`. The caller keeps the number of records below 2^30.
    pub fn insert(&mut self, records: &mut impl Chained, id: u32) {
        self.len += 1;
        for _ in 0..2 {
            if self.buckets < BUCKETS_PER_RECORD * self.len {
                self.split(records);
            }
        }
        let bucket = self.bucket(records.key(id));
        records.set_next(id, self.head(bucket).id);
        self.set_head(records, bucket, id);
        self.prefetch_splits(records);
    }

    /// Removes the record `id`, which must be present.
    pub fn remove(&mut self, records: &mut impl Chained, id: u32, garbage: &mut Garbage) {
        self.substitute(records, id, records.next(id));
        self.len -= 1;
        for _ in 0..4 {
            if self.buckets > MIN_BUCKETS && self.buckets > 2 * BUCKETS_PER_RECORD * self.len {
                self.merge(records, garbage);
            }
        }
    }

    /// Puts `new`, which must have the same key, in the place of `old`.
    pub fn replace(&mut self, records: &mut impl Chained, old: u32, new: u32) {
        records.set_next(new, records.next(old));
        self.substitute(records, old, new);
    }

    /// Notes that the content of the record `id` has moved.
    pub fn renew(&mut self, records: &impl Chained, id: u32) {
        let bucket = self.bucket(records.key(id));
        if self.head(bucket).id == id {
            self.set_head(records, bucket, id);
        }
    }

    /// Number of records.
    #[cfg(any(test, debug_assertions))]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Makes whatever points at `old` point at `new`.
    fn substitute(&mut self, records: &mut impl Chained, old: u32, new: u32) {
        let bucket = self.bucket(records.key(old));
        let mut at = self.head(bucket).id;
        if at == old {
            return self.set_head(records, bucket, new);
        }
        while at != NIL {
            let next = records.next(at);
            if next == old {
                return records.set_next(at, new);
            }
            at = next;
        }
        debug_assert!(false, "record {old} is not in its chain");
    }

    /// Adds one bucket and moves to it what belongs there.
    fn split(&mut self, records: &mut impl Chained) {
        let new = self.buckets;
        let old = new - prev_power_of_two(new);
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK as usize => chunk.push(Head::EMPTY),
            _ => {
                let mut chunk = Chunk::with_capacity(CHUNK as usize);
                chunk.push(Head::EMPTY);
                self.chunks.push(chunk);
            }
        }
        self.buckets += 1;
        let mut at = self.head(old).id;
        let (mut stay, mut go) = (NIL, NIL);
        while at != NIL {
            let next = records.next(at);
            let chain = if self.bucket(records.key(at)) == new { &mut go } else { &mut stay };
            records.set_next(at, *chain);
            *chain = at;
            at = next;
        }
        self.set_head(records, old, stay);
        self.set_head(records, new, go);
    }

    /// Takes the last bucket away and moves its records back.
    fn merge(&mut self, records: &mut impl Chained, garbage: &mut Garbage) {
        let last = self.buckets - 1;
        let into = last - prev_power_of_two(last);
        let mut at = self.head(last).id;
        self.buckets = last;
        while at != NIL {
            let next = records.next(at);
            records.set_next(at, self.head(into).id);
            self.set_head(records, into, at);
            at = next;
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.pop();
            if chunk.is_empty() {
                garbage.push(self.chunks.pop());
            }
        }
    }

    #[inline]
    fn bucket(&self, key: u64) -> u32 {
        let hash = mix(key ^ self.seed);
        let low = prev_power_of_two(self.buckets);
        let bucket = hash & (2 * low - 1);
        if bucket < self.buckets { bucket } else { hash & (low - 1) }
    }

    #[inline]
    fn head(&self, bucket: u32) -> Head {
        self.chunks[(bucket >> CHUNK_BITS) as usize][(bucket & (CHUNK - 1)) as usize]
    }

    fn set_head(&mut self, records: &impl Chained, bucket: u32, id: u32) {
        let (start, len) = if id == NIL { (0, 0) } else { records.content(id) };
        self.chunks[(bucket >> CHUNK_BITS) as usize][(bucket & (CHUNK - 1)) as usize] =
            Head { id, len, start };
    }
}

/// 64 bits to 32, all of them well mixed: the high half of a 128-bit product folded into the low one.
#[inline]
fn mix(wide: u64) -> u32 {
    let mixed = folded(wide ^ 0x9e37_79b9_7f4a_7c15, 0x9fb2_1c65_1e98_df25);
    (mixed ^ mixed >> 32) as u32
}

/// The largest power of two at or below `n`, which is not 0.
#[inline]
fn prev_power_of_two(n: u32) -> u32 {
    1 << n.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Records whose key is their value and whose id is their position.
    struct Records(Vec<(u64, u32)>);

    impl Chained for Records {
        fn key(&self, id: u32) -> u64 {
            self.0[id as usize].0
        }

        fn next(&self, id: u32) -> u32 {
            self.0[id as usize].1
        }

        fn set_next(&mut self, id: u32, next: u32) {
            self.0[id as usize].1 = next;
        }

        fn content(&self, id: u32) -> (Position, u32) {
            (u64::from(id) + 7, 1)
        }

        fn prefetch(&self, _: u32) {}
    }

    fn contains(buckets: &Buckets, records: &Records, id: u32) -> bool {
        let mut at = buckets.first(records.key(id)).id;
        while at != NIL && at != id {
            at = records.next(at);
        }
        at == id
    }

    #[test]
    fn every_record_is_found_while_the_table_grows_and_shrinks() {
        let mut rng = Rng::new(1);
        let mut records = Records((0..20_000).map(|_| (rng.next_u64(), NIL)).collect());
        let (mut buckets, mut garbage) = (Buckets::new(3), Garbage::default());
        for id in 0..20_000 {
            buckets.insert(&mut records, id);
            assert!(contains(&buckets, &records, id / 2));
        }
        assert_eq!(buckets.buckets, 40_000);
        assert!((0..20_000).all(|id| contains(&buckets, &records, id)));
        for id in 0..19_990 {
            buckets.remove(&mut records, id, &mut garbage);
            assert!(!contains(&buckets, &records, id));
            assert!(contains(&buckets, &records, 19_990 + id % 10));
        }
        assert_eq!((buckets.len(), buckets.buckets), (10, 40));
        assert_eq!(buckets.chunks.len(), 1);
        assert!(!garbage.is_empty());
    }

    #[test]
    fn keys_of_one_bucket_under_one_seed_are_spread_under_another() {
        let bucket = |seed: u64, key: u64| mix(key ^ seed) % 1024;
        let prepared: Vec<u64> = (0..1 << 20).filter(|&key| bucket(1, key) == 0).collect();
        assert!(prepared.len() > 900);
        let mut counts = vec![0; 1024];
        prepared.iter().for_each(|&key| counts[bucket(2, key) as usize] += 1);
        assert!(counts.into_iter().max() < Some(20));
    }

    #[test]
    fn a_record_takes_another_ones_place() {
        let mut records = Records(vec![(7, NIL), (7, NIL), (7, NIL), (7, NIL)]);
        let mut buckets = Buckets::new(3);
        (0..3).for_each(|id| buckets.insert(&mut records, id));
        buckets.replace(&mut records, 1, 3);
        let held: Vec<_> = (0..4).map(|id| contains(&buckets, &records, id)).collect();
        assert_eq!(held, [true, false, true, true]);
    }
}
