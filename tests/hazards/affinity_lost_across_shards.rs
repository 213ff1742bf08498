//! A conversation's requests arrive on different shards; its prefix is known to one of them.

use std::collections::HashMap;

use crate::harness::{Client, Gateway, Worker};

const CONVERSATIONS: usize = 6;
const TURNS: usize = 8;

#[test]
fn every_turn_of_a_conversation_lands_on_one_worker() {
    let workers = [Worker::obliging(), Worker::obliging(), Worker::obliging()];
    let gateway = Gateway::before(&workers).flags("--shards 3 --policy cache_aware").start();

    let mut turns_at = [(); CONVERSATIONS].map(|()| HashMap::<String, usize>::new());
    for turn in 0..TURNS {
        for (topic, turns_at) in turns_at.iter_mut().enumerate() {
            // A connection per request: the kernel spreads them over the shards.
            let response = Client::connect(&gateway).ask(&conversation(topic, turn));
            assert_eq!(response.status(), 200);
            let worker = response.head.header("x-smg-routed-worker-id").expect("a worker");
            *turns_at.entry(worker.to_owned()).or_default() += 1;
        }
    }

    let at_home: usize = turns_at.iter().filter_map(|turns_at| turns_at.values().max()).sum();
    let strays = CONVERSATIONS * TURNS - at_home;
    let metrics = gateway.metrics();
    // On a busy machine the owner may answer too late; such a request goes by load, and is counted.
    let without_owner = metrics.sum("smg_owner_overloaded_total") as usize;
    assert!(strays <= without_owner, "{strays} turns left home, {without_owner} for a reason");
    assert_eq!(
        metrics.sum("smg_cache_aware_policy_branch_total") as usize,
        CONVERSATIONS * TURNS,
        "the owner decided about each"
    );
}

/// Everything said in a conversation up to a turn.
fn conversation(topic: usize, turn: usize) -> String {
    let opening = format!("Topic {topic} begins here, unlike any other. ").repeat(10);
    let said: String =
        (0..turn).map(|turn| format!("And on turn {turn} this was said. ")).collect();
    opening + &said
}
