//! What an owner remembers, and forgets.

use smg_core::breaker::{BreakerConfig, Breakers};
use smg_core::fleet::InFlight;
use smg_core::policy::sticky::Placement;
use smg_core::policy::{Branch, Loads};

use super::*;

const MODEL: ModelId = ModelId(0);

/// A fleet of idle workers that report nothing.
struct Fleet {
    ready: Vec<WorkerId>,
    in_flight: InFlight,
    breakers: Breakers,
    loads: Loads,
    now_ms: u64,
}

impl Fleet {
    fn new(workers: u32) -> Self {
        Self {
            ready: (0..workers).map(|slot| WorkerId { slot, generation: 0 }).collect(),
            in_flight: InFlight::default(),
            breakers: Breakers::new(BreakerConfig::default()),
            loads: Loads::default(),
            now_ms: 1000,
        }
    }

    fn candidates(&self) -> Candidates<'_> {
        Candidates {
            epoch: 1,
            ready: &self.ready,
            in_flight: &self.in_flight,
            breakers: &self.breakers,
            loads: &self.loads,
            excluded: &[],
            now_ms: self.now_ms,
        }
    }
}

pub(super) fn ask(key: Key<'_>) -> Ask<'_> {
    Ask {
        key,
        namespace: None,
        excluded: &[],
        session: None,
        routing_key: None,
        hashed: HashedRequest::default(),
        explain: false,
    }
}

fn owner(change: impl FnOnce(&mut Config)) -> Owner {
    let mut config = Config::default();
    change(&mut config);
    Owner::new(&config, Parts::new(&config.cache, 1), ActiveKeys::default())
}

fn hash_mode() -> Owner {
    owner(|config| {
        config.cache.index = CacheIndex::Hash;
        config.cache.boundaries = vec![4, 8];
        config.cache.ttl_secs = 2;
    })
}

#[test]
fn text_and_tokens_have_a_tree_each() {
    let (mut owner, fleet, mut rng) = (owner(|_| {}), Fleet::new(1), Rng::new(1));
    let tokens: Vec<u32> = (0..32).collect();
    let steps = [
        (Key::Text("hello world"), Index::String, Branch::ExpectedWaitFallback, 0, 11),
        (Key::Text("hello"), Index::String, Branch::TreeMatch, 5, 5),
        (Key::Tokens(&tokens), Index::Token, Branch::ExpectedWaitFallback, 0, 32),
        (Key::Tokens(&tokens), Index::Token, Branch::TreeMatch, 32, 32),
    ];
    for (key, index, branch, matched, length) in steps {
        let decided = owner.decide(MODEL, &fleet.candidates(), &ask(key), &mut rng).unwrap();
        assert_eq!((decided.index, decided.choice.branch), (Some(index), branch), "{key:?}");
        assert_eq!((decided.matched, decided.length), (matched, length), "{key:?}");
    }
    let (report, _) = owner.sweep(MODEL, fleet.now_ms);
    assert_eq!((report.chars, report.tokens), (11, 32));
    assert_eq!((report.string_tenants, report.token_tenants), (1, 1));
    owner.forget(fleet.ready[0]);
    let again = ask(Key::Text("hello"));
    let decided = owner.decide(MODEL, &fleet.candidates(), &again, &mut rng).unwrap();
    assert_eq!(decided.choice.branch, Branch::ExpectedWaitFallback, "forgotten");
}

#[test]
fn hash_mode_remembers_heads_and_nothing_else() {
    let (mut owner, mut fleet, mut rng) = (hash_mode(), Fleet::new(1), Rng::new(1));
    let ten: Vec<u32> = (0..10).collect();
    let steps = [
        (Key::Text("no tokens"), Branch::ExpectedWaitFallback, 0, 0),
        (Key::Tokens(&ten[..3]), Branch::ShortRequest, 0, 0),
        (Key::Tokens(&ten[..6]), Branch::ExpectedWaitFallback, 0, 1),
        (Key::Tokens(&ten), Branch::HashHit, 4, 2),
        (Key::Tokens(&ten), Branch::HashHit, 8, 2),
    ];
    for (key, branch, level, entries) in steps {
        let decided = owner.decide(MODEL, &fleet.candidates(), &ask(key), &mut rng).unwrap();
        assert_eq!((decided.choice.branch, decided.level), (branch, level), "{key:?}");
        assert_eq!((decided.index, decided.ratio), (Some(Index::Hash), None));
        let (report, _) = owner.sweep(MODEL, fleet.now_ms);
        assert_eq!((report.placements, report.chars, report.tokens), (entries, 0, 0), "{key:?}");
    }
    // One millisecond past the TTL of 2 s.
    fleet.now_ms += 2001;
    assert_eq!(owner.sweep(MODEL, fleet.now_ms).0.placements, 0);
}

#[test]
fn pinned_keys_are_counted_until_they_expire() {
    let mut owner = owner(|config| config.sticky.max_idle_secs = 5);
    let (fleet, mut rng) = (Fleet::new(2), Rng::new(1));
    let mut choose = |owner: &mut Owner, model, key: Option<&[u8]>| {
        let decided = owner.choose_manually(model, &fleet.candidates(), key, &mut rng).unwrap();
        assert_eq!(decided.permit.is_some(), key.is_some());
        decided.choice.branch
    };
    assert_eq!(choose(&mut owner, MODEL, None), Branch::NoRoutingId);
    assert_eq!(choose(&mut owner, MODEL, Some(b"a")), Branch::Vacant);
    assert_eq!(choose(&mut owner, MODEL, Some(b"a")), Branch::OccupiedHit);
    assert_eq!(choose(&mut owner, ModelId(1), Some(b"a")), Branch::Vacant, "per model");
    assert_eq!(owner.pinned_keys(), 2);
    owner.sweep(MODEL, 1000 + 4999);
    assert_eq!(owner.pinned_keys(), 2);
    owner.sweep(MODEL, 1000 + 5000);
    assert_eq!(owner.pinned_keys(), 1);
}

#[test]
fn a_session_is_delegated_once_and_pinned_then() {
    let (mut owner, fleet, mut rng) = (owner(|_| {}), Fleet::new(2), Rng::new(1));
    let worker = fleet.ready[1];
    let placed = owner.placement(MODEL, &fleet.candidates(), b"k", &mut rng).unwrap();
    assert!(matches!(placed, Placement::Delegated(Branch::Vacant)), "{placed:?}");
    let permit = owner.pin(MODEL, b"k", worker, Branch::Vacant, fleet.now_ms);
    let placed = owner.placement(MODEL, &fleet.candidates(), b"k", &mut rng).unwrap();
    match placed {
        Placement::Decided(choice, Some(_)) => assert_eq!(choice.worker, worker),
        other => panic!("{other:?}"),
    }
    drop(permit);
    assert_eq!(owner.pinned_keys(), 1);
}

#[test]
fn contenders_are_the_holders_or_the_eight_best() {
    let fleet = Fleet::new(12);
    // Worker i has 12 - i requests in flight, and nobody reports: the last ones are best.
    let _guards: Vec<_> = (0..12)
        .flat_map(|at| (at..12).map(move |_| at))
        .map(|at: usize| fleet.in_flight.begin(fleet.ready[at]))
        .collect();
    let waits: Vec<f64> =
        contenders(&fleet.candidates(), &[]).iter().map(|c| c.expected_wait).collect();
    assert_eq!(waits, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let holders = [fleet.ready[0], fleet.ready[6]];
    let found = contenders(&fleet.candidates(), &holders);
    let found: Vec<_> = found.iter().map(|c| (c.worker.slot, c.in_flight)).collect();
    assert_eq!(found, [(6, 6), (0, 12)]);
}

#[test]
fn an_unknown_model_has_nothing_to_sweep() {
    let (report, garbage) = owner(|_| {}).sweep(MODEL, 0);
    assert_eq!(report, SweepReport { done: true, ..SweepReport::default() });
    assert!(garbage.is_empty());
}
