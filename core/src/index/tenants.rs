//! Workers as an index knows them: small local ids for registrations that hold entries, so that an
//! entry needs 16 bits to name its worker and never names that worker's successor.

use std::collections::VecDeque;

use crate::fleet::{MAX_WORKERS, WorkerId};

/// Local id of one registration in one index.
pub(super) type Tenant = u16;

/// No tenant.
pub(super) const NO_TENANT: Tenant = Tenant::MAX;

/// The registrations an index holds entries of, each with a state of type `S`.
#[derive(Debug)]
pub(super) struct Tenants<S> {
    table: Vec<Registration<S>>,
    /// By worker slot.
    slots: Vec<Slot>,
    free: Vec<Tenant>,
    /// Removed workers whose entries are still in memory, in the order of their removal.
    removed: VecDeque<Tenant>,
}

#[derive(Debug)]
struct Registration<S> {
    worker: WorkerId,
    is_live: bool,
    state: S,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    tenant: Tenant,
    /// Lowest generation that may still record; a late message of an older one is dropped.
    generation: u32,
}

impl<S> Default for Tenants<S> {
    fn default() -> Self {
        Self { table: Vec::new(), slots: Vec::new(), free: Vec::new(), removed: VecDeque::new() }
    }
}

impl<S: Default> Tenants<S> {
    /// The tenant of a live registration.
    pub fn get(&self, worker: WorkerId) -> Option<Tenant> {
        let tenant = self.slots.get(worker.slot as usize)?.tenant;
        (tenant != NO_TENANT && self.table[tenant as usize].worker == worker).then_some(tenant)
    }

    /// The tenant of a registration that is about to hold an entry, after [`Tenants::supersede`].
    /// `None` if the registration was removed before, or if no local id is free (see
    /// [`Tenants::is_full`]).
    pub fn enter(&mut self, worker: WorkerId) -> Option<Tenant> {
        if let Some(tenant) = self.get(worker) {
            return Some(tenant);
        }
        let slot = *self.slot(worker);
        if worker.generation < slot.generation || slot.tenant != NO_TENANT {
            return None;
        }
        let registration = Registration { worker, is_live: true, state: S::default() };
        let tenant = match self.free.pop() {
            Some(tenant) => {
                self.table[tenant as usize] = registration;
                tenant
            }
            None if self.table.len() < NO_TENANT as usize => {
                self.table.push(registration);
                self.table.len() as Tenant - 1
            }
            None => return None,
        };
        self.slot(worker).tenant = tenant;
        Some(tenant)
    }

    /// Ends a registration, and older ones of its slot. Its tenant, if it had one, stays in memory
    /// until [`Tenants::release_first`].
    pub fn remove(&mut self, worker: WorkerId) -> Option<Tenant> {
        if worker.generation < self.slot(worker).generation {
            return None;
        }
        self.end_registration(worker, worker.generation.saturating_add(1))
    }

    /// Ends older registrations of this one's slot; returns the tenant of the one that had entries.
    pub fn supersede(&mut self, worker: WorkerId) -> Option<Tenant> {
        let tenant = self.slot(worker).tenant;
        let is_older = tenant != NO_TENANT
            && self.table[tenant as usize].worker.generation < worker.generation;
        if is_older { self.end_registration(worker, worker.generation) } else { None }
    }

    /// Frees the local id of [`Tenants::first_removed`], which has no entries any more.
    pub fn release_first(&mut self) {
        self.free.extend(self.removed.pop_front());
    }

    /// The registration removed first whose entries are still in memory.
    pub fn first_removed(&self) -> Option<Tenant> {
        self.removed.front().copied()
    }

    /// Number of removed registrations whose entries are still in memory.
    pub fn removed(&self) -> usize {
        self.removed.len()
    }

    /// Whether no local id is left for a new registration.
    pub fn is_full(&self) -> bool {
        self.free.is_empty() && self.table.len() >= NO_TENANT as usize
    }

