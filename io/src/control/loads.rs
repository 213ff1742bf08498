//! The load monitor: asks every ready worker for its load in a task of its own, so that a slow one
//! delays nobody, and publishes what was heard as epochs. Workers are asked at one moment
//! ([`smg_core::policy::load_rounds`]).
//!
//! A worker is asked for `/v1/loads`, and, where an engine has no such route, for its own `/metrics`.
//! Its report leaves the epochs when a poll fails, when it is not ready any more and when it is
//! removed (smg-cache-aware.md §8.6–8.8).

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use smg_core::fleet::WorkerId;
use smg_core::policy::LoadTable;
use smg_core::policy::load_report::{
    LoadReport, OverloadThresholds, RankLoad, parse_engine_metrics, parse_loads,
};
use smg_core::policy::load_rounds::{Rounds, publish_pause};
use tracing::warn;

use super::http::{MAX_PAGE, Question, Reply, ask};
use super::registry::Registry;
use super::seam::Runtime;
use crate::fleet::{Fleet, Worker, WorkerState};
use crate::runtime::seldom::Seldom;
use crate::shared::Shared;

/// For one worker's report.
const POLL_TIMEOUT: Duration = Duration::from_secs(5);
/// What is asked first.
const LOADS_PATH: &str = "/v1/loads?include=core,disagg,queues,memory";
/// Largest answer to that, in bytes: a kilobyte for each of 4096 ranks.
const MAX_LOADS: usize = 4 << 20;
/// Between two warnings about answers of one worker that are too large.
const WARN_EVERY: Duration = Duration::from_secs(600);

/// The reports of all workers, and the bell that has them published.
pub struct LoadReports {
    table: LoadTable,
    rounds: Rounds,
    started: Instant,
    changed: async_channel::Sender<()>,
}

impl LoadReports {
    /// No reports yet, rounds of questions every `interval` from now on, and what [`publish`] listens
    /// to.
    pub fn new(interval: Duration) -> (Self, async_channel::Receiver<()>) {
        let (changed, heard) = async_channel::bounded(1);
        let (table, rounds) = (LoadTable::default(), Rounds::new(interval));
        (Self { table, rounds, started: Instant::now(), changed }, heard)
    }

    /// Reports by worker, rank by rank.
    pub fn table(&self) -> &LoadTable {
        &self.table
    }

    /// Forgets the report of a worker.
    pub fn clear(&mut self, worker: WorkerId) {
        if self.table.get(worker).is_some() {
            self.table.clear(worker);
            self.ring();
        }
    }

    fn enter(&mut self, worker: WorkerId, report: LoadReport, overload: &OverloadThresholds) {
        self.table.enter(worker, report, overload);
        self.ring();
    }

    /// While a round is gathered, how long to wait before looking again.
    fn gathering(&self) -> Option<Duration> {
        self.rounds.gathering(self.started.elapsed())
    }

    /// The round after `last` in which `worker` is asked, and how long until then.
    fn next_round(&self, last: u64, worker: WorkerId) -> (u64, Duration) {
        let now = self.started.elapsed();
        let (round, at) = self.rounds.next(last, worker.slot, now);
        (round, at.saturating_sub(now))
    }

    fn ring(&self) {
        // A full queue is a bell that rings already.
        let _ = self.changed.try_send(());
    }
}

/// Publishes an epoch when reports changed: after a round, when it is gathered; at other times at once,
/// and further ones at most every few milliseconds.
pub async fn publish<R: Runtime>(
    runtime: R,
    shared: Arc<Shared>,
    reports: Rc<RefCell<LoadReports>>,
    changed: async_channel::Receiver<()>,
) {
    while changed.recv().await.is_ok() {
        loop {
            let Some(pause) = reports.borrow().gathering() else { break };
            runtime.sleep(pause).await;
        }
        let loads = reports.borrow_mut().table.publish();
        shared.loads.store(Arc::new(loads));
        let workers = shared.fleet.load().total;
        runtime.sleep(publish_pause(workers)).await;
    }
}

/// Asks one worker for its load until it is removed.
pub struct Monitor<R> {
    /// Runtime of the control core.
    pub runtime: R,
    /// Shared state.
    pub shared: Arc<Shared>,
    /// Who is registered, in what state.
    pub registry: Rc<RefCell<Registry>>,
    /// Where reports go.
    pub reports: Rc<RefCell<LoadReports>>,
    /// The worker.
    pub id: WorkerId,
}

/// What came of asking one route.
enum Heard {
    Report(LoadReport),
    /// The engine does not have the route.
    NoRoute,
    /// Nothing can be said.
    Failed,
}

