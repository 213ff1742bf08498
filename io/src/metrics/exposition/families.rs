//! Every family the gateway exposes, summed over its shards.

use smg_core::policy::LoadTable;
use smg_core::prompt::Endpoint;

use super::{Family, Text};
use crate::config::PolicyName;
use crate::control::pacing::TreeGauges;
use crate::fleet::{Fleet, ModelPolicy, Worker, WorkerState};
use crate::http::answer::ErrorCode;
use crate::http::route::{METHOD_LABELS, Route};
use crate::messages::SweepReport;
use crate::metrics::cell::HistogramTotal;
use crate::metrics::cells::{CellsView, MODEL_LABELS, RATIO_BOUNDS};
use crate::metrics::{
    AGE_BOUNDS_SECS, BranchFamily, Counter, ErrorKind, HandshakeFailure, Histogram, Lent,
    ShardCells, WorkerErrorKind,
};
use crate::shared::Shared;

/// Labels that every router metric carries for HTTP workers.
const REGULAR: [(&str, &str); 3] =
    [("router_type", "http"), ("backend_type", "regular"), ("connection_mode", "http")];

/// Name, help and value of a family whose samples are made alike.
struct Named<F>(&'static str, &'static str, F);

type CountOf = fn(&ShardCells) -> u64;
type CountsOf = fn(&ShardCells) -> &[Counter];
type WorkerValue<'a> = &'a dyn Fn(&Worker) -> f64;
type SweptValue = fn(&SweepReport) -> f64;

/// Writes the whole page.
pub fn write_all(
    text: &mut Text,
    shared: &Shared,
    probes: (u64, u64),
    trees: &TreeGauges,
    loads: &LoadTable,
) {
    let page = Page { shared, shards: &shared.cells.shards, fleet: &shared.fleet.load() };
    page.process(text);
    page.http(text);
    page.router(text);
    page.workers(text, probes);
    page.cache_aware(text, trees);
    page.other_policies(text);
    super::streams::write(text, &page);
    super::breakers::write(text, &page);
    super::admission::write(text, shared);
    super::reloads::write(text, shared);
    super::engines::write(text, page.fleet, loads);
    super::process::write(text);
}

/// What a page is made from.
pub(super) struct Page<'a> {
    pub shared: &'a Shared,
    shards: &'a [ShardCells],
    pub fleet: &'a Fleet,
}

