//! One run of the routing load, watched from the engines and from outside of the gateway.

use std::io;

use hdrhistogram::Histogram;

use super::super::arms::Arm;
use super::super::{LONGEST_STALL_MS, Outcome};
use crate::load::record::{Recorder, histogram};
use crate::load::{ConversationOptions, Observer, Progress, Report, run_conversations};
use crate::process::Running;
use crate::server::{EngineSnapshot, Fleet};

/// What one run gave.
pub(super) struct RoutingSample {
    pub load: Report,
    /// From when a request was due to the first byte of its answer, and to the last; nanoseconds.
    pub first_byte: Histogram<u64>,
    pub latency: Histogram<u64>,
    /// As the engines counted them in the measured time.
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    /// Requests each engine got in the measured time.
    pub engine_requests: Vec<u64>,
    /// The gateway's CPU time per answered request, in microseconds, and its memory at the end.
    pub cpu_us: Option<f64>,
    pub resident_mib: Option<f64>,
    /// Prompt tokens and cached ones in each second since the start, warm-up included.
    pub seconds: Vec<(u64, u64)>,
}

pub(super) fn measure(
    arm: &mut Arm,
    fleet: &Fleet,
    conversations: &ConversationOptions,
    should_stop: fn() -> bool,
) -> io::Result<Outcome<RoutingSample>> {
    let mut watch = Watch::new(arm, fleet, should_stop);
    let load = run_conversations(conversations, &mut watch)?;
    if should_stop() {
        return Ok(Outcome::Stopped);
    }
    let sample = watch.sample(load);
    if !arm.is_alive() {
        return Ok(Outcome::Died(arm.obituary()));
    }
    if sample.load.client_stall_ms > LONGEST_STALL_MS {
        return Ok(Outcome::Void(sample.load.client_stall_ms));
    }
    Ok(Outcome::Measured(sample))
}

/// Reads the counters at both ends of the measured time and every second between.
struct Watch<'a> {
    arm: &'a Arm,
    fleet: &'a Fleet,
    should_stop: fn() -> bool,
    at_start: Vec<EngineSnapshot>,
    at_end: Vec<EngineSnapshot>,
    cpu_ns: (u64, u64),
    resident_mib: Option<f64>,
    seconds: Vec<(u64, u64)>,
    /// What the engines had counted at the last tick.
    counted: (u64, u64),
    first_byte: Histogram<u64>,
    latency: Histogram<u64>,
}

impl<'a> Watch<'a> {
    fn new(arm: &'a Arm, fleet: &'a Fleet, should_stop: fn() -> bool) -> Self {
        let now = fleet.snapshots();
        Self {
            arm,
            fleet,
            should_stop,
            counted: tokens(&now),
            at_start: now.clone(),
            at_end: now,
            cpu_ns: (0, 0),
            resident_mib: None,
            seconds: Vec::new(),
            first_byte: histogram(),
            latency: histogram(),
        }
    }

    fn gateway_cpu_ns(&self) -> u64 {
        self.arm.process.as_ref().map_or(0, Running::cpu_ns)
    }

    fn sample(self, load: Report) -> RoutingSample {
        let (prompt_before, cached_before) = tokens(&self.at_start);
        let (prompt, cached) = tokens(&self.at_end);
        let both = self.at_end.iter().zip(&self.at_start);
        let measured = self.arm.process.is_some() && load.completed > 0;
        let used_ns = self.cpu_ns.1.saturating_sub(self.cpu_ns.0);
        RoutingSample {
            prompt_tokens: prompt.saturating_sub(prompt_before),
            cached_tokens: cached.saturating_sub(cached_before),
            engine_requests: both.map(|(end, start)| end.received - start.received).collect(),
            cpu_us: measured.then(|| used_ns as f64 / 1e3 / load.completed as f64),
            resident_mib: self.resident_mib,
            seconds: self.seconds,
            first_byte: self.first_byte,
            latency: self.latency,
            load,
        }
    }
}

impl Observer for Watch<'_> {
    fn measuring(&mut self) {
        self.at_start = self.fleet.snapshots();
        self.cpu_ns.0 = self.gateway_cpu_ns();
    }

    fn measured(&mut self) {
        self.at_end = self.fleet.snapshots();
        self.cpu_ns.1 = self.gateway_cpu_ns();
        self.resident_mib = self.arm.resident_mib();
    }

    fn tick(&mut self, progress: &Progress<'_>) {
        let (prompt, cached) = tokens(&self.fleet.snapshots());
        // The rest of the last answers comes after the end of the measured time.
        if !progress.over {
            self.seconds.push((prompt - self.counted.0, cached - self.counted.1));
        }
        self.counted = (prompt, cached);
    }

    fn ended(&mut self, recorder: &Recorder) {
        self.first_byte = recorder.first_byte.clone();
        self.latency = recorder.latency.clone();
    }

    fn should_stop(&self) -> bool {
        (self.should_stop)()
    }
}

/// Prompt tokens of all engines so far, and how many of them were cached.
fn tokens(engines: &[EngineSnapshot]) -> (u64, u64) {
    let prompt = engines.iter().map(|engine| engine.prompt_tokens).sum();
    (prompt, engines.iter().map(|engine| engine.cached_tokens).sum())
}
