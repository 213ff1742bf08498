//! The one writer of the fleet: which workers are registered, in what state, and the epochs made of
//! that.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use smg_core::fleet::{MAX_WORKERS, ModelId, ModelPlacement, Placement, WorkerId};
use smg_core::policy::PolicyKind;
use smg_core::rng::Rng;
use tracing::warn;

use super::loads::LoadReports;
use crate::config::WorkerUrl;
use crate::fleet::{Fleet, ModelPolicy, Wants, Worker, WorkerSpec, WorkerState};
use crate::messages::Message;
use crate::runtime::clock;
use crate::shared::Shared;

/// Longest reason kept of why a worker is not up, in bytes.
const MAX_REASON_BYTES: usize = 512;

/// What a worker's own task is woken for, the weightiest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// It is to be removed.
    Remove,
    /// Its spec changed.
    Changed,
    /// Something looks wrong, or may be right again: probe now.
    Probe,
}

/// A worker from the request to register it until it is gone.
pub struct Record {
    /// Name in the admin API.
    pub uuid: Arc<str>,
    /// What was asked for.
    pub spec: RefCell<Arc<WorkerSpec>>,
    /// Its registration, once it has one.
    pub id: Cell<Option<WorkerId>>,
    /// Why registration has not succeeded so far.
    pub last_error: RefCell<String>,
    /// Wakes the worker's task; what for is below, so that nothing is lost however often it rings.
    bell: async_channel::Sender<()>,
    changed: Cell<bool>,
    suspect: Cell<bool>,
    /// When it leaves the fleet, on [`clock::now_ms`], once its removal was asked for.
    leaves_at_ms: Cell<Option<u64>>,
}

impl Record {
    /// Wakes the worker's task to probe now.
    pub fn suspect(&self) {
        self.suspect.set(true);
        self.ring();
    }

    /// Replaces the spec; the worker's task publishes it.
    pub fn change(&self, spec: WorkerSpec) {
        self.spec.replace(Arc::new(spec));
        self.changed.set(true);
        self.ring();
    }

    /// Keeps why it is not up, as much of it as is of use: some of it may be the worker's own words.
    pub fn note_error(&self, mut reason: String) {
        if reason.len() > MAX_REASON_BYTES {
            reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
            reason.push_str(" ...");
        }
        self.last_error.replace(reason);
    }

    /// What its task is to do next. A removal stays.
    pub fn next_signal(&self) -> Option<Signal> {
        if self.leaves_at_ms.get().is_some() {
            Some(Signal::Remove)
        } else if self.changed.take() {
            Some(Signal::Changed)
        } else {
            self.suspect.take().then_some(Signal::Probe)
        }
    }

    /// How long until it leaves the fleet; `None` unless it is being removed.
    pub fn leaves_in(&self) -> Option<Duration> {
        let at_ms = self.leaves_at_ms.get()?;
        Some(Duration::from_millis(at_ms.saturating_sub(clock::now_ms())))
    }

    fn ring(&self) {
        // A full queue is a bell that rings already; a closed one a task that has ended.
        let _ = self.bell.try_send(());
    }
}

/// Owned by the control core.
pub struct Registry {
    shared: Arc<Shared>,
    records: HashMap<Arc<str>, Rc<Record>>,
    by_url: HashMap<WorkerUrl, Arc<str>>,
    workers: Vec<Option<Arc<Worker>>>,
    generations: Vec<u32>,
    /// Slots whose worker is gone, with when that was.
    free: Vec<usize>,
    models: Vec<Model>,
    epoch: u64,
    rng: Rng,
    dirty: bool,
    loads: Rc<RefCell<LoadReports>>,
}

struct Model {
    name: Arc<str>,
    /// Decided by the first worker, until the last one leaves.
    policy: ModelPolicy,
    members: Vec<WorkerId>,
}

/// Why a worker cannot be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddError {
    /// One with this URL is registered or being registered.
    Exists,
    /// One with this URL is being removed, and gone after this time.
    Leaving(Duration),
    /// [`MAX_WORKERS`] are registered.
    Full,
}

impl Registry {
    /// An empty fleet.
    pub fn new(shared: Arc<Shared>, loads: Rc<RefCell<LoadReports>>) -> Self {
        Self {
            shared,
            records: HashMap::new(),
            by_url: HashMap::new(),
            workers: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            models: Vec::new(),
            epoch: 0,
            rng: Rng::new(clock::seed()),
            dirty: true,
            loads,
        }
    }

    /// Notes a worker to be registered; its task is the caller's to start, and woken by `bell`.
    ///
    /// # Errors
    /// [`AddError`].
    pub fn add(
        &mut self,
        spec: WorkerSpec,
        bell: async_channel::Sender<()>,
    ) -> Result<Rc<Record>, AddError> {
        if let Some(uuid) = self.by_url.get(&spec.url) {
            let leaves_in = self.records.get(uuid).and_then(|record| record.leaves_in());
            return Err(leaves_in.map_or(AddError::Exists, AddError::Leaving));
        }
        if self.records.len() >= MAX_WORKERS {
            return Err(AddError::Full);
        }
        let uuid: Arc<str> = self.new_uuid().into();
        let record = Rc::new(Record {
            uuid: uuid.clone(),
            spec: RefCell::new(Arc::new(spec.clone())),
            id: Cell::default(),
            last_error: RefCell::default(),
            bell,
            changed: Cell::default(),
            suspect: Cell::default(),
            leaves_at_ms: Cell::default(),
        });
        self.by_url.insert(spec.url, uuid.clone());
        self.records.insert(uuid, record.clone());
        Ok(record)
    }

