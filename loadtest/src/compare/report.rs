//! Medians, ratios and verdicts of a comparison.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{CompareOptions, Machine, Missing, RoutingResult, Scenario, Started, summary};
use crate::load::Report;

/// The result of a comparison. Every number is a median over the runs.
#[derive(Debug, Serialize)]
pub struct CompareReport {
    /// What matters, in plain sentences.
    pub summary: Vec<String>,
    /// Broken off before everything was measured.
    pub interrupted: bool,
    pub machine: Machine,
    /// Runs repeated or left out because the machine stood still.
    pub void_runs: usize,
    pub runs: usize,
    pub seconds: f64,
    pub gateway_cpus: Vec<usize>,
    pub load_cpus: Vec<usize>,
    pub scenarios: Vec<ScenarioResult>,
    /// Resident memory of each gateway after its start, before any load, in MiB.
    pub resident_mib: BTreeMap<String, Option<f64>>,
    pub routing: Option<RoutingResult>,
    /// How each arm was started.
    pub started: Vec<Started>,
    pub missing: Vec<Missing>,
    pub verdicts: Vec<Verdict>,
}

#[derive(Debug, Serialize)]
pub struct ScenarioResult {
    pub scenario: Scenario,
    pub arms: Vec<ArmResult>,
}

/// One arm under one load.
#[derive(Debug, Clone, Serialize)]
pub struct ArmResult {
    pub arm: String,
    pub requests_per_s: f64,
    pub events_per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// CPU time of the gateway per request, or per event of a stream, in microseconds.
    pub cpu_us: Option<f64>,
    /// The same, run by run.
    pub cpu_us_runs: Vec<Option<f64>>,
    /// From an engine's write of an event to the client's read of it.
    pub event_delay_p50_ms: f64,
    pub event_delay_p99_ms: f64,
    /// The same, run by run.
    pub event_delay_p99_ms_runs: Vec<f64>,
    pub failed: u64,
}

/// A bar of the project and whether it holds.
#[derive(Debug, Serialize)]
pub struct Verdict {
    pub bar: String,
    pub measured: f64,
    pub limit: f64,
    pub holds: bool,
}

/// What one run gave.
pub(super) struct Sample {
    pub cpu_us: Option<f64>,
    pub load: Report,
}

/// The arms the bars speak of.
pub(super) const NGINX: &str = "nginx";
pub(super) const SMG: &str = "smg";
pub(super) const OURS: &str = "ours";

impl CompareReport {
    pub(super) fn new(options: &CompareOptions) -> Self {
        Self {
            summary: Vec::new(),
            interrupted: false,
            machine: Machine::here(),
            void_runs: 0,
            runs: options.runs,
            seconds: options.time.as_secs_f64(),
            gateway_cpus: options.gateway_cpus.clone(),
            load_cpus: options.load_cpus.clone(),
            scenarios: Vec::new(),
            resident_mib: BTreeMap::new(),
            routing: None,
            started: Vec::new(),
            missing: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, scenario: Scenario, samples: Vec<(String, Vec<Sample>)>) {
        let measured = samples.into_iter().filter(|(_, samples)| !samples.is_empty());
        let arms: Vec<_> = measured.map(|(arm, samples)| ArmResult::of(arm, &samples)).collect();
        if !arms.is_empty() {
            self.scenarios.push(ScenarioResult { scenario, arms });
        }
    }

    /// Whether anything was measured at all.
    pub fn is_empty(&self) -> bool {
        self.scenarios.is_empty() && self.routing.is_none()
    }

    /// Says what the results come to.
    pub(super) fn conclude(&mut self) {
        self.judge();
        self.summary = summary::sentences(self);
    }

    /// Holds the results against the bars, as far as the arms they need were run.
    fn judge(&mut self) {
        let mut verdicts = Vec::new();
        let mut bar = |bar: String, measured: Option<f64>, limit: f64| {
            if let Some(measured) = measured {
                verdicts.push(Verdict { bar, measured, limit, holds: measured <= limit });
            }
        };
        for result in &self.scenarios {
            let (to_nginx, to_smg) = match result.scenario {
                Scenario::Short => (1.15, Some(0.15)),
                Scenario::Chat20k | Scenario::Chat100k => (2.5, Some(0.25)),
                Scenario::Sse => (1.0, None),
            };
            let name = result.scenario;
            let unit = if name.is_stream() { "event" } else { "request" };
            bar(
                format!("{name}: CPU per {unit}, x nginx"),
                result.cpu_ratio(OURS, NGINX),
                to_nginx,
            );
            if let Some(limit) = to_smg {
                bar(format!("{name}: CPU per {unit}, x smg"), result.cpu_ratio(OURS, SMG), limit);
            }
            if name.is_stream() {
                let added = result.added_delay_p99_ms(OURS, NGINX);
                bar("sse: event delay p99 beyond nginx's, ms".into(), added, 1.0);
            }
        }
        let resident = self.resident_mib.get(OURS).copied().flatten();
        bar("resident memory at start, MiB".into(), resident, 40.0);
        self.verdicts = verdicts;
    }
}

impl ScenarioResult {
    pub(super) fn arm(&self, name: &str) -> Option<&ArmResult> {
        self.arms.iter().find(|arm| arm.arm == name)
    }

