//! The life of one worker on the control core: wait until it answers, learn what it serves, register
//! it, probe it, take it out and back, remove it.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smg_core::fleet::WorkerId;
use tracing::{info, warn};

use super::http::{MAX_DOCUMENT, Question, Reply, ask};
use super::learn::{Learned, MODEL_LABELS, ROUTES};
use super::loads::{LoadReports, Monitor};
use super::reasons::Reasons;
use super::registry::{Record, Registry, Signal};
use super::resolver::Resolver;
use super::seam::{Class, Runtime};
use crate::config::WorkerUrl;
use crate::fleet::{WorkerSpec, WorkerState};
use crate::runtime::descriptors;
use crate::shared::Shared;

/// First pause after a failed probe; it doubles up to the probe interval.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// For each question that learns what a worker serves.
const LEARN_TIMEOUT: Duration = Duration::from_secs(10);
/// Name of the model of a worker that does not say what it serves.
const UNKNOWN_MODEL: &str = "unknown";

/// What the life of a worker needs around it.
pub struct Life<R> {
    /// Runtime of the control core.
    pub runtime: R,
    /// Shared state.
    pub shared: Arc<Shared>,
    /// The fleet's one writer.
    pub registry: Rc<RefCell<Registry>>,
    /// Name lookups off this thread.
    pub resolver: Resolver,
    /// Counts probes: successes, failures.
    pub probes: Rc<std::cell::Cell<(u64, u64)>>,
    /// Load reports.
    pub loads: Rc<RefCell<LoadReports>>,
    /// The worker.
    pub record: Rc<Record>,
    /// Wakes this task to what [`Record::next_signal`] says.
    pub bell: async_channel::Receiver<()>,
}

enum Woken {
    Timer,
    Probe,
    Remove,
}

/// Why a probe was not answered well.
struct NotUp {
    reason: String,
    /// For want of something on this side.
    local: bool,
}

impl<R: Runtime> Life<R> {
    /// Lives it to the end.
    pub async fn run(self) {
        let Some((addr, model)) = self.wait_until_up().await else {
            self.registry.borrow_mut().remove(&self.record);
            return;
        };
        let id = {
            let mut registry = self.registry.borrow_mut();
            let id = registry.register(&self.record, addr, &model);
            registry.publish();
            id
        };
        self.watch_load(id);
        info!(target: "smg::workers", worker = %self.url(), model = %model, "worker registered");
        self.probe_until_removed(id, addr).await;
        self.drain().await;
        self.registry.borrow_mut().remove(&self.record);
        info!(target: "smg::workers", worker = %self.url(), "worker removed");
    }

    /// Starts asking the worker for its load.
    fn watch_load(&self, id: WorkerId) {
        let monitor = Monitor {
            runtime: self.runtime,
            shared: self.shared.clone(),
            registry: self.registry.clone(),
            reports: self.loads.clone(),
            id,
        };
        self.runtime.spawn(Class::Loads, monitor.run());
    }

    fn url(&self) -> WorkerUrl {
        self.record.spec.borrow().url.clone()
    }

    /// Asks until the worker is healthy; `None` when it is removed or the start-up time is over.
    async fn wait_until_up(&self) -> Option<(SocketAddr, String)> {
        let startup = self.shared.config.startup;
        let deadline = Instant::now() + Duration::from_secs(startup.worker_timeout_secs);
        let interval = Duration::from_secs(startup.worker_check_interval_secs);
        let mut logged = Reasons::default();
        loop {
            match self.probe().await {
                Ok(addr) => match self.learn(addr).await {
                    // It may have been removed while it was asked.
                    Ok(model) => {
                        return self.record.leaves_in().is_none().then_some((addr, model));
                    }
                    Err(reason) => self.is_not_up(&mut logged, reason),
                },
                Err(NotUp { reason, .. }) => self.is_not_up(&mut logged, reason),
            }
            if Instant::now() + interval > deadline {
                warn!(target: "smg::workers", worker = %self.url(),
                    reason = %self.record.last_error.borrow(),
                    "worker did not come up within --worker-startup-timeout-secs; giving up on it");
                return None;
            }
            if matches!(self.sleep(interval).await, Woken::Remove) {
                return None;
            }
        }
    }

    fn is_not_up(&self, logged: &mut Reasons, reason: String) {
        self.record.note_error(reason);
        let reason = self.record.last_error.borrow();
        if logged.is_news(&reason, Instant::now()) {
            info!(target: "smg::workers", worker = %self.url(), %reason, "worker is not up yet");
        }
    }