impl Page<'_> {
    fn views(&self) -> impl Iterator<Item = CellsView<'_>> {
        self.shards.iter().map(ShardCells::read)
    }

    /// A count over all shards.
    pub(super) fn sum(&self, cell: impl Fn(&ShardCells) -> u64) -> u64 {
        self.shards.iter().map(cell).fold(0, u64::saturating_add)
    }

    /// A histogram over all shards.
    pub(super) fn total<'b>(
        &'b self,
        of: impl Fn(CellsView<'b>) -> Option<&'b Histogram>,
    ) -> HistogramTotal {
        let mut total = HistogramTotal::default();
        for view in self.views() {
            if let Some(histogram) = of(view) {
                histogram.add_to(&mut total);
            }
        }
        total
    }

    fn process(&self, text: &mut Text) {
        text.family("smg_build_info", Family::Gauge, "Version of this gateway.");
        text.sample("smg_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        text.family(
            "smg_io_driver",
            Family::Gauge,
            "I/O driver of each ring, and why not a better one.",
        );
        for (ring, report) in self.shared.drivers.load().iter() {
            let labels =
                [("ring", ring.as_str()), ("driver", report.driver), ("reason", &report.reason)];
            text.sample("smg_io_driver", &labels, 1.0);
        }
        text.family("smg_shards", Family::Gauge, "Shards of the data plane.");
        text.sample("smg_shards", &[], self.shards.len() as f64);
        let memory = &self.shared.body_memory;
        let name = "smg_body_memory_bytes";
        text.family(name, Family::Gauge, "Memory of request bodies, of those that are counted.");
        text.sample(name, &[], memory.held() as f64);
        let name = "smg_body_memory_limit_bytes";
        text.family(name, Family::Gauge, "Most of it: --max-body-memory.");
        text.sample(name, &[], memory.limit() as f64);
        let counters: [Named<CountOf>; 3] = [
            Named("smg_connection_panics_total", "Connection tasks ended by a panic.", |cells| {
                cells.panics.get()
            }),
            Named(
                "smg_connections_refused_total",
                "Client connections answered 503 for want of a place.",
                |cells| cells.connections_refused.get(),
            ),
            Named(
                "smg_owner_overloaded_total",
                "Decisions made on load alone because the owner's mailbox was full.",
                |cells| cells.owner_overloaded.get(),
            ),
        ];
        for Named(name, help, cell) in counters {
            text.family(name, Family::Counter, help);
            text.sample(name, &[], self.sum(cell) as f64);
        }
        let name = "smg_bodies_lent_total";
        text.family(name, Family::Counter, "Request bodies read by the pool, by reason.");
        for reason in Lent::ALL {
            let count = self.sum(|cells| cells.lent[reason as usize].get());
            text.sample(name, &[("reason", reason.label())], count as f64);
        }
        let name = "smg_tls_handshake_failures_total";
        text.family(name, Family::Counter, "TLS handshakes of clients that came to nothing.");
        for reason in HandshakeFailure::ALL {
            let count = self.sum(|cells| cells.handshake_failures[reason as usize].get());
            text.sample(name, &[("reason", reason.label())], count as f64);
        }
    }

    fn http(&self, text: &mut Text) {
        let name = "smg_http_requests_total";
        text.family(name, Family::Counter, "Requests read, by method and route.");
        for route in 0..Route::COUNT {
            for (method, label) in METHOD_LABELS.iter().enumerate() {
                let count = self.sum(|cells| cells.requests[route][method].get());
                if count > 0 {
                    let labels = [("method", *label), ("path", Route::template_at(route))];
                    text.sample(name, &labels, count as f64);
                }
            }
        }
        let name = "smg_http_responses_total";
        text.family(
            name,
            Family::Counter,
            "Answers, by route, status and the gateway's error code.",
        );
        for route in 0..Route::COUNT {
            self.responses(text, name, route);
        }
        let name = "smg_http_request_duration_seconds";
        text.family(name, Family::Histogram, "Time to the head of the answer.");
        let bounds = &self.shared.config.prometheus.duration_buckets;
        for route in 0..Route::COUNT {
            for (method, label) in METHOD_LABELS.iter().enumerate() {
                let total = self.total(|view| view.durations(route, method));
                let labels = [("method", *label), ("path", Route::template_at(route))];
                text.histogram(name, &labels, bounds, &total);
            }
        }
        let name = "smg_http_connections_active";
        text.family(name, Family::Gauge, "Requests whose answer has not ended.");
        text.sample(name, &[], self.shared.requests_active() as f64);
        self.ages(text);
        let name = "smg_client_connections";
        text.family(name, Family::Gauge, "Open client connections.");
        let open: i64 = self.shards.iter().map(|cells| cells.connections.get()).sum();
        text.sample(name, &[], open as f64);
    }

    fn ages(&self, text: &mut Text) {
        let name = "smg_http_inflight_request_age_count";
        let help = "Requests whose answer has not ended, by age in seconds at the last look.";
        text.family(name, Family::Gauge, help);
        let bounds = AGE_BOUNDS_SECS.map(|secs| secs.to_string());
        for at in 0..=bounds.len() {
            let above = at.checked_sub(1).map_or("0", |before| &bounds[before]);
            let up_to = bounds.get(at).map_or("+Inf", String::as_str);
            let count: i64 = self.shards.iter().map(|cells| cells.ages[at].get()).sum();
            text.sample(name, &[("gt", above), ("le", up_to)], count as f64);
        }
    }

    fn responses(&self, text: &mut Text, name: &str, route: usize) {
        let path = Route::template_at(route);
        let mut statuses = vec![0u64; 500];
        let mut codes = [0u64; ErrorCode::ALL.len()];
        for view in self.views() {
            add(&mut statuses, view.responses(route));
            add(&mut codes, view.errors(route));
        }
        for (at, &count) in statuses.iter().enumerate().filter(|(_, count)| **count > 0) {
            let status = (at + 100).to_string();
            let labels = [("path", path), ("status_code", status.as_str()), ("error_code", "")];
            text.sample(name, &labels, count as f64);
        }
        for (code, &count) in ErrorCode::ALL.iter().zip(&codes).filter(|(_, count)| **count > 0) {
            let status = code.status().to_string();
            let labels =
                [("path", path), ("status_code", status.as_str()), ("error_code", code.code())];
            text.sample(name, &labels, count as f64);
        }
    }

    /// Names of the models that have a label of their own, and `other` at the end.
    pub(super) fn model_labels(&self) -> impl Iterator<Item = (usize, &str)> {
        let models = &self.fleet.placement.models;
        let own = models.iter().take(MODEL_LABELS).map(|model| &*model.name);
        own.enumerate().chain(std::iter::once((MODEL_LABELS, "other")))
    }

    fn router(&self, text: &mut Text) {
        let name = "smg_router_requests_total";
        text.family(name, Family::Counter, "Requests routed, by model and endpoint.");
        for (model, label) in self.model_labels() {
            for endpoint in Endpoint::ALL {
                for (streaming, value) in ["false", "true"].into_iter().enumerate() {
                    let count = self.sum(|cells| {
                        cells
                            .read()
                            .model(model)
                            .map_or(0, |cells| cells.requests[endpoint as usize][streaming].get())
                    });
                    if count > 0 {
                        let labels = router_labels(label, endpoint);
                        let labels = [&labels[..], &[("streaming", value)]].concat();
                        text.sample(name, &labels, count as f64);
                    }
                }
            }
        }
        let name = "smg_router_request_duration_seconds";
        text.family(name, Family::Histogram, "Time to the head of a relayed answer.");
        let bounds = &self.shared.config.prometheus.duration_buckets;
        for (model, label) in self.model_labels() {
            for endpoint in Endpoint::ALL {
                let total = self.total(|view| view.model_duration(model, endpoint as usize));
                text.histogram(name, &router_labels(label, endpoint), bounds, &total);
            }
        }
        let name = "smg_router_request_errors_total";
        text.family(name, Family::Counter, "Requests that ended in an error.");
        for (model, label) in self.model_labels() {
            for endpoint in Endpoint::ALL {
                for kind in ErrorKind::ALL {
                    let count = self.sum(|cells| {
                        cells
                            .read()
                            .model(model)
                            .map_or(0, |cells| cells.errors[endpoint as usize][kind as usize].get())
                    });
                    if count > 0 {
                        let labels = router_labels(label, endpoint);
                        let labels = [&labels[..], &[("error_type", kind.label())]].concat();
                        text.sample(name, &labels, count as f64);
                    }
                }
            }
        }
        self.upstream(text);
    }

    fn upstream(&self, text: &mut Text) {
        let name = "smg_router_upstream_responses_total";
        text.family(name, Family::Counter, "Answers of workers, per attempt.");
        let mut statuses = vec![0u64; 500];
        for view in self.views() {
            add(&mut statuses, Some(view.upstream_responses()));
        }
        for (at, &count) in statuses.iter().enumerate().filter(|(_, count)| **count > 0) {
            let status = (at + 100).to_string();
            let labels =
                [("router_type", "http"), ("status_code", status.as_str()), ("error_code", "")];
            text.sample(name, &labels, count as f64);
        }
        let name = "smg_router_upstream_send_retries_total";
        let help = "Requests sent again at once because a pooled connection had been closed.";
        text.family(name, Family::Counter, help);
        let count = self.sum(|cells| cells.upstream_send_retries.get());
        text.sample(name, &[("router_type", "http")], count as f64);
        let name = "smg_worker_retry_backoff_seconds";
        text.family(name, Family::Histogram, "Pauses before retries, by number of the retry.");
        let bounds = &self.shared.config.prometheus.duration_buckets;
        for at in 0..ShardCells::BACKOFFS {
            let total = self.total(|view| view.backoffs(at));
            text.histogram(name, &[("attempt", &(at + 1).to_string())], bounds, &total);
        }
        let retries: [Named<CountsOf>; 2] = [
            Named("smg_worker_retries_total", "Attempts after the first.", |cells| &cells.retries),
            Named(
                "smg_worker_retries_exhausted_total",
                "Requests whose last attempt failed too.",
                |cells| &cells.retries_exhausted,
            ),
        ];
        for Named(name, help, cells_of) in retries {
            text.family(name, Family::Counter, help);
            for endpoint in Endpoint::ALL {
                let count = self.sum(|cells| cells_of(cells)[endpoint as usize].get());
                if count > 0 {
                    let labels = [("worker_type", "regular"), ("endpoint", endpoint.label())];
                    text.sample(name, &labels, count as f64);
                }
            }
        }
    }

    fn workers(&self, text: &mut Text, (good, bad): (u64, u64)) {
        let name = "smg_worker_pool_size";
        text.family(name, Family::Gauge, "Registered workers per model.");
        for model in self.fleet.placement.models.iter().filter(|m| !m.members.is_empty()) {
            let labels =
                [("worker_type", "regular"), ("connection_mode", "http"), ("model", &*model.name)];
            text.sample(name, &labels, model.members.len() as f64);
        }
        let gauges: [Named<WorkerValue<'_>>; 2] = [
            Named("smg_worker_health", "1 for a worker that takes requests, else 0.", &|worker| {
                f64::from(u8::from(worker.state == WorkerState::Ready))
            }),
            Named("smg_worker_requests_active", "Requests in flight at a worker.", &|worker| {
                f64::from(self.shared.in_flight.get(worker.id))
            }),
        ];
        for Named(name, help, value) in gauges {
            text.family(name, Family::Gauge, help);
            for worker in self.fleet.iter() {
                text.sample(name, &[("worker", worker.url.as_str())], value(worker));
            }
        }
        let name = "smg_worker_health_checks_total";
        text.family(name, Family::Counter, "Health probes.");
        for (result, count) in [("success", good), ("failure", bad)] {
            text.sample(name, &[("worker_type", "regular"), ("result", result)], count as f64);
        }
        let name = "smg_worker_errors_total";
        text.family(name, Family::Counter, "Failures towards workers.");
        for kind in WorkerErrorKind::ALL {
            let count = self.sum(|cells| cells.worker_errors[kind as usize].get());
            let labels = [
                ("worker_type", "regular"),
                ("connection_mode", "http"),
                ("error_type", kind.label()),
            ];
            text.sample(name, &labels, count as f64);
        }
        self.selections(text);
    }

    fn selections(&self, text: &mut Text) {
        let name = "smg_worker_selection_total";
        text.family(name, Family::Counter, "Workers chosen, by model and policy.");
        for (model, label) in self.model_labels() {
            for (at, policy) in PolicyName::ALL.into_iter().enumerate() {
                let count = self.sum(|cells| {
                    cells.read().model(model).map_or(0, |cells| cells.selections[at].get())
                });
                if count > 0 {
                    let labels = [
                        ("worker_type", "regular"),
                        ("connection_mode", "http"),
                        ("model", label),
                        ("policy", policy.as_str()),
                    ];
                    text.sample(name, &labels, count as f64);
                }
            }
        }
    }

    fn cache_aware(&self, text: &mut Text, trees: &TreeGauges) {
        let name = "smg_cache_aware_policy_branch_total";
        text.family(name, Family::Counter, "Decisions over a prefix tree, by branch.");
        for (at, branch) in ShardCells::BRANCHES.iter().enumerate().take(ShardCells::TREE_BRANCHES)
        {
            let count = self.sum(|cells| cells.tree_branches[at].get());
            text.sample(name, &[("branch", branch.as_str())], count as f64);
        }
        let name = "smg_cache_aware_decisions_total";
        text.family(name, Family::Counter, "All cache-aware decisions, by index and branch.");
        for (index, index_label) in ShardCells::INDEXES.iter().enumerate() {
            for (branch, label) in ShardCells::BRANCHES.into_iter().enumerate() {
                let count = self.sum(|cells| cells.read().decisions()[index][branch].get());
                if count > 0 {
                    let labels = [("index", *index_label), ("branch", label.as_str())];
                    text.sample(name, &labels, count as f64);
                }
            }
        }
        let name = "smg_cache_aware_match_ratio";
        text.family(name, Family::Histogram, "Matched share of a request, per tree decision.");
        let total = self.total(|view| Some(view.match_ratio()));
        text.histogram(name, &[], &RATIO_BOUNDS, &total);

        let gauges: [Named<SweptValue>; 3] = [
            Named(
                "smg_cache_tree_chars",
                "Characters in the string tree, each holder counted.",
                |r| r.chars as f64,
            ),
            Named("smg_cache_tree_tokens", "Tokens in the token tree, each holder counted.", |r| {
                r.tokens as f64
            }),
            Named("smg_cache_placement_entries", "Heads in the hash index.", |r| {
                r.placements as f64
            }),
        ];
        for Named(name, help, value) in gauges {
            text.family(name, Family::Gauge, help);
            for (model, report) in trees {
                text.sample(name, &[("model", model)], value(report));
            }
        }
        let name = "smg_cache_tree_limit";
        text.family(name, Family::Gauge, "Size that sweeps evict each of a model's trees down to.");
        text.sample(name, &[], self.shared.config.cache.max_tree_size as f64);
        let name = "smg_cache_swept_entries_total";
        text.family(name, Family::Counter, "Entries of trees and index that sweeps evicted.");
        for (model, report) in trees {
            text.sample(name, &[("model", model)], report.evicted as f64);
        }
        let name = "smg_cache_tree_tenants";
        text.family(name, Family::Gauge, "Workers in each tree.");
        for (model, report) in trees {
            for (tree, count) in
                [("string", report.string_tenants), ("token", report.token_tenants)]
            {
                text.sample(name, &[("model", model), ("tree", tree)], count as f64);
            }
        }
    }
}

