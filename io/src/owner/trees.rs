//! A decision over one of the prefix trees.

use smg_core::index::{Alphabet, RadixTree};
use smg_core::policy::cache_aware::{self, CacheAwareConfig, TreeMatch};
use smg_core::policy::{Candidates, NoWorker, PolicyState};
use smg_core::rng::Rng;

use super::explain::contenders;
use super::{Ask, Decided, Index};

/// Matches, chooses and records at `touch`.
#[expect(clippy::too_many_arguments, reason = "one decision; a struct for one call says no more")]
pub(super) fn decide<A: Alphabet>(
    tree: &mut RadixTree<A>,
    prompt: &A::Prompt,
    index: Index,
    config: &CacheAwareConfig,
    state: &mut PolicyState,
    candidates: &Candidates<'_>,
    ask: &Ask<'_>,
    rng: &mut Rng,
    touch: u64,
) -> Result<Decided, NoWorker> {
    let found = tree.find(ask.namespace, prompt, {
        let eligibility = state.eligibility(candidates);
        move |worker| eligibility.allows(worker)
    });
    let matched = TreeMatch {
        matched_units: found.matched_units,
        total_units: found.total_units,
        holders: found.holders(),
        units_are_chars: index == Index::String,
    };
    let tokens = ask.key.tokens();
    let pressure = cache_aware::under_pressure(config, candidates);
    let affine = !pressure && matched.ratio() > config.cache_threshold;
    let contenders = match ask.explain {
        true => contenders(candidates, if affine { found.eligible() } else { &[] }),
        false => Vec::new(),
    };
    let choice = if pressure {
        cache_aware::choose_under_pressure(state, candidates, tokens, rng)?
    } else {
        let is_holder = |worker| tree.is_holder(&found, worker);
        cache_aware::choose(config, state, candidates, &matched, is_holder, tokens, rng)?
    };
    let decided = Decided {
        index: Some(index),
        matched: found.matched_units,
        length: found.total_units,
        ratio: (!pressure).then(|| matched.ratio()),
        contenders,
        ..Decided::plain(choice)
    };
    tree.record(&found, prompt, choice.worker, touch);
    Ok(decided)
}
