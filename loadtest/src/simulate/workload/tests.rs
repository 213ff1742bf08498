//! What the workloads send, block by block.

use std::sync::Arc;

use super::*;
use crate::trace::{Spread, Trace};

#[test]
fn a_replayed_trace_shares_full_blocks_only_and_each_pass_has_its_own() {
    let text = r#"{"timestamp":0,"input_length":1100,"output_length":500,"hash_ids":[1,2,3]}
{"timestamp":0,"input_length":1024,"output_length":1,"hash_ids":[1,2]}
{"timestamp":2000,"input_length":600,"output_length":1,"hash_ids":[1,9]}"#;
    let trace = Arc::new(Trace::read(text.as_bytes(), 512).unwrap());
    let mut workload = Workload::Replayed(Replayed::new(trace, Spread::Even, 2.0, Some(4), 1));
    let mut all = Vec::new();
    while let Some(next) = workload.take() {
        all.push(next);
    }
    // One tick of two seconds, at twice the speed: requests at 0, 0.5 and 1 s; the pass is 1.5 s.
    let times: Vec<Nanos> = all.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 500_000_000, 1_000_000_000, 1_500_000_000]);
    let blocks = |index: usize| &all[index].1.sequence.blocks;
    // 1,100 + 500 tokens: two blocks of the prompt, one that only the engine knows.
    assert_eq!(blocks(0).len(), 3);
    assert_eq!(blocks(0)[..2], blocks(1)[..2]);
    assert_eq!(blocks(0)[0], blocks(2)[0]);
    assert!(all[0].1.tail.is_some() && all[1].1.tail.is_none());
    assert_eq!(all[0].1.prompt_blocks(512).len(), 2);
    assert_ne!(blocks(3)[0], blocks(0)[0], "the second pass");
    assert_eq!(workload.longest_request(), 1600);
}

fn groups(groups: u32, lifetime: Option<Nanos>) -> Vec<(Nanos, Request)> {
    let mut workload = Workload::Groups(Groups::new(GroupOptions {
        requests: 200,
        rate_per_s: 100.0,
        groups,
        lifetime,
        prefix_tokens: 40,
        question_tokens: 10,
        answer_tokens: 14,
        block_tokens: 16,
        seed: 3,
    }));
    std::iter::from_fn(|| workload.take()).collect()
}

fn distinct(requests: &[(Nanos, Request)], index: usize) -> usize {
    let blocks: std::collections::HashSet<u64> =
        requests.iter().map(|(_, request)| request.sequence.blocks[index]).collect();
    blocks.len()
}

#[test]
fn groups_share_whole_prefix_blocks_and_nothing_else() {
    let requests = groups(5, None);
    assert_eq!(requests.len(), 200);
    // 50 + 14 tokens: 4 blocks, of which 2 lie within the 40 tokens of prefix.
    assert_eq!((distinct(&requests, 0), distinct(&requests, 1)), (5, 5));
    assert_eq!((distinct(&requests, 2), distinct(&requests, 3)), (200, 200));
    assert!(requests.iter().all(|(_, request)| request.shared_blocks == 2));
}

#[test]
fn without_groups_every_request_is_new_and_groups_may_come_and_go() {
    assert_eq!(distinct(&groups(0, None), 0), 200);
    // Two seconds of arrivals, groups that live half a second: 5 at first, then 4 rounds of 5 more
    // at most.
    let count = distinct(&groups(5, Some(500_000_000)), 0);
    assert!((15..=25).contains(&count), "{count}");
}

#[test]
fn turns_follow_their_answers_and_contain_them() {
    let mut workload = Workload::Chats(Chats::new(ChatOptions {
        requests: 3,
        arrivals_per_s: 0.001,
        system_prompts: 1,
        system_tokens: 32,
        turns: 2,
        question_tokens: 8,
        answer_tokens: 8,
        think: 1_000,
        block_tokens: 16,
        seed: 1,
    }));
    let (at, first) = workload.take().unwrap();
    assert_eq!(first.sequence.prompt_tokens, 40);
    assert!(workload.next_at().unwrap() > at + 1_000, "the next conversation");
    workload.ended(first.session, at + 50);
    let (next, second) = workload.take().unwrap();
    assert_eq!((next, second.session), (at + 1_050, first.session));
    assert_eq!(second.sequence.prompt_tokens, 56);
    assert_eq!(second.sequence.blocks[..3], first.sequence.blocks[..3], "question and answer");
    workload.ended(second.session, next);
    let (_, other) = workload.take().unwrap();
    assert_eq!(other.sequence.blocks[..2], first.sequence.blocks[..2], "the system prompt");
    assert_ne!(other.sequence.blocks[2], first.sequence.blocks[2]);
    assert_eq!(workload.take().map(|(at, _)| at), None, "three requests");
}
