//! The hash index: where heads of fixed lengths were sent lately (`--cache-index hash`).

mod slots;
mod table;

use xxhash_rust::xxh3::Xxh3;

use super::arena::NIL;
use super::tenants::{Tenant, Tenants};
use super::{Garbage, Slice};
use crate::fleet::WorkerId;
use slots::{Holder, Key};
use table::Table;

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
    table: Table,
    tenants: Tenants<()>,
    /// A pass that drops holders that were removed from the fleet.
    purge: Option<Purge>,
    garbage: Garbage,
}

#[derive(Debug)]
struct Purge {
    next_slot: usize,
    /// [`Table::changes`] when it began.
    changes: u64,
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
        self.table.len()
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
        let keys = || keys(heads).rev();
        keys().for_each(|key| self.table.prefetch(&key));
        for key in keys() {
            let Some(id) = self.table.find(&key) else { continue };
            for holder in self.table.holders(id) {
                if !self.is_live(holder, now_ms) {
                    continue;
                }
                let worker = self.tenants.worker(holder.tenant());
                if eligible(worker) {
                    found.holders[usize::from(found.count)] = worker;
                    found.count += 1;
                }
            }
            if found.count > 0 {
                found.level = self.boundaries[usize::from(key.level)];
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
        keys(heads).for_each(|key| self.table.prefetch(&key));
        for key in keys(heads) {
            let id = match self.table.find(&key) {
                Some(id) => {
                    self.table.used(id);
                    id
                }
                None => {
                    if self.table.is_full() {
                        self.table.remove(self.table.oldest());
                    }
                    self.table.insert(&key, &mut self.garbage)
                }
            };
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
        while visits > 0 && self.table.oldest() != NIL && !self.is_used(self.table.oldest(), now_ms)
        {
            self.table.remove(self.table.oldest());
            slice.entries += 1;
            visits -= 1;
        }
        slice.entries += self.purge_slice(now_ms, visits);
        let nobody_left = self.tenants.first_removed().is_none();
        slice.done = visits > 0 && nobody_left && self.table.tidy(visits, &mut self.garbage);
        slice.garbage = std::mem::take(&mut self.garbage);
        slice
    }

    fn with_capacity(boundaries: &[u32], ttl_ms: u64, seed: u64, max_entries: usize) -> Self {
        // A level is stored in 16 bits; there are never that many boundaries on a command line.
        let boundaries = &boundaries[..boundaries.len().min(usize::from(u16::MAX))];
        Self {
            boundaries: boundaries.into(),
            ttl_ms,
            table: Table::new(max_entries.max(1), seed),
            tenants: Tenants::default(),
            purge: None,
            garbage: Garbage::default(),
        }
    }

    /// Makes `tenant` the first holder. The others move back; of more than fit, the last is dropped.
    fn hold(&mut self, id: u32, tenant: Tenant, now_ms: u64) {
        let mut holders = [Holder::NONE; MAX_HEAD_HOLDERS];
        holders[0] = Holder::new(tenant, now_ms);
        let others = self.table.holders(id).into_iter();
        let others =
            others.filter(|&other| other.tenant() != tenant && self.is_live(other, now_ms));
        for (place, other) in holders[1..].iter_mut().zip(others) {
            *place = other;
        }
        self.table.set_holders(id, holders);
    }

    /// Whether a holder is registered and was used within the TTL.
    #[inline]
    fn is_live(&self, holder: Holder, now_ms: u64) -> bool {
        holder != Holder::NONE
            && now_ms.saturating_sub(holder.used_ms()) <= self.ttl_ms
            && self.tenants.is_live(holder.tenant())
    }

    /// Whether the entry has a live holder.
    fn is_used(&self, id: u32, now_ms: u64) -> bool {
        self.table.holders(id).iter().any(|&holder| self.is_live(holder, now_ms))
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

    /// Visits up to `max_slots` slots in search of holders removed from the fleet; returns the number
    /// of entries dropped.
    ///
    /// An entry that a removed worker used last keeps its place on the list, and may so outlast its
    /// other holders; by less than a TTL, and no lookup sees it.
    fn purge_slice(&mut self, now_ms: u64, max_slots: usize) -> usize {
        let removed = self.tenants.removed();
        if removed == 0 {
            return 0;
        }
        if self.table.is_moving() {
            self.table.tidy(max_slots, &mut self.garbage);
            return 0;
        }
        let changes = self.table.changes();
        // Where entries have moved, a pass cannot say which ones it has seen.
        let pass = self.purge.take().filter(|pass| pass.changes == changes);
        let pass = pass.unwrap_or(Purge { next_slot: 0, changes, tenants: removed });
        let end = self.table.slots();
        let to = end.min(pass.next_slot.saturating_add(max_slots));
        let mut dropped = 0;
        for slot in pass.next_slot..to {
            if let Some(id) = self.table.id_at(slot) {
                dropped += usize::from(self.purge_entry(id, now_ms));
            }
        }
        if to == end {
            (0..pass.tenants).for_each(|_| self.tenants.release_first());
        } else {
            self.purge = Some(Purge { next_slot: to, ..pass });
        }
        dropped
    }

    /// Drops the holders of an entry that were removed from the fleet, and the entry if that leaves it
    /// without a live one; says whether it went.
    fn purge_entry(&mut self, id: u32, now_ms: u64) -> bool {
        let mut holders = self.table.holders(id);
        for holder in &mut holders {
            if *holder != Holder::NONE && !self.tenants.is_live(holder.tenant()) {
                *holder = Holder::NONE;
            }
        }
        self.table.set_holders(id, holders);
        let goes = !self.is_used(id, now_ms);
        if goes {
            self.table.remove(id);
        }
        goes
    }
}

/// The keys of a request's heads, shallowest first.
fn keys(heads: &Heads) -> impl DoubleEndedIterator<Item = Key> {
    let namespace = heads.namespace;
    let levels = heads.hashes.iter().enumerate();
    levels.map(move |(level, &hash)| Key { hash, namespace, level: level as u16 })
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
