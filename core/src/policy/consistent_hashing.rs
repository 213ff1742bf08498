//! `consistent_hashing`: a client's key decides, so that its requests meet one worker.

use crate::policy::candidates::{Candidates, NoWorker};
use crate::policy::ring::HashRing;
use crate::policy::sampling::sample;
use crate::policy::sticky::routing_key;
use crate::policy::{Branch, Choice, PolicyState};
use crate::rng::Rng;

/// What the policy reads of a request: header values as received, and the body's `rid`.
#[derive(Debug, Clone, Copy, Default)]
pub struct HashedRequest<'a> {
    /// `X-SMG-Target-Worker`: position among the workers that are available now.
    pub target_worker: Option<&'a [u8]>,
    /// The body's `rid`, under `--routing-key-override` only.
    pub rid: Option<&'a [u8]>,
    /// The first of the routing-key headers that is there.
    pub routing_key: Option<&'a [u8]>,
    pub authorization: Option<&'a [u8]>,
    pub forwarded_for: Option<&'a [u8]>,
    pub cookie: Option<&'a [u8]>,
}

impl<'a> HashedRequest<'a> {
    /// The key that is hashed: the first one there, most specific first.
    pub fn key(&self) -> Option<&'a [u8]> {
        let there = |value: Option<&'a [u8]>| value.filter(|value| !value.is_empty());
        self.rid
            .and_then(routing_key)
            .or_else(|| self.routing_key.and_then(routing_key))
            .or_else(|| there(self.authorization))
            .or_else(|| there(self.forwarded_for))
            .or_else(|| there(self.cookie))
    }
}

/// Chooses a worker: the target, else by the key on `ring`, else at random.
pub fn choose(
    ring: &HashRing,
    state: &mut PolicyState,
    candidates: &Candidates<'_>,
    request: &HashedRequest<'_>,
    rng: &mut Rng,
) -> Result<Choice, NoWorker> {
    if let Some(target) = request.target_worker {
        return by_position(candidates, target);
    }
    let on_ring = request.key().and_then(|key| {
        let eligibility = state.eligibility(candidates);
        ring.find(key, |worker| eligibility.allows(worker))
    });
    let (worker, branch) = match on_ring {
        Some(worker) => (Some(worker), Branch::RoutingKeyHit),
        None => {
            let eligible = candidates.eligible();
            (sample(&eligible, &mut state.workers, |_| true, rng), Branch::RandomFallback)
        }
    };
    let worker = worker.ok_or_else(|| candidates.why_none())?;
    Ok(Choice { worker, branch, score: None })
}

/// A client that names a worker gets that one, also on a retry: for this request nobody else is
/// eligible.
fn by_position(candidates: &Candidates<'_>, target: &[u8]) -> Result<Choice, NoWorker> {
    let digits = !target.is_empty() && target.iter().all(u8::is_ascii_digit);
    let position: usize = Some(target)
        .filter(|_| digits)
        .and_then(|target| std::str::from_utf8(target).ok()?.parse().ok())
        .ok_or(NoWorker::NoSuchTarget)?;
    let mut available = candidates.ignoring_tried().iter();
    let worker = available.nth(position).ok_or(NoWorker::NoSuchTarget)?;
    Ok(Choice { worker, branch: Branch::TargetWorkerHit, score: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fake_fleet::FakeFleet;

    fn ring(fleet: &FakeFleet) -> HashRing {
        let urls: Vec<String> = (0..fleet.ready.len()).map(|i| format!("http://w{i}")).collect();
        HashRing::new(fleet.ready.iter().copied().zip(urls.iter().map(String::as_str)))
    }

    fn decide(fleet: &FakeFleet, request: HashedRequest<'_>) -> Result<(u32, Branch), NoWorker> {
        let (mut state, mut rng) = (PolicyState::default(), Rng::new(1));
        choose(&ring(fleet), &mut state, &fleet.candidates(), &request, &mut rng)
            .map(|choice| (choice.worker.slot, choice.branch))
    }

    #[test]
    fn the_most_specific_key_is_hashed() {
        let all = HashedRequest {
            target_worker: None,
            rid: Some(b"conv_t3_r1"),
            routing_key: Some(b"session_t2"),
            authorization: Some(b"Bearer x"),
            forwarded_for: Some(b"10.0.0.1"),
            cookie: Some(b"a=b"),
        };
        assert_eq!(all.key(), Some(&b"conv"[..]));
        let long = [b'k'; 129];
        let request = HashedRequest { rid: Some(&long), ..all };
        assert_eq!(request.key(), Some(&b"session"[..]));
        let request = HashedRequest { rid: None, routing_key: Some(b""), ..all };
        assert_eq!(request.key(), Some(&b"Bearer x"[..]));
        let request = HashedRequest { authorization: Some(b""), ..request };
        assert_eq!(request.key(), Some(&b"10.0.0.1"[..]));
        let request = HashedRequest { forwarded_for: None, ..request };
        assert_eq!(request.key(), Some(&b"a=b"[..]));
        assert_eq!(HashedRequest { cookie: None, ..request }.key(), None);
    }

    #[test]
    fn a_key_returns_to_its_worker_when_that_recovers() {
        let mut fleet = FakeFleet::new(3);
        let request = HashedRequest { routing_key: Some(b"sticky"), ..HashedRequest::default() };
        let (home, branch) = decide(&fleet, request).unwrap();
        assert_eq!(branch, Branch::RoutingKeyHit);
        fleet.open_breaker(home as usize);
        assert_ne!(decide(&fleet, request).unwrap().0, home);
        fleet.breakers.reset(fleet.worker(home as usize));
        assert_eq!(decide(&fleet, request).unwrap().0, home);
        fleet.excluded = vec![fleet.worker(home as usize)];
        assert_ne!(decide(&fleet, request).unwrap().0, home, "already tried");
    }

    #[test]
    fn a_target_is_a_position_among_the_available() {
        let mut fleet = FakeFleet::new(3);
        let target = |value: &'static [u8]| HashedRequest {
            target_worker: Some(value),
            routing_key: Some(b"k"),
            ..HashedRequest::default()
        };
        assert_eq!(decide(&fleet, target(b"2")), Ok((2, Branch::TargetWorkerHit)));
        fleet.open_breaker(0);
        assert_eq!(decide(&fleet, target(b"0")), Ok((1, Branch::TargetWorkerHit)));
        fleet.excluded = vec![fleet.worker(1)];
        assert_eq!(decide(&fleet, target(b"0")), Ok((1, Branch::TargetWorkerHit)), "also again");
        for bad in [&b"2"[..], b"99", b"abc", b"-1", b"+1", b"", b"99999999999999999999999"] {
            let request = HashedRequest { target_worker: Some(bad), ..HashedRequest::default() };
            assert_eq!(decide(&fleet, request), Err(NoWorker::NoSuchTarget));
        }
    }

    #[test]
    fn without_a_key_it_is_random_and_without_workers_nobody() {
        let mut fleet = FakeFleet::new(3);
        let (_, branch) = decide(&fleet, HashedRequest::default()).unwrap();
        assert_eq!(branch, Branch::RandomFallback);
        for worker in 0..3 {
            fleet.open_breaker(worker);
        }
        assert_eq!(decide(&fleet, HashedRequest::default()), Err(NoWorker::Unavailable));
    }
}
