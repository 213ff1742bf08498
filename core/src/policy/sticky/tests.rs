//! Keys, their pins and their counts.

use super::*;
use crate::policy::fake_fleet::FakeFleet;

struct Manual {
    map: StickyMap,
    active: ActiveKeys,
    state: PolicyState,
    rng: Rng,
}

impl Manual {
    fn new() -> Self {
        Self::with_capacity(MAX_KEYS)
    }

    fn with_capacity(max_keys: usize) -> Self {
        let active = ActiveKeys::default();
        Self {
            map: StickyMap::with_capacity(active.clone(), max_keys),
            active,
            state: PolicyState::default(),
            rng: Rng::new(8),
        }
    }

    fn choose(&mut self, fleet: &FakeFleet, key: &str, mode: Assignment) -> (u32, Branch) {
        let (slot, branch, _) = self.hold(fleet, key, mode);
        (slot, branch)
    }

    fn hold(
        &mut self,
        fleet: &FakeFleet,
        key: &str,
        mode: Assignment,
    ) -> (u32, Branch, Option<KeyPermit>) {
        let (choice, permit) = self
            .map
            .choose_manually(
                Some(key.as_bytes()),
                mode,
                &mut self.state,
                &fleet.candidates(),
                &mut self.rng,
            )
            .unwrap();
        (choice.worker.slot, choice.branch, permit)
    }

    fn overriding(&mut self, fleet: &FakeFleet, key: &str, mode: Assignment) -> Placement {
        self.map
            .choose_overriding(
                key.as_bytes(),
                mode,
                &mut self.state,
                &fleet.candidates(),
                &mut self.rng,
            )
            .unwrap()
    }
}

fn decided(placement: Placement) -> (u32, Branch, KeyPermit) {
    match placement {
        Placement::Decided(choice, Some(permit)) => (choice.worker.slot, choice.branch, permit),
        other => panic!("not decided: {other:?}"),
    }
}

#[test]
fn a_key_stays_where_it_was_first_served() {
    let mut fleet = FakeFleet::new(3);
    let mut manual = Manual::new();
    let (home, branch) = manual.choose(&fleet, "k", Assignment::Random);
    assert_eq!(branch, Branch::Vacant);
    fleet.set_in_flight(home as usize, 500);
    for _ in 0..10 {
        assert_eq!(manual.choose(&fleet, "k", Assignment::Random), (home, Branch::OccupiedHit));
    }
    assert_eq!(manual.map.len(), 1);
}

#[test]
fn whether_a_key_is_placed_is_what_the_next_choice_does() {
    let mut fleet = FakeFleet::new(2);
    let mut manual = Manual::new();
    let placed = |manual: &mut Manual, fleet: &FakeFleet, overriding| {
        let Manual { map, state, .. } = manual;
        map.is_placed(b"k", overriding, state, &fleet.candidates())
    };
    assert!(!placed(&mut manual, &fleet, false));
    let (home, _, first) = manual.hold(&fleet, "k", Assignment::Random);
    assert!(placed(&mut manual, &fleet, false) && placed(&mut manual, &fleet, true));
    let second = manual.hold(&fleet, "k", Assignment::Random);
    // More than one worker has of it under an override.
    assert!(placed(&mut manual, &fleet, false) && !placed(&mut manual, &fleet, true));
    drop((first, second));
    assert!(placed(&mut manual, &fleet, true));
    fleet.open_breaker(home as usize);
    assert!(!placed(&mut manual, &fleet, false));
    assert_eq!(manual.map.len(), 1);
}

#[test]
fn a_request_without_a_key_is_assigned_and_not_pinned() {
    let mut fleet = FakeFleet::new(2);
    fleet.set_in_flight(0, 1);
    let mut manual = Manual::new();
    let (choice, permit) = manual
        .map
        .choose_manually(
            None,
            Assignment::Delegate,
            &mut manual.state,
            &fleet.candidates(),
            &mut manual.rng,
        )
        .unwrap();
    assert_eq!((choice.worker.slot, choice.branch), (1, Branch::NoRoutingId));
    assert!(permit.is_none() && manual.map.is_empty());
}

