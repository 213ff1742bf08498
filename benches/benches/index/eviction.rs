//! Evicting a tenth of a full tree of short prompts, and what lookups notice of it.

use std::hint::black_box;
use std::sync::{Arc, Barrier};

use smg_core::index::{Garbage, Limits};
use smg_core::rng::Rng;

use crate::arms::{Kind, Ours, record_peer};
use crate::corpus::{Corpus, worker_of};
use crate::stats::{Samples, resident_bytes};

/// Default of `--max-tree-size`.
const BUDGET_UNITS: u64 = 67_108_864;
const PROMPT_TOKENS: usize = 256;
const SLICE_ENTRIES: usize = 512;
/// Lookups measured between two slices.
const LOOKUPS_PER_SLICE: usize = 50;

/// In which order the entries were used last.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// As they were recorded.
    Age,
    /// At random, so that every part of the memory has some of the oldest.
    Shuffled,
}

/// Prints eviction of both trees and lookups beside it.
pub fn compare<K: Kind>() {
    println!(
        "\n{} tree, {PROMPT_TOKENS}-token prompts of two turns, from 110 % to 100 % of {BUDGET_UNITS} units",
        K::NAME
    );
    for order in [Order::Age, Order::Shuffled] {
        measure::<K>(order);
    }
    measure_peer::<K>();
}

/// Prompts that fill a tree beyond its budget, though they share their heads.
fn corpus<K: Kind>() -> Corpus {
    let tokens = BUDGET_UNITS as usize / K::UNITS_PER_TOKEN * 14 / 10;
    Corpus::new(PROMPT_TOKENS, 2, tokens, 7)
}

/// Records conversations until `is_full`; returns their number.
fn fill<K: Kind>(corpus: &Corpus, mut record: impl FnMut(&K::Prompt, usize) -> bool) -> usize {
    for conversation in 0..corpus.prompts.len() {
        for turn in 1..=2 {
            let prompt = K::prompt(&corpus.prompts[conversation][..corpus.turn_tokens(turn)]);
            if record(K::borrow(&prompt), worker_of(conversation)) {
                return conversation;
            }
        }
    }
    corpus.prompts.len()
}

fn measure<K: Kind>(order: Order) {
    let corpus = corpus::<K>();
    let mut rng = Rng::new(3);
    collect();
    let before = resident_bytes();
    let mut tree = Ours::<K>::new(Limits { ceiling_units: u64::MAX, ..Limits::new(BUDGET_UNITS) });
    let loaded = fill::<K>(&corpus, |prompt, worker| {
        tree.record(prompt, worker);
        tree.tree.units() >= BUDGET_UNITS * 11 / 10
    });
    if order == Order::Shuffled {
        for conversation in corpus.shuffled(&mut rng).into_iter().filter(|&c| c < loaded) {
            let prompt = K::prompt(&corpus.prompts[conversation]);
            tree.record(K::borrow(&prompt), worker_of(conversation));
        }
    }
    let (full_bytes, full_units) = (resident_bytes(), tree.tree.units());

    let mut lookup = |tree: &Ours<K>, samples: &mut Samples| {
        let prompt = K::prompt(&corpus.prompts[rng.below(loaded)]);
        samples.time(|| black_box(tree.tree.find(None, K::borrow(&prompt), |_| true)));
    };
    let [mut alone, mut beside, mut evicting, mut compacting] =
        std::array::from_fn(|_| Samples::default());
    (0..20_000).for_each(|_| lookup(&tree, &mut alone));
    let mut entries = 0;
    let (bin, garbage) = std::sync::mpsc::channel();
    let steps = Arc::new(Barrier::new(2));
    let control = std::thread::spawn({
        let steps = steps.clone();
        move || {
            garbage.into_iter().for_each(drop::<Garbage>);
            steps.wait();
            steps.wait();
            collect();
        }
    });
    loop {
        let mut sample = Samples::default();
        let slice = sample.time_on_cpu(|| tree.tree.evict_slice(BUDGET_UNITS, SLICE_ENTRIES));
        entries += slice.entries;
        if slice.entries > 0 { &mut evicting } else { &mut compacting }.append(sample);
        // Freed on another thread, like the gateway's control thread. The receiver ends after the sender.
        let _ = bin.send(slice.garbage);
        if slice.done {
            break;
        }
        (0..LOOKUPS_PER_SLICE).for_each(|_| lookup(&tree, &mut beside));
    }
    drop(bin);
    steps.wait();
    let mut reclaiming = Samples::default();
    reclaiming.time_on_cpu(reclaim);
    steps.wait();
    let _ = control.join();
    let share = 1.0 - tree.tree.units() as f64 / full_units as f64;
    let freed = (full_bytes - before) as f64 * share;
    let returned = full_bytes as f64 - resident_bytes() as f64;

    let name = if order == Order::Age { "in the order recorded" } else { "at random" };
    println!("smg, last used {name}: {full_units} -> {} units", tree.tree.units());
    for (what, samples) in [("evict", &mut evicting), ("compact", &mut compacting)] {
        if samples.len() > 0 {
            println!(
                "  {what}: {:.1} ms in {} slices, CPU time of a slice p50 {:.0} p99 {:.0} max {:.0} us",
                samples.total_ms(),
                samples.len(),
                samples.median() / 1e3,
                samples.p99() / 1e3,
                samples.max() / 1e3
            );
        }
    }
    let mut arithmetic = Samples::of_arithmetic(evicting.median(), 2000);
    println!(
        "  arithmetic that takes as long as a slice: p50 {:.0} p99 {:.0} us",
        arithmetic.median() / 1e3,
        arithmetic.p99() / 1e3
    );
    println!(
        "  {entries} entries; resident {:.0} MB, of which {:.1} MB freed and {:.1} MB returned ({:.0} %) \
         after {:.0} us on this thread",
        (full_bytes - before) as f64 / 1e6,
        freed / 1e6,
        returned / 1e6,
        100.0 * returned / freed,
        reclaiming.max() / 1e3
    );
    println!(
        "  lookup p50 {:.0} p99 {:.0} ns alone, p50 {:.0} p99 {:.0} ns between slices: p99 x {:.2}",
        alone.median(),
        alone.p99(),
        beside.median(),
        beside.p99(),
        beside.p99() / alone.p99()
    );
}

fn measure_peer<K: Kind>() {
    let corpus = corpus::<K>();
    collect();
    let before = resident_bytes();
    let peer = K::peer();
    fill::<K>(&corpus, |prompt, worker| {
        record_peer::<K>(&peer, prompt, worker);
        K::peer_units(&peer) >= BUDGET_UNITS as usize * 11 / 10
    });
    let (full_bytes, full_units) = (resident_bytes(), K::peer_units(&peer));
    let mut evicting = Samples::default();
    evicting.time_on_cpu(|| K::peer_evict(&peer, BUDGET_UNITS as usize));
    collect();
    println!("kv-index 2.0.0: {full_units} -> {} units", K::peer_units(&peer));
    println!(
        "  evict: {:.1} ms in one piece; resident {:.0} MB, {:.1} MB returned",
        evicting.total_ms(),
        (full_bytes - before) as f64 / 1e6,
        (full_bytes as f64 - resident_bytes() as f64) / 1e6
    );
}

/// Takes back what another thread has freed of this one's memory, as a shard does after a sweep.
fn reclaim() {
    // SAFETY: as below.
    unsafe { libmimalloc_sys::mi_collect(false) };
}

/// Has the allocator return what is free, as the control thread does after a sweep.
fn collect() {
    // SAFETY: the function may be called at any time; it only touches the allocator's own state.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
