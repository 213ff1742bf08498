//! Gateways side by side: the same load through each of them in turn, on pinned cores, with their
//! CPU time counted from outside.

mod arms;
mod report;
mod scenario;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use arms::{ArmSpec, Missing};
pub use report::{ArmResult, CompareReport, ScenarioResult};
pub use scenario::Scenario;

use crate::load::{Observer, Target, run};
use crate::process::Running;
use crate::runtime;
use crate::server::{EngineKind, Fleet, FleetOptions, InstantOptions};
use arms::Arm;
use report::Sample;

/// What to compare and how long.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    pub arms: Vec<ArmSpec>,
    pub scenarios: Vec<Scenario>,
    /// Rounds; each runs every arm once, in rotated order, and medians are taken over them.
    pub runs: usize,
    /// Measured time of one run.
    pub time: Duration,
    /// CPUs of the gateway under test, and of engines and client.
    pub gateway_cpus: Vec<usize>,
    pub load_cpus: Vec<usize>,
    pub engines: usize,
    /// Where logs and configuration files of the gateways go.
    pub directory: PathBuf,
    /// Asked often; true breaks the comparison off, with its gateways stopped.
    pub should_stop: fn() -> bool,
}

/// Time before each run that does not count.
const WARMUP: Duration = Duration::from_millis(400);

/// Quiet time after all gateways are ready, before their memory is read.
const SETTLE: Duration = Duration::from_secs(1);

/// Numbers written into requests differ from run to run by more than a run can use up.
const NUMBERS_PER_RUN: u64 = 10_000_000;

/// Runs the comparison on this thread. `say` gets a line now and then.
pub fn compare(options: &CompareOptions, say: &mut dyn FnMut(&str)) -> io::Result<CompareReport> {
    std::fs::create_dir_all(&options.directory)?;
    runtime::raise_autogroup();
    let fleet = Fleet::start(&FleetOptions {
        count: options.engines,
        kind: EngineKind::Instant(InstantOptions::default()),
        cpus: options.load_cpus.clone(),
        ..FleetOptions::default()
    })?;
    let mut report = CompareReport::new(options);
    let mut arms = Vec::new();
    for spec in &options.arms {
        match Arm::start(spec, &fleet.urls(), options) {
            Ok(arm) => arms.push(arm),
            Err(missing) => {
                say(&format!("without {}: {}", missing.arm, missing.reason));
                report.missing.push(missing);
            }
        }
    }
    // Children inherit the CPUs of the moment they start: this thread's come after theirs.
    runtime::pin_to(&options.load_cpus)?;
    crate::blocking::pause(SETTLE);
    for arm in &arms {
        report.resident_mib.insert(arm.name.clone(), arm.resident_mib());
    }
    let total = options.scenarios.len() * options.runs * arms.len();
    let mut done = 0;
    for scenario in &options.scenarios {
        let mut samples: Vec<Vec<Sample>> = arms.iter().map(|_| Vec::new()).collect();
        for round in 0..options.runs {
            for turn in 0..arms.len() {
                let index = (round + turn) % arms.len();
                done += 1;
                say(&format!("{done}/{total}  {scenario}  {}", arms[index].name));
                let number = done as u64 * NUMBERS_PER_RUN;
                samples[index].push(measure(&mut arms[index], *scenario, options, number)?);
            }
        }
        let names = arms.iter().map(|arm| arm.name.clone());
        report.add(*scenario, names.zip(samples).collect());
    }
    report.judge();
    Ok(report)
}

fn measure(
    arm: &mut Arm,
    scenario: Scenario,
    options: &CompareOptions,
    number: u64,
) -> io::Result<Sample> {
    let target = Target::parse(&arm.url).map_err(io::Error::other)?;
    let mut load = scenario.load(target, options.time, WARMUP);
    load.first_number = number;
    let (gateway, should_stop) = (arm.process.as_ref(), options.should_stop);
    let mut meter = CpuMeter { gateway, should_stop, start_ns: 0, used_ns: 0 };
    let report = run(&load, &mut meter)?;
    if should_stop() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let work = if scenario.is_stream() { report.events } else { report.completed };
    let used_ns = meter.used_ns;
    let measured = arm.process.is_some() && work > 0;
    let dead = arm.process.as_mut().is_some_and(|process| !process.is_alive());
    if dead {
        let lines = arm.process.as_ref().map(Running::last_lines).unwrap_or_default();
        return Err(io::Error::other(format!("{} ended during the run:\n{lines}", arm.name)));
    }
    let cpu_us = measured.then(|| used_ns as f64 / 1e3 / work as f64);
    Ok(Sample { cpu_us, load: report })
}

/// Reads the gateway's CPU time at both ends of the measured window.
struct CpuMeter<'a> {
    gateway: Option<&'a Running>,
    should_stop: fn() -> bool,
    start_ns: u64,
    used_ns: u64,
}

impl Observer for CpuMeter<'_> {
    fn measuring(&mut self) {
        self.start_ns = self.gateway.map_or(0, Running::cpu_ns);
    }

    fn measured(&mut self) {
        self.used_ns = self.gateway.map_or(0, Running::cpu_ns).saturating_sub(self.start_ns);
    }

    fn should_stop(&self) -> bool {
        (self.should_stop)()
    }
}