    /// How much later than through `than` events arrive through `arm`, in milliseconds at the 99th
    /// percentile: the median of the differences within each round.
    fn added_delay_p99_ms(&self, arm: &str, than: &str) -> Option<f64> {
        let (arm, than) = (self.arm(arm)?, self.arm(than)?);
        let pairs = arm.event_delay_p99_ms_runs.iter().zip(&than.event_delay_p99_ms_runs);
        median(pairs.map(|(arm, than)| arm - than).collect())
    }

    /// CPU of one arm as a multiple of another's: the median of the ratios within each round. What
    /// disturbs a machine lasts longer than a run, so runs of one round share it.
    pub fn cpu_ratio(&self, arm: &str, of: &str) -> Option<f64> {
        let (arm, of) = (&self.arm(arm)?.cpu_us_runs, &self.arm(of)?.cpu_us_runs);
        let ratio = |(arm, of): (&Option<f64>, &Option<f64>)| {
            let (arm, of) = ((*arm)?, (*of)?);
            (of > 0.0).then(|| arm / of)
        };
        median(arm.iter().zip(of).filter_map(ratio).collect())
    }
}

impl ArmResult {
    fn of(arm: String, samples: &[Sample]) -> Self {
        let of = |value: fn(&Report) -> f64| {
            median(samples.iter().map(|sample| value(&sample.load)).collect()).unwrap_or(0.0)
        };
        let cpu_us_runs: Vec<_> = samples.iter().map(|sample| sample.cpu_us).collect();
        Self {
            arm,
            requests_per_s: of(|report| report.requests_per_s),
            events_per_s: of(|report| report.events_per_s),
            p50_ms: of(|report| report.latency_ms.p50),
            p99_ms: of(|report| report.latency_ms.p99),
            cpu_us: median(cpu_us_runs.iter().copied().flatten().collect()),
            cpu_us_runs,
            event_delay_p50_ms: of(|report| report.event_delay_ms.p50),
            event_delay_p99_ms: of(|report| report.event_delay_ms.p99),
            event_delay_p99_ms_runs: samples
                .iter()
                .map(|sample| sample.load.event_delay_ms.p99)
                .collect(),
            failed: samples.iter().map(|sample| sample.load.failed).sum(),
        }
    }
}

/// The middle value; the mean of the two middle ones when their number is even.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        len if len % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    fn result(arm: &str, cpu_us: Option<f64>, delay_p99_ms: f64) -> ArmResult {
        ArmResult {
            arm: arm.into(),
            requests_per_s: 1.0,
            events_per_s: 1.0,
            p50_ms: 1.0,
            p99_ms: 1.0,
            cpu_us,
            cpu_us_runs: vec![cpu_us],
            event_delay_p50_ms: 1.0,
            event_delay_p99_ms: delay_p99_ms,
            event_delay_p99_ms_runs: vec![delay_p99_ms],
            failed: 0,
        }
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let runs = |arm: &str, runs: &[f64]| ArmResult {
            cpu_us_runs: runs.iter().copied().map(Some).collect(),
            ..result(arm, None, 0.0)
        };
        // The second round was disturbed: both arms cost twice as much.
        let arms = vec![runs("nginx", &[10.0, 20.0, 12.0]), runs("ours", &[8.0, 16.0, 9.0])];
        let result = ScenarioResult { scenario: Scenario::Short, arms };
        assert_eq!(result.cpu_ratio("ours", "nginx"), Some(0.8));
        assert_eq!(result.cpu_ratio("ours", "smg"), None);
    }

    #[test]
    fn bars_are_judged_by_ratio_and_only_with_their_arms() {
        let mut report = CompareReport {
            summary: Vec::new(),
            interrupted: false,
            machine: Machine::here(),
            void_runs: 0,
            runs: 1,
            seconds: 1.0,
            gateway_cpus: vec![0],
            load_cpus: vec![1],
            scenarios: Vec::new(),
            resident_mib: [("ours".to_owned(), Some(30.0))].into(),
            routing: None,
            started: Vec::new(),
            missing: Vec::new(),
            verdicts: Vec::new(),
        };
        report.scenarios.push(ScenarioResult {
            scenario: Scenario::Short,
            arms: vec![
                result("direct", None, 0.0),
                result("nginx", Some(20.0), 0.0),
                result("smg", Some(200.0), 0.0),
                result("ours", Some(24.0), 0.0),
            ],
        });
        report.scenarios.push(ScenarioResult {
            scenario: Scenario::Sse,
            arms: vec![result("nginx", Some(11.0), 1.4), result("ours", Some(9.0), 2.0)],
        });
        report.judge();
        let verdicts: Vec<_> = report
            .verdicts
            .iter()
            .map(|v| (&*v.bar, (v.measured * 100.0).round(), v.holds))
            .collect();
        assert_eq!(
            verdicts,
            [
                ("short: CPU per request, x nginx", 120.0, false),
                ("short: CPU per request, x smg", 12.0, true),
                ("sse: CPU per event, x nginx", 82.0, true),
                ("sse: event delay p99 beyond nginx's, ms", 60.0, true),
                ("resident memory at start, MiB", 3000.0, true),
            ]
        );
        assert!(report.to_string().contains("MISSED"));
    }
}
