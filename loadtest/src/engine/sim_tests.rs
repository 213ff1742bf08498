//! Expected times and counts are worked out by hand from the profile in [`small`].

use super::*;
use crate::engine::SequenceBuilder;

/// Four-token blocks; a step costs 1,000 + 10 per decoding request + 1 per prefilled token.
fn small() -> Profile {
    Profile {
        name: "test",
        about: "",
        block_tokens: 4,
        cache_blocks: 100,
        max_batch: 8,
        max_waiting: 100,
        step_tokens: 1_000,
        max_model_len: 1_000,
        step_base_ns: 1_000,
        decode_request_ns: 10,
        prefill_token_ns: 1,
        default_answer_tokens: 4,
    }
}

/// A prompt of tokens `from..from + len`, so that equal `from` means a shared prefix.
fn prompt(from: u32, len: u32, answer: u32) -> Sequence {
    let mut builder = SequenceBuilder::new(4, "");
    (from..from + len).for_each(|id| builder.token(id));
    builder.finish(answer)
}

fn run_until_idle(engine: &mut Engine) -> Vec<Progress> {
    let mut out = Vec::new();
    for _ in 0..10_000 {
        let Some(end) = engine.next_step_end() else { return out };
        engine.advance(end, &mut out);
    }
    panic!("the engine never became idle");
}

#[test]
fn one_request_prefills_then_decodes_token_by_token() {
    let mut engine = Engine::new(small());
    let id = engine.submit(500, prompt(0, 10, 3)).unwrap();
    let out = run_until_idle(&mut engine);
    // Prefill 1,000 + 10; each decode step 1,000 + 10.
    let at = |generated, at, finished| Progress {
        request: id,
        generated,
        cached_tokens: 0,
        finished,
        at,
    };
    assert_eq!(out, [at(1, 1_510, false), at(2, 2_520, false), at(3, 3_530, true)]);
    assert_eq!(engine.load().used_blocks, 0);
    assert_eq!(engine.counters().busy_ns, 3_030);
}

#[test]
fn advancing_late_gives_the_same_times_as_advancing_often() {
    let run = |stride: Nanos| {
        let mut engine = Engine::new(small());
        let mut out = Vec::new();
        engine.submit(0, prompt(0, 10, 4)).unwrap();
        engine.advance(700, &mut out);
        engine.submit(700, prompt(50, 10, 2)).unwrap();
        let mut now = 700;
        while now < 20_000 {
            now += stride;
            engine.advance(now, &mut out);
        }
        out
    };
    assert_eq!(run(1), run(19_300));
}

#[test]
fn a_request_that_arrives_during_a_step_joins_the_next_one() {
    let mut engine = Engine::new(small());
    let first = engine.submit(0, prompt(0, 10, 2)).unwrap();
    let second = engine.submit(400, prompt(50, 20, 1)).unwrap();
    let out = run_until_idle(&mut engine);
    let times: Vec<_> = out.iter().map(|p| (p.request, p.at)).collect();
    // Step 1: 1,010. Step 2: one decode and 20 prefilled tokens, 1,000 + 10 + 20.
    assert_eq!(times, [(first, 1_010), (first, 2_040), (second, 2_040)]);
}

#[test]
fn hits_are_whole_leading_blocks_and_leave_one_token_to_compute() {
    let mut engine = Engine::new(small());
    engine.submit(0, prompt(0, 12, 1)).unwrap();
    run_until_idle(&mut engine);
    let cached = |engine: &mut Engine, sequence| {
        engine.submit(1_000_000, sequence).unwrap();
        run_until_idle(engine)[0].cached_tokens
    };
    // The same 12 tokens: the third block is cached but its last token must be computed.
    assert_eq!(cached(&mut engine, prompt(0, 12, 1)), 8);
    // 13 tokens: all three blocks count.
    assert_eq!(cached(&mut engine, prompt(0, 13, 1)), 12);
    // 11 tokens: two whole blocks.
    assert_eq!(cached(&mut engine, prompt(0, 11, 1)), 8);
    // Another first token: nothing, although later tokens agree.
    let mut other = SequenceBuilder::new(4, "");
    other.token(999);
    (1..12).for_each(|id| other.token(id));
    assert_eq!(cached(&mut engine, other.finish(1)), 0);
    let counters = engine.counters();
    assert_eq!(counters.prompt_tokens, 12 + 12 + 13 + 11 + 12);
    assert_eq!(counters.cached_tokens, 8 + 12 + 8);
}