/// What a monitor knows of its worker from earlier questions.
struct Learned {
    /// The engine has no `/v1/loads`.
    no_loads_route: bool,
    warnings: Seldom,
}

impl Default for Learned {
    fn default() -> Self {
        Self { no_loads_route: false, warnings: Seldom::new(WARN_EVERY) }
    }
}

impl Learned {
    /// Says that an answer was too large.
    fn warn(&mut self, worker: &Worker, error: &io::Error) {
        if self.warnings.is_due() {
            warn!(target: "smg::workers", worker = %worker.url, reason = %error,
                "what the worker says about its load is not read");
        }
    }
}

impl<R: Runtime> Monitor<R> {
    /// Asks at once and then in every round.
    pub async fn run(self) {
        let mut round = 0;
        let mut learned = Learned::default();
        loop {
            let Some(worker) = self.worker() else { return };
            if worker.state == WorkerState::Ready && self.is_read(&worker) {
                self.reports.borrow_mut().rounds.asked(self.id.slot);
                self.poll(&worker, &mut learned).await;
                self.reports.borrow_mut().rounds.answered();
            } else {
                // Another version may return.
                learned.no_loads_route = false;
                self.reports.borrow_mut().clear(self.id);
            }
            let pause;
            (round, pause) = self.reports.borrow().next_round(round, self.id);
            self.runtime.sleep(pause).await;
        }
    }

    fn worker(&self) -> Option<Arc<Worker>> {
        self.registry.borrow().worker(self.id).cloned()
    }

    /// Whether somebody reads the reports of `worker`.
    fn is_read(&self, worker: &Worker) -> bool {
        let monitor = self.shared.config.load_monitor;
        let overload = thresholds(&self.shared, worker);
        !monitor.only_if_needed
            || monitor.engine_metrics
            || overload != OverloadThresholds::default()
            || self.registry.borrow().policy(worker.model).reads_loads()
    }

    async fn poll(&self, worker: &Worker, learned: &mut Learned) {
        let report = self.report(worker, learned).await;
        // It may have been taken out, drained or removed while it was asked.
        let now = self.worker().filter(|worker| worker.state == WorkerState::Ready);
        let mut reports = self.reports.borrow_mut();
        match (report, now) {
            (Some(report), Some(worker)) => {
                reports.enter(self.id, report, &thresholds(&self.shared, &worker));
            }
            _ => reports.clear(self.id),
        }
    }

    async fn report(&self, worker: &Worker, learned: &mut Learned) -> Option<LoadReport> {
        if !learned.no_loads_route {
            let parse = |mut body: Vec<u8>| parse_loads(&mut body);
            match self.ask(worker, LOADS_PATH, MAX_LOADS, parse).await {
                Ok(Heard::Report(report)) => return Some(report),
                Ok(Heard::NoRoute) => learned.no_loads_route = true,
                Ok(Heard::Failed) => {}
                Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                    learned.warn(worker, &error);
                }
                // It will not answer another question either.
                Err(_) => return None,
            }
        }
        let parse = |body: Vec<u8>| parse_engine_metrics(&body);
        match self.ask(worker, "/metrics", MAX_PAGE, parse).await {
            Ok(Heard::Report(report)) => Some(report),
            // Asked again: an engine may publish its numbers only once it is warm.
            Ok(Heard::NoRoute | Heard::Failed) => None,
            Err(error) => {
                if error.kind() == ErrorKind::FileTooLarge {
                    learned.warn(worker, &error);
                }
                None
            }
        }
    }

    async fn ask(
        &self,
        worker: &Worker,
        path: &str,
        most: usize,
        parse: impl FnOnce(Vec<u8>) -> Option<LoadReport>,
    ) -> io::Result<Heard> {
        let path = format!("{}{path}", worker.url.base_path());
        let question = Question {
            method: "GET",
            addr: worker.addr,
            url: &worker.url,
            tls: &self.shared.tls.workers,
            path: &path,
            authorization: worker.authorization.as_deref(),
            most,
        };
        let reply = ask(self.runtime, question, POLL_TIMEOUT).await?;
        Ok(heard(reply, parse))
    }
}

fn heard(reply: Reply, parse: impl FnOnce(Vec<u8>) -> Option<LoadReport>) -> Heard {
    match reply.status {
        200 => parse(reply.body).map_or(Heard::NoRoute, Heard::Report),
        404 | 405 | 501 => Heard::NoRoute,
        _ => Heard::Failed,
    }
}

