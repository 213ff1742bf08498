//! The hash index: where heads of fixed lengths were sent lately (`--cache-index hash`).

use xxhash_rust::xxh3::Xxh3;

use super::arena::{Arena, NIL, Vacancy};
use super::buckets::{Buckets, Chained};
use super::tenants::{NO_TENANT, Tenant, Tenants};
use super::{Garbage, Slice};
use crate::fleet::WorkerId;

/// Most heads one model's index remembers; the one used longest ago is dropped first.
pub const HASH_INDEX_MAX_ENTRIES: usize = 1 << 20;

/// Most workers remembered for one head; the one used longest ago is dropped first.
pub const MAX_HEAD_HOLDERS: usize = 3;

/// Hashes of a request's heads at the boundaries it reaches. Reused between requests, so that
/// hashing does not allocate.
#[derive(Debug, Clone, Default)]
pub struct Heads {
    namespace: Option<u64>,
    hashes: Vec<u64>,
}

impl Heads {
    /// Hash per boundary, shallowest first.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Whether the request is shorter than every boundary.
    pub fn is_short(&self) -> bool {
        self.hashes.is_empty()
    }
}

/// Hashes the heads of `tokens` at each of the strictly ascending `boundaries` not beyond its length,
/// in one pass. A head's hash is XXH3-64 (seed 0) over its token IDs as little-endian 32-bit words,
/// in a namespace preceded by two words that name it.
pub fn hash_heads(boundaries: &[u32], namespace: Option<u64>, tokens: &[u32], heads: &mut Heads) {
    heads.namespace = namespace;
    heads.hashes.clear();
    let mut hasher = Xxh3::new();
    if let Some(namespace) = namespace {
        update(&mut hasher, &[(namespace >> 32) as u32 | 1 << 31, namespace as u32 | 1 << 31]);
    }
    let mut from = 0;
    for &boundary in boundaries {
        let to = boundary as usize;
        let Some(part) = tokens.get(from..to) else { break };
        update(&mut hasher, part);
        heads.hashes.push(hasher.digest());
        from = to;
    }
}

/// The holders a lookup found.
#[derive(Debug, Clone, Copy)]
pub struct Placement {
    /// The boundary whose head is held; 0 if none is.
    pub level: u32,
    holders: [WorkerId; MAX_HEAD_HOLDERS],
    count: u8,
}

impl Placement {
    /// Live, eligible holders of that head.
    pub fn holders(&self) -> &[WorkerId] {
        &self.holders[..usize::from(self.count)]
    }
}

/// Heads and their recent holders, for one model.
#[derive(Debug)]
pub struct HashIndex {
    boundaries: Box<[u32]>,
    ttl_ms: u64,
    max_entries: usize,
    entries: Arena<Entry>,
    table: Buckets,
    tenants: Tenants<()>,
    /// Ends of the list of entries ordered by latest use.
    oldest: u32,
    newest: u32,
    /// A pass that drops holders that were removed from the fleet.
    purge: Option<Purge>,
    garbage: Garbage,
}

/// One head: one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    hash: u64,
    namespace: u64,
    /// Time of use in milliseconds in the upper 48 bits, tenant in the lower 16; latest first.
    holders: [u64; MAX_HEAD_HOLDERS],
    chain: u32,
    older: u32,
    newer: u32,
    /// Position of the boundary; [`VACANT`] in a free place.
    level: u16,
    has_namespace: bool,
}

const _: () = assert!(size_of::<Entry>() == 64);

const VACANT: u16 = u16::MAX;
const NO_HOLDER: u64 = NO_TENANT as u64;
const TENANT_BITS: u32 = Tenant::BITS;

#[derive(Debug)]
struct Purge {
    next_entry: u32,
    /// Removed registrations this pass covers.
    tenants: usize,
}

impl HashIndex {
    /// An empty index for strictly ascending `boundaries`; holders live for `ttl_ms` after their last
    /// use, inclusive. `seed` keys the table, so that a client cannot prepare heads that collide there.
    pub fn new(boundaries: &[u32], ttl_ms: u64, seed: u64) -> Self {
        Self::with_capacity(boundaries, ttl_ms, seed, HASH_INDEX_MAX_ENTRIES)
    }

    /// The boundaries for [`hash_heads`].
    pub fn boundaries(&self) -> &[u32] {
        &self.boundaries
    }

