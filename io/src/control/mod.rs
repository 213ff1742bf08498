//! The control plane: everything that is not on the path of a request. One thread, tasks in three
//! classes of urgency, the only writer of the fleet.

mod give_back;
pub mod http;
mod learn;
pub mod life;
pub mod loads;
pub mod on_glommio;
pub mod on_monoio;
pub mod pacing;
mod questions;
mod reasons;
pub mod registry;
pub mod resolver;
pub mod scrape;
pub mod seam;
mod secure;
mod start;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use smg_core::fleet::WorkerId;

use crate::config::{OverloadConfig, WorkerUrl};
use crate::fleet::WorkerSpec;
use crate::shared::Shared;
pub use learn::MODEL_LABELS;
use life::Life;
use loads::LoadReports;
use registry::{AddError, Registry};
use resolver::Resolver;
use seam::{Class, Runtime};

pub use start::{ControlSockets, start};

/// Commands waiting for the control core.
pub const COMMAND_QUEUE: usize = 4096;

/// What shards ask of the control core.
pub enum Command {
    /// Register a worker.
    Add { spec: WorkerSpec, reply: async_channel::Sender<Result<Arc<str>, AddError>> },
    /// Change what is known about a worker.
    Update { uuid: String, update: Update, reply: async_channel::Sender<Result<(), UpdateError>> },
    /// Drain and remove a worker; false when the id is unknown.
    Remove { uuid: String, reply: async_channel::Sender<bool> },
    /// A worker that is not registered yet: its spec and why, if the id is known.
    Pending { uuid: String, reply: async_channel::Sender<Option<(Arc<WorkerSpec>, String)>> },
    /// The latest load reports, as the body of `/get_loads`.
    Loads { reply: async_channel::Sender<Vec<u8>> },
    /// A worker refused a connection: probe it now.
    Suspect(WorkerId),
}

/// A change to a worker's spec.
pub enum Update {
    /// The whole spec anew, for the same URL.
    Replace(WorkerSpec),
    /// Only what is given.
    Patch {
        /// Must be the worker's own.
        url: Option<WorkerUrl>,
        priority: Option<u32>,
        cost: Option<f64>,
        labels: Vec<(String, String)>,
        api_key: Option<String>,
        overload: Option<OverloadConfig>,
    },
}

/// Why a worker was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateError {
    /// No worker has that id.
    NotFound,
    /// The change names another URL.
    OtherUrl,
    /// It is being removed, and gone after this time.
    Leaving(Duration),
}

/// State of the control core, shared by its tasks.
pub struct Control {
    shared: Arc<Shared>,
    registry: Rc<RefCell<Registry>>,
    resolver: Resolver,
    /// Health probes that succeeded and failed.
    probes: Rc<std::cell::Cell<(u64, u64)>>,
    /// Sizes of the indexes after the last sweep of each model.
    gauges: Rc<RefCell<pacing::TreeGauges>>,
    /// Load reports.
    loads: Rc<RefCell<LoadReports>>,
}

impl Control {
    fn new(shared: Arc<Shared>, resolver: Resolver, loads: LoadReports) -> Rc<Self> {
        let loads = Rc::new(RefCell::new(loads));
        Rc::new(Self {
            registry: Rc::new(RefCell::new(Registry::new(shared.clone(), loads.clone()))),
            loads,
            shared,
            resolver,
            probes: Rc::default(),
            gauges: Rc::default(),
        })
    }

    /// Starts the life of a worker.
    fn add<R: Runtime>(&self, runtime: R, spec: WorkerSpec) -> Result<Arc<str>, AddError> {
        let (ring, bell) = async_channel::bounded(1);
        let record = self.registry.borrow_mut().add(spec, ring)?;
        let uuid = record.uuid.clone();
        let life = Life {
            runtime,
            shared: self.shared.clone(),
            registry: self.registry.clone(),
            resolver: self.resolver.clone(),
            probes: self.probes.clone(),
            loads: self.loads.clone(),
            record,
            bell,
        };
        runtime.spawn(Class::Loads, life.run());
        Ok(uuid)
    }

    fn update(&self, uuid: &str, update: Update) -> Result<(), UpdateError> {
        let registry = self.registry.borrow();
        let record = registry.record(uuid).ok_or(UpdateError::NotFound)?;
        if let Some(leaves_in) = record.leaves_in() {
            return Err(UpdateError::Leaving(leaves_in));
        }
        let present = record.spec.borrow().clone();
        let next = match update {
            Update::Replace(spec) if spec.url != present.url => {
                return Err(UpdateError::OtherUrl);
            }
            Update::Patch { url: Some(url), .. } if url != present.url => {
                return Err(UpdateError::OtherUrl);
            }
            Update::Replace(spec) => spec,
            Update::Patch { url: _, priority, cost, labels, api_key, overload } => {
                let mut spec = WorkerSpec::clone(&present);
                spec.priority = priority.unwrap_or(spec.priority);
                spec.cost = cost.unwrap_or(spec.cost);
                spec.labels.extend(labels);
                spec.overload = overload.unwrap_or(spec.overload);
                if let Some(key) = api_key {
                    spec.api_key = Some(crate::config::Secret::new(key));
                }
                spec
            }
        };
        record.change(next);
        Ok(())
    }

    /// Begins the removal of a worker; false when the id is unknown.
    fn remove(&self, uuid: &str) -> bool {
        let mut registry = self.registry.borrow_mut();
        let Some(record) = registry.record(uuid).cloned() else { return false };
        let settle = Duration::from_secs(self.shared.config.shutdown.drain_settle_secs);
        registry.begin_removal(&record, settle);
        true
    }

    /// Serves commands until the process ends.
    async fn serve<R: Runtime>(
        self: Rc<Self>,
        runtime: R,
        commands: async_channel::Receiver<Command>,
    ) {
        while let Ok(command) = commands.recv().await {
            match command {
                Command::Add { spec, reply } => {
                    let _ = reply.try_send(self.add(runtime, spec));
                }
                Command::Update { uuid, update, reply } => {
                    let _ = reply.try_send(self.update(&uuid, update));
                }
                Command::Remove { uuid, reply } => {
                    let _ = reply.try_send(self.remove(&uuid));
                }
                Command::Pending { uuid, reply } => {
                    let registry = self.registry.borrow();
                    let pending = registry.record(&uuid).map(|record| {
                        (record.spec.borrow().clone(), record.last_error.borrow().clone())
                    });
                    let _ = reply.try_send(pending);
                }
                Command::Loads { reply } => {
                    let fleet = self.shared.fleet.load();
                    let page = loads::page(&fleet, self.loads.borrow().table());
                    let _ = reply.try_send(page);
                }
                Command::Suspect(id) => {
                    if let Some(record) = self.registry.borrow().record_of(id) {
                        record.suspect();
                    }
                }
            }
        }
    }
}
