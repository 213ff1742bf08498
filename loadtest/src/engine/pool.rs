//! The KV block pool with its prefix cache: a fixed number of blocks, each free or in use, each
//! with or without known content.
//!
//! A free block keeps its content until the block is needed for something else; the free list is
//! in LRU order, so the content unused for longest goes first. This is how vLLM's block pool
//! works: "cached" and "free" are the same blocks, and usage counts only blocks in use.

use smg_core::prefetch::prefetch;

/// Index of a block in its pool.
pub(super) type BlockId = u32;

#[derive(Debug)]
pub(super) struct BlockPool {
    /// Blocks that were ever used. The others are free, and older than these.
    blocks: Vec<Block>,
    capacity: u32,
    by_content: Contents,
    /// Ends of the free list: the next victim, and the most recently released.
    oldest: BlockId,
    youngest: BlockId,
    free: u32,
}

/// Small, because a simulation has millions.
#[derive(Debug, Clone)]
struct Block {
    /// [`UNKNOWN`] without any.
    content: u64,
    users: u32,
    older: BlockId,
    younger: BlockId,
    /// The block used behind this one last: a guess where the next content is, which spares most
    /// look-ups by content and their cache misses.
    next: BlockId,
    /// The next block of the same bucket of [`Contents`].
    chained: BlockId,
}

const NONE: BlockId = BlockId::MAX;
/// No content. Blocks whose identity happens to be this one are not cached.
const UNKNOWN: u64 = u64::MAX;
/// Blocks a pool makes room for at once, at its first use. Growing by doubling leaves as much again
/// behind, which a thousand pools that grow alike cannot use.
const FIRST_ROOM: u32 = 1024;

impl BlockPool {
    /// A pool of `capacity` empty blocks (at least one).
    pub fn new(capacity: u32) -> Self {
        let capacity = capacity.clamp(1, NONE - 1);
        Self {
            blocks: Vec::new(),
            capacity,
            by_content: Contents::default(),
            oldest: NONE,
            youngest: NONE,
            free: capacity,
        }
    }

    /// Starts loading what a look-up of this content, and the next allocation, will need first.
    pub fn prefetch(&self, content: Option<&u64>) {
        if let Some(&content) = content {
            self.by_content.prefetch(content);
        }
        if let Some(victim) = self.blocks.get(self.oldest as usize) {
            prefetch(victim);
        }
    }

    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Blocks no request uses, cached or not.
    pub fn free(&self) -> u32 {
        self.free
    }

    pub fn used(&self) -> u32 {
        self.capacity() - self.free
    }

    /// How many of these leading blocks are cached: the count stops at the first miss.
    pub fn leading_hits(&self, contents: &[u64]) -> usize {
        self.hits(contents).count()
    }

    /// Lists the leading blocks that are cached: up to the first miss.
    pub fn list_leading_hits(&self, contents: &[u64], into: &mut Vec<BlockId>) {
        into.clear();
        into.extend(self.hits(contents));
    }

    fn hits(&self, contents: &[u64]) -> impl Iterator<Item = BlockId> {
        let mut last = NONE;
        contents.iter().take_while(|&&content| content != UNKNOWN).map_while(move |content| {
            let guess = self.blocks.get(last as usize).map_or(NONE, |block| block.next);
            let guessed = self.blocks.get(guess as usize);
            let is_right = guessed.is_some_and(|block| block.content == *content);
            last = if is_right { guess } else { self.by_content.find(&self.blocks, *content)? };
            Some(last)
        })
    }

    /// How many of these blocks are on the free list and would leave it when used.
    pub fn free_among(&self, blocks: &[BlockId]) -> u32 {
        blocks.iter().filter(|&&id| self.blocks[id as usize].users == 0).count() as u32
    }

    /// Takes one more use of each of these cached blocks of one sequence.
    pub fn use_blocks(&mut self, sequence: &[BlockId]) {
        for (at, &id) in sequence.iter().enumerate() {
            self.use_block(id);
            if let Some(&next) = sequence.get(at + 1) {
                self.blocks[id as usize].next = next;
            }
        }
    }

    fn use_block(&mut self, id: BlockId) {
        if self.blocks[id as usize].users == 0 {
            self.unlink_free(id);
        }
        self.blocks[id as usize].users += 1;
    }

    /// Takes the least recently used free block and forgets its content; `None` when none is free.
    pub fn allocate(&mut self) -> Option<BlockId> {
        let new = self.blocks.len() as u32;
        if new < self.capacity {
            return Some(self.allocate_new(new));
        }
        let id = self.oldest;
        if id == NONE {
            return None;
        }
        self.unlink_free(id);
        let block = &mut self.blocks[id as usize];
        block.users = 1;
        if block.content != UNKNOWN {
            self.by_content.remove(&mut self.blocks, id);
            self.blocks[id as usize].content = UNKNOWN;
        }
        Some(id)
    }

