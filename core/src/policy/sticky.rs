//! Sticky keys: `manual`, and `--routing-key-override` over any other policy.
//!
//! A key is pinned to the worker that first served it, and to a second one that took over while the
//! first could not be chosen. One [`StickyMap`] per model, on the model's owner shard; the counts of
//! requests per key travel with the requests and are given back wherever those end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use xxhash_rust::xxh3::xxh3_128;

use crate::fleet::{MAX_WORKERS, WorkerId};
use crate::policy::candidates::{Candidates, Eligible, NoWorker};
use crate::policy::sampling::{fewest, fewest_in_flight, sample};
use crate::policy::{Branch, Choice, PolicyState};
use crate::rng::Rng;

use lru::Lru;

mod lru;
#[cfg(test)]
mod tests;

/// Longest routing key, in bytes.
pub const MAX_KEY_BYTES: usize = 128;
/// Most keys of one model; the one unused for longest makes room for a new one. About 150 bytes
/// each.
pub const MAX_KEYS: usize = 1 << 20;
/// Requests of one key in flight on its pinned worker under `--routing-key-override`; more are placed
/// anew.
pub const MAX_IN_FLIGHT_PER_KEY: u32 = 2;

/// How a key without a usable worker gets one (`--assignment-mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    Random,
    /// Fewest requests in flight.
    MinLoad,
    /// Fewest keys with a request in flight.
    MinGroup,
    /// The configured policy decides. For `manual`, which is the configured policy, like `MinLoad`.
    Delegate,
}

/// Keys with at least one request in flight per worker: `smg_worker_routing_keys_active`. Clones
/// share the counts.
#[derive(Debug, Clone)]
pub struct ActiveKeys(Arc<[AtomicI32]>);

impl Default for ActiveKeys {
    fn default() -> Self {
        Self((0..MAX_WORKERS).map(|_| AtomicI32::new(0)).collect())
    }
}

impl ActiveKeys {
    /// Active keys of `worker`.
    pub fn get(&self, worker: WorkerId) -> u32 {
        // Below zero for a moment when two shards cross: one begins, the other ends a key's request.
        self.cell(worker).load(Ordering::Relaxed).max(0) as u32
    }

    fn cell(&self, worker: WorkerId) -> &AtomicI32 {
        &self.0[worker.slot as usize]
    }
}

/// What the map says about one request.
#[derive(Debug)]
pub enum Placement {
    /// The request goes there. Hold the permit, if there is one, until the request ends.
    Decided(Choice, Option<KeyPermit>),
    /// The configured policy decides, then [`StickyMap::pin`] with this branch.
    Delegated(Branch),
}

/// The pinned keys of one model.
#[derive(Debug)]
pub struct StickyMap {
    /// Keys by digest: a client's value is neither kept nor comparable.
    index: HashMap<u128, u32>,
    pins: Lru<Pin>,
    active: ActiveKeys,
    max_keys: usize,
}

#[derive(Debug, Default)]
struct Pin {
    key: u128,
    /// In order of preference.
    workers: [Option<WorkerId>; 2],
    /// Requests of this key per worker: the pinned ones and those with a request in flight.
    counts: Vec<Arc<KeyCount>>,
}

#[derive(Debug)]
struct KeyCount {
    worker: WorkerId,
    in_flight: AtomicU32,
    active: ActiveKeys,
}

impl StickyMap {
    /// An empty map; `active` is shared with the maps of other models.
    pub fn new(active: ActiveKeys) -> Self {
        Self::with_capacity(active, MAX_KEYS)
    }

    fn with_capacity(active: ActiveKeys, max_keys: usize) -> Self {
        Self { index: HashMap::new(), pins: Lru::default(), active, max_keys }
    }

    /// Pinned keys: `smg_manual_policy_cache_entries`.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether no key is pinned.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The `manual` policy. `key` has been through [`header_key`].
    pub fn choose_manually(
        &mut self,
        key: Option<&[u8]>,
        mode: Assignment,
        state: &mut PolicyState,
        candidates: &Candidates<'_>,
        rng: &mut Rng,
    ) -> Result<(Choice, Option<KeyPermit>), NoWorker> {
        let mode = if mode == Assignment::Delegate { Assignment::MinLoad } else { mode };
        let Some(key) = key else {
            let eligible = candidates.eligible();
            let worker = self
                .assign(mode, &eligible, &mut state.workers, rng)
                .ok_or_else(|| candidates.why_none())?;
            return Ok((choice(worker, Branch::NoRoutingId), None));
        };
        match self.place(key, mode, None, state, candidates, rng)? {
            Placement::Decided(choice, permit) => Ok((choice, permit)),
            Placement::Delegated(_) => Err(NoWorker::Unavailable),
        }
    }

