//! Simulations small enough to be worked out by hand, and rules that hold for all.

use std::sync::Arc;

use smg_core::policy::PolicyKind;

use super::workload::{ChatOptions, Chats, GroupOptions, Groups, Replayed};
use super::*;
use crate::trace::{Spread, Trace};

/// Four-token blocks; a step costs 1,000 ns + 10 per decoding request + 1 per prefilled token.
fn profile() -> Profile {
    Profile {
        name: "test",
        about: "",
        block_tokens: 4,
        cache_blocks: 100,
        max_batch: 8,
        max_waiting: 100,
        step_tokens: 1_000,
        max_model_len: 10_000,
        step_base_ns: 1_000,
        decode_request_ns: 10,
        prefill_token_ns: 1,
        default_answer_tokens: 4,
    }
}

fn options(engines: usize) -> Options {
    Options {
        engines,
        profile: profile(),
        gateway: GatewayOptions::default(),
        gateways: 1,
        shared_index: false,
        gateway_restarts: Vec::new(),
        engine_failures: Vec::new(),
        slo: 1_004,
        seed: 1,
    }
}

/// (milliseconds, prompt tokens, answer tokens, block numbers) of each request.
fn trace(requests: &[(f64, u32, u32, &[u64])]) -> Workload {
    let line = |(at, input, output, ids): &(f64, u32, u32, &[u64])| {
        format!(
            r#"{{"timestamp":{at},"input_length":{input},"output_length":{output},"hash_ids":{ids:?}}}"#
        ) + "\n"
    };
    let text: String = requests.iter().map(line).collect();
    let trace = Arc::new(Trace::read(text.as_bytes(), 4).unwrap());
    Workload::Replayed(Replayed::new(trace, Spread::None, 1.0, None, 1))
}

fn policy(name: &str) -> Policy {
    name.parse().unwrap()
}

/// Two prompts of two blocks, then one that has a third behind them.
fn three() -> Workload {
    trace(&[(0.0, 8, 1, &[1, 2]), (1.0, 8, 1, &[1, 2]), (2.0, 12, 1, &[1, 2, 3])])
}

/// Equal up to rounding.
fn assert_near(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-9, "{found} for {expected}");
}

#[test]
fn round_robin_over_two_engines_by_hand() {
    let (arm, decisions) = run(&options(2), policy("round_robin"), three());
    assert_eq!((arm.requests, arm.failed, decisions), (3, 0, 3));
    // The third meets the first one's blocks on engine 0; the second was alone on engine 1.
    assert_eq!((arm.prompt_tokens, arm.cached_tokens), (28, 8));
    // The second could have had one block (not its last token), the third two.
    assert_eq!(arm.reusable_tokens, 4 + 8);
    assert_eq!(arm.oracle_share, 8.0 / 12.0);
    // 1,000 + 8 uncached tokens twice, then 1,000 + 4; the SLO is 1,004.
    assert_eq!(arm.ttft_ms.max, 1_008.0 / 1e6);
    assert_near(arm.ttft_ms.mean, (1_008.0 + 1_008.0 + 1_004.0) / 3.0 / 1e6);
    assert_eq!(arm.goodput_share, 1.0 / 3.0);
    assert_eq!(arm.requests_max_over_mean, 2.0 / 1.5);
    assert_eq!(arm.busy_max_over_mean, 2_012.0 / ((2_012.0 + 1_008.0) / 2.0));
    assert_eq!(arm.simulated_s, 2_001_004.0 / 1e9);
}

#[test]
fn cache_aware_and_the_clairvoyant_follow_the_prefix() {
    for name in ["cache_aware", "oracle-clairvoyant", "oracle-longest-hit"] {
        let (arm, _) = run(&options(2), policy(name), three());
        assert_eq!((arm.cached_tokens, arm.oracle_share), (12, 1.0), "{name}");
        assert_eq!(arm.requests_max_over_mean, 2.0, "{name}: all on one engine");
        assert_near(arm.ttft_ms.mean, (1_008.0 + 1_004.0 + 1_004.0) / 3.0 / 1e6);
    }
}

#[test]
fn a_threshold_that_nothing_exceeds_leaves_the_load_to_decide() {
    let mut options = options(2);
    options.gateway.cache_aware.cache_threshold = 1.0;
    // All three at one instant: nobody reports yet how busy it is, but credits count.
    let at_once = [(0.0, 8, 1, &[1u64, 2][..]), (0.0, 8, 1, &[1, 2])];
    let (arm, _) = run(&options, policy("cache_aware"), trace(&at_once));
    assert_eq!(arm.requests_max_over_mean, 1.0);
    assert_eq!(arm.cached_tokens, 0);
}