#[test]
fn a_cached_prefix_shortens_the_prefill() {
    let mut engine = Engine::new(small());
    engine.submit(0, prompt(0, 300, 1)).unwrap();
    run_until_idle(&mut engine);
    engine.submit(10_000, prompt(0, 301, 1)).unwrap();
    // 300 of 301 tokens are cached: one token of prefill.
    assert_eq!(run_until_idle(&mut engine)[0].at, 10_000 + 1_001);
}

#[test]
fn generated_tokens_fill_blocks_the_next_turn_finds() {
    let mut engine = Engine::new(small());
    let first = prompt(0, 6, 7);
    let seed = first.answer_seed;
    engine.submit(0, first).unwrap();
    run_until_idle(&mut engine);
    let mut second = SequenceBuilder::new(4, "");
    (0..6).for_each(|id| second.token(id));
    for index in 0..7 {
        let text = super::super::answer_token(seed, index);
        second.text(std::str::from_utf8(&text).unwrap());
    }
    (900..910).for_each(|id| second.token(id));
    engine.submit(1_000_000, second.finish(1)).unwrap();
    // 6 + 7 tokens, of which the last generated one was never computed: 12 tokens, three blocks.
    assert_eq!(run_until_idle(&mut engine)[0].cached_tokens, 12);
}

#[test]
fn the_batch_limit_makes_the_rest_wait_in_order() {
    let mut engine = Engine::new(Profile { max_batch: 2, ..small() });
    let ids: Vec<_> = (0..4).map(|i| engine.submit(0, prompt(i * 100, 4, 2)).unwrap()).collect();
    // The first was alone when its step began; the second joins at 1,004; the others wait.
    assert_eq!(engine.load().running, 1);
    assert_eq!(engine.load().waiting, 3);
    assert_eq!(engine.waiting_uncached_tokens(), 12);
    let out = run_until_idle(&mut engine);
    let finished: Vec<_> = out.iter().filter(|p| p.finished).map(|p| p.request).collect();
    assert_eq!(finished, ids);
    let most_at_once = out.chunk_by(|a, b| a.at == b.at).map(<[_]>::len).max();
    assert_eq!(most_at_once, Some(2));
}

#[test]
fn a_long_prompt_is_prefilled_in_chunks_beside_decoding() {
    let mut engine = Engine::new(Profile { step_tokens: 100, ..small() });
    let decoding = engine.submit(0, prompt(0, 4, 5)).unwrap();
    let long = engine.submit(1, prompt(500, 250, 1)).unwrap();
    let out = run_until_idle(&mut engine);
    let at = |id, n: usize| out.iter().filter(|p| p.request == id).nth(n).map(|p| p.at);
    // 1,004; then 1 decode + 99 prefill twice: 1,109 each; then 1 decode + 52: 1,062.
    assert_eq!(at(decoding, 0), Some(1_004));
    assert_eq!(at(decoding, 1), Some(2_113));
    assert_eq!(at(decoding, 2), Some(3_222));
    assert_eq!(at(long, 0), Some(4_284));
    assert_eq!(at(decoding, 3), Some(4_284));
}