    /// The `--routing-key-override`. `key` has been through [`routing_key`].
    pub fn choose_overriding(
        &mut self,
        key: &[u8],
        mode: Assignment,
        state: &mut PolicyState,
        candidates: &Candidates<'_>,
        rng: &mut Rng,
    ) -> Result<Placement, NoWorker> {
        self.place(key, mode, Some(MAX_IN_FLIGHT_PER_KEY), state, candidates, rng)
    }

    /// Whether [`StickyMap::choose_overriding`] (`overriding`), or [`StickyMap::choose_manually`], sends
    /// this key where it is pinned, rather than to a worker that is chosen anew. Changes nothing.
    pub fn is_placed(
        &self,
        key: &[u8],
        overriding: bool,
        state: &mut PolicyState,
        candidates: &Candidates<'_>,
    ) -> bool {
        let Some((entry, Some(worker))) = self.pinned(key, state, candidates) else { return false };
        !overriding || self.pins.get(entry).in_flight(worker) < MAX_IN_FLIGHT_PER_KEY
    }

    fn place(
        &mut self,
        key: &[u8],
        mode: Assignment,
        cap: Option<u32>,
        state: &mut PolicyState,
        candidates: &Candidates<'_>,
        rng: &mut Rng,
    ) -> Result<Placement, NoWorker> {
        let branch = match self.pinned(key, state, candidates) {
            None => Branch::Vacant,
            Some((_, None)) => Branch::OccupiedMiss,
            Some((entry, Some(worker))) => {
                let pin = self.pins.get_mut(entry);
                if cap.is_none_or(|cap| pin.in_flight(worker) < cap) {
                    let permit = pin.begin(worker, &self.active);
                    self.pins.touch(entry, candidates.now_ms);
                    let choice = choice(worker, Branch::OccupiedHit);
                    return Ok(Placement::Decided(choice, Some(permit)));
                }
                Branch::CapRespill
            }
        };
        if mode == Assignment::Delegate {
            return Ok(Placement::Delegated(branch));
        }
        let worker = self
            .assign(mode, &candidates.eligible(), &mut state.workers, rng)
            .ok_or_else(|| candidates.why_none())?;
        let permit = self.pin(key, worker, branch, mode, candidates.now_ms);
        Ok(Placement::Decided(choice(worker, branch), Some(permit)))
    }

    /// Enters the worker that was chosen for a key the map had no answer for, and counts the request.
    ///
    /// `branch` is why there was none. A new key gets its first worker. After a failover the policy's
    /// choice is preferred from now on ([`Assignment::Delegate`]); in the other modes it stands
    /// behind the worker that failed, which serves again once it can. After a respill the pin moves
    /// only if the new worker has room for more of this key.
    pub fn pin(
        &mut self,
        key: &[u8],
        worker: WorkerId,
        branch: Branch,
        mode: Assignment,
        now_ms: u64,
    ) -> KeyPermit {
        let key = xxh3_128(key);
        let entry = match self.index.get(&key) {
            Some(&entry) => entry,
            None => self.add(key),
        };
        self.pins.touch(entry, now_ms);
        let pin = self.pins.get_mut(entry);
        let has_room = pin.in_flight(worker) < MAX_IN_FLIGHT_PER_KEY;
        pin.workers = match (branch, pin.workers) {
            (_, pinned) if pinned.contains(&Some(worker)) => pinned,
            (Branch::CapRespill, pinned) if !has_room => pinned,
            (Branch::OccupiedMiss, [first, None]) if mode != Assignment::Delegate => {
                [first, Some(worker)]
            }
            (Branch::OccupiedMiss, [_, second]) if mode != Assignment::Delegate => {
                [second, Some(worker)]
            }
            (_, [first, _]) => [Some(worker), first],
        };
        pin.begin(worker, &self.active)
    }

    /// Forgets keys unused for `max_idle_ms`, at most `budget` of them: call again while it returns
    /// `budget`. 0 ms is never.
    pub fn sweep(&mut self, now_ms: u64, max_idle_ms: u64, budget: usize) -> usize {
        let mut forgotten = 0;
        while max_idle_ms > 0 && forgotten < budget {
            match self.pins.oldest() {
                Some((_, used_ms)) if used_ms.saturating_add(max_idle_ms) <= now_ms => {}
                _ => break,
            }
            self.drop_oldest();
            forgotten += 1;
        }
        forgotten
    }

