//! The fleet as every decision sees it: worker identities, the placement epoch (who serves which
//! model and may be sent requests), and the exact in-flight counts.
//!
//! A [`Placement`] is immutable. The control plane builds a new one for every change and publishes
//! it; a decision reads one epoch from start to end. Only [`InFlight`] changes under a reader.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most workers one gateway registers; a slot is taken from registration to the end of the last
/// request of a removed worker.
pub const MAX_WORKERS: usize = 16_384;

/// One registration of one worker. `slot` is dense and reused; `generation` tells registrations of
/// the same slot apart, so an index entry of a removed worker never names its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId {
    /// Position in per-worker tables, below [`MAX_WORKERS`].
    pub slot: u32,
    /// Counts the registrations of this slot.
    pub generation: u32,
}

/// Stable identity of a model name for as long as the gateway runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelId(pub u32);

/// Exact number of requests this gateway has sent to each worker and that have not ended.
///
/// Packed, so that a miss over thousands of workers is one linear scan. [`InFlight::begin`] is the
/// only increment and [`InFlightGuard`]'s drop the only decrement.
#[derive(Debug, Clone)]
pub struct InFlight(Arc<[AtomicU32]>);

impl Default for InFlight {
    fn default() -> Self {
        Self((0..MAX_WORKERS).map(|_| AtomicU32::new(0)).collect())
    }
}

impl InFlight {
    /// Requests in flight at `worker`.
    pub fn get(&self, worker: WorkerId) -> u32 {
        self.0[worker.slot as usize].load(Ordering::Relaxed)
    }

    /// Counts one request until the guard is dropped.
    pub fn begin(&self, worker: WorkerId) -> InFlightGuard {
        self.0[worker.slot as usize].fetch_add(1, Ordering::Relaxed);
        InFlightGuard { table: self.0.clone(), worker }
    }
}

/// One request in flight; dropping it, on whatever path, is the end of that request.
#[derive(Debug)]
pub struct InFlightGuard {
    table: Arc<[AtomicU32]>,
    worker: WorkerId,
}

impl InFlightGuard {
    /// The worker the request was sent to.
    pub fn worker(&self) -> WorkerId {
        self.worker
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let before = self.table[self.worker.slot as usize].fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "in-flight count of {:?} went below zero", self.worker);
    }
}

/// What a decision may know about one model: its workers and who owns its indexes.
#[derive(Debug, Clone)]
pub struct ModelPlacement {
    /// Stable identity; also the position in [`Placement::models`].
    pub id: ModelId,
    /// Canonical name.
    pub name: Arc<str>,
    /// Shard that owns this model's indexes.
    pub owner: usize,
    /// All registered workers, ready or not, in order of registration.
    pub members: Vec<WorkerId>,
    /// Members that are healthy and not draining, in order of registration.
    pub ready: Vec<WorkerId>,
}

/// One immutable epoch of the fleet.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    /// Grows by one with every published change.
    pub epoch: u64,
    /// Every model that has, or had, a worker. Positions never change; a model whose last worker
    /// left keeps its place with no members.
    pub models: Vec<ModelPlacement>,
    /// Model names and aliases, matched exactly.
    pub names: HashMap<Box<str>, ModelId>,
}

/// Why a request's model could not be resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelError {
    /// No worker serves that name.
    Unknown,
    /// The request names no model and the fleet serves more than one.
    Ambiguous,
}

impl Placement {
    /// Resolves the model a request names. A request without one is accepted while all workers
    /// serve one single model.
    pub fn resolve(&self, name: Option<&str>) -> Result<&ModelPlacement, ModelError> {
        match name {
            Some(name) => match self.names.get(name) {
                Some(id) => Some(&self.models[id.0 as usize])
                    .filter(|model| !model.members.is_empty())
                    .ok_or(ModelError::Unknown),
                None => Err(ModelError::Unknown),
            },
            None => {
                let mut served = self.models.iter().filter(|model| !model.members.is_empty());
                let first = served.next().ok_or(ModelError::Unknown)?;
                served.next().map_or(Ok(first), |_| Err(ModelError::Ambiguous))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(id: u32, name: &str, members: &[u32]) -> ModelPlacement {
        let members: Vec<_> =
            members.iter().map(|&slot| WorkerId { slot, generation: 0 }).collect();
        ModelPlacement {
            id: ModelId(id),
            name: name.into(),
            owner: 0,
            ready: members.clone(),
            members,
        }
    }

    fn placement(models: Vec<ModelPlacement>) -> Placement {
        let names = models.iter().map(|m| (Box::from(&*m.name), m.id)).collect();
        Placement { epoch: 1, models, names }
    }

    #[test]
    fn guards_count_up_and_down() {
        let in_flight = InFlight::default();
        let worker = WorkerId { slot: 3, generation: 1 };
        let (a, b) = (in_flight.begin(worker), in_flight.begin(worker));
        assert_eq!(in_flight.get(worker), 2);
        drop(a);
        assert_eq!(in_flight.get(worker), 1);
        drop(b);
        assert_eq!(in_flight.get(worker), 0);
    }

    #[test]
    fn a_model_name_is_matched_exactly() {
        let fleet = placement(vec![model(0, "a", &[0]), model(1, "b", &[1])]);
        assert_eq!(fleet.resolve(Some("b")).unwrap().id, ModelId(1));
        assert_eq!(fleet.resolve(Some("B")).unwrap_err(), ModelError::Unknown);
        assert_eq!(fleet.resolve(None).unwrap_err(), ModelError::Ambiguous);
    }

    #[test]
    fn one_single_model_needs_no_name() {
        let fleet = placement(vec![model(0, "a", &[0, 1]), model(1, "gone", &[])]);
        assert_eq!(fleet.resolve(None).unwrap().id, ModelId(0));
        assert_eq!(fleet.resolve(Some("gone")).unwrap_err(), ModelError::Unknown);
        assert_eq!(placement(vec![]).resolve(None).unwrap_err(), ModelError::Unknown);
    }
}
