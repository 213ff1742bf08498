//! `prefix_hash`: the head of the prompt on a consistent-hash ring, with a bound on how much busier
//! than the others its worker may be. No memory of earlier requests.

use xxhash_rust::xxh3::Xxh3;

use crate::fleet::WorkerId;
use crate::policy::cache_aware::CHARS_PER_TOKEN;
use crate::policy::candidates::{Candidates, Eligible, NoWorker};
use crate::policy::ring::HashRing;
use crate::policy::sampling::fewest_in_flight;
use crate::policy::{Branch, Choice, PolicyState};
use crate::rng::Rng;

/// `--prefix-*` and `--cache-boundaries`.
#[derive(Debug, Clone, PartialEq)]
pub struct PrefixHashConfig {
    /// Leading tokens that are hashed, at least 1.
    pub token_count: usize,
    /// A worker is too busy above this multiple of the mean, at least 1 …
    pub load_factor: f64,
    /// … unless it is within this many requests of the mean.
    pub balance_abs: u32,
    /// Head lengths in tokens tried before `token_count`, ascending. May be empty.
    pub boundaries: Vec<usize>,
}

impl Default for PrefixHashConfig {
    fn default() -> Self {
        Self { token_count: 256, load_factor: 1.25, balance_abs: 10, boundaries: Vec::new() }
    }
}

/// What the policy reads of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct PrefixRequest<'a> {
    /// Value of the routing-key header; replaces the prompt.
    pub routing_key: Option<&'a [u8]>,
    pub tokens: Option<&'a [u32]>,
    /// Used without tokens, four characters for one token.
    pub text: Option<&'a str>,
}

/// A decision and the boundary that decided, 0 for the plain head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrefixChoice {
    pub choice: Choice,
    pub level: usize,
}

/// Chooses a worker. The deepest head whose worker on the ring is not too busy decides.
pub fn choose(
    config: &PrefixHashConfig,
    ring: &HashRing,
    state: &mut PolicyState,
    candidates: &Candidates<'_>,
    request: &PrefixRequest<'_>,
    rng: &mut Rng,
) -> Result<PrefixChoice, NoWorker> {
    let eligible = candidates.eligible();
    let bound = LoadBound::new(config, eligible);
    let mut keyed = false;
    let mut on_ring = false;
    let eligibility = state.eligibility(candidates);
    for (level, digest) in request.heads(config) {
        keyed = true;
        let found = ring.find(&hex(digest), |worker| eligibility.allows(worker));
        let Some(worker) = found else {
            break;
        };
        on_ring = true;
        if bound.accepts(eligible.in_flight(worker)) {
            let choice = Choice { worker, branch: Branch::RingHit, score: None };
            return Ok(PrefixChoice { choice, level });
        }
    }
    let branch = match (keyed, on_ring) {
        (false, _) => Branch::NoRoutingKey,
        (true, true) => Branch::LoadBalanceWalk,
        (true, false) => Branch::FallbackLeastLoad,
    };
    // The least busy worker is never above the mean, so it is always within the bound.
    let worker: WorkerId = fewest_in_flight(&eligible, &mut state.workers, rng)
        .ok_or_else(|| candidates.why_none())?;
    Ok(PrefixChoice { choice: Choice { worker, branch, score: None }, level: 0 })
}

/// in-flight ≤ max(mean · factor, mean + abs), the mean counting the request about to be sent.
struct LoadBound(f64);

impl LoadBound {
    fn new(config: &PrefixHashConfig, eligible: Eligible<'_>) -> Self {
        let (count, total) = eligible.iter().fold((0u64, 0u64), |(count, total), worker| {
            (count + 1, total + u64::from(eligible.in_flight(worker)))
        });
        let mean = (total + 1) as f64 / count.max(1) as f64;
        Self((mean * config.load_factor).max(mean + f64::from(config.balance_abs)))
    }

    fn accepts(&self, in_flight: u32) -> bool {
        // An idle worker is acceptable even where the bound is below one request.
        f64::from(in_flight) <= self.0
    }
}

