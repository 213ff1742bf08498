//! What a run found, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::bodies::Bodies;
use super::made::{DOCUMENTS, MadeOptions, Sharing};
use super::record::ErrorClass;
use super::run::Load;
use super::session::Session;
use crate::clock::now_ns;
use crate::waiting::Waiting;

/// The result of one run. Times are in milliseconds, rates per second.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub target: String,
    pub load: String,
    pub bodies: String,
    pub body_bytes: usize,
    pub measured_s: f64,
    pub run_s: f64,
    /// Successful requests whose intended start is in the measured window.
    pub succeeded: u64,
    pub failed: u64,
    /// Requests that were due when the time was over and had found no free connection.
    pub unsent: u64,
    /// Failures by class; classes without one are left out.
    pub errors: BTreeMap<&'static str, u64>,
    /// Successful requests that ended in the window, and their rate.
    pub completed: u64,
    pub requests_per_s: f64,
    pub events: u64,
    pub events_per_s: f64,
    pub received_bytes: u64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub connects: u64,
    pub resent: u64,
    /// If proof was asked for, of the whole run, warm-up included: answers that were, like their requests,
    /// as they were sent; and successful ones without a proof.
    pub proved: u64,
    pub unproved: u64,
    /// Answers that were altered, or whose requests were.
    pub altered: u64,
    /// What the engines say of the run, if they were asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<EngineView>,
    /// What the client did while there was nothing to do.
    pub client_waiting: Waiting,
    /// The longest time the client itself did not run: its machine stood still, or had no CPU for it.
    pub client_stall_ms: f64,
    /// From when a request was due to when its last byte was written: what of the other times is the
    /// client's own, or its wait for a connection.
    pub sent_late_ms: Quantiles,
    pub latency_ms: Quantiles,
    pub first_byte_ms: Quantiles,
    /// From an engine's timestamp in an event to its arrival here; only with our own engines.
    pub event_delay_ms: Quantiles,
    /// Between reads that brought events of one stream.
    pub event_gap_ms: Quantiles,
}

/// What one engine counted between the start and the end of a run, warm-up included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EngineView {
    pub url: String,
    /// Requests read from the wire.
    pub received: u64,
    /// The most that were open at once.
    pub most_open: u64,
}

/// Points of a distribution, in milliseconds; all zero when there were no values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Quantiles {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Quantiles {
    /// Of a histogram in nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        Self {
            count: histogram.len(),
            mean: histogram.mean() / 1e6,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1e6,
        }
    }
}

impl Report {
    /// Nothing was recorded.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        let zero = std::time::Duration::ZERO;
        Self::new(&Session::new(super::session::SessionOptions {
            targets: Vec::new(),
            expects_stream: false,
            proves: false,
            timeout: zero,
            warmup: zero,
            duration: zero,
            waiting: Waiting::Sleep,
        }))
    }

    /// What the session recorded; the description of load and bodies is left empty.
    pub(super) fn new(session: &Session) -> Self {
        let run_s = (now_ns() - session.start()) as f64 / 1e9;
        let recorder = session.recorder();
        let (from, to) = recorder.window();
        let measured_s = to.saturating_sub(from) as f64 / 1e9;
        let per_second =
            |count: u64| if measured_s > 0.0 { count as f64 / measured_s } else { 0.0 };
        let errors = ErrorClass::ALL
            .into_iter()
            .map(|class| (class.name(), recorder.errors[class as usize]))
            .filter(|(_, count)| *count > 0)
            .collect();
        Self {
            target: String::new(),
            load: String::new(),
            bodies: String::new(),
            body_bytes: 0,
            measured_s,
            run_s,
            succeeded: recorder.succeeded,
            failed: recorder.failed(),
            unsent: 0,
            errors,
            completed: recorder.completed_in_window,
            requests_per_s: per_second(recorder.completed_in_window),
            events: recorder.events_in_window,
            events_per_s: per_second(recorder.events_in_window),
            received_bytes: recorder.wire_bytes,
            prompt_tokens: recorder.prompt_tokens,
            cached_tokens: recorder.cached_tokens,
            connects: recorder.connects,
            resent: recorder.resent,
            proved: recorder.proved,
            unproved: recorder.unproved,
            altered: recorder.altered,
            engines: Vec::new(),
            client_waiting: session.waiting(),
            client_stall_ms: session.longest_stall() as f64 / 1e6,
            sent_late_ms: Quantiles::of(&recorder.sent_late),
            latency_ms: Quantiles::of(&recorder.latency),
            first_byte_ms: Quantiles::of(&recorder.first_byte),
            event_delay_ms: Quantiles::of(&recorder.event_delay),
            event_gap_ms: Quantiles::of(&recorder.event_gap),
        }
    }

    /// Cached share of the prompt tokens the answers reported, if they reported any.
    pub fn hit_share(&self) -> Option<f64> {
        (self.prompt_tokens > 0).then(|| self.cached_tokens as f64 / self.prompt_tokens as f64)
    }
}

