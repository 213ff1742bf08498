//! Decisions over small fleets, one rule at a time.

use super::*;
use crate::policy::fake_fleet::{FakeFleet, rank};

struct Owner {
    config: CacheAwareConfig,
    state: PolicyState,
    rng: Rng,
}

impl Owner {
    fn new() -> Self {
        Self::with(CacheAwareConfig::default())
    }

    fn with(config: CacheAwareConfig) -> Self {
        Self { config, state: PolicyState::default(), rng: Rng::new(17) }
    }

    /// A look-up that found `matched` of `total` characters on `holders`.
    fn tree(
        &mut self,
        fleet: &FakeFleet,
        (matched, total): (u64, u64),
        holders: &[usize],
    ) -> (u32, Branch) {
        let holders: Vec<_> = holders.iter().map(|&worker| fleet.worker(worker)).collect();
        let found = TreeMatch {
            matched_units: matched,
            total_units: total,
            holders: &holders,
            units_are_chars: true,
        };
        let choice = choose(
            &self.config,
            &mut self.state,
            &fleet.candidates(),
            &found,
            |worker| holders.contains(&worker),
            None,
            &mut self.rng,
        )
        .unwrap();
        (choice.worker.slot, choice.branch)
    }

    fn hashed<'h>(
        &mut self,
        fleet: &FakeFleet,
        levels: impl IntoIterator<Item = (u32, &'h [usize])>,
    ) -> (u32, Branch, u32) {
        let levels = levels.into_iter().map(|(level, holders)| {
            (level, holders.iter().map(|&worker| fleet.worker(worker)).collect::<Vec<_>>())
        });
        let found = self.hash_lookup(fleet, HashLookup::Levels(levels));
        (found.choice.worker.slot, found.choice.branch, found.level)
    }

    fn hash_lookup<H: AsRef<[WorkerId]>>(
        &mut self,
        fleet: &FakeFleet,
        lookup: HashLookup<impl IntoIterator<Item = (u32, H)>>,
    ) -> HashChoice {
        let candidates = fleet.candidates();
        choose_hashed(&self.config, &mut self.state, &candidates, lookup, None, &mut self.rng)
            .unwrap()
    }

    fn blocks(&mut self, fleet: &FakeFleet, holders: &[(usize, u32)]) -> (u32, Branch) {
        let holders: Vec<_> =
            holders.iter().map(|&(worker, blocks)| (fleet.worker(worker), blocks)).collect();
        let found = BlockMatch { holders: &holders, request_blocks: 10, block_size: 16 };
        let candidates = fleet.candidates();
        let choice = choose_by_blocks(
            &self.config,
            &mut self.state,
            &candidates,
            &found,
            None,
            &mut self.rng,
        )
        .unwrap();
        (choice.worker.slot, choice.branch)
    }
}

const MISS: Branch = Branch::ExpectedWaitFallback;
const HIT: Branch = Branch::TreeMatch;
const SPILL: Branch = Branch::Spill;

#[test]
fn the_ratio_is_a_share_and_an_empty_request_matches_nothing() {
    let found = |matched_units, total_units| TreeMatch {
        matched_units,
        total_units,
        holders: &[],
        units_are_chars: false,
    };
    assert_eq!(found(5, 11).ratio(), 5.0 / 11.0);
    assert_eq!(found(16, 31).ratio(), 16.0 / 31.0);
    assert_eq!(found(0, 0).ratio(), 0.0);
}

#[test]
fn the_threshold_is_strict() {
    let mut fleet = FakeFleet::new(2);
    fleet.set_in_flight(0, 5);
    let mut owner = Owner::new();
    assert_eq!(owner.tree(&fleet, (3, 10), &[0]), (1, MISS), "exactly 0.3");
    assert_eq!(owner.tree(&fleet, (4, 10), &[0]), (0, HIT));
    owner.config.cache_threshold = 1.0;
    assert_eq!(owner.tree(&fleet, (10, 10), &[0]), (1, MISS), "1.0 is no affinity");
    owner.config.cache_threshold = 0.0;
    assert_eq!(owner.tree(&fleet, (1, 1000), &[0]), (0, HIT), "one unit is enough");
    assert_eq!(owner.tree(&fleet, (0, 1000), &[]), (1, MISS));
}

#[test]
fn affinity_beats_a_long_queue_and_holders_are_separated_by_it() {
    let mut fleet = FakeFleet::new(3);
    fleet.report(0, &[rank().tokens(90_000.0)]);
    fleet.report(1, &[rank().tokens(80_000.0)]);
    fleet.report(2, &[rank()]);
    let mut owner = Owner::new();
    assert_eq!(owner.tree(&fleet, (9, 10), &[0]), (0, HIT));
    assert_eq!(owner.tree(&fleet, (9, 10), &[0, 1]), (1, HIT));
}