    /// The worker with this admin id.
    pub fn record(&self, uuid: &str) -> Option<&Rc<Record>> {
        self.records.get(uuid)
    }

    /// The registered worker.
    pub fn worker(&self, id: WorkerId) -> Option<&Arc<Worker>> {
        self.workers.get(id.slot as usize)?.as_ref().filter(|worker| worker.id == id)
    }

    /// The policy of a model.
    pub fn policy(&self, model: ModelId) -> PolicyKind {
        let model = self.models.get(model.0 as usize);
        model.map_or(self.shared.config.policy, |model| model.policy.kind)
    }

    /// The record behind a registration.
    pub fn record_of(&self, id: WorkerId) -> Option<&Rc<Record>> {
        let worker = self.workers.get(id.slot as usize)?.as_ref()?;
        (worker.id == id).then(|| self.records.get(&worker.uuid))?
    }

    /// Puts a worker that answered into the fleet, ready for requests.
    pub fn register(&mut self, record: &Record, addr: SocketAddr, model: &str) -> WorkerId {
        let spec = record.spec.borrow().clone();
        let model = self.model(model);
        self.settle_policy(model, &spec);
        let slot = self.take_slot();
        let id = WorkerId { slot: slot as u32, generation: self.generations[slot] };
        self.shared.breakers.reset(id);
        self.workers[slot] = Some(Arc::new(Worker {
            id,
            uuid: record.uuid.clone(),
            url: spec.url.clone(),
            addr,
            state: WorkerState::Ready,
            model,
            model_name: self.models[model.0 as usize].name.clone(),
            authorization: bearer(&spec),
            spec: spec.clone(),
        }));
        let entry = &mut self.models[model.0 as usize];
        entry.members.push(id);
        entry.policy.join(id, &spec.url);
        if entry.policy.kind == PolicyKind::Passthrough && entry.members.len() == 2 {
            warn!(target: "smg::workers", model = %entry.name,
                "policy passthrough sends every request to the first ready worker, and this model \
                 has more than one; choose another --policy to use them all");
        }
        record.id.set(Some(id));
        self.dirty = true;
        id
    }

    /// Replaces what is known about a registered worker; nothing when it has gone.
    pub fn change(&mut self, id: WorkerId, change: impl FnOnce(&mut Worker)) {
        let Some(worker) = self.workers.get_mut(id.slot as usize).and_then(Option::as_mut) else {
            return;
        };
        if worker.id == id {
            change(Arc::make_mut(worker));
            self.dirty = true;
        }
    }

    /// Moves a registered worker to `state`, unless it is being removed: nothing brings it back.
    pub fn set_state(&mut self, id: WorkerId, state: WorkerState) {
        self.change(id, |worker| {
            if worker.state != WorkerState::Draining {
                worker.state = state;
            }
        });
        if state != WorkerState::Ready {
            self.loads.borrow_mut().clear(id);
        }
    }

    /// Begins the removal of a worker: it gets no new request from this epoch on, and leaves the fleet
    /// once those already dispatched have gone out, which takes `settle` at most. One that has had no
    /// requests leaves at once.
    pub fn begin_removal(&mut self, record: &Record, settle: Duration) {
        if record.leaves_at_ms.get().is_some() {
            return;
        }
        let id = record.id.get();
        let ready = id
            .and_then(|id| self.worker(id))
            .is_some_and(|worker| worker.state == WorkerState::Ready);
        let settle_ms = if ready { settle.as_millis() as u64 } else { 0 };
        record.leaves_at_ms.set(Some(clock::now_ms().saturating_add(settle_ms)));
        if let Some(id) = id {
            self.set_state(id, WorkerState::Draining);
            self.publish();
        }
        record.ring();
    }

    /// Takes a new spec over into the published worker.
    pub fn apply_spec(&mut self, record: &Record) {
        let spec = record.spec.borrow().clone();
        if let Some(id) = record.id.get() {
            self.change(id, |worker| {
                worker.authorization = bearer(&spec);
                worker.spec = spec;
            });
        }
    }

    /// Removes a worker from the fleet and every index; its admin id is unknown from here on.
    pub fn remove(&mut self, record: &Record) {
        self.records.remove(&record.uuid);
        self.by_url.remove(&record.spec.borrow().url);
        let Some(id) = record.id.take() else { return };
        let slot = id.slot as usize;
        if let Some(worker) = self.workers[slot].take() {
            let model = &mut self.models[worker.model.0 as usize];
            model.members.retain(|&member| member != id);
            model.policy.leave(id);
        }
        self.loads.borrow_mut().clear(id);
        self.generations[slot] = self.generations[slot].wrapping_add(1);
        // A breaker that nobody closes would count for ever, and so would one that requests under way
        // open: they are of the generation before.
        let next = WorkerId { generation: self.generations[slot], ..id };
        self.shared.breakers.reset(next);
        self.free.push(slot);
        self.dirty = true;
        self.publish();
        let sender = self.shared.control_sender();
        for shard in 0..self.shared.shards() {
            // A shard whose mailbox is full learns of the removal from the generation instead: no
            // index entry of the old registration is ever eligible again.
            let _ = self.shared.mesh.send(sender, shard, Message::Forget(id));
        }
    }

