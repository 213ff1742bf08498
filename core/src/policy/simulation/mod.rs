//! A seeded simulation of one model's owner: requests arrive and end, engines report, fail, recover,
//! leave and return, and every decision is checked against plain models of the rules. One seed
//! reproduces a whole run.

mod naive;
mod world;

use world::World;

/// Runs until `decisions` were made, asserting after each step.
fn run(seed: u64, decisions: u64) -> World {
    let mut world = World::new(seed);
    while world.tally.decisions < decisions {
        world.step();
    }
    world
}

#[test]
fn a_hundred_thousand_decisions_keep_every_rule() {
    let world = run(1, 100_000);
    for (what, count) in world.tally.by_name() {
        assert!(count > 0, "{what} never happened: {:?}", world.tally);
    }
}

#[test]
fn a_seed_repeats_its_run_and_other_seeds_do_not() {
    let (first, second) = (run(2, 15_000), run(2, 15_000));
    assert_eq!(first.digest, second.digest);
    assert_eq!(first.tally, second.tally);
    let digests: Vec<u64> = (3..6).map(|seed| run(seed, 1000).digest).collect();
    assert!(digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]);
}
