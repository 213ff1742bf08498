//! Gateways side by side on pinned cores: what they cost, with their CPU time counted from outside,
//! and what their routing is worth in front of engines with prefix caches.

mod arms;
mod config;
mod cost;
mod html;
mod machine;
mod plan;
mod plot;
mod report;
mod routing;
mod scenario;
mod summary;
mod table;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use arms::{ArmKind, ArmSpec, Missing, Started, VersionSource};
pub use html::html;
pub use machine::Machine;
pub use report::{ArmResult, CompareReport, ScenarioResult, Verdict};
pub use routing::{RoutingArm, RoutingOptions, RoutingResult};
pub use scenario::Scenario;

use crate::runtime;
use plan::{Phase, Plan};

/// What to compare and how long.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    pub arms: Vec<ArmSpec>,
    /// What is measured about cost; may be empty.
    pub scenarios: Vec<Scenario>,
    /// What is measured about routing, if anything.
    pub routing: Option<RoutingOptions>,
    /// Rounds; each runs every arm once, in rotated order, and medians are taken over them.
    pub runs: usize,
    /// Measured time of one run of a scenario.
    pub time: Duration,
    /// CPUs of the gateway under test, and of engines and client.
    pub gateway_cpus: Vec<usize>,
    pub load_cpus: Vec<usize>,
    /// Engines of the scenarios.
    pub engines: usize,
    /// Where logs and configuration files of the gateways go.
    pub directory: PathBuf,
    /// Asked often; true ends the comparison, with its gateways stopped, and reports what there is.
    pub should_stop: fn() -> bool,
}

/// Runs the comparison on this thread. `say` gets a line now and then.
pub fn compare(options: &CompareOptions, say: &mut dyn FnMut(&str)) -> io::Result<CompareReport> {
    std::fs::create_dir_all(&options.directory)?;
    let report = CompareReport::new(options);
    runtime::raise_autogroup();
    let mut bench = Bench { options, report, plan: options.plan(), say };
    cost::run_all(&mut bench)?;
    routing::run_all(&mut bench)?;
    let mut report = bench.report;
    report.interrupted = (options.should_stop)();
    report.conclude();
    Ok(report)
}

impl CompareOptions {
    fn plan(&self) -> Plan {
        let cost_runs = self.arms.len() * self.scenarios.len() * self.runs;
        let (routing_runs, routing_time) = match &self.routing {
            None => (0, Duration::ZERO),
            Some(routing) => {
                let arms: usize = self.arms.iter().map(|spec| spec.routing_arms().len()).sum();
                (arms * self.runs, routing.time_of_a_run())
            }
        };
        Plan::new((cost_runs, self.time + cost::WARMUP), (routing_runs, routing_time))
    }
}

/// Runs in which the client did not run for longer are void: what they say is about the machine.
const LONGEST_STALL_MS: f64 = 500.0;

/// A void run is tried again so many times.
const REPEATS: usize = 2;

/// What became of one run.
enum Outcome<T> {
    Measured(T),
    /// Asked to stop.
    Stopped,
    /// The gateway did not start, or ended; why.
    Died(String),
    /// The machine stood still for so many milliseconds.
    Void(f64),
}

/// A comparison under way.
struct Bench<'a> {
    options: &'a CompareOptions,
    report: CompareReport,
    plan: Plan,
    say: &'a mut dyn FnMut(&str),
}

impl Bench<'_> {
    fn stopped(&self) -> bool {
        (self.options.should_stop)()
    }

    fn announce(&mut self, phase: Phase, what: &str) {
        let line = format!("{}  {what}", self.plan.next(phase));
        (self.say)(&line);
    }

    /// What is known about how a peer was started, to be added to.
    fn started(&mut self, spec: &ArmSpec) -> &mut Started {
        let started = &mut self.report.started;
        let known = started.iter().position(|started| started.arm == spec.name);
        let index = known.unwrap_or_else(|| {
            started.push(spec.introduction());
            started.len() - 1
        });
        &mut started[index]
    }

    /// Leaves a peer out from now on.
    fn lose_peer(&mut self, spec: &ArmSpec, reason: &str) {
        if self.options.routing.is_some() {
            self.plan.skip(Phase::Routing, spec.routing_arms().len() * self.options.runs);
        }
        self.lose(&spec.name, reason);
    }

    /// Measures until the machine did not stand still meanwhile, or gives the run up.
    fn unless_void<T>(
        &mut self,
        mut measure: impl FnMut(&mut Self) -> io::Result<Outcome<T>>,
    ) -> io::Result<Outcome<T>> {
        let mut attempt = 0;
        loop {
            let outcome = measure(self)?;
            let Outcome::Void(ms) = outcome else { return Ok(outcome) };
            self.report.void_runs += 1;
            let what = if attempt < REPEATS { "is repeated" } else { "is left out" };
            (self.say)(&format!("the machine stood still for {:.1} s: this run {what}", ms / 1e3));
            if attempt == REPEATS {
                return Ok(outcome);
            }
            attempt += 1;
        }
    }

    /// Names an arm that is not, or no longer, measured.
    fn lose(&mut self, arm: &str, reason: &str) {
        (self.say)(&format!("without {arm}: {reason}"));
        let (arm, reason) = (arm.to_owned(), reason.to_owned());
        self.report.missing.push(Missing { arm, reason });
    }

    fn is_missing(&self, arm: &str) -> bool {
        self.report.missing.iter().any(|missing| missing.arm == arm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_repeated_while_the_machine_stands_still_and_then_left_out() {
        let options = CompareOptions {
            arms: Vec::new(),
            scenarios: Vec::new(),
            routing: None,
            runs: 1,
            time: Duration::ZERO,
            gateway_cpus: Vec::new(),
            load_cpus: Vec::new(),
            engines: 1,
            directory: PathBuf::new(),
            should_stop: || false,
        };
        let mut said = Vec::new();
        let mut say = |line: &str| said.push(line.to_owned());
        let (report, plan) = (CompareReport::new(&options), options.plan());
        let mut bench = Bench { options: &options, report, plan, say: &mut say };
        let mut stalls = vec![900.0];
        let outcome = bench
            .unless_void(|_| Ok(stalls.pop().map_or(Outcome::Measured("well"), Outcome::Void)));
        assert!(matches!(outcome, Ok(Outcome::Measured("well"))));
        let outcome = bench.unless_void(|_| Ok::<_, io::Error>(Outcome::<()>::Void(127_000.0)));
        assert!(matches!(outcome, Ok(Outcome::Void(_))));
        assert_eq!(bench.report.void_runs, 4);
        assert_eq!(said.len(), 4);
        assert!(said[0].contains("for 0.9 s") && said[0].contains("repeated"), "{said:?}");
        assert!(said[3].contains("left out"), "{said:?}");
    }
}