    fn allocate_new(&mut self, id: BlockId) -> BlockId {
        if id == 0 {
            self.blocks.reserve_exact(self.capacity.min(FIRST_ROOM) as usize);
        }
        self.by_content.make_room(&mut self.blocks, self.capacity);
        self.blocks.push(Block {
            content: UNKNOWN,
            users: 1,
            older: NONE,
            younger: NONE,
            next: NONE,
            chained: NONE,
        });
        self.free -= 1;
        id
    }

    /// Records that a block in use is now full with this content, perhaps once more. A second block
    /// with the same content stays anonymous: the first one serves the hits.
    pub fn set_content(&mut self, id: BlockId, content: u64) {
        let known = self.blocks[id as usize].content;
        debug_assert!(known == UNKNOWN || known == content, "block {id} has another content");
        if content != UNKNOWN && self.by_content.find(&self.blocks, content).is_none() {
            self.blocks[id as usize].content = content;
            self.by_content.insert(&mut self.blocks, id);
        }
    }

    /// Gives back one use of each block. The last blocks of a sequence are released first, so that
    /// they are evicted before the prefix others may share.
    pub fn release(&mut self, sequence: &[BlockId]) {
        for &id in sequence.iter().rev() {
            let block = &mut self.blocks[id as usize];
            debug_assert!(block.users > 0, "block {id} released twice");
            block.users = block.users.saturating_sub(1);
            if block.users == 0 {
                self.append_free(id);
            }
        }
    }

    /// Forgets all contents, as an engine's cache reset does. Blocks in use stay in use.
    pub fn forget_contents(&mut self) {
        self.by_content.clear();
        for block in &mut self.blocks {
            block.content = UNKNOWN;
        }
    }

    fn append_free(&mut self, id: BlockId) {
        let last = self.youngest;
        let block = &mut self.blocks[id as usize];
        block.older = last;
        block.younger = NONE;
        match last {
            NONE => self.oldest = id,
            _ => self.blocks[last as usize].younger = id,
        }
        self.youngest = id;
        self.free += 1;
    }

    fn unlink_free(&mut self, id: BlockId) {
        let Block { older, younger, .. } = self.blocks[id as usize];
        match older {
            NONE => self.oldest = younger,
            _ => self.blocks[older as usize].younger = younger,
        }
        match younger {
            NONE => self.youngest = older,
            _ => self.blocks[younger as usize].older = older,
        }
        self.free -= 1;
    }
}

/// Content identity to the block that holds it; at most one block per identity. A hash table whose
/// chains go through the blocks: a look-up loads little more than the block, and what it will load can
/// be asked for ahead.
#[derive(Debug, Default)]
struct Contents {
    /// First block of each chain; a power of two of them, or none. Identities are hashes already.
    buckets: Vec<BlockId>,
}

impl Contents {
    fn bucket(&self, content: u64) -> usize {
        content as usize & (self.buckets.len() - 1)
    }

    fn prefetch(&self, content: u64) {
        if !self.buckets.is_empty() {
            prefetch(&self.buckets[self.bucket(content)]);
        }
    }

    fn find(&self, blocks: &[Block], content: u64) -> Option<BlockId> {
        if self.buckets.is_empty() {
            return None;
        }
        let mut at = self.buckets[self.bucket(content)];
        while at != NONE && blocks[at as usize].content != content {
            at = blocks[at as usize].chained;
        }
        (at != NONE).then_some(at)
    }

    /// Enters a block with a content that no other block has. There must be room.
    fn insert(&mut self, blocks: &mut [Block], id: BlockId) {
        let bucket = self.bucket(blocks[id as usize].content);
        blocks[id as usize].chained = std::mem::replace(&mut self.buckets[bucket], id);
    }

    /// Takes out a block that was entered and has its content still.
    fn remove(&mut self, blocks: &mut [Block], id: BlockId) {
        let Block { content, chained, .. } = blocks[id as usize];
        let bucket = self.bucket(content);
        if self.buckets[bucket] == id {
            self.buckets[bucket] = chained;
            return;
        }
        let mut at = self.buckets[bucket];
        while at != NONE && blocks[at as usize].chained != id {
            at = blocks[at as usize].chained;
        }
        if at != NONE {
            blocks[at as usize].chained = chained;
        }
    }

    /// Sees to it that there are as many buckets as blocks once another one is there.
    fn make_room(&mut self, blocks: &mut [Block], capacity: u32) {
        if blocks.len() < self.buckets.len() {
            return;
        }
        let least = capacity.min(FIRST_ROOM) as usize;
        self.buckets = vec![NONE; (2 * blocks.len()).max(least).next_power_of_two()];
        for id in 0..blocks.len() {
            if blocks[id].content != UNKNOWN {
                self.insert(blocks, id as BlockId);
            }
        }
    }