#[test]
fn a_failed_worker_is_stood_in_for_and_serves_again() {
    let mut fleet = FakeFleet::new(3);
    let mut manual = Manual::new();
    let (home, _) = manual.choose(&fleet, "k", Assignment::Random);
    fleet.open_breaker(home as usize);
    let (second, branch) = manual.choose(&fleet, "k", Assignment::Random);
    assert_eq!(branch, Branch::OccupiedMiss);
    assert_eq!(manual.choose(&fleet, "k", Assignment::Random), (second, Branch::OccupiedHit));
    fleet.breakers.reset(fleet.worker(home as usize));
    assert_eq!(manual.choose(&fleet, "k", Assignment::Random), (home, Branch::OccupiedHit));
    // Both gone: the older of the two is dropped, the third stands behind the second.
    fleet.open_breaker(home as usize);
    fleet.open_breaker(second as usize);
    let (third, branch) = manual.choose(&fleet, "k", Assignment::Random);
    assert_eq!((third, branch), (3 - home - second, Branch::OccupiedMiss));
    fleet.breakers.reset(fleet.worker(second as usize));
    fleet.breakers.reset(fleet.worker(home as usize));
    assert_eq!(manual.choose(&fleet, "k", Assignment::Random), (second, Branch::OccupiedHit));
}

#[test]
fn a_removed_worker_is_not_its_successor_in_the_slot() {
    let mut fleet = FakeFleet::new(1);
    let mut manual = Manual::new();
    manual.choose(&fleet, "k", Assignment::Random);
    fleet.ready[0].generation += 1;
    fleet.epoch += 1;
    fleet.breakers.reset(fleet.ready[0]);
    assert_eq!(manual.choose(&fleet, "k", Assignment::Random).1, Branch::OccupiedMiss);
    assert_eq!(manual.choose(&fleet, "k", Assignment::Random).1, Branch::OccupiedHit);
}

#[test]
fn min_load_and_min_group_spread_new_keys() {
    let mut fleet = FakeFleet::new(3);
    fleet.set_in_flight(0, 1);
    fleet.set_in_flight(2, 2);
    let mut manual = Manual::new();
    assert_eq!(manual.choose(&fleet, "a", Assignment::MinLoad).0, 1);

    let mut manual = Manual::new();
    let held: Vec<_> =
        (0..9).map(|k| manual.hold(&fleet, &format!("g{k}"), Assignment::MinGroup)).collect();
    let mut again = manual.hold(&fleet, "g0", Assignment::MinGroup);
    assert_eq!(again.1, Branch::OccupiedHit);
    for worker in &fleet.ready {
        assert_eq!(manual.active.get(*worker), 3, "a second request is no second key");
    }
    drop(again.2.take());
    assert_eq!(fleet.ready.iter().map(|&w| manual.active.get(w)).sum::<u32>(), 9);
    drop(held);
    assert!(fleet.ready.iter().all(|&w| manual.active.get(w) == 0));
}

#[test]
fn the_third_request_of_a_key_is_placed_again() {
    let fleet = FakeFleet::new(1);
    let mut sticky = Manual::new();
    let (_, branch, a) = decided(sticky.overriding(&fleet, "k", Assignment::MinLoad));
    assert_eq!(branch, Branch::Vacant);
    let (_, branch, b) = decided(sticky.overriding(&fleet, "k", Assignment::MinLoad));
    assert_eq!(branch, Branch::OccupiedHit);
    let (_, branch, c) = decided(sticky.overriding(&fleet, "k", Assignment::MinLoad));
    assert_eq!(branch, Branch::CapRespill, "on the only worker there is");
    // Another key on the same worker has its own count.
    let (_, branch, _d) = decided(sticky.overriding(&fleet, "other", Assignment::MinLoad));
    assert_eq!(branch, Branch::Vacant);
    drop((a, b));
    let (_, branch, _e) = decided(sticky.overriding(&fleet, "k", Assignment::MinLoad));
    assert_eq!(branch, Branch::OccupiedHit, "one of three is left");
    drop(c);
}

#[test]
fn a_respill_moves_the_pin_unless_the_new_worker_is_full_too() {
    let fleet = FakeFleet::new(2);
    let mut sticky = Manual::new();
    let key = b"k";
    let pin = |sticky: &mut Manual, slot: usize, branch| {
        sticky.map.pin(key, fleet.worker(slot), branch, Assignment::Delegate, 0)
    };
    let serve = |sticky: &mut Manual| sticky.overriding(&fleet, "k", Assignment::Delegate);
    assert!(matches!(serve(&mut sticky), Placement::Delegated(Branch::Vacant)));
    let mut held = vec![pin(&mut sticky, 0, Branch::Vacant)];
    held.push(decided(serve(&mut sticky)).2);
    assert!(matches!(serve(&mut sticky), Placement::Delegated(Branch::CapRespill)));
    held.push(pin(&mut sticky, 1, Branch::CapRespill));
    // Worker 1 is the pin now and has room for one more.
    let (slot, branch, permit) = decided(serve(&mut sticky));
    assert_eq!((slot, branch), (1, Branch::OccupiedHit));
    held.push(permit);
    assert!(matches!(serve(&mut sticky), Placement::Delegated(Branch::CapRespill)));
    held.push(pin(&mut sticky, 0, Branch::CapRespill));
    held.clear();
    assert_eq!(decided(serve(&mut sticky)).0, 1, "worker 0 was full: the pin stayed");
}