impl PrefixRequest<'_> {
    /// (boundary or 0, XXH3-64) of the heads to look up, deepest first.
    fn heads(&self, config: &PrefixHashConfig) -> impl Iterator<Item = (usize, u64)> {
        let boundaries: &[usize] = match self.routing_key {
            Some(_) => &[],
            None => &config.boundaries,
        };
        let at_boundaries = boundaries
            .iter()
            .rev()
            .filter_map(|&tokens| self.whole_head(tokens).map(|digest| (tokens, digest)));
        let mut at_boundaries = at_boundaries.peekable();
        let plain = match at_boundaries.peek() {
            Some(_) => None,
            None => self.plain_head(config.token_count).map(|digest| (0, digest)),
        };
        at_boundaries.chain(plain)
    }

    /// Hash of exactly the first `tokens` tokens; `None` if the request is shorter.
    fn whole_head(&self, tokens: usize) -> Option<u64> {
        match (self.tokens, self.text) {
            (Some(ids), _) if !ids.is_empty() => ids.get(..tokens).map(hash_tokens),
            (_, text) => {
                let text = text?;
                let chars = tokens.saturating_mul(CHARS_PER_TOKEN as usize);
                char_end(text, chars).map(|end| hash_bytes(&text.as_bytes()[..end]))
            }
        }
    }

    /// Hash of the routing key, or of up to `tokens` tokens of the prompt.
    fn plain_head(&self, tokens: usize) -> Option<u64> {
        if let Some(key) = self.routing_key.filter(|key| !key.is_empty()) {
            return Some(hash_bytes(key));
        }
        match (self.tokens, self.text) {
            (Some(ids), _) if !ids.is_empty() => Some(hash_tokens(&ids[..ids.len().min(tokens)])),
            (_, Some(text)) if !text.is_empty() => {
                let chars = tokens.saturating_mul(CHARS_PER_TOKEN as usize);
                let end = char_end(text, chars).unwrap_or(text.len());
                Some(hash_bytes(&text.as_bytes()[..end]))
            }
            _ => None,
        }
    }
}

/// The digest as it is looked up on the ring: 16 lower-case hex digits.
fn hex(digest: u64) -> [u8; 16] {
    std::array::from_fn(|at| b"0123456789abcdef"[(digest >> (60 - 4 * at) & 0xf) as usize])
}

/// Byte length of the first `chars` characters; `None` if `text` has fewer.
fn char_end(text: &str, chars: usize) -> Option<usize> {
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(chars)
}

fn hash_tokens(ids: &[u32]) -> u64 {
    let mut hasher = Xxh3::new();
    for id in ids {
        hasher.update(&id.to_le_bytes());
    }
    hasher.digest()
}

