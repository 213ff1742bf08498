//! What gateways cost: all of them run, each gets the same closed loops in turn in front of instant
//! engines, and its CPU time is counted from outside.

use std::io;
use std::time::Duration;

use super::arms::Arm;
use super::plan::Phase;
use super::report::Sample;
use super::{ArmSpec, Bench, CompareOptions, LONGEST_STALL_MS, Outcome, Scenario};
use crate::load::{Observer, Target, run};
use crate::process::Running;
use crate::runtime;
use crate::server::{EngineKind, Fleet, FleetOptions, InstantOptions};

/// Time before each run that does not count.
pub(super) const WARMUP: Duration = Duration::from_millis(400);

/// Quiet time after all gateways are ready, before their memory is read.
const SETTLE: Duration = Duration::from_secs(1);

/// Numbers written into requests differ from run to run by more than a run can use up.
const NUMBERS_PER_RUN: u64 = 10_000_000;

/// A started peer and what it has been measured at.
struct Candidate<'a> {
    spec: &'a ArmSpec,
    arm: Arm,
    samples: Vec<Sample>,
    lost: bool,
}

/// Runs every scenario with every peer. Returns early, with what was measured, when asked to stop.
pub(super) fn run_all(bench: &mut Bench<'_>) -> io::Result<()> {
    let options = bench.options;
    if options.scenarios.is_empty() {
        return Ok(());
    }
    let fleet = Fleet::start(&FleetOptions {
        count: options.engines,
        kind: EngineKind::Instant(InstantOptions::default()),
        cpus: options.load_cpus.clone(),
        ..FleetOptions::default()
    })?;
    let mut arms = start_all(bench, &fleet.urls());
    runtime::pin_to(&options.load_cpus)?;
    crate::blocking::pause(SETTLE);
    for arm in &arms {
        bench.report.resident_mib.insert(arm.spec.name.clone(), arm.arm.resident_mib());
    }
    let mut number = 0;
    for scenario in &options.scenarios {
        for round in 0..options.runs {
            for turn in 0..arms.len() {
                let index = (round + turn) % arms.len();
                let arm = &mut arms[index];
                if arm.lost {
                    bench.plan.skip(Phase::Cost, 1);
                    continue;
                }
                if bench.stopped() {
                    break;
                }
                let what = format!("{scenario}  {}", arm.spec.name);
                bench.announce(Phase::Cost, &what);
                let one = |_: &mut Bench<'_>| {
                    number += NUMBERS_PER_RUN;
                    measure(&mut arm.arm, *scenario, options, number)
                };
                match bench.unless_void(one)? {
                    Outcome::Measured(sample) => arm.samples.push(sample),
                    Outcome::Stopped | Outcome::Void(_) => {}
                    Outcome::Died(reason) => {
                        arm.lost = true;
                        bench.lose_peer(arm.spec, &reason);
                    }
                }
            }
        }
        let samples =
            arms.iter_mut().map(|arm| (arm.spec.name.clone(), std::mem::take(&mut arm.samples)));
        bench.report.add(*scenario, samples.collect());
    }
    arms.into_iter().for_each(|arm| arm.arm.kill());
    Ok(())
}

fn start_all<'a>(bench: &mut Bench<'a>, engines: &[String]) -> Vec<Candidate<'a>> {
    let options = bench.options;
    let mut arms = Vec::new();
    for spec in &options.arms {
        if bench.stopped() {
            break;
        }
        match spec.start(spec.cost_policy.as_deref(), engines, options) {
            Ok(arm) => {
                let started = bench.started(spec);
                started.cost_command = Some(arm.command_or("none: the client talks to one engine"));
                started.configuration = arm.configuration.clone();
                arms.push(Candidate { spec, arm, samples: Vec::new(), lost: false });
            }
            Err(_) if bench.stopped() => break,
            Err(reason) => {
                bench.plan.skip(Phase::Cost, options.scenarios.len() * options.runs);
                bench.lose_peer(spec, &reason);
            }
        }
    }
    arms
}

fn measure(
    arm: &mut Arm,
    scenario: Scenario,
    options: &CompareOptions,
    number: u64,
) -> io::Result<Outcome<Sample>> {
    let url = arm.urls.first().map_or("", String::as_str);
    let target = Target::parse(url).map_err(io::Error::other)?;
    let mut load = scenario.load(target, options.time, WARMUP);
    load.first_number = number;
    let (gateway, should_stop) = (arm.process.as_ref(), options.should_stop);
    let mut meter = CpuMeter { gateway, should_stop, start_ns: 0, used_ns: 0 };
    let report = run(&load, &mut meter)?;
    if should_stop() {
        return Ok(Outcome::Stopped);
    }
    let work = if scenario.is_stream() { report.events } else { report.completed };
    let measured = arm.process.is_some() && work > 0;
    let cpu_us = measured.then(|| meter.used_ns as f64 / 1e3 / work as f64);
    if !arm.is_alive() {
        return Ok(Outcome::Died(arm.obituary()));
    }
    if report.client_stall_ms > LONGEST_STALL_MS {
        return Ok(Outcome::Void(report.client_stall_ms));
    }
    Ok(Outcome::Measured(Sample { cpu_us, load: report }))
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