    /// Whether the registration has not been removed.
    #[inline]
    pub fn is_live(&self, tenant: Tenant) -> bool {
        self.table[tenant as usize].is_live
    }

    /// The registration behind a local id.
    #[inline]
    pub fn worker(&self, tenant: Tenant) -> WorkerId {
        self.table[tenant as usize].worker
    }

    /// The registrations that have not been removed, with their states.
    pub fn live(&self) -> impl Iterator<Item = (WorkerId, &S)> {
        let live = self.table.iter().filter(|registration| registration.is_live);
        live.map(|registration| (registration.worker, &registration.state))
    }

    /// State of a tenant.
    #[inline]
    pub fn state(&self, tenant: Tenant) -> &S {
        &self.table[tenant as usize].state
    }

    /// State of a tenant.
    #[inline]
    pub fn state_mut(&mut self, tenant: Tenant) -> &mut S {
        &mut self.table[tenant as usize].state
    }

    /// Local ids ever used are below this.
    #[cfg(any(test, debug_assertions))]
    pub fn end(&self) -> Tenant {
        self.table.len() as Tenant
    }

    fn slot(&mut self, worker: WorkerId) -> &mut Slot {
        let index = worker.slot as usize;
        debug_assert!(index < MAX_WORKERS);
        if index >= self.slots.len() {
            self.slots.resize(index + 1, Slot { tenant: NO_TENANT, generation: 0 });
        }
        &mut self.slots[index]
    }

    fn end_registration(&mut self, worker: WorkerId, next_generation: u32) -> Option<Tenant> {
        let slot = self.slot(worker);
        slot.generation = next_generation;
        let tenant = std::mem::replace(&mut slot.tenant, NO_TENANT);
        if tenant == NO_TENANT {
            return None;
        }
        self.table[tenant as usize].is_live = false;
        self.removed.push_back(tenant);
        Some(tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(slot: u32, generation: u32) -> WorkerId {
        WorkerId { slot, generation }
    }

    #[test]
    fn a_removed_registration_never_comes_back() {
        let mut tenants = Tenants::<()>::default();
        let first = tenants.enter(worker(3, 0)).unwrap();
        assert_eq!(tenants.enter(worker(3, 0)), Some(first));
        assert_eq!(tenants.remove(worker(3, 0)), Some(first));
        assert_eq!(tenants.remove(worker(3, 0)), None);
        assert_eq!(tenants.get(worker(3, 0)), None);
        assert_eq!(tenants.enter(worker(3, 0)), None);
        let second = tenants.enter(worker(3, 1)).unwrap();
        assert_ne!(first, second);
        assert_eq!(tenants.remove(worker(3, 0)), None, "too late to remove its successor");
        assert!(tenants.is_live(second) && !tenants.is_live(first));
    }

    #[test]
    fn a_local_id_is_reused_after_its_release_only() {
        let mut tenants = Tenants::<()>::default();
        let first = tenants.enter(worker(0, 0)).unwrap();
        tenants.remove(worker(0, 0));
        assert_eq!(tenants.first_removed(), Some(first));
        assert_ne!(tenants.enter(worker(1, 0)), Some(first));
        tenants.release_first();
        assert_eq!(tenants.first_removed(), None);
        assert_eq!(tenants.enter(worker(2, 0)), Some(first));
        assert_eq!(tenants.worker(first), worker(2, 0));
    }

    #[test]
    fn a_newer_registration_supersedes_an_older_one() {
        let mut tenants = Tenants::<()>::default();
        let old = tenants.enter(worker(0, 4)).unwrap();
        assert_eq!(tenants.supersede(worker(0, 4)), None);
        assert_eq!(tenants.supersede(worker(0, 3)), None);
        assert_eq!(tenants.enter(worker(0, 3)), None, "older than the one that is there");
        assert_eq!(tenants.supersede(worker(0, 5)), Some(old));
        assert!(tenants.enter(worker(0, 5)).is_some());
        assert_eq!(tenants.enter(worker(0, 4)), None);
    }
}