#[test]
fn a_hot_holder_spills_to_the_lowest_expected_wait() {
    let mut fleet = FakeFleet::new(4);
    let spill = SpillMargins { abs: 1, rel: 1.0 };
    let mut owner = Owner::with(CacheAwareConfig { spill, ..CacheAwareConfig::default() });
    fleet.set_in_flight(0, 1);
    assert_eq!(owner.tree(&fleet, (9, 10), &[0]), (0, HIT));
    // 2 > 0.5 + 1.
    fleet.set_in_flight(0, 2);
    for (worker, tokens) in [(0, 0.0), (1, 80_000.0), (2, 10_000.0), (3, 40_000.0)] {
        fleet.report(worker, &[rank().tokens(tokens)]);
    }
    assert_eq!(owner.tree(&fleet, (9, 10), &[0]), (2, SPILL));
    // A holder that is not hot is preferred to anybody else.
    assert_eq!(owner.tree(&fleet, (9, 10), &[0, 1]), (1, HIT));
    assert_eq!(owner.tree(&fleet, (0, 10), &[]), (0, MISS), "a miss does not see the gate");
}

#[test]
fn a_spill_onto_a_holder_beyond_the_eight_is_a_match() {
    let mut fleet = FakeFleet::new(2);
    fleet.set_in_flight(0, 200);
    let mut owner = Owner::new();
    let holders = [fleet.worker(0)];
    let found =
        TreeMatch { matched_units: 9, total_units: 10, holders: &holders, units_are_chars: true };
    let choice = choose(
        &owner.config,
        &mut owner.state,
        &fleet.candidates(),
        &found,
        |_| true,
        None,
        &mut owner.rng,
    )
    .unwrap();
    assert_eq!((choice.worker.slot, choice.branch), (1, HIT));
}

#[test]
fn when_all_holders_are_hot_a_hot_worker_is_not_the_way_out() {
    let mut fleet = FakeFleet::new(4);
    let spill = SpillMargins { abs: 1, rel: 1.0 };
    let mut owner = Owner::with(CacheAwareConfig { spill, ..CacheAwareConfig::default() });
    // Mean 2.5: workers 0 and 1 are hot. Expected wait alone would prefer the hot worker 1.
    for (worker, count) in [(0, 4), (1, 4), (2, 1), (3, 1)] {
        fleet.set_in_flight(worker, count);
    }
    for (worker, tokens) in [(0, 9000.0), (1, 0.0), (2, 5000.0), (3, 3000.0)] {
        fleet.report(worker, &[rank().tokens(tokens)]);
    }
    assert_eq!(owner.tree(&fleet, (9, 10), &[0]), (3, SPILL));
    assert_eq!(owner.tree(&fleet, (9, 10), &[0, 1]), (3, SPILL));
}

#[test]
fn a_holder_that_may_not_be_chosen_is_no_candidate() {
    let mut fleet = FakeFleet::new(3);
    fleet.set_in_flight(1, 9);
    let mut owner = Owner::new();
    fleet.open_breaker(0);
    assert_eq!(owner.tree(&fleet, (9, 10), &[0]), (2, SPILL));
    assert_eq!(owner.tree(&fleet, (9, 10), &[0, 1]), (1, HIT), "affinity before load");
    // Not ready any more: the epoch changes.
    fleet.breakers.reset(fleet.worker(0));
    assert_eq!(owner.tree(&fleet, (9, 10), &[0]), (0, HIT));
    let gone = fleet.ready.remove(0);
    fleet.epoch += 1;
    let found =
        TreeMatch { matched_units: 9, total_units: 10, holders: &[gone], units_are_chars: true };
    let choice = choose(
        &owner.config,
        &mut owner.state,
        &fleet.candidates(),
        &found,
        |worker| worker == gone,
        None,
        &mut owner.rng,
    )
    .unwrap();
    assert_eq!((choice.worker.slot, choice.branch), (2, SPILL));
}

#[test]
fn a_worker_already_tried_is_chosen_again_only_when_nobody_else_is_left() {
    let mut fleet = FakeFleet::new(2);
    let mut owner = Owner::new();
    fleet.excluded = vec![fleet.worker(0)];
    assert_eq!(owner.tree(&fleet, (9, 10), &[0]), (1, SPILL));
    fleet.open_breaker(1);
    assert_eq!(owner.tree(&fleet, (9, 10), &[0]), (0, HIT));
    fleet.excluded.push(fleet.worker(1));
    assert_eq!(owner.tree(&fleet, (0, 10), &[]), (0, MISS));
}