/// The fleet's thresholds, with the worker's own in their place signal by signal.
fn thresholds(shared: &Shared, worker: &Worker) -> OverloadThresholds {
    let (own, fleet) = (worker.spec.overload, shared.config.overload);
    OverloadThresholds {
        waiting_requests: own.waiting_requests.or(fleet.waiting_requests),
        token_usage: own.token_usage.or(fleet.token_usage),
    }
}

/// The body of `/get_loads`: the latest report of every worker. `load` is the number of tokens in its
/// KV caches, -1 when it does not say.
pub fn page(fleet: &Fleet, table: &LoadTable) -> Vec<u8> {
    let workers: Vec<Value> = fleet
        .iter()
        .map(|worker| {
            let report = table.get(worker.id);
            let mut entry = json!({"worker": worker.url.as_str(), "load": load(report)});
            if let Some(report) = report {
                let loads: Vec<Value> = report.ranks.iter().map(rank).collect();
                entry["details"] = json!({"dp_rank_count": loads.len(), "loads": loads});
                entry["overloaded"] = table.overloaded(worker.id).into();
            }
            entry
        })
        .collect();
    json!({ "workers": workers }).to_string().into_bytes()
}

fn load(report: Option<&LoadReport>) -> i64 {
    let says = |report: &&LoadReport| {
        report.ranks.iter().any(|rank| rank.used_tokens > 0.0 || rank.max_total_tokens > 0.0)
    };
    report.filter(says).map_or(-1, |report| report.used_tokens() as i64)
}

/// A rank under the names of `/v1/loads`.
fn rank(rank: &RankLoad) -> Value {
    let mut value = json!({
        "dp_rank": rank.dp_rank,
        "num_running_reqs": rank.running_requests,
        "num_waiting_reqs": rank.waiting_requests,
        "num_waiting_uncached_tokens": rank.waiting_uncached_tokens,
        "num_total_reqs": rank.total_requests,
        "num_used_tokens": rank.used_tokens,
        "max_total_num_tokens": rank.max_total_tokens,
        "token_usage": rank.token_usage,
        "gen_throughput": rank.gen_throughput,
        "cache_hit_rate": rank.cache_hit_rate,
        "utilization": rank.utilization,
        "max_running_requests": rank.max_running_requests,
    });
    for (name, number) in [
        ("kv_transfer_latency_ms", rank.kv_transfer_latency_ms),
        ("kv_transfer_speed_gb_s", rank.kv_transfer_speed_gb_s),
        ("prefill_queue_reqs", rank.prefill_queue_requests),
        ("decode_queue_reqs", rank.decode_queue_requests),
    ] {
        if let Some(number) = number {
            value[name] = number.into();
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, body: &str) -> Heard {
        let reply = Reply { status, body: body.as_bytes().to_vec() };
        heard(reply, |mut body| parse_loads(&mut body))
    }

    #[test]
    fn a_route_is_absent_when_the_engine_says_so_or_answers_something_else() {
        assert!(matches!(reply(200, r#"{"loads":[{}]}"#), Heard::Report(_)));
        for status in [404, 405, 501] {
            assert!(matches!(reply(status, ""), Heard::NoRoute), "{status}");
        }
        assert!(matches!(reply(200, "<html>"), Heard::NoRoute));
        for status in [301, 401, 429, 500, 503] {
            assert!(matches!(reply(status, r#"{"loads":[{}]}"#), Heard::Failed), "{status}");
        }
    }

    #[test]
    fn load_is_tokens_in_use_or_minus_one() {
        let report = |used_tokens, max_total_tokens| LoadReport {
            ranks: vec![RankLoad { used_tokens, max_total_tokens, ..RankLoad::default() }; 2],
        };
        assert_eq!(load(None), -1);
        assert_eq!(load(Some(&report(0.0, 0.0))), -1);
        assert_eq!(load(Some(&report(0.0, 4096.0))), 0);
        assert_eq!(load(Some(&report(700.0, 0.0))), 1400);
    }

    #[test]
    fn one_bell_for_many_changes() {
        let (mut reports, changed) = LoadReports::new(Duration::from_secs(10));
        let worker = WorkerId { slot: 2, generation: 0 };
        let report = LoadReport { ranks: vec![RankLoad::default()] };
        for _ in 0..3 {
            reports.enter(worker, report.clone(), &OverloadThresholds::default());
        }
        assert_eq!(changed.len(), 1);
        assert!(changed.try_recv().is_ok());
        reports.clear(WorkerId { generation: 1, ..worker });
        assert!(changed.is_empty(), "nothing was forgotten");
        reports.clear(worker);
        assert!(changed.try_recv().is_ok());
    }
}