    /// Number of heads remembered, expired ones included until a sweep or their next use.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// The live, eligible holders of the deepest head that has any at `now_ms`.
    pub fn find(
        &self,
        heads: &Heads,
        now_ms: u64,
        eligible: impl Fn(WorkerId) -> bool,
    ) -> Placement {
        let mut found = Placement {
            level: 0,
            holders: [WorkerId { slot: 0, generation: 0 }; MAX_HEAD_HOLDERS],
            count: 0,
        };
        let levels = || heads.hashes.iter().enumerate().rev();
        levels().for_each(|(level, &hash)| self.table.prefetch(table_key(level as u16, hash)));
        for (level, &hash) in levels() {
            let Some(id) = self.entry(heads.namespace, level, hash) else { continue };
            for &holder in &self.entries[id].holders {
                if !self.is_live(holder, now_ms) {
                    continue;
                }
                let worker = self.tenants.worker(holder as Tenant);
                if eligible(worker) {
                    found.holders[usize::from(found.count)] = worker;
                    found.count += 1;
                }
            }
            if found.count > 0 {
                found.level = self.boundaries[level];
                break;
            }
        }
        found
    }

    /// Records `worker` as a holder of all the heads, used at `now_ms` (below 2^48).
    pub fn record(&mut self, heads: &Heads, worker: WorkerId, now_ms: u64) {
        if heads.is_short() {
            return;
        }
        let Some(tenant) = self.enter(worker, now_ms) else { return };
        for (level, &hash) in heads.hashes.iter().enumerate() {
            let id = match self.entry(heads.namespace, level, hash) {
                Some(id) => {
                    self.unlist(id);
                    id
                }
                None => self.new_entry(heads.namespace, level, hash),
            };
            self.list_newest(id);
            self.hold(id, tenant, now_ms);
        }
    }

    /// Forgets a worker: no lookup sees it again. Entries it alone held go with the next sweep.
    pub fn remove_worker(&mut self, worker: WorkerId) {
        self.tenants.remove(worker);
    }

    /// Drops expired heads and those only removed workers held, up to `max_entries` visits. Call it
    /// again until it is done.
    pub fn sweep(&mut self, now_ms: u64, max_entries: usize) -> Slice {
        let mut slice = Slice::default();
        let mut visits = max_entries.max(1);
        while visits > 0 && self.oldest != NIL && !self.is_used(self.oldest, now_ms) {
            self.remove_entry(self.oldest);
            slice.entries += 1;
            visits -= 1;
        }
        slice.entries += self.purge_slice(now_ms, visits);
        slice.done = visits > 0 && self.tenants.first_removed().is_none();
        slice.garbage = std::mem::take(&mut self.garbage);
        slice
    }

    fn with_capacity(boundaries: &[u32], ttl_ms: u64, seed: u64, max_entries: usize) -> Self {
        // A level is stored in 16 bits; there are never that many boundaries on a command line.
        let boundaries = &boundaries[..boundaries.len().min(usize::from(VACANT))];
        Self {
            boundaries: boundaries.into(),
            ttl_ms,
            max_entries,
            entries: Arena::default(),
            table: Buckets::new(seed),
            tenants: Tenants::default(),
            oldest: NIL,
            newest: NIL,
            purge: None,
            garbage: Garbage::default(),
        }
    }

    fn entry(&self, namespace: Option<u64>, level: usize, hash: u64) -> Option<u32> {
        let mut at = self.table.first(table_key(level as u16, hash));
        while at != NIL {
            let entry = &self.entries[at];
            if entry.hash == hash
                && usize::from(entry.level) == level
                && entry.has_namespace.then_some(entry.namespace) == namespace
            {
                return Some(at);
            }
            at = entry.chain;
        }
        None
    }

    fn new_entry(&mut self, namespace: Option<u64>, level: usize, hash: u64) -> u32 {
        if self.entries.len() >= self.max_entries && self.oldest != NIL {
            self.remove_entry(self.oldest);
        }
        let id = self.entries.insert(Entry {
            hash,
            namespace: namespace.unwrap_or(0),
            holders: [NO_HOLDER; MAX_HEAD_HOLDERS],
            chain: NIL,
            older: NIL,
            newer: NIL,
            level: level as u16,
            has_namespace: namespace.is_some(),
        });
        self.table.insert(&mut self.entries, id);
        id
    }

    fn remove_entry(&mut self, id: u32) {
        self.unlist(id);
        self.table.remove(&mut self.entries, id, &mut self.garbage);
        self.entries.remove(id, &mut self.garbage);
    }

    /// Makes `tenant` the first holder. The others move back; of more than fit, the last is dropped.
    fn hold(&mut self, id: u32, tenant: Tenant, now_ms: u64) {
        let mut holders = [NO_HOLDER; MAX_HEAD_HOLDERS];
        holders[0] = now_ms << TENANT_BITS | u64::from(tenant);
        let others = self.entries[id].holders.into_iter();
        let others = others.filter(|&h| h as Tenant != tenant && self.is_live(h, now_ms));
        for (place, other) in holders[1..].iter_mut().zip(others) {
            *place = other;
        }
        self.entries[id].holders = holders;
    }