#[test]
fn overload_protection_vetoes_and_sheds() {
    let mut fleet = FakeFleet::new(2);
    fleet.overload.waiting_requests = Some(10);
    fleet.report(0, &[rank().waiting(10.0)]);
    fleet.report(1, &[rank().tokens(900_000.0)]);
    let mut owner = Owner::new();
    assert_eq!(owner.tree(&fleet, (9, 10), &[0]), (1, SPILL));
    fleet.report(1, &[rank().waiting(10.0)]);
    let decide = |owner: &mut Owner, fleet: &FakeFleet| {
        choose_under_pressure(&mut owner.state, &fleet.candidates(), None, &mut owner.rng)
    };
    assert_eq!(decide(&mut owner, &fleet), Err(NoWorker::Overloaded));
    fleet.report(1, &[rank()]);
    fleet.open_breaker(1);
    assert_eq!(decide(&mut owner, &fleet), Err(NoWorker::Unavailable), "mixed causes");
    fleet.ready.clear();
    fleet.epoch += 1;
    assert_eq!(decide(&mut owner, &fleet), Err(NoWorker::Unavailable));
}

#[test]
fn kv_pressure_takes_the_lowest_expected_wait_and_credits_it() {
    let mut fleet = FakeFleet::new(2);
    fleet.report(0, &[rank().usage(0.95)]);
    fleet.report(1, &[rank().usage(0.1)]);
    let mut owner = Owner::new();
    assert!(!under_pressure(&owner.config, &fleet.candidates()));
    owner.config.kv_pressure = KvPressure { overload: 0.9, balance: 1.0 };
    assert!(under_pressure(&owner.config, &fleet.candidates()));
    let choice =
        choose_under_pressure(&mut owner.state, &fleet.candidates(), Some(77), &mut owner.rng)
            .unwrap();
    assert_eq!((choice.worker.slot, choice.branch), (1, Branch::KvPressureExpectedWait));
    assert_eq!(fleet.loads.credited_tokens(fleet.worker(1)), 77);
}

#[test]
fn decay_prefers_the_holder_with_less_waiting_prefill() {
    let mut fleet = FakeFleet::new(2);
    // Expected wait prefers worker 0 (0.00016 s against 0.15 s), decay worker 1.
    fleet.report(0, &[rank().tokens(160.0).throughput(1e6)]);
    fleet.report(1, &[rank().usage(0.5)]);
    let mut owner = Owner::new();
    assert_eq!(owner.tree(&fleet, (160, 160), &[0, 1]), (0, HIT));
    owner.config.ranking.overlap_decay = 0.01;
    fleet.report(0, &[rank().tokens(160.0).throughput(1e6)]);
    assert_eq!(owner.tree(&fleet, (160, 160), &[0, 1]), (1, HIT));
    assert_eq!(owner.tree(&fleet, (0, 160), &[]), (0, MISS), "a miss is not ranked");
}

#[test]
fn text_counts_four_characters_as_a_token_in_blocks() {
    let found = |total_units, units_are_chars| TreeMatch {
        matched_units: 0,
        total_units,
        holders: &[],
        units_are_chars,
    };
    let blocks = |total, chars| found(total, chars).blocks(16).blocks;
    assert_eq!((blocks(160, false), blocks(640, true)), (10, 10));
    assert_eq!((blocks(175, false), blocks(703, true)), (10, 10), "whole blocks");
    assert_eq!((blocks(3, false), blocks(0, true)), (1, 1), "at least one");
    assert_eq!(found(160, false).blocks(0).blocks, 160, "a size of 0 counts as 1");
}

#[test]
fn every_branch_credits_the_tokens_or_the_mean_prompt() {
    let mut fleet = FakeFleet::new(1);
    fleet.report(0, &[rank()]);
    let mut owner = Owner::new();
    let worker = fleet.worker(0);
    owner.tree(&fleet, (0, 10), &[]);
    assert_eq!(fleet.loads.credited_tokens(worker), 1024);
    owner.tree(&fleet, (9, 10), &[0]);
    assert_eq!(fleet.loads.credited_tokens(worker), 2048);
    owner.blocks(&fleet, &[(0, 3)]);
    owner.blocks(&fleet, &[]);
    owner.hashed(&fleet, [(4, &[0usize][..])]);
    owner.hashed(&fleet, []);
    owner.hash_lookup::<Vec<WorkerId>>(&fleet, HashLookup::<Vec<_>>::NoTokens);
    owner.hash_lookup::<Vec<WorkerId>>(&fleet, HashLookup::<Vec<_>>::ShortRequest);
    assert_eq!(fleet.loads.credited_requests(worker), 8);
    assert_eq!(fleet.loads.credited_tokens(worker), 8 * 1024);
}