    fn clear(&mut self) {
        self.buckets.fill(NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(pool: &mut BlockPool, contents: &[u64]) -> Vec<BlockId> {
        contents
            .iter()
            .map(|&content| {
                let id = pool.allocate().unwrap();
                pool.set_content(id, content);
                id
            })
            .collect()
    }

    fn hits(pool: &BlockPool, contents: &[u64]) -> Vec<BlockId> {
        let mut hits = Vec::new();
        pool.list_leading_hits(contents, &mut hits);
        hits
    }

    #[test]
    fn released_content_stays_until_its_block_is_needed() {
        let mut pool = BlockPool::new(4);
        let first = fill(&mut pool, &[1, 2, 3]);
        assert_eq!((pool.used(), pool.free()), (3, 1));
        pool.release(&first);
        assert_eq!(pool.used(), 0);
        assert_eq!(pool.leading_hits(&[1, 2, 3, 9]), 3);
        // The never-used block goes first, then the tail of the released sequence.
        let second = fill(&mut pool, &[4, 5]);
        assert_eq!(pool.leading_hits(&[1, 2, 3]), 2);
        assert_eq!(pool.leading_hits(&[4, 5]), 2);
        pool.release(&second);
    }

    #[test]
    fn use_moves_a_prefix_to_the_young_end() {
        let mut pool = BlockPool::new(3);
        let a = fill(&mut pool, &[1]);
        let b = fill(&mut pool, &[2]);
        let c = fill(&mut pool, &[3]);
        pool.release(&a);
        pool.release(&b);
        pool.release(&c);
        let again = hits(&pool, &[1]);
        assert_eq!(again, a);
        pool.use_block(again[0]);
        pool.release(&again);
        fill(&mut pool, &[4]);
        assert_eq!(pool.leading_hits(&[2]), 0, "2 was the least recently used");
        assert_eq!(pool.leading_hits(&[1]), 1);
        assert_eq!(pool.leading_hits(&[3]), 1);
    }

    #[test]
    fn contents_are_found_as_in_a_plain_map_however_the_pool_grows() {
        let mut rng = smg_core::rng::Rng::new(5);
        let mut pool = BlockPool::new(3 * FIRST_ROOM);
        let mut plain = std::collections::HashMap::new();
        for round in 0..20_000u64 {
            // Few low bits, so that chains are long.
            let content = (rng.next_u64() % 6_000) << 6 | 7;
            assert_eq!(hits(&pool, &[content]).first(), plain.get(&content), "round {round}");
            let Some(id) = pool.allocate() else {
                panic!("round {round}: every block was given back")
            };
            plain.retain(|_, block| *block != id);
            plain.entry(content).or_insert(id);
            pool.set_content(id, content);
            pool.release(&[id]);
            if round % 7_000 == 6_999 {
                pool.forget_contents();
                plain.clear();
            }
        }
    }

    #[test]
    fn what_a_block_was_followed_by_is_only_a_guess() {
        let mut pool = BlockPool::new(4);
        let first = fill(&mut pool, &[1, 2, 3]);
        pool.use_blocks(&first);
        assert_eq!(hits(&pool, &[1, 2, 3]), first);
        // The fourth block, then those of 3 and 2, the least recently used ones, get other contents.
        pool.release(&first);
        pool.release(&first);
        fill(&mut pool, &[4, 5, 6]);
        assert_eq!(hits(&pool, &[1, 2, 3]), first[..1], "2 and 3 are gone");
        assert_eq!(hits(&pool, &[1, 6, 5]), first, "6 is where 2 was, and 5 where 3 was");
        assert_eq!(hits(&pool, &[1, 5, 6]), [first[0], first[2], first[1]]);
    }

    #[test]
    fn the_one_identity_that_means_no_content_is_never_found() {
        let mut pool = BlockPool::new(3);
        let ids = fill(&mut pool, &[1, UNKNOWN]);
        pool.use_blocks(&ids);
        assert_eq!(hits(&pool, &[1, UNKNOWN]), ids[..1]);
    }

    #[test]
    fn a_shared_block_is_free_only_after_its_last_user() {
        let mut pool = BlockPool::new(2);
        let id = fill(&mut pool, &[7])[0];
        assert_eq!(hits(&pool, &[7, 8]), [id]);
        pool.use_block(id);
        pool.release(&[id]);
        assert_eq!(pool.free(), 1);
        assert_eq!(pool.free_among(&[id]), 0);
        pool.release(&[id]);
        assert_eq!(pool.free(), 2);
        assert_eq!(pool.free_among(&[id]), 1);
    }

    #[test]
    fn an_exhausted_pool_allocates_nothing_and_evicts_nothing() {
        let mut pool = BlockPool::new(2);
        fill(&mut pool, &[1, 2]);
        assert_eq!(pool.allocate(), None);
        assert_eq!(pool.leading_hits(&[1, 2]), 2);
    }

    #[test]
    fn a_reset_forgets_contents_but_not_uses() {
        let mut pool = BlockPool::new(2);
        let ids = fill(&mut pool, &[1]);
        pool.forget_contents();
        assert_eq!(pool.leading_hits(&[1]), 0);
        assert_eq!(pool.used(), 1);
        pool.release(&ids);
        assert_eq!(pool.free(), 2);
    }

    #[test]
    fn duplicate_content_stays_with_the_first_block() {
        let mut pool = BlockPool::new(3);
        let ids = fill(&mut pool, &[5, 5]);
        pool.release(&ids[1..]);
        assert_eq!(hits(&pool, &[5]), ids[..1]);
    }
}
