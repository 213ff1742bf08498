//! The hash index: hashing the heads of a request, and probing for them.

use std::hint::black_box;
use std::time::Instant;

use smg_core::index::{HASH_INDEX_MAX_ENTRIES, HashIndex, Heads, hash_heads};
use smg_core::rng::Rng;

use crate::corpus::worker_id;
use crate::stats::Samples;

const TTL_MS: u64 = 180_000;
/// Lookups timed together: one is near the clock's resolution.
const BATCH: usize = 64;

/// Prints hashing throughput and probe times at two sizes.
pub fn measure() {
    hashing();
    println!("\nhash index, probes after hashing, ns per lookup: median (p99 of {BATCH} together)");
    println!("| heads stored | boundaries | hit at the deepest | miss at all | record |");
    println!("|---|---|---|---|---|");
    for stored in [30_000, HASH_INDEX_MAX_ENTRIES] {
        for boundaries in [&[1024][..], &[256, 1024, 4096]] {
            probing(stored, boundaries);
        }
    }
}

fn hashing() {
    println!("\nhash index, hashing all heads of a request in one pass");
    println!("| tokens | boundaries | GB/s | GB/s of one plain XXH3 over the same bytes |");
    println!("|---|---|---|---|");
    let tokens: Vec<u32> = (0..32_768).collect();
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    for (len, boundaries) in [
        (1024, &[1024][..]),
        (8192, &[1024, 2048, 4096, 8192]),
        (32_768, &[1024, 4096, 16_384, 32_768]),
        (32_768, &[32_768]),
    ] {
        let mut heads = Heads::default();
        let (mut ours, mut plain) = (Samples::default(), Samples::default());
        for _ in 0..2001 {
            ours.time(|| hash_heads(boundaries, None, black_box(&tokens[..len]), &mut heads));
            plain.time(|| xxhash_rust::xxh3::xxh3_64(black_box(&bytes[..4 * len])));
        }
        let speed = |samples: &mut Samples| 4.0 * len as f64 / samples.median();
        println!(
            "| {len} | {} | {:.1} | {:.1} |",
            boundaries.len(),
            speed(&mut ours),
            speed(&mut plain)
        );
    }
}

fn probing(stored: usize, boundaries: &[u32]) {
    let mut rng = Rng::new(11);
    let mut index = HashIndex::new(boundaries, TTL_MS, 1);
    let requests = stored / boundaries.len();
    let heads_of = |known: bool, at: usize| {
        // Short requests hash fast; only the number of boundaries and the key matter here.
        let tokens: Vec<u32> =
            vec![2 * at as u32 + u32::from(known); boundaries[boundaries.len() - 1] as usize];
        let mut heads = Heads::default();
        hash_heads(boundaries, None, &tokens, &mut heads);
        heads
    };
    // Others were there before, and those of a full index had to go for these.
    let gone = if stored == HASH_INDEX_MAX_ENTRIES { requests } else { 0 };
    for at in 0..gone {
        index.record(&heads_of(true, requests + at), worker_id(at % 8), 0);
    }
    let known: Vec<Heads> = (0..requests).map(|at| heads_of(true, at)).collect();
    let unknown: Vec<Heads> = (0..requests).map(|at| heads_of(false, at)).collect();
    for (at, heads) in known.iter().enumerate() {
        index.record(heads, worker_id(at % 8), at as u64 % 1000);
    }
    let mut measure = |heads: &[Heads], record: bool| {
        let mut times = Vec::new();
        // The first ones find page tables and predictors as the filling left them.
        for at in 0..1200 {
            let batch: Vec<Heads> =
                (0..BATCH).map(|_| heads[rng.below(heads.len())].clone()).collect();
            let start = Instant::now();
            for heads in &batch {
                if record {
                    index.record(heads, worker_id(3), 2000);
                } else {
                    black_box(index.find(heads, 2000, |_| true));
                }
            }
            if at >= 200 {
                times.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
            }
        }
        times.sort_unstable_by(f64::total_cmp);
        (times[times.len() / 2], times[times.len() * 99 / 100])
    };
    let (hit, miss) = (measure(&known, false), measure(&unknown, false));
    let record = measure(&known, true);
    println!(
        "| {} | {} | {:.0} ({:.0}) | {:.0} ({:.0}) | {:.0} ({:.0}) |",
        index.entries(),
        boundaries.len(),
        hit.0,
        hit.1,
        miss.0,
        miss.1,
        record.0,
        record.1
    );
}