    /// Names of models that have workers, with their ids.
    pub fn models(&self) -> impl Iterator<Item = (ModelId, &Arc<str>, usize)> {
        let models = self.models.iter().enumerate();
        models.map(|(at, model)| (ModelId(at as u32), &model.name, model.members.len()))
    }

    /// Publishes an epoch if anything changed since the last.
    pub fn publish(&mut self) {
        if !std::mem::take(&mut self.dirty) {
            return;
        }
        self.epoch += 1;
        let mut names: HashMap<Box<str>, ModelId> = HashMap::new();
        let mut models = Vec::with_capacity(self.models.len());
        for (at, model) in self.models.iter().enumerate() {
            let id = ModelId(at as u32);
            names.insert(Box::from(&*model.name), id);
            let ready = |&&member: &&WorkerId| {
                self.workers[member.slot as usize]
                    .as_ref()
                    .is_some_and(|worker| worker.state == WorkerState::Ready)
            };
            models.push(ModelPlacement {
                id,
                name: model.name.clone(),
                owner: at % self.shared.shards(),
                ready: model.members.iter().filter(ready).copied().collect(),
                members: model.members.clone(),
            });
        }
        for (alias, canonical) in &self.shared.config.model_aliases {
            if let Some(&id) = names.get(canonical.as_str()) {
                names.entry(alias.as_str().into()).or_insert(id);
            }
        }
        let ready = models.iter().map(|model| model.ready.len()).sum();
        let total = models.iter().map(|model| model.members.len()).sum();
        self.shared.fleet.store(Arc::new(Fleet {
            placement: Placement { epoch: self.epoch, models, names },
            workers: self.workers.clone(),
            policies: self.models.iter().map(|model| model.policy.clone()).collect(),
            wants: self.wants(),
            ready,
            total,
        }));
    }

    fn model(&mut self, name: &str) -> ModelId {
        let at = self.models.iter().position(|model| &*model.name == name).unwrap_or_else(|| {
            let policy = ModelPolicy::new(self.shared.config.policy);
            self.models.push(Model { name: name.into(), policy, members: Vec::new() });
            self.models.len() - 1
        });
        ModelId(at as u32)
    }

    /// The first worker of a model decides its policy by its label.
    fn settle_policy(&mut self, model: ModelId, spec: &WorkerSpec) {
        let entry = &mut self.models[model.0 as usize];
        if !entry.members.is_empty() {
            return;
        }
        let default = self.shared.config.policy;
        let label = spec.labels.get("policy").map(String::as_str);
        let kind = label.map_or(Ok(default), str::parse::<PolicyKind>).unwrap_or_else(|_| {
            warn!(target: "smg::workers", worker = %spec.url, label, policy = %default,
                "no policy has the name in the worker's label; its model takes --policy");
            default
        });
        if kind == PolicyKind::Bucket {
            warn!(target: "smg::workers", model = %entry.name,
                "policy bucket is for prefill workers; it chooses among these at random");
        }
        entry.policy = ModelPolicy::new(kind);
    }

    /// What decisions of the models served read of a request.
    fn wants(&self) -> Wants {
        let served = self.models.iter().filter(|model| !model.members.is_empty());
        served.fold(Wants::default(), |wants, model| wants.also(model.policy.kind))
    }

    /// A free slot. One with requests of its last worker still in flight stays taken, so that counts
    /// of two workers never mix.
    fn take_slot(&mut self) -> usize {
        let idle = self.free.iter().position(|&slot| {
            let last = WorkerId { slot: slot as u32, generation: 0 };
            self.shared.in_flight.get(last) == 0
        });
        if let Some(at) = idle {
            return self.free.swap_remove(at);
        }
        if self.workers.len() == MAX_WORKERS {
            // Every slot is taken by a worker or by requests of a removed one; share the oldest.
            return self.free.pop().unwrap_or(MAX_WORKERS - 1);
        }
        self.workers.push(None);
        self.generations.push(0);
        self.workers.len() - 1
    }

    fn new_uuid(&mut self) -> String {
        let (high, low) = (self.rng.next_u64(), self.rng.next_u64());
        // Version 4, variant 1 (RFC 9562 §5.4).
        format!(
            "{:08x}-{:04x}-4{:03x}-{:x}{:03x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            8 | (low >> 62),
            (low >> 48) & 0xfff,
            low & 0xffff_ffff_ffff
        )
    }
}

fn bearer(spec: &WorkerSpec) -> Option<Arc<[u8]>> {
    spec.api_key.as_ref().map(|key| format!("Bearer {}", key.expose()).into_bytes().into())
}
