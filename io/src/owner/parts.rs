//! `--index-shards`: a model's trees split into parts on several shards, so that one hot model is not
//! bound to one core. The first part is on the shard that owns the model, the others on those after
//! it.
//!
//! The head of a prompt says which part it belongs to (see [`smg_core::index::text_shard`]). A
//! request without a tree, or with a sticky key, belongs to the first.

use smg_core::index::{Limits, text_shard, token_shard};
use smg_core::policy::PolicyKind;

use super::{Ask, Key};
use crate::config::CacheConfig;

/// How the trees of every model are split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    count: usize,
    shards: usize,
    page_tokens: u32,
}

impl Parts {
    /// As many parts as configured, at most one per shard.
    pub fn new(config: &CacheConfig, shards: usize) -> Self {
        Self {
            count: config.index_shards.min(shards).max(1),
            shards: shards.max(1),
            page_tokens: u32::try_from(config.block_size).unwrap_or(u32::MAX),
        }
    }

    /// Number of parts.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bounds of one part of a tree whose parts together have this budget, in units.
    pub fn limits(&self, budget_units: u64) -> Limits {
        Limits::new((budget_units / self.count as u64).max(1))
    }

    /// The shard that decides about a request to a model that shard `owner` owns.
    pub fn decider(&self, owner: usize, policy: PolicyKind, ask: &Ask<'_>) -> usize {
        if self.count == 1 || policy != PolicyKind::CacheAware || ask.session.is_some() {
            return owner;
        }
        let part = match ask.key {
            Key::Text(text) => text_shard(ask.namespace, text, self.count),
            Key::Tokens(tokens) => token_shard(ask.namespace, tokens, self.page_tokens, self.count),
        };
        self.shard(owner, part)
    }

    /// The shards with the parts of a model that shard `owner` owns, the owner first.
    pub fn shards(self, owner: usize) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |part| self.shard(owner, part))
    }

    fn shard(&self, owner: usize, part: usize) -> usize {
        (owner + part) % self.shards
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Session;
    use crate::owner::tests::ask;

    fn parts(index_shards: usize, shards: usize) -> Parts {
        Parts::new(&CacheConfig { index_shards, ..CacheConfig::default() }, shards)
    }

    const CACHE_AWARE: PolicyKind = PolicyKind::CacheAware;

    #[test]
    fn one_part_is_the_owner_with_the_whole_budget() {
        let parts = parts(1, 4);
        assert_eq!(parts.shards(3).collect::<Vec<_>>(), [3]);
        assert_eq!(parts.limits(1000), Limits::new(1000));
        for text in ["", "a", "another"] {
            assert_eq!(parts.decider(3, CACHE_AWARE, &ask(Key::Text(text))), 3);
        }
    }

    #[test]
    fn parts_are_on_the_shards_from_the_owner_on_at_most_one_on_each() {
        assert_eq!(parts(3, 4).shards(2).collect::<Vec<_>>(), [2, 3, 0]);
        assert_eq!(parts(9, 2).shards(1).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(parts(3, 4).limits(1000), Limits::new(333));
        assert_eq!(parts(3, 4).limits(2), Limits::new(1));
    }

    #[test]
    fn the_head_decides_and_every_part_gets_some() {
        let parts = parts(3, 4);
        let mut seen = [0; 4];
        for i in 0..300u32 {
            let head = format!("{i:032}");
            let of_text = |tail: &str| {
                let text = head.clone() + tail;
                parts.decider(2, CACHE_AWARE, &ask(Key::Text(&text)))
            };
            assert_eq!(of_text("first turn"), of_text("first turn and second"));
            seen[of_text("")] += 1;
            let page = [i; 16];
            let of_tokens =
                |tokens: &[u32]| parts.decider(2, CACHE_AWARE, &ask(Key::Tokens(tokens)));
            assert_eq!(of_tokens(&page), of_tokens(&[&page[..], &[7; 9]].concat()));
            seen[of_tokens(&page)] += 1;
        }
        assert_eq!(seen[1], 0, "the shard before the owner");
        assert!([seen[0], seen[2], seen[3]].iter().all(|&n| n > 150), "{seen:?}");
    }

    #[test]
    fn what_needs_the_owner_itself_goes_there() {
        let parts = parts(4, 4);
        for i in 0..50 {
            let text = format!("{i:032}");
            let plain = ask(Key::Text(&text));
            assert_eq!(parts.decider(1, PolicyKind::Manual, &plain), 1);
            let session = Some(Session { key: b"k", from_rid: false });
            assert_eq!(parts.decider(1, CACHE_AWARE, &Ask { session, ..plain }), 1);
        }
    }
}