#[test]
fn the_clairvoyant_weighs_a_hit_against_the_queue() {
    // The first occupies its engine for 5,100 ns with 100 tokens of prefill and 4 of decoding; the
    // second, 1,000 ns later, would have 4 cached tokens there and waits for the step to end.
    let long: Vec<u64> = (1..=25).collect();
    let requests = [(0.0, 100, 5, &long[..]), (0.001, 8, 1, &[1, 99])];
    let (arm, _) = run(&options(2), policy("oracle-clairvoyant"), trace(&requests));
    // 100 ns of the step are left, then 1,000 + 10 + 4 beside the other: later than 1,008 on the idle engine.
    assert_eq!((arm.cached_tokens, arm.requests_max_over_mean), (0, 1.0));
    let (arm, _) = run(&options(2), policy("oracle-longest-hit"), trace(&requests));
    assert_eq!((arm.cached_tokens, arm.requests_max_over_mean), (4, 2.0));
    assert_eq!(arm.ttft_ms.max, 1_114.0 / 1e6);
}

#[test]
fn the_infinite_cache_has_what_was_ever_sent() {
    let (arm, decisions) = run(&options(1), policy("oracle-infinite"), three());
    assert_eq!((arm.requests, arm.cached_tokens, decisions), (3, 12, 0));
    assert_eq!((arm.hit_share, arm.oracle_share), (12.0 / 28.0, 1.0));
    assert_eq!(arm.ttft_ms.max, 1_008.0 / 1e6);
    assert_eq!(arm.requests_max_over_mean, 0.0);
}

#[test]
fn an_engine_that_goes_away_loses_what_it_has_and_comes_back_empty() {
    let failure = EngineFailure { at: 1_000_000, engine: 0, down: 1_000_000_000 };
    let one = Options { engine_failures: vec![failure], ..options(1) };
    // The second finds nobody; the gateway probes a second later, and the third is computed anew.
    let requests = [(0.0, 8, 1, &[1u64, 2][..]), (1.5, 8, 1, &[1, 2]), (3_000.0, 8, 1, &[1, 2])];
    let (arm, decisions) = run(&one, policy("cache_aware"), trace(&requests));
    assert_eq!((arm.requests, arm.failed, arm.retried, arm.cached_tokens), (2, 1, 0, 0));
    assert_eq!(decisions, 4, "the second asks again after it was refused");

    let soon = EngineFailure { at: 100_000, ..failure };
    let two = Options { engine_failures: vec![soon], ..options(2) };
    // One is generating when its engine goes, one has not begun: the batch has one place.
    let two = Options { profile: Profile { max_batch: 1, ..profile() }, ..two };
    let requests = [(0.0, 8, 300, &[1u64, 2][..]), (0.0, 8, 300, &[3, 4]), (0.05, 8, 1, &[1, 5])];
    let (arm, _) = run(&two, policy("round_robin"), trace(&requests));
    assert_eq!((arm.requests, arm.failed, arm.retried), (2, 1, 1));
}

#[test]
fn a_restarted_gateway_has_forgotten_and_the_engines_have_not() {
    let requests: Vec<(f64, u32, u32, &[u64])> =
        (0..40).map(|at| (f64::from(at), 8, 1, &[1u64, 2][..])).collect();
    let quiet = run(&options(4), policy("cache_aware"), trace(&requests)).0;
    assert_eq!((quiet.cached_tokens, quiet.requests_max_over_mean), (39 * 4, 4.0));
    let restarts = (0..39).map(|at| (at * 1_000_000 + 500_000, 0)).collect();
    let restless = Options { gateway_restarts: restarts, ..options(4) };
    let arm = run(&restless, policy("cache_aware"), trace(&requests)).0;
    // Each request goes anywhere, and finds the block once its engine had it before.
    assert_eq!(arm.cached_tokens, 36 * 4);
    assert!(arm.requests_max_over_mean < 2.0, "{}", arm.requests_max_over_mean);
}

#[test]
fn gateways_of_their_own_learn_each_prefix_anew() {
    let requests: Vec<(f64, u32, u32, &[u64])> =
        (0..40).map(|at| (f64::from(at), 8, 1, &[1u64, 2][..])).collect();
    let alone = Options { gateways: 10, ..options(20) };
    let shared = Options { shared_index: true, ..alone.clone() };
    let (alone, _) = run(&alone, policy("cache_aware"), trace(&requests));
    let (shared, _) = run(&shared, policy("cache_aware"), trace(&requests));
    assert_eq!(shared.cached_tokens, 39 * 4);
    assert!((30 * 4..39 * 4).contains(&alone.cached_tokens), "{}", alone.cached_tokens);
}

fn groups(requests: u64, lifetime: Option<Nanos>) -> Workload {
    Workload::Groups(Groups::new(GroupOptions {
        requests,
        rate_per_s: 100_000.0,
        groups: 12,
        lifetime,
        prefix_tokens: 64,
        question_tokens: 22,
        answer_tokens: 9,
        block_tokens: 4,
        seed: 5,
    }))
}

fn chats(requests: u64) -> Workload {
    Workload::Chats(Chats::new(ChatOptions {
        requests,
        arrivals_per_s: 20_000.0,
        system_prompts: 7,
        system_tokens: 61,
        turns: 5,
        question_tokens: 10,
        answer_tokens: 15,
        think: 40_000,
        block_tokens: 4,
        seed: 5,
    }))
}

