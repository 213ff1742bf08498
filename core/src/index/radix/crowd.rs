//! The holders of a node that has many: packed stamps for the scan that picks the youngest, and an
//! open-addressed index by tenant.

use super::super::Garbage;
use super::super::tenants::{NO_TENANT, Tenant};
use super::holders::{Stamp, tenant_of};
use crate::prefetch::{prefetch, prefetch_all};

/// All crowds of a tree, by number.
#[derive(Debug, Default)]
pub(super) struct Crowds {
    table: Vec<Crowd>,
    free: Vec<u32>,
}

/// Further holders of one node.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    stamps: Vec<Stamp>,
    /// At most half of it is in use.
    index: Vec<Slot>,
}

/// Where a tenant's stamp and entry are.
#[derive(Debug, Clone, Copy)]
struct Slot {
    tenant: Tenant,
    /// Below the number of tenants, which fits.
    position: u16,
    extra: u32,
}

/// Stamps to load early; crowds of more are rare, and looked through in order.
const STAMPS_AHEAD: usize = 64;

const FREE: Slot = Slot { tenant: NO_TENANT, position: 0, extra: 0 };

impl Crowds {
    /// Number of a new, empty crowd.
    pub fn open(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.table.push(Crowd::default());
            self.table.len() as u32 - 1
        })
    }

    /// Gives up an empty crowd.
    pub fn close(&mut self, number: u32, garbage: &mut Garbage) {
        let Crowd { stamps, index } = std::mem::take(self.get_mut(number));
        garbage.push((stamps, index));
        self.free.push(number);
    }

    /// Starts loading a crowd's own record.
    #[inline]
    pub fn prefetch(&self, number: u32) {
        prefetch(&self.table[number as usize]);
    }

    #[inline]
    pub fn get(&self, number: u32) -> &Crowd {
        &self.table[number as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, number: u32) -> &mut Crowd {
        &mut self.table[number as usize]
    }
}

impl Crowd {
    /// Stamps of all members.
    pub fn stamps(&self) -> &[Stamp] {
        &self.stamps
    }

    /// The extra of a member.
    #[inline]
    pub fn extra(&self, tenant: Tenant) -> Option<u32> {
        let slot = self.index[self.find(tenant)];
        (slot.tenant == tenant).then_some(slot.extra)
    }

    /// Starts loading what looking a member up and giving it a stamp will read.
    #[inline]
    pub fn prefetch(&self, tenant: Tenant) {
        prefetch(&self.index[home(tenant) & (self.index.len() - 1)]);
        prefetch_all(&self.stamps[..self.stamps.len().min(STAMPS_AHEAD)]);
    }

    /// Sets a member's stamp.
    #[inline]
    pub fn restamp(&mut self, stamp: Stamp) {
        let slot = self.index[self.find(tenant_of(stamp))];
        self.stamps[usize::from(slot.position)] = stamp;
    }

    /// Adds a member.
    pub fn join(&mut self, stamp: Stamp, extra: u32) {
        let position = self.stamps.len() as u16;
        self.stamps.push(stamp);
        if 2 * self.stamps.len() > self.index.len() {
            let size = (4 * self.stamps.len()).next_power_of_two();
            let old = std::mem::replace(&mut self.index, vec![FREE; size]);
            old.into_iter()
                .filter(|slot| slot.tenant != NO_TENANT)
                .for_each(|slot| self.enter(slot));
        }
        self.enter(Slot { tenant: tenant_of(stamp), position, extra });
    }

    /// Removes a member; returns whether others are left.
    pub fn leave(&mut self, tenant: Tenant) -> bool {
        let gap = self.find(tenant);
        let position = self.index[gap].position;
        self.close_gap(gap);
        self.stamps.swap_remove(usize::from(position));
        if let Some(&moved) = self.stamps.get(usize::from(position)) {
            let slot = self.find(tenant_of(moved));
            self.index[slot].position = position;
        }
        !self.stamps.is_empty()
    }

    fn enter(&mut self, entry: Slot) {
        let slot = self.find(entry.tenant);
        self.index[slot] = entry;
    }

    /// The slot of a tenant, or the free one where it would go.
    #[inline]
    fn find(&self, tenant: Tenant) -> usize {
        let mask = self.index.len() - 1;
        let mut slot = home(tenant) & mask;
        while self.index[slot].tenant != tenant && self.index[slot].tenant != NO_TENANT {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Frees a slot and moves back those that had passed it (Knuth, TAOCP 6.4, algorithm R).
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.index.len() - 1;
        let mut slot = gap;
        loop {
            slot = (slot + 1) & mask;
            let entry = self.index[slot];
            if entry.tenant == NO_TENANT {
                break;
            }
            let distance = slot.wrapping_sub(home(entry.tenant)) & mask;
            if distance >= (slot.wrapping_sub(gap) & mask) {
                self.index[gap] = entry;
                gap = slot;
            }
        }
        self.index[gap] = FREE;
    }
}

/// Preferred slot of a tenant in an index of any power of two.
#[inline]
fn home(tenant: Tenant) -> usize {
    (u32::from(tenant).wrapping_mul(0x9e37_79b1) >> 12) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rng::Rng;

    #[test]
    fn members_come_and_go() {
        let mut rng = Rng::new(5);
        let (mut crowd, mut members) = (Crowd::default(), BTreeMap::new());
        for step in 0..20_000u64 {
            let tenant = rng.below(300) as Tenant;
            let stamp = step << 16 | u64::from(tenant);
            match members.remove(&tenant) {
                Some((_, extra)) if step % 3 == 0 => {
                    crowd.restamp(stamp);
                    members.insert(tenant, (stamp, extra));
                }
                Some(_) => assert_eq!(crowd.leave(tenant), !members.is_empty()),
                None => {
                    crowd.join(stamp, step as u32);
                    members.insert(tenant, (stamp, step as u32));
                }
            }
            let extra = members.get(&tenant).map(|&(_, extra)| extra);
            assert_eq!(crowd.extra(tenant), extra);
        }
        let mut stamps = crowd.stamps().to_vec();
        stamps.sort_unstable_by_key(|&stamp| tenant_of(stamp));
        assert!(stamps.into_iter().eq(members.values().map(|&(stamp, _)| stamp)));
        assert!(members.iter().all(|(&tenant, &(_, extra))| crowd.extra(tenant) == Some(extra)));
    }
}