impl Page<'_> {
    fn other_policies(&self, text: &mut Text) {
        for family in BranchFamily::ALL {
            let name = family.metric();
            text.family(name, Family::Counter, "Decisions of the policy, by branch.");
            for (at, branch) in family.branches().iter().enumerate() {
                let count = self.sum(|cells| cells.read().policy_branches(family)[at].get());
                text.sample(name, &[("branch", branch.as_str())], count as f64);
            }
        }
        let name = "smg_routing_key_source_total";
        text.family(name, Family::Counter, "Requests with a sticky key, by where it was found.");
        for (at, source) in ["rid", "header"].into_iter().enumerate() {
            let count = self.sum(|cells| cells.key_sources[at].get());
            text.sample(name, &[("source", source)], count as f64);
        }
        let name = "smg_manual_policy_cache_entries";
        text.family(name, Family::Gauge, "Sticky keys pinned to a worker.");
        let pinned: i64 = self.shards.iter().map(|cells| cells.pinned_keys.get()).sum();
        text.sample(name, &[], pinned as f64);
        let name = "smg_worker_routing_keys_active";
        text.family(name, Family::Gauge, "Sticky keys with a request in flight at a worker.");
        let manual = |policy: &ModelPolicy| policy.kind == PolicyName::Manual;
        if self.shared.config.sticky.enabled || self.fleet.policies.iter().any(manual) {
            for worker in self.fleet.iter() {
                let active = self.shared.active_keys.get(worker.id);
                text.sample(name, &[("worker", worker.url.as_str())], f64::from(active));
            }
        }
        let name = "smg_worker_overload_shed_total";
        let help = "Requests answered 503 because overload protection left nobody.";
        text.family(name, Family::Counter, help);
        for (at, stage) in ["selection", "dispatch"].into_iter().enumerate() {
            let sheds = self.sum(|cells| cells.sheds[at].get());
            text.sample(name, &[("stage", stage)], sheds as f64);
        }
    }
}

fn router_labels(model: &str, endpoint: Endpoint) -> [(&'static str, &str); 5] {
    let [router, backend, mode] = REGULAR;
    [router, backend, mode, ("model", model), ("endpoint", endpoint.label())]
}

fn add(totals: &mut [u64], counters: Option<&[Counter]>) {
    for (total, counter) in totals.iter_mut().zip(counters.unwrap_or_default()) {
        *total += counter.get();
    }
}