fn all_policies() -> impl Iterator<Item = Policy> {
    let gateways = PolicyKind::ALL.into_iter().map(Policy::Gateway);
    gateways.chain(ORACLES.iter().map(|(_, oracle)| *oracle))
}

/// Everything that may go wrong, and caches too small for the workload.
fn busy() -> Options {
    Options {
        profile: Profile { cache_blocks: 120, ..profile() },
        gateways: 3,
        gateway_restarts: vec![(3_000_000, 1)],
        engine_failures: vec![EngineFailure { at: 4_000_000, engine: 2, down: 3_000_000 }],
        ..options(5)
    }
}

#[test]
fn nobody_beats_the_infinite_cache_and_nothing_is_lost() {
    for workload in [groups(2_000, None), groups(2_000, Some(2_000_000)), chats(2_000)] {
        let bound = run(&busy(), Policy::Infinite, workload.clone()).0;
        assert_eq!(bound.requests, 2_000);
        for policy in all_policies() {
            let (arm, _) = run(&busy(), policy, workload.clone());
            assert_eq!(arm.requests + arm.failed, 2_000, "{policy}");
            assert!(arm.cached_tokens <= arm.reusable_tokens, "{policy}");
            assert!(arm.hit_share <= bound.hit_share * 1.01, "{policy}: {}", arm.hit_share);
        }
    }
}

#[test]
fn a_seed_gives_its_result_byte_for_byte() {
    let result = |seed, policy| {
        let options = Options { seed, ..busy() };
        serde_json::to_string(&run(&options, policy, chats(1_000)).0).unwrap()
    };
    for policy in all_policies() {
        assert_eq!(result(1, policy), result(1, policy), "{policy}");
    }
    let seeds = [1, 2, 3].map(|seed| result(seed, policy("random")));
    assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2]);
}

#[test]
fn whole_prompts_and_blocks_lead_to_the_same_decisions() {
    let mut options = options(5);
    options.gateway.index.prompts = Prompts::Tokens;
    options.gateway.cache_aware.block_size = 4;
    // A tree too small for the workload, swept often: evictions agree too.
    options.gateway.index.max_tree_size = 20_000;
    options.gateway.eviction_interval = 1_000_000;
    let mut whole = options.clone();
    whole.gateway.index.whole_prompts = true;
    let work = || {
        Workload::Groups(Groups::new(GroupOptions {
            question_tokens: 24,
            ..match groups(3_000, Some(3_000_000)) {
                Workload::Groups(groups) => groups.options().clone(),
                _ => unreachable!("just made"),
            }
        }))
    };
    let (blocks, _) = run(&options, policy("cache_aware"), work());
    let (tokens, _) = run(&whole, policy("cache_aware"), work());
    assert!(blocks.oracle_share < 1.0 && blocks.oracle_share > 0.5, "{}", blocks.oracle_share);
    assert_eq!(blocks, tokens);
}

#[test]
fn the_hash_index_finds_heads_it_was_told_of() {
    let mut options = options(5);
    options.gateway.index.prompts = Prompts::Tokens;
    options.gateway.index.boundaries = vec![16, 64];
    // Which groups meet on an engine, and do not fit there together, is up to the seed.
    for seed in 1..6 {
        options.seed = seed;
        let share = |name| run(&options, policy(name), groups(500, None)).0.oracle_share;
        let (found, blind) = (share("cache_aware"), share("round_robin"));
        assert!(found > 2.0 * blind && found > 0.8, "{found} and {blind} with seed {seed}");
    }
}

#[test]
fn policies_are_read_by_name() {
    for known in all_policies() {
        assert_eq!(known.to_string().parse(), Ok(known));
    }
    let error = "oracle".parse::<Policy>().unwrap_err();
    assert!(error.contains("'oracle'") && error.contains("oracle-clairvoyant"), "{error}");
}

#[test]
fn requests_without_a_prefix_do_not_herd_to_the_engine_asked_last() {
    // Half of what 16 engines can do that answer one request after the other, 100 ms each.
    let workload = Workload::Groups(Groups::new(GroupOptions {
        requests: 8_000,
        rate_per_s: 80.0,
        groups: 0,
        lifetime: None,
        prefix_tokens: 0,
        question_tokens: 4,
        answer_tokens: 1,
        block_tokens: 4,
        seed: 5,
    }));
    let profile = Profile { step_base_ns: 100_000_000, max_batch: 1, ..profile() };
    let mut options = Options { profile, ..options(16) };
    let first_token =
        |options: &Options| run(options, policy("least_load"), workload.clone()).0.ttft_ms;
    // Even if two meet on an engine, the second waits for less than one answer.
    let in_rounds = first_token(&options);
    assert!(in_rounds.p50 < 101.0 && in_rounds.max < 200.0, "{in_rounds:?}");
    // Polls one after the other, 625 ms apart, send 50 requests to one engine: 40 too many.
    options.gateway.polls_spread = true;
    let spread = first_token(&options);
    assert!(spread.p50 > 1_000.0, "{spread:?}");
}