    async fn probe_until_removed(&self, id: WorkerId, mut addr: SocketAddr) {
        let health = &self.shared.config.health;
        let interval = Duration::from_secs(health.interval_secs);
        let (mut ready, mut successes, mut failures) = (true, 0, 0u32);
        let mut pause = interval;
        loop {
            if matches!(self.sleep(pause).await, Woken::Remove) {
                return;
            }
            if !health.enabled {
                continue;
            }
            let probed = self.probe().await;
            if self.record.leaves_in().is_some() {
                return;
            }
            match probed {
                Ok(now_at) => {
                    (successes, failures) = (successes + 1, 0);
                    if now_at != addr {
                        addr = now_at;
                        self.registry.borrow_mut().change(id, |worker| worker.addr = now_at);
                    }
                }
                Err(NotUp { reason, local: true }) => {
                    // Says nothing about the worker.
                    self.record.note_error(reason);
                    pause = FIRST_RETRY.min(interval);
                    continue;
                }
                Err(NotUp { reason, .. }) => {
                    (successes, failures) = (0, failures.saturating_add(1));
                    self.record.note_error(reason);
                }
            }
            if ready && failures >= health.failure_threshold {
                ready = false;
                warn!(target: "smg::workers", worker = %self.url(),
                    reason = %self.record.last_error.borrow(), failures, "worker taken out");
                self.registry.borrow_mut().set_state(id, WorkerState::NotReady);
            } else if !ready && successes >= health.success_threshold {
                ready = true;
                info!(target: "smg::workers", worker = %self.url(), "worker is back");
                self.registry.borrow_mut().set_state(id, WorkerState::Ready);
                self.shared.breakers.reset(id);
            }
            self.registry.borrow_mut().publish();
            pause = match (failures, ready) {
                (0, true) => interval,
                (0, false) => FIRST_RETRY.min(interval),
                (failures, _) => {
                    (FIRST_RETRY * 2u32.saturating_pow((failures - 1).min(16))).min(interval)
                }
            };
        }
    }

    /// Lets dispatches already under way go out before the worker leaves the fleet.
    async fn drain(&self) {
        self.runtime.sleep(self.record.leaves_in().unwrap_or_default()).await;
    }

    async fn sleep(&self, duration: Duration) -> Woken {
        let signal = async {
            loop {
                while let Some(signal) = self.record.next_signal() {
                    match signal {
                        Signal::Remove => return Woken::Remove,
                        Signal::Probe => return Woken::Probe,
                        Signal::Changed => {
                            let mut registry = self.registry.borrow_mut();
                            registry.apply_spec(&self.record);
                            registry.publish();
                        }
                    }
                }
                if self.bell.recv().await.is_err() {
                    return Woken::Remove;
                }
            }
        };
        let timer = async {
            self.runtime.sleep(duration).await;
            Woken::Timer
        };
        futures_lite::future::or(signal, timer).await
    }

    /// One health probe; the address it went to.
    async fn probe(&self) -> Result<SocketAddr, NotUp> {
        let limit = Duration::from_secs(self.shared.config.health.timeout_secs);
        let url = self.url();
        let outcome = async {
            let theirs = |reason| NotUp { reason, local: false };
            let addr = self.resolver.resolve(&url).await.map_err(theirs)?;
            let path = self.shared.config.health.endpoint.clone();
            let reply = self.ask(addr, &path, limit).await.map_err(|error| NotUp {
                reason: error.to_string(),
                local: descriptors::is_local_shortage(&error),
            })?;
            match reply.status {
                200 => Ok(addr),
                status => Err(theirs(format!("{path} answered {status}"))),
            }
        }
        .await;
        let (good, bad) = self.probes.get();
        self.probes.set(if outcome.is_ok() { (good + 1, bad) } else { (good, bad + 1) });
        outcome
    }

    async fn ask(&self, addr: SocketAddr, path: &str, limit: Duration) -> std::io::Result<Reply> {
        let spec = self.record.spec.borrow().clone();
        let authorization = spec.api_key.as_ref().map(|key| format!("Bearer {}", key.expose()));
        let path = format!("{}{path}", spec.url.base_path());
        let question = Question {
            method: "GET",
            addr,
            url: &spec.url,
            tls: &self.shared.tls.workers,
            path: &path,
            authorization: authorization.as_deref().map(str::as_bytes),
            most: MAX_DOCUMENT,
        };
        ask(self.runtime, question, limit).await
    }

    /// What the worker serves: told at registration, or learned from the engine's own routes. An engine
    /// without such routes serves [`UNKNOWN_MODEL`]; one that fails to answer them, or answers what is
    /// too long, is asked again, since it would be registered under that name for good.
    async fn learn(&self, addr: SocketAddr) -> Result<String, String> {
        let mut learned = Learned::default();
        let (mut unanswered, mut refused) = (None, None);
        for path in ROUTES {
            match self.ask(addr, path, LEARN_TIMEOUT).await {
                Ok(reply) if reply.status == 200 => {
                    if let Err(reason) = learned.take(path, &reply.body) {
                        refused.get_or_insert(reason);
                    }
                }
                Ok(reply) if reply.status >= 500 && reply.status != 501 => {
                    unanswered.get_or_insert(format!("{path} answered {}", reply.status));
                }
                // It has no such route, or does not show it to us.
                Ok(_) => {}
                // What is said there is not needed once the model is known.
                Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                    if learned.model.is_none() {
                        refused.get_or_insert(error.to_string());
                    }
                }
                Err(error) => {
                    unanswered.get_or_insert(format!("{path}: {error}"));
                }
            }
        }
        let mut spec = WorkerSpec::clone(&self.record.spec.borrow());
        let told = spec
            .model
            .clone()
            .or_else(|| MODEL_LABELS.iter().find_map(|label| spec.labels.get(*label).cloned()));
        let model = match (told, refused, learned.model, unanswered) {
            (Some(model), ..) | (None, None, Some(model), _) => model,
            (None, Some(reason), ..) | (None, None, None, Some(reason)) => {
                return Err(format!("its model is not known yet: {reason}"));
            }
            (None, None, None, None) => UNKNOWN_MODEL.to_owned(),
        };
        spec.runtime = spec.runtime.or(learned.runtime);
        for (label, value) in learned.labels {
            spec.labels.entry(label).or_insert(value);
        }
        self.record.spec.replace(Arc::new(spec));
        Ok(model)
    }
}