#[test]
fn more_blocks_win_and_one_is_enough() {
    let mut fleet = FakeFleet::new(3);
    fleet.set_in_flight(0, 7);
    fleet.set_in_flight(1, 7);
    let mut owner = Owner::new();
    assert_eq!(owner.blocks(&fleet, &[(0, 3), (1, 1)]), (0, Branch::EventHit));
    assert_eq!(owner.blocks(&fleet, &[(1, 1)]), (1, Branch::EventHit));
    assert_eq!(owner.blocks(&fleet, &[]), (2, Branch::EventMiss));
    assert_eq!(owner.blocks(&fleet, &[(0, 0)]), (2, Branch::EventMiss));
    fleet.set_in_flight(1, 6);
    assert_eq!(owner.blocks(&fleet, &[(0, 3), (1, 3)]), (1, Branch::EventHit), "equal blocks");
}

#[test]
fn a_hot_holder_of_blocks_spills() {
    let mut fleet = FakeFleet::new(3);
    fleet.set_in_flight(0, 200);
    fleet.set_in_flight(2, 9);
    let mut owner = Owner::new();
    // Worker 1 holds less than the group: a spill, though it holds something.
    assert_eq!(owner.blocks(&fleet, &[(0, 5), (1, 2)]), (1, Branch::EventSpill));
    assert_eq!(owner.blocks(&fleet, &[(0, 5)]), (1, Branch::EventSpill));
}

#[test]
fn block_scores_decay_by_backlog() {
    let mut fleet = FakeFleet::new(2);
    fleet.report(0, &[rank().tokens(160.0)]);
    fleet.report(1, &[rank()]);
    let mut owner = Owner::new();
    owner.config.ranking.overlap_decay = 1.0;
    // Worker 0 has a backlog of one request length: 5 blocks count as 2.5.
    assert_eq!(owner.blocks(&fleet, &[(0, 5), (1, 2)]), (0, Branch::EventHit));
    assert_eq!(owner.blocks(&fleet, &[(0, 5), (1, 3)]), (1, Branch::EventHit));
}

#[test]
fn the_deepest_boundary_with_an_eligible_holder_decides() {
    let mut fleet = FakeFleet::new(3);
    let mut owner = Owner::new();
    fleet.set_in_flight(0, 3);
    fleet.set_in_flight(1, 3);
    assert_eq!(owner.hashed(&fleet, [(8, &[0][..]), (4, &[1][..])]), (0, Branch::HashHit, 8));
    assert_eq!(owner.hashed(&fleet, [(8, &[][..]), (4, &[1][..])]), (1, Branch::HashHit, 4));
    fleet.open_breaker(0);
    assert_eq!(owner.hashed(&fleet, [(8, &[0][..]), (4, &[1][..])]), (1, Branch::HashHit, 4));
    assert_eq!(owner.hashed(&fleet, [(8, &[0][..])]), (2, MISS, 0));
    fleet.set_in_flight(1, 200);
    assert_eq!(owner.hashed(&fleet, [(8, &[1][..])]), (2, Branch::HashSpill, 8));
}

#[test]
fn levels_behind_the_deciding_one_are_not_looked_up() {
    let fleet = FakeFleet::new(2);
    let mut read = Vec::new();
    let levels = [8, 4, 2].into_iter().map(|level| {
        read.push(level);
        (level, if level == 4 { vec![fleet.worker(1)] } else { vec![] })
    });
    let found = Owner::new().hash_lookup(&fleet, HashLookup::Levels(levels));
    assert_eq!((found.level, found.choice.worker.slot), (4, 1));
    assert_eq!(read, [8, 4]);
}

#[test]
fn requests_hash_mode_cannot_look_up() {
    let fleet = FakeFleet::new(1);
    let mut owner = Owner::new();
    let found = owner.hash_lookup::<Vec<WorkerId>>(&fleet, HashLookup::<Vec<_>>::NoTokens);
    assert_eq!((found.choice.branch, found.level), (MISS, 0));
    let found = owner.hash_lookup::<Vec<WorkerId>>(&fleet, HashLookup::<Vec<_>>::ShortRequest);
    assert_eq!((found.choice.branch, found.level), (Branch::ShortRequest, 0));
}