#[test]
fn after_a_delegated_failover_the_new_worker_is_preferred() {
    let mut fleet = FakeFleet::new(2);
    let mut sticky = Manual::new();
    drop(sticky.map.pin(b"k", fleet.worker(0), Branch::Vacant, Assignment::Delegate, 0));
    fleet.open_breaker(0);
    let miss = sticky.overriding(&fleet, "k", Assignment::Delegate);
    assert!(matches!(miss, Placement::Delegated(Branch::OccupiedMiss)));
    drop(sticky.map.pin(b"k", fleet.worker(1), Branch::OccupiedMiss, Assignment::Delegate, 0));
    fleet.breakers.reset(fleet.worker(0));
    assert_eq!(decided(sticky.overriding(&fleet, "k", Assignment::Delegate)).0, 1);
    fleet.open_breaker(1);
    assert_eq!(decided(sticky.overriding(&fleet, "k", Assignment::Delegate)).0, 0);
}

#[test]
fn idle_keys_are_forgotten_in_slices_and_used_ones_are_not() {
    let mut fleet = FakeFleet::new(2);
    let mut manual = Manual::new();
    for key in 0..10 {
        manual.choose(&fleet, &format!("k{key}"), Assignment::Random);
    }
    fleet.now_ms = 3000;
    manual.choose(&fleet, "k0", Assignment::Random);
    // The keys were used at 1000.
    assert_eq!(manual.map.sweep(4999, 4000, 100), 0);
    assert_eq!(manual.map.sweep(5000, 0, 100), 0, "0 is never");
    assert_eq!(manual.map.sweep(5000, 4000, 6), 6);
    assert_eq!(manual.map.sweep(5000, 4000, 6), 3);
    assert_eq!(manual.map.len(), 1);
    assert_eq!(manual.choose(&fleet, "k0", Assignment::Random).1, Branch::OccupiedHit);
    assert_eq!(manual.choose(&fleet, "k1", Assignment::Random).1, Branch::Vacant);
}

#[test]
fn a_full_map_forgets_the_key_unused_for_longest() {
    let fleet = FakeFleet::new(2);
    let mut manual = Manual::with_capacity(3);
    for key in ["a", "b", "c", "a", "d"] {
        manual.choose(&fleet, key, Assignment::Random);
    }
    assert_eq!(manual.map.len(), 3);
    assert_eq!(manual.choose(&fleet, "a", Assignment::Random).1, Branch::OccupiedHit);
    assert_eq!(manual.choose(&fleet, "b", Assignment::Random).1, Branch::Vacant);
}

#[test]
fn turns_and_retries_belong_to_their_conversation() {
    for same in ["conv", "conv_t1", "conv_t2", "conv_t2_r1", "conv_r3", "conv_t15_r12"] {
        assert_eq!(routing_key(same.as_bytes()), Some(&b"conv"[..]), "{same}");
    }
    for other in ["conv_t", "conv_T1", "conv_tx", "convt1", "conv_t1x", "conv_r", "_x1"] {
        assert_eq!(routing_key(other.as_bytes()), Some(other.as_bytes()));
    }
    // One of each, retry outermost.
    assert_eq!(routing_key(b"c_r1_t1"), Some(&b"c_r1"[..]));
    assert_eq!(routing_key(b"c_t1_t2"), Some(&b"c_t1"[..]));
    assert_eq!(routing_key(b"_t1_r2"), Some(&b"_t1_r2"[..]), "nothing would be left");
}

#[test]
fn keys_have_a_longest_length_and_are_text() {
    assert_eq!(header_key(&[b'k'; 128]), Some(&[b'k'; 128][..]));
    assert_eq!(header_key(&[b'k'; 129]), None);
    assert_eq!(header_key(b""), None);
    assert_eq!(header_key(b"\xff"), None);
    assert_eq!(header_key(b"conv_t1"), Some(&b"conv_t1"[..]), "manual keeps suffixes");
}