#[test]
fn a_full_pool_evicts_the_least_recently_used_prefix() {
    let mut engine = Engine::new(Profile { cache_blocks: 6, max_model_len: 24, ..small() });
    for (now, from) in [(0, 0), (10_000, 100), (20_000, 200)] {
        engine.submit(now, prompt(from, 8, 1)).unwrap();
        run_until_idle(&mut engine);
    }
    let mut cached = |now, from| {
        engine.submit(now, prompt(from, 9, 1)).unwrap();
        run_until_idle(&mut engine)[0].cached_tokens
    };
    // Three prompts of two blocks fill the pool. A ninth token needs a third block: the tail of
    // prompt 0, the oldest, gives way, and then its head to prompt 100's ninth token.
    assert_eq!(cached(30_000, 200), 8);
    assert_eq!(cached(40_000, 100), 8);
    assert_eq!(cached(50_000, 0), 0);
}

#[test]
fn a_dry_pool_preempts_the_youngest_which_then_finishes() {
    // Two requests of 4 + 12 tokens need up to 4 blocks each; there are 5.
    let profile = Profile { cache_blocks: 5, max_model_len: 20, ..small() };
    let mut engine = Engine::new(profile);
    let old = engine.submit(0, prompt(0, 4, 12)).unwrap();
    let young = engine.submit(0, prompt(100, 4, 12)).unwrap();
    let out = run_until_idle(&mut engine);
    assert!(engine.counters().preemptions > 0);
    assert_eq!(engine.counters().finished, 2);
    assert_eq!(engine.counters().admitted, 2, "a readmission is not counted again");
    assert_eq!(engine.counters().prompt_tokens, 8);
    for id in [old, young] {
        let counts: Vec<_> = out.iter().filter(|p| p.request == id).map(|p| p.generated).collect();
        assert_eq!(counts, (1..=12).collect::<Vec<_>>(), "no token twice, none lost");
    }
    assert_eq!(engine.load().used_blocks, 0);
}

#[test]
fn a_cancelled_request_frees_its_place() {
    let mut engine = Engine::new(Profile { max_batch: 1, ..small() });
    let first = engine.submit(0, prompt(0, 40, 50)).unwrap();
    let second = engine.submit(0, prompt(100, 4, 1)).unwrap();
    let third = engine.submit(0, prompt(200, 4, 1)).unwrap();
    engine.cancel(second);
    engine.cancel(first);
    engine.cancel(first);
    assert_eq!(engine.load().used_blocks, 0);
    let out = run_until_idle(&mut engine);
    assert_eq!(out.iter().map(|p| p.request).collect::<Vec<_>>(), [third]);
    assert_eq!(engine.counters().cancelled, 2);
}

#[test]
fn what_can_never_fit_is_refused() {
    let profile = Profile { cache_blocks: 10, max_waiting: 1, max_batch: 1, ..small() };
    let mut engine = Engine::new(profile);
    let refused = engine.submit(0, prompt(0, 36, 5));
    assert_eq!(refused, Err(SubmitError::TooLong { tokens: 41, limit: 40 }));
    engine.submit(0, prompt(0, 36, 4)).unwrap();
    engine.submit(0, prompt(0, 4, 1)).unwrap();
    assert_eq!(engine.submit(0, prompt(0, 4, 1)), Err(SubmitError::QueueFull));
    assert_eq!(engine.counters().refused, 2);
}

#[test]
fn a_reset_cache_holds_nothing() {
    let mut engine = Engine::new(small());
    engine.submit(0, prompt(0, 12, 1)).unwrap();
    run_until_idle(&mut engine);
    engine.reset_cache();
    engine.submit(10_000, prompt(0, 12, 1)).unwrap();
    assert_eq!(run_until_idle(&mut engine)[0].cached_tokens, 0);
}

#[test]
fn usage_counts_blocks_in_use_only() {
    let mut engine = Engine::new(small());
    engine.submit(0, prompt(0, 40, 2)).unwrap();
    assert_eq!(engine.load().usage(), 0.10);
    run_until_idle(&mut engine);
    assert_eq!(engine.load().usage(), 0.0, "cached blocks are free");
}
