//! A consistent-hash ring: a key keeps its worker while that worker may be chosen, whatever happens
//! to the others.

use crate::fleet::WorkerId;

/// Points of one worker on the ring.
pub const VIRTUAL_NODES: usize = 150;

/// The workers of one model on a ring. Built by the control plane when the fleet changes and read as
/// part of an epoch: hashing and merging a large fleet takes milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HashRing {
    /// Sorted by position, then worker. 16 bytes each.
    points: Vec<(u64, WorkerId)>,
}

impl HashRing {
    /// A ring of workers and their URLs. Worker `url` has its points at the positions of `url#0` …
    /// `url#149`, so that every gateway over the same workers builds the same ring.
    pub fn new<'u>(workers: impl IntoIterator<Item = (WorkerId, &'u str)>) -> Self {
        let mut points = Vec::new();
        for (worker, url) in workers {
            push_points(&mut points, worker, url);
        }
        points.sort_unstable();
        Self { points }
    }

    /// Adds one worker.
    pub fn insert(&mut self, worker: WorkerId, url: &str) {
        push_points(&mut self.points, worker, url);
        // Stable sort finds the long sorted run and merges the few new points into it.
        self.points.sort();
    }

    /// Removes one worker; the points of the others stay where they are.
    pub fn remove(&mut self, worker: WorkerId) {
        self.points.retain(|&(_, other)| other != worker);
    }

    /// The first worker at or after the position of `key`, clockwise, that `accepts`.
    pub fn find(&self, key: &[u8], accepts: impl Fn(WorkerId) -> bool) -> Option<WorkerId> {
        let at = position(key);
        let start = self.points.partition_point(|&(point, _)| point < at);
        let (before, after) = self.points.split_at(start);
        after.iter().chain(before).map(|&(_, worker)| worker).find(|&worker| accepts(worker))
    }

    /// Number of workers on the ring.
    pub fn len(&self) -> usize {
        self.points.len() / VIRTUAL_NODES
    }

    /// Whether nobody is on the ring.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
}

fn push_points(points: &mut Vec<(u64, WorkerId)>, worker: WorkerId, url: &str) {
    points.extend(
        (0..VIRTUAL_NODES).map(|node| (position(format!("{url}#{node}").as_bytes()), worker)),
    );
}

/// First eight bytes of the BLAKE3 digest, little-endian.
fn position(bytes: &[u8]) -> u64 {
    let digest = blake3::hash(bytes);
    let (head, _) = digest.as_bytes().split_at(8);
    head.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(slot: u32) -> WorkerId {
        WorkerId { slot, generation: 0 }
    }

    fn urls(count: u32) -> Vec<(WorkerId, String)> {
        (0..count).map(|slot| (worker(slot), format!("http://10.0.0.{slot}:8000"))).collect()
    }

    fn ring(workers: &[(WorkerId, String)]) -> HashRing {
        HashRing::new(workers.iter().map(|(worker, url)| (*worker, url.as_str())))
    }

    fn keys() -> impl Iterator<Item = String> {
        (0..4000).map(|key| format!("key-{key}"))
    }

    #[test]
    fn the_position_is_the_published_digest() {
        // BLAKE3 of the empty input begins af1349b9f5f9a1a6.
        assert_eq!(position(b""), 0xa6a1_f9f5_b949_13af);
    }

    #[test]
    fn one_by_one_gives_the_same_ring_as_all_at_once() {
        let workers = urls(5);
        let mut grown = HashRing::default();
        for (worker, url) in workers.iter().rev() {
            grown.insert(*worker, url);
        }
        assert_eq!(grown, ring(&workers));
        assert_eq!(grown.len(), 5);
        grown.remove(worker(2));
        let rest: Vec<_> = workers.into_iter().filter(|(w, _)| *w != worker(2)).collect();
        assert_eq!(grown, ring(&rest));
    }

    #[test]
    fn a_key_moves_only_if_its_worker_goes() {
        let workers = urls(4);
        let all = ring(&workers);
        let mut without = all.clone();
        without.remove(worker(1));
        let mut counts = [0; 4];
        for key in keys() {
            let home = all.find(key.as_bytes(), |_| true).unwrap();
            counts[home.slot as usize] += 1;
            let moved = without.find(key.as_bytes(), |_| true).unwrap();
            if home == worker(1) {
                assert_ne!(moved, home);
            } else {
                assert_eq!(moved, home);
            }
            // A worker that may not be chosen is passed over like one that is not there.
            assert_eq!(all.find(key.as_bytes(), |w| w != worker(1)), Some(moved));
        }
        // 150 points each keep the shares within a third of even.
        assert!(counts.iter().all(|&count| (660..1340).contains(&count)), "{counts:?}");
    }

    #[test]
    fn nobody_is_found_on_an_empty_ring_or_when_nobody_is_accepted() {
        assert!(HashRing::default().is_empty());
        assert_eq!(HashRing::default().find(b"k", |_| true), None);
        assert_eq!(ring(&urls(3)).find(b"k", |_| false), None);
    }
}
