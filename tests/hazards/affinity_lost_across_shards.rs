//! A conversation's requests arrive on different shards; its prefix is known to one of them. With
//! `--index-shards` the prefixes of one model are on several.

use std::collections::HashMap;

use crate::harness::{Client, Gateway, Worker, eventually};

const CONVERSATIONS: usize = 6;
const TURNS: usize = 8;

#[test]
fn every_turn_of_a_conversation_lands_on_one_worker() {
    turns_stay_together("--shards 3 --policy cache_aware");
}

#[test]
fn a_split_index_keeps_conversations_together_too() {
    turns_stay_together("--shards 3 --index-shards 3 --policy cache_aware");
}

/// Prompts that part after less than the head that says which part of the index they belong to: what
/// they share is stored once in each part that has some of them.
#[test]
fn prompts_that_part_early_are_spread_over_the_parts_of_the_index() {
    const SHARED: &str = "Twenty characters...";
    const PROMPTS: u32 = 30;
    let prompt = |at: u32| {
        let unlike_others = char::from_u32('A' as u32 + at).expect("a character");
        SHARED.chars().chain([unlike_others; 100]).collect::<String>()
    };
    let worker = Worker::obliging();
    for (index_shards, parts) in [(1, 1), (3, 3), (9, 3)] {
        let flags = format!("--shards 3 --index-shards {index_shards} --eviction-interval 1");
        let gateway = Gateway::before([&worker]).flags(&flags).start();
        let chars = parts * SHARED.len() + PROMPTS as usize * 100;
        // More than once, since an owner that answers too late has recorded nothing.
        eventually(&format!("{flags}: {chars} characters are stored"), || {
            for at in 0..PROMPTS {
                let response = Client::connect(&gateway).ask(&prompt(at));
                assert_eq!(response.status(), 200);
            }
            gateway.metrics().sum("smg_cache_tree_chars") as usize == chars
        });
        assert_eq!(gateway.metrics().sum("smg_cache_tree_tenants"), 1.0, "one worker in one tree");
    }
}

fn turns_stay_together(flags: &str) {
    let workers = [Worker::obliging(), Worker::obliging(), Worker::obliging()];
    let gateway = Gateway::before(&workers).flags(flags).start();

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
