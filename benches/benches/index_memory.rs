//! Live heap and allocations of the trees, counted at the allocator, beside kv-index 2.0.0.
//!
//!     cargo bench -p smg-benches --bench index_memory

#[path = "index/arms.rs"]
#[allow(dead_code, reason = "shared with the other bench, which uses the rest")]
mod arms;
#[path = "index/corpus.rs"]
#[allow(dead_code, reason = "shared with the other bench, which uses the rest")]
mod corpus;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use smg_core::index::Limits;
use smg_core::rng::Rng;

use arms::{Chars, Kind, Ours, Tokens, record_peer};
use corpus::{Corpus, worker_of};

/// The system's allocator with counters.
struct Counting;

static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on unchanged; the counters do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as u64, Relaxed);
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's obligations are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: the caller's obligations are the same.
        unsafe { System.dealloc(place, layout) }
    }
}

/// Prompt length in tokens, turns until it is reached, tokens of all prompts together. The last is large
/// enough that half-filled segments and chunks do not show in the cost of a turn.
const CORPORA: [(usize, usize, usize); 4] =
    [(1024, 4, 16 << 20), (8192, 8, 16 << 20), (32_768, 16, 16 << 20), (32_768, 16, 64 << 20)];

fn main() {
    println!(
        "| tree | tokens | turns recorded | units stored | smg bytes/unit | kv-index | \
         smg bytes/turn beside content | kv-index | smg allocations/turn | kv-index |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (tokens, turns, total) in CORPORA {
        measure::<Chars>(tokens, turns, total);
    }
    for (tokens, turns, total) in CORPORA {
        measure::<Tokens>(tokens, turns, total);
    }
}

fn measure<K: Kind>(tokens: usize, turns: usize, total: usize) {
    let corpus = Corpus::new(tokens, turns, total, 1);
    let mut ours = Ours::<K>::new(Limits::new(1 << 30));
    let (bytes, allocations) = load::<K>(&corpus, |prompt, worker| {
        ours.record(prompt, worker);
    });
    let units = ours.tree.units() as f64;
    drop(ours);
    let peer = K::peer();
    let (peer_bytes, peer_allocations) = load::<K>(&corpus, |prompt, worker| {
        record_peer::<K>(&peer, prompt, worker);
    });
    let turns_recorded = (corpus.prompts.len() * turns) as f64;
    // What is stored once, whoever holds it: all but the repeats of the eight system prompts.
    let own = corpus.tokens - tokens / 5 / corpus::PAGE_TOKENS * corpus::PAGE_TOKENS;
    let content = (corpus.prompts.len() * own + 8 * (tokens - own)) as f64 * 4.0;
    println!(
        "| {} | {tokens} | {turns_recorded} | {:.1} M | {:.2} | {:.2} | {:.0} | {:.0} | {:.2} | {:.2} |",
        K::NAME,
        units / 1e6,
        bytes / units,
        peer_bytes / units,
        (bytes - content) / turns_recorded,
        (peer_bytes - content) / turns_recorded,
        allocations / turns_recorded,
        peer_allocations / turns_recorded
    );
}

/// Records all turns in a random order of conversations; returns the live bytes and the allocations
/// that came with it.
fn load<K: Kind>(corpus: &Corpus, mut record: impl FnMut(&K::Prompt, usize)) -> (f64, f64) {
    let mut rng = Rng::new(2);
    let orders: Vec<_> = (0..corpus.turns).map(|_| corpus.shuffled(&mut rng)).collect();
    let live = LIVE_BYTES.load(Relaxed);
    let mut allocations = 0;
    for (turn, order) in orders.iter().enumerate() {
        for &conversation in order {
            let tokens = &corpus.prompts[conversation][..corpus.turn_tokens(turn + 1)];
            let prompt = K::prompt(tokens);
            let before = ALLOCATIONS.load(Relaxed);
            record(K::borrow(&prompt), worker_of(conversation));
            allocations += ALLOCATIONS.load(Relaxed) - before;
        }
    }
    ((LIVE_BYTES.load(Relaxed) - live) as f64, allocations as f64)
}
