//! One decision (match, choose, record) on a loaded tree.

use std::hint::black_box;

use smg_core::index::Limits;
use smg_core::rng::Rng;

use crate::arms::{Kind, Ours, record_peer};
use crate::corpus::{Corpus, worker_of};
use crate::pieces::Pieces;
use crate::stats::Samples;

/// Prompt length in tokens and turns until it is reached.
const LENGTHS: [(usize, usize); 3] = [(1024, 4), (8192, 8), (32_768, 16)];
const LOADED_TOKENS: usize = 8 << 20;

/// Four arms on one kind of prompt.
struct Arms<K: Kind> {
    ours: Ours<K>,
    peer: K::Peer,
    /// Full prompts in one piece each, for the plain comparison.
    flat: Vec<K::Owned>,
    pieces: Pieces<K>,
    slab: K::Owned,
    scratch: K::Owned,
    prompts: Vec<K::Owned>,
    samples: [Samples; 4],
}

/// Prints the times of hits and of growing prompts for each length.
pub fn compare<K: Kind>() {
    println!(
        "\n{} tree, {} M tokens loaded, ns per decision: median (p99)",
        K::NAME,
        LOADED_TOKENS >> 20
    );
    println!(
        "| tokens | decision | smg | kv-index 2.0.0 | plain compare + copy | compare in pieces | kv-index / smg | smg / plain | smg / pieces |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (tokens, turns) in LENGTHS {
        let corpus = Corpus::new(tokens, turns, LOADED_TOKENS, 1);
        let mut rng = Rng::new(2);
        let mut arms = Arms::<K>::new(&corpus);
        for turn in 1..turns {
            for conversation in corpus.shuffled(&mut rng) {
                arms.record(&corpus, conversation, turn);
            }
        }
        let known = corpus.turn_tokens(turns - 1) * K::UNITS_PER_TOKEN;
        for conversation in corpus.shuffled(&mut rng) {
            arms.measure(conversation, known);
        }
        arms.print(tokens, "new turn");
        for _ in 0..4000_usize.div_ceil(corpus.prompts.len()) {
            for conversation in corpus.shuffled(&mut rng) {
                arms.measure(conversation, tokens * K::UNITS_PER_TOKEN);
            }
        }
        arms.print(tokens, "hit");
    }
}

/// Prints what a hit costs in trees of two sizes.
pub fn growth<K: Kind>() {
    const TOKENS: usize = 1024;
    println!("\n{} tree, hits of {TOKENS} tokens, ns: median (p99)", K::NAME);
    println!("| loaded tokens | smg | plain compare | smg / plain |");
    println!("|---|---|---|---|");
    let mut medians = Vec::new();
    for loaded in [4 << 20, 40 << 20] {
        let corpus = Corpus::new(TOKENS, 4, loaded, 1);
        let mut rng = Rng::new(2);
        let mut arms = Arms::<K>::new(&corpus);
        for turn in 1..=4 {
            for conversation in corpus.shuffled(&mut rng) {
                let units = corpus.turn_tokens(turn) * K::UNITS_PER_TOKEN;
                let prompt = K::head(K::borrow(&arms.prompts[conversation]), units);
                arms.ours.record(prompt, worker_of(conversation));
            }
        }
        for conversation in corpus.shuffled(&mut rng).into_iter().take(4000) {
            let arms = &mut arms;
            let prompt = K::borrow(&arms.prompts[conversation]);
            K::copy_into(prompt, &mut arms.scratch);
            let scratch = K::borrow(&arms.scratch);
            arms.samples[0].time(|| arms.ours.record(scratch, worker_of(conversation)));
            K::copy_into(prompt, &mut arms.scratch);
            let (scratch, flat) = (K::borrow(&arms.scratch), K::borrow(&arms.flat[conversation]));
            arms.samples[2].time(|| black_box(K::is_equal(scratch, flat)));
        }
        let [smg, _, plain, _] = &mut arms.samples;
        println!(
            "| {} M | {:.0} ({:.0}) | {:.0} ({:.0}) | {:.2} |",
            loaded >> 20,
            smg.median(),
            smg.p99(),
            plain.median(),
            plain.p99(),
            smg.median() / plain.median()
        );
        medians.push(smg.median());
    }
    println!("ten times the size: {:.2} times the cost", medians[1] / medians[0]);
}

impl<K: Kind> Arms<K> {
    fn new(corpus: &Corpus) -> Self {
        let prompts: Vec<_> = corpus.prompts.iter().map(|tokens| K::prompt(tokens)).collect();
        Self {
            ours: Ours::new(Limits::new(1 << 30)),
            peer: K::peer(),
            flat: prompts.clone(),
            pieces: Pieces::new(&prompts, corpus.system_tokens() * K::UNITS_PER_TOKEN),
            slab: prompts[0].clone(),
            scratch: prompts[0].clone(),
            prompts,
            samples: Default::default(),
        }
    }

    fn record(&mut self, corpus: &Corpus, conversation: usize, turn: usize) {
        let units = corpus.turn_tokens(turn) * K::UNITS_PER_TOKEN;
        let prompt = K::head(K::borrow(&self.prompts[conversation]), units);
        self.pieces.grow(conversation, prompt, units);
        let matched = self.ours.record(prompt, worker_of(conversation));
        let peer_matched = record_peer::<K>(&self.peer, prompt, worker_of(conversation));
        assert_eq!(matched as usize, peer_matched);
    }

    /// One decision on each arm, of whose units `known` are in the trees.
    fn measure(&mut self, conversation: usize, known: usize) {
        let prompt = K::borrow(&self.prompts[conversation]);
        let worker = worker_of(conversation);
        let [smg, kv, plain, pieces] = &mut self.samples;

        K::copy_into(prompt, &mut self.scratch);
        let scratch = K::borrow(&self.scratch);
        let matched = smg.time(|| self.ours.record(scratch, worker));

        K::copy_into(prompt, &mut self.scratch);
        let scratch = K::borrow(&self.scratch);
        let peer_matched = kv.time(|| record_peer::<K>(&self.peer, scratch, worker));
        assert_eq!((matched as usize, peer_matched), (known, known));

        K::copy_into(prompt, &mut self.scratch);
        let scratch = K::borrow(&self.scratch);
        let flat = K::head(K::borrow(&self.flat[conversation]), known);
        plain.time(|| {
            let is_equal = black_box(K::is_equal(flat, K::head(scratch, known)));
            K::append(&mut self.slab, scratch, known);
            is_equal
        });

        K::copy_into(prompt, &mut self.scratch);
        let scratch = K::borrow(&self.scratch);
        assert!(pieces.time(|| black_box(self.pieces.is_prefix(conversation, scratch))));
        self.pieces.grow(conversation, prompt, K::units(prompt));
    }

    fn print(&mut self, tokens: usize, decision: &str) {
        let [smg, kv, plain, pieces] = &mut self.samples;
        println!(
            "| {tokens} | {decision} | {:.0} ({:.0}) | {:.0} ({:.0}) | {:.0} ({:.0}) | {:.0} ({:.0}) | {:.1} | {:.2} | {:.2} |",
            smg.median(),
            smg.p99(),
            kv.median(),
            kv.p99(),
            plain.median(),
            plain.p99(),
            pieces.median(),
            pieces.p99(),
            kv.median() / smg.median(),
            smg.median() / plain.median(),
            smg.median() / pieces.median()
        );
        self.samples = Default::default();
    }
}