    /// The entry of `key`, and the first of its workers that may be chosen.
    fn pinned(
        &self,
        key: &[u8],
        state: &mut PolicyState,
        candidates: &Candidates<'_>,
    ) -> Option<(u32, Option<WorkerId>)> {
        let entry = *self.index.get(&xxh3_128(key))?;
        let eligibility = state.eligibility(candidates);
        let mut workers = self.pins.get(entry).workers.into_iter().flatten();
        Some((entry, workers.find(|&worker| eligibility.allows(worker))))
    }

    fn assign(
        &self,
        mode: Assignment,
        eligible: &Eligible<'_>,
        scratch: &mut Vec<WorkerId>,
        rng: &mut Rng,
    ) -> Option<WorkerId> {
        match mode {
            Assignment::Random => sample(eligible, scratch, |_| true, rng),
            Assignment::MinGroup => fewest(eligible, scratch, |w| self.active.get(w), rng),
            Assignment::MinLoad | Assignment::Delegate => fewest_in_flight(eligible, scratch, rng),
        }
    }

    fn add(&mut self, key: u128) -> u32 {
        if self.index.len() >= self.max_keys {
            self.drop_oldest();
        }
        let entry = self.pins.push(Pin { key, ..Pin::default() });
        self.index.insert(key, entry);
        entry
    }

    fn drop_oldest(&mut self) {
        if let Some((entry, _)) = self.pins.oldest() {
            let pin = self.pins.remove(entry);
            self.index.remove(&pin.key);
        }
    }
}

impl Pin {
    fn in_flight(&self, worker: WorkerId) -> u32 {
        let count = self.counts.iter().find(|count| count.worker == worker);
        count.map_or(0, |count| count.in_flight.load(Ordering::Relaxed))
    }

    fn begin(&mut self, worker: WorkerId, active: &ActiveKeys) -> KeyPermit {
        let workers = self.workers;
        self.counts.retain(|count| {
            count.in_flight.load(Ordering::Relaxed) > 0 || workers.contains(&Some(count.worker))
        });
        let known = self.counts.iter().find(|count| count.worker == worker).cloned();
        let count = known.unwrap_or_else(|| {
            let in_flight = AtomicU32::new(0);
            let count = Arc::new(KeyCount { worker, in_flight, active: active.clone() });
            self.counts.push(count.clone());
            count
        });
        if count.in_flight.fetch_add(1, Ordering::Relaxed) == 0 {
            active.cell(worker).fetch_add(1, Ordering::Relaxed);
        }
        KeyPermit(count)
    }
}

/// One request of a key in flight; dropping it, on whichever shard, ends that.
#[derive(Debug)]
#[must_use = "the key's request counts as over once this is dropped"]
pub struct KeyPermit(Arc<KeyCount>);

impl Drop for KeyPermit {
    fn drop(&mut self) {
        if self.0.in_flight.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.active.cell(self.0.worker).fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn choice(worker: WorkerId, branch: Branch) -> Choice {
    Choice { worker, branch, score: None }
}

/// A routing-key header's value as `manual` uses it: not empty, UTF-8, at most [`MAX_KEY_BYTES`].
pub fn header_key(value: &[u8]) -> Option<&[u8]> {
    let usable =
        !value.is_empty() && value.len() <= MAX_KEY_BYTES && std::str::from_utf8(value).is_ok();
    usable.then_some(value)
}

/// A `rid` or routing-key header as a conversation's key: without the suffixes of its turns and
/// retries, then as [`header_key`].
pub fn routing_key(value: &[u8]) -> Option<&[u8]> {
    header_key(lineage(value))
}

/// `conversation_t3_r1` → `conversation`: one `_r<digits>`, then one `_t<digits>`, unless nothing
/// would be left.
fn lineage(value: &[u8]) -> &[u8] {
    let stripped = without_suffix(without_suffix(value, b'r'), b't');
    if stripped.is_empty() { value } else { stripped }
}

fn without_suffix(value: &[u8], letter: u8) -> &[u8] {
    let digits = value.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    match value[..value.len() - digits].strip_suffix(&[b'_', letter]) {
        Some(rest) if digits > 0 => rest,
        _ => value,
    }
}
