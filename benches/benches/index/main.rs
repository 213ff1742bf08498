//! Prefix indexes beside kv-index 2.0.0 and beside the least work there is, in one run and on one
//! corpus. Arms take turns request by request; the prompt is in the CPU's cache as it would be when a
//! request has just been read.
//!
//!     cargo bench -p smg-benches --bench index             # everything
//!     cargo bench -p smg-benches --bench index -- eviction # one part

mod arms;
mod corpus;
mod decisions;
mod eviction;
mod hash;
mod pieces;
mod split;
mod stats;

use arms::{Chars, Tokens};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let part = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    if wanted("decisions") {
        decisions::compare::<Chars>();
        decisions::compare::<Tokens>();
    }
    if wanted("growth") {
        decisions::growth::<Chars>();
        decisions::growth::<Tokens>();
    }
    if wanted("eviction") {
        eviction::compare::<Tokens>();
        eviction::compare::<Chars>();
    }
    if wanted("hash") {
        hash::measure();
    }
    if wanted("split") {
        split::compare();
    }
}
