//! The engine against simpler truths, over random histories.

use proptest::prelude::*;

use super::*;

fn profile(cache_blocks: u32) -> Profile {
    Profile {
        block_tokens: 4,
        cache_blocks,
        max_batch: 4,
        max_waiting: 1_000,
        step_tokens: 16,
        max_model_len: 64,
        step_base_ns: 10,
        decode_request_ns: 1,
        prefill_token_ns: 1,
        ..Profile::all().remove(0)
    }
}

/// Prompts over two letters share prefixes often.
fn prompt() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0..2u32, 1..40)
}

fn sequence(tokens: &[u32], answer: u32) -> Sequence {
    let mut builder = SequenceBuilder::new(4, "");
    tokens.iter().for_each(|token| builder.token(*token));
    builder.finish(answer)
}

fn drain(engine: &mut Engine) -> Vec<Progress> {
    let mut out = Vec::new();
    let mut steps = 0;
    while let Some(end) = engine.next_step_end() {
        engine.advance(end, &mut out);
        steps += 1;
        assert!(steps < 100_000, "the engine does not come to rest");
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// With room for everything, a request finds as many leading blocks as its prompt has in common
    /// with some earlier prompt, all but the last token considered.
    #[test]
    fn hits_are_the_longest_common_prefix_in_whole_blocks(
        prompts in prop::collection::vec(prompt(), 1..20),
    ) {
        let mut engine = Engine::new(profile(10_000));
        for (index, tokens) in prompts.iter().enumerate() {
            let now = index as u64 * 1_000_000;
            engine.submit(now, sequence(tokens, 1)).unwrap();
            let cached = drain(&mut engine)[0].cached_tokens;
            let common = |other: &Vec<u32>| {
                let usable = &tokens[..tokens.len() - 1];
                usable.iter().zip(other).take_while(|(a, b)| a == b).count() / 4 * 4
            };
            let expected = prompts[..index].iter().map(common).max().unwrap_or(0);
            prop_assert_eq!(cached as usize, expected);
        }
    }

    /// Whatever is submitted and cancelled, and however small the pool: nothing is lost, nothing
    /// comes twice, no block stays in use, and time does not run back.
    #[test]
    fn every_request_ends_once_and_gives_its_blocks_back(
        cache_blocks in 6..40u32,
        history in prop::collection::vec((prompt(), 1..8u32, 0..200u64, any::<bool>()), 1..40),
    ) {
        let mut engine = Engine::new(profile(cache_blocks));
        let mut out = Vec::new();
        let (mut now, mut submitted, mut cancelled) = (0, Vec::new(), Vec::new());
        for (tokens, answer, gap, cancel) in &history {
            now += gap;
            engine.advance(now, &mut out);
            match engine.submit(now, sequence(tokens, *answer)) {
                Ok(id) => submitted.push((id, *answer)),
                Err(SubmitError::TooLong { tokens, limit }) => prop_assert!(tokens > limit),
                Err(SubmitError::QueueFull) => prop_assert!(false, "the queue is large enough"),
            }
            let load = engine.load();
            prop_assert!(load.used_blocks <= load.total_blocks);
            prop_assert!(load.running <= 4);
            if let (true, Some((id, _))) = (*cancel, submitted.get(submitted.len() / 2)) {
                if !out.iter().any(|p| p.request == *id && p.finished) && !cancelled.contains(id) {
                    cancelled.push(*id);
                }
                engine.cancel(*id);
            }
        }
        out.extend(drain(&mut engine));
        prop_assert!(out.windows(2).all(|pair| pair[0].at <= pair[1].at));
        for (id, answer) in &submitted {
            let generated: Vec<_> =
                out.iter().filter(|p| p.request == *id).map(|p| p.generated).collect();
            prop_assert_eq!(&generated, &(1..=generated.len() as u32).collect::<Vec<_>>());
            if !cancelled.contains(id) {
                prop_assert_eq!(generated.len() as u32, *answer);
            }
        }
        let counters = engine.counters();
        prop_assert_eq!(counters.finished as usize, submitted.len() - cancelled.len());
        prop_assert_eq!(counters.cancelled as usize, cancelled.len());
        prop_assert!(counters.cached_tokens <= counters.prompt_tokens);
        prop_assert_eq!(engine.load().used_blocks, 0);
        prop_assert_eq!(engine.load().running + engine.load().waiting, 0);
    }

    /// An engine that takes many decode steps at once has the same first and last tokens at the same
    /// times, the same counts and the same load between them.
    #[test]
    fn a_coarse_engine_does_the_same(
        cache_blocks in 6..40u32,
        history in prop::collection::vec((prompt(), 1..20u32, 0..200u64, 0..8u8), 1..40),
    ) {
        let (mut fine, mut coarse) =
            (Engine::new(profile(cache_blocks)), Engine::coarse(profile(cache_blocks)));
        let (mut all, mut told) = (Vec::new(), Vec::new());
        let mut now = 0;
        for (number, (tokens, answer, gap, event)) in history.iter().enumerate() {
            now += gap;
            fine.advance(now, &mut all);
            coarse.advance(now, &mut told);
            prop_assert_eq!(fine.load(), coarse.load());
            prop_assert_eq!(fine.waiting_uncached_tokens(), coarse.waiting_uncached_tokens());
            let mut sequence = sequence(tokens, *answer);
            // Answers of their own, as equal ones would be cached by whoever is first.
            let prompt_blocks = tokens.len() / 4;
            for (index, block) in sequence.blocks.iter_mut().enumerate().skip(prompt_blocks) {
                *block = (number as u64) << 32 | index as u64;
            }
            let id = RequestId(number as u64);
            let outcome = fine.submit_as(id, now, sequence.clone());
            prop_assert_eq!(outcome, coarse.submit_as(id, now, sequence));
            let other = RequestId(number as u64 / 2);
            for engine in [&mut fine, &mut coarse] {
                match event {
                    0 => engine.cancel(other),
                    1 => engine.reset_cache(),
                    _ => {}
                }
            }
        }
        all.extend(drain(&mut fine));
        told.extend(drain(&mut coarse));
        all.retain(|progress| progress.generated == 1 || progress.finished);
        prop_assert_eq!(all, told);
        prop_assert_eq!(fine.counters(), coarse.counters());
    }
}