    /// Whether a holder is registered and was used within the TTL.
    #[inline]
    fn is_live(&self, holder: u64, now_ms: u64) -> bool {
        holder != NO_HOLDER
            && now_ms.saturating_sub(holder >> TENANT_BITS) <= self.ttl_ms
            && self.tenants.is_live(holder as Tenant)
    }

    /// Whether the entry has a live holder.
    fn is_used(&self, id: u32, now_ms: u64) -> bool {
        self.entries[id].holders.iter().any(|&holder| self.is_live(holder, now_ms))
    }

    fn enter(&mut self, worker: WorkerId, now_ms: u64) -> Option<Tenant> {
        if let Some(tenant) = self.tenants.get(worker) {
            return Some(tenant);
        }
        self.tenants.supersede(worker);
        // 49,000 registrations removed since the last sweep: their memory has to go now.
        while self.tenants.is_full() && self.tenants.first_removed().is_some() {
            self.purge_slice(now_ms, usize::MAX);
        }
        self.tenants.enter(worker)
    }

    /// Visits up to `max_entries` entries in search of holders removed from the fleet; returns the
    /// number of entries dropped.
    ///
    /// An entry that a removed worker used last keeps its place on the list, and may so outlast its
    /// other holders; by less than a TTL, and no lookup sees it.
    fn purge_slice(&mut self, now_ms: u64, max_entries: usize) -> usize {
        let removed = self.tenants.removed();
        if removed == 0 {
            return 0;
        }
        let pass = self.purge.get_or_insert(Purge { next_entry: 0, tenants: removed });
        let end = self.entries.end();
        let from = pass.next_entry;
        let to = end.min(from.saturating_add(max_entries.min(u32::MAX as usize) as u32));
        pass.next_entry = to;
        let covered = pass.tenants;
        let mut dropped = 0;
        for id in from..to {
            if self.entries.get(id).is_none() {
                continue;
            }
            for place in 0..MAX_HEAD_HOLDERS {
                let holder = self.entries[id].holders[place];
                if holder != NO_HOLDER && !self.tenants.is_live(holder as Tenant) {
                    self.entries[id].holders[place] = NO_HOLDER;
                }
            }
            if !self.is_used(id, now_ms) {
                self.remove_entry(id);
                dropped += 1;
            }
        }
        if to == end {
            self.purge = None;
            (0..covered).for_each(|_| self.tenants.release_first());
        }
        dropped
    }

    fn list_newest(&mut self, id: u32) {
        let older = std::mem::replace(&mut self.newest, id);
        let entry = &mut self.entries[id];
        (entry.older, entry.newer) = (older, NIL);
        match older {
            NIL => self.oldest = id,
            older => self.entries[older].newer = id,
        }
    }

    fn unlist(&mut self, id: u32) {
        let Entry { older, newer, .. } = self.entries[id];
        match older {
            NIL => self.oldest = newer,
            older => self.entries[older].newer = newer,
        }
        match newer {
            NIL => self.newest = older,
            newer => self.entries[newer].older = older,
        }
    }
}

impl Vacancy for Entry {
    fn vacant(next: u32) -> Self {
        Self {
            hash: 0,
            namespace: 0,
            holders: [NO_HOLDER; MAX_HEAD_HOLDERS],
            chain: next,
            older: NIL,
            newer: NIL,
            level: VACANT,
            has_namespace: false,
        }
    }

    fn next_vacant(&self) -> Option<u32> {
        (self.level == VACANT).then_some(self.chain)
    }
}

impl Chained for Arena<Entry> {
    fn key(&self, id: u32) -> u64 {
        table_key(self[id].level, self[id].hash)
    }

    fn next(&self, id: u32) -> u32 {
        self[id].chain
    }

    fn set_next(&mut self, id: u32, next: u32) {
        self[id].chain = next;
    }
}

/// Key of a head in the table; the level tells boundaries apart.
fn table_key(level: u16, hash: u64) -> u64 {
    hash ^ u64::from(level).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Hashes tokens as little-endian bytes, through a buffer on the stack.
fn update(hasher: &mut Xxh3, tokens: &[u32]) {
    let mut buffer = [0u8; 4096];
    for block in tokens.chunks(buffer.len() / 4) {
        for (bytes, token) in buffer.chunks_exact_mut(4).zip(block) {
            bytes.copy_from_slice(&token.to_le_bytes());
        }
        hasher.update(&buffer[..4 * block.len()]);
    }
}

#[cfg(test)]
mod tests;