fn hash_bytes(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fake_fleet::FakeFleet;

    fn decide(
        fleet: &FakeFleet,
        config: &PrefixHashConfig,
        request: PrefixRequest<'_>,
    ) -> Result<(u32, Branch, usize), NoWorker> {
        let urls: Vec<String> = (0..fleet.ready.len()).map(|i| format!("http://w{i}")).collect();
        let ring = HashRing::new(fleet.ready.iter().copied().zip(urls.iter().map(String::as_str)));
        let (mut state, mut rng) = (PolicyState::default(), Rng::new(1));
        choose(config, &ring, &mut state, &fleet.candidates(), &request, &mut rng)
            .map(|found| (found.choice.worker.slot, found.choice.branch, found.level))
    }

    fn text(text: &str) -> PrefixRequest<'_> {
        PrefixRequest { text: Some(text), ..PrefixRequest::default() }
    }

    fn tokens(tokens: &[u32]) -> PrefixRequest<'_> {
        PrefixRequest { tokens: Some(tokens), ..PrefixRequest::default() }
    }

    fn digests(config: &PrefixHashConfig, request: PrefixRequest<'_>) -> Vec<(usize, u64)> {
        request.heads(config).collect()
    }

    #[test]
    fn only_the_head_is_hashed() {
        let config = PrefixHashConfig { token_count: 4, ..PrefixHashConfig::default() };
        // 16 characters for 4 tokens, counted in characters and not bytes.
        let head = "äöü4567890abcdef";
        assert_eq!(
            digests(&config, text(&format!("{head}one"))),
            digests(&config, text(&format!("{head}another")))
        );
        assert_ne!(digests(&config, text("äöü4567890abcdeX")), digests(&config, text(head)));
        assert_eq!(
            digests(&config, tokens(&[1, 2, 3, 4, 5])),
            digests(&config, tokens(&[1, 2, 3, 4, 9]))
        );
        assert_eq!(digests(&config, text("")), []);
        assert_eq!(digests(&config, tokens(&[])), []);
    }

    #[test]
    fn a_head_of_tokens_has_the_vector_of_the_hash_index() {
        // XXH3-64, seed 0, over the four ids as little-endian words.
        assert_eq!(hash_tokens(&[1, 2, 3, 4]), 0x6fc1_ebd4_f4d6_ea31);
    }

    #[test]
    fn digests_are_looked_up_in_hex() {
        assert_eq!(&hex(0x0123_4567_89ab_cdef), b"0123456789abcdef");
    }

    #[test]
    fn boundaries_are_tried_deepest_first_and_a_short_request_has_its_plain_head() {
        let config = PrefixHashConfig { boundaries: vec![4, 8], ..PrefixHashConfig::default() };
        let levels = |request: PrefixRequest<'_>| -> Vec<usize> {
            digests(&config, request).into_iter().map(|(level, _)| level).collect()
        };
        let long = "x".repeat(16);
        assert_eq!(levels(tokens(&[1; 10])), [8, 4]);
        assert_eq!(levels(tokens(&[1; 8])), [8, 4], "a boundary equal to the length applies");
        assert_eq!(levels(tokens(&[1; 3])), [0]);
        assert_eq!(levels(text(&long)), [4], "four characters for a token");
        assert_eq!(levels(text(&long[1..])), [0]);
        let keyed = PrefixRequest { routing_key: Some(b"k"), ..tokens(&[1; 10]) };
        assert_eq!(levels(keyed), [0]);
    }

    #[test]
    fn a_busy_home_is_walked_past() {
        let config =
            PrefixHashConfig { load_factor: 1.0, balance_abs: 2, ..PrefixHashConfig::default() };
        let mut fleet = FakeFleet::new(3);
        let request = text("a prompt");
        let (home, branch, _) = decide(&fleet, &config, request).unwrap();
        assert_eq!(branch, Branch::RingHit);
        // Mean (3 + 1) / 3: 3 ≤ 1.33 + 2. Mean (4 + 1) / 3: 4 > 1.67 + 2.
        fleet.set_in_flight(home as usize, 3);
        assert_eq!(decide(&fleet, &config, request).unwrap(), (home, Branch::RingHit, 0));
        fleet.set_in_flight(home as usize, 4);
        let (other, branch, _) = decide(&fleet, &config, request).unwrap();
        assert_eq!(branch, Branch::LoadBalanceWalk);
        assert_ne!(other, home);
    }

    #[test]
    fn no_key_goes_to_the_least_busy_and_an_unknown_ring_too() {
        let mut fleet = FakeFleet::new(2);
        fleet.set_in_flight(0, 1);
        let config = PrefixHashConfig::default();
        let found = decide(&fleet, &config, PrefixRequest::default());
        assert_eq!(found, Ok((1, Branch::NoRoutingKey, 0)));
        let (mut state, mut rng) = (PolicyState::default(), Rng::new(1));
        let empty = HashRing::default();
        let found =
            choose(&config, &empty, &mut state, &fleet.candidates(), &text("x"), &mut rng).unwrap();
        assert_eq!(found.choice.branch, Branch::FallbackLeastLoad);
        fleet.open_breaker(0);
        fleet.open_breaker(1);
        assert_eq!(decide(&fleet, &config, text("x")), Err(NoWorker::Unavailable));
    }
}