pub(super) fn describe_bodies(bodies: &Bodies) -> String {
    match bodies {
        Bodies::Generated(shape) => format!("{shape:?}").to_lowercase(),
        Bodies::Lines(path) => path.display().to_string(),
        Bodies::Made(made) => {
            let MadeOptions { groups, prefix_chars, question_chars, lifetime, .. } = made;
            let shared = match made.sharing {
                Sharing::Nothing => "unique prompts".to_owned(),
                Sharing::Groups => format!("{groups} prefixes of {prefix_chars} characters"),
                Sharing::Churn => format!(
                    "{groups} prefixes of {prefix_chars} characters for {} s each",
                    lifetime.as_secs_f64()
                ),
                Sharing::Documents => {
                    format!("{DOCUMENTS} of {groups} documents, {prefix_chars} characters together")
                }
            };
            format!("{shared}, {question_chars} of their own, {:?}", made.script)
        }
    }
}

pub(super) fn describe_load(load: &Load) -> String {
    match load {
        Load::Closed { connections } => format!("closed loop, {connections} connections"),
        Load::Open { rate_per_s, spacing, max_connections } => format!(
            "open loop, {rate_per_s}/s {}, up to {max_connections} connections",
            format!("{spacing:?}").to_lowercase()
        ),
        Load::Stepped { steps, spacing, max_connections } => {
            let steps: Vec<String> = steps
                .iter()
                .map(|step| format!("{}/s for {} s", step.rate_per_s, step.time.as_secs_f64()))
                .collect();
            format!(
                "open loop, {}, {}, up to {max_connections} connections",
                steps.join(", "),
                format!("{spacing:?}").to_lowercase()
            )
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "target     {}", self.target)?;
        writeln!(f, "load       {}", self.load)?;
        writeln!(f, "bodies     {}, {} bytes on average", self.bodies, self.body_bytes)?;
        let client = match self.client_waiting {
            Waiting::Sleep => "sleeps while it waits",
            Waiting::BusyPoll => "busy-polls while it waits",
        };
        writeln!(f, "client     {client}")?;
        writeln!(
            f,
            "requests   {} ok, {} failed; {:.1} per second over {:.1} s",
            self.succeeded, self.failed, self.requests_per_s, self.measured_s
        )?;
        for (class, count) in &self.errors {
            writeln!(f, "           failed: {class} {count}")?;
        }
        if self.unsent > 0 {
            writeln!(
                f,
                "unsent     {} were due and had no connection when the time was over",
                self.unsent
            )?;
        }
        if self.events > 0 {
            writeln!(f, "events     {}; {:.1} per second", self.events, self.events_per_s)?;
        }
        let megabytes = self.received_bytes as f64 / 1e6;
        writeln!(f, "received   {megabytes:.1} MB on {} connections", self.connects)?;
        if self.resent > 0 {
            writeln!(f, "resent     {} requests whose connection was closed", self.resent)?;
        }
        if self.proved + self.unproved + self.altered > 0 {
            writeln!(
                f,
                "proof      {} answers and their requests arrived as they were sent, {} did not, {} \
                 have no proof",
                self.proved, self.altered, self.unproved
            )?;
        }
        if !self.engines.is_empty() {
            let received: u64 = self.engines.iter().map(|engine| engine.received).sum();
            let most: Vec<String> =
                self.engines.iter().map(|engine| engine.most_open.to_string()).collect();
            let most = most.join(" ");
            writeln!(f, "engines    {received} requests received; most open at once: {most}")?;
        }
        if let Some(share) = self.hit_share() {
            writeln!(
                f,
                "prompts    {} tokens, {:.1} % of them cached",
                self.prompt_tokens,
                100.0 * share
            )?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "ms", "mean", "p50", "p90", "p99", "p99.9", "max"
        )?;
        for (name, q) in [
            ("sent late by", &self.sent_late_ms),
            ("latency", &self.latency_ms),
            ("first body byte", &self.first_byte_ms),
            ("event delay", &self.event_delay_ms),
            ("event gap", &self.event_gap_ms),
        ] {
            if q.count > 0 {
                writeln!(
                    f,
                    "{name:<16}{:>10.3}{:>10.3}{:>10.3}{:>10.3}{:>10.3}{:>10.3}",
                    q.mean, q.p50, q.p90, q.p99, q.p999, q.max
                )?;
            }
        }
        Ok(())
    }
}
