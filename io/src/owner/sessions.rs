//! Sticky keys of the models a shard owns: `manual`, and `--routing-key-override`.

use smg_core::fleet::{ModelId, WorkerId};
use smg_core::policy::sticky::{Assignment, KeyPermit, Placement, StickyMap};
use smg_core::policy::{Branch, Candidates, NoWorker};
use smg_core::rng::Rng;

use super::{Decided, Owned, Owner};

impl Owner {
    /// The `manual` policy; `key` is usable or absent.
    ///
    /// # Errors
    /// When no worker may be chosen.
    pub fn choose_manually(
        &mut self,
        model: ModelId,
        candidates: &Candidates<'_>,
        key: Option<&[u8]>,
        rng: &mut Rng,
    ) -> Result<Decided, NoWorker> {
        let mode = self.assignment.unwrap_or(Assignment::Random);
        let Owned { sessions, state, .. } = self.models.entry(model).or_default();
        let sessions = sessions.get_or_insert_with(|| StickyMap::new(self.active_keys.clone()));
        let before = sessions.len();
        let outcome = sessions.choose_manually(key, mode, state, candidates, rng);
        self.pinned = self.pinned + sessions.len() - before;
        let (choice, permit) = outcome?;
        Ok(Decided { permit, ..Decided::plain(choice) })
    }

    /// What is pinned for a key under `--routing-key-override`.
    ///
    /// # Errors
    /// When no worker may be chosen.
    pub fn placement(
        &mut self,
        model: ModelId,
        candidates: &Candidates<'_>,
        key: &[u8],
        rng: &mut Rng,
    ) -> Result<Placement, NoWorker> {
        let mode = self.assignment.unwrap_or(Assignment::Delegate);
        let Owned { sessions, state, .. } = self.models.entry(model).or_default();
        let sessions = sessions.get_or_insert_with(|| StickyMap::new(self.active_keys.clone()));
        let before = sessions.len();
        let outcome = sessions.choose_overriding(key, mode, state, candidates, rng);
        self.pinned = self.pinned + sessions.len() - before;
        outcome
    }

    /// Whether [`Owner::placement`] (`overriding`), or [`Owner::choose_manually`], sends this key where it
    /// is pinned, rather than to a worker that is chosen anew.
    pub fn is_placed(
        &mut self,
        model: ModelId,
        candidates: &Candidates<'_>,
        key: &[u8],
        overriding: bool,
    ) -> bool {
        let Some(Owned { sessions: Some(sessions), state, .. }) = self.models.get_mut(&model)
        else {
            return false;
        };
        sessions.is_placed(key, overriding, state, candidates)
    }

    /// Pins the worker that the policy chose for a key; `branch` is why it was asked.
    pub fn pin(
        &mut self,
        model: ModelId,
        key: &[u8],
        worker: WorkerId,
        branch: Branch,
        now_ms: u64,
    ) -> KeyPermit {
        let mode = self.assignment.unwrap_or(Assignment::Delegate);
        let Owned { sessions, .. } = self.models.entry(model).or_default();
        let sessions = sessions.get_or_insert_with(|| StickyMap::new(self.active_keys.clone()));
        let before = sessions.len();
        let permit = sessions.pin(key, worker, branch, mode, now_ms);
        self.pinned = self.pinned + sessions.len() - before;
        permit
    }

    /// Keys pinned, over all models of this shard.
    pub fn pinned_keys(&self) -> usize {
        self.pinned
    }
}
