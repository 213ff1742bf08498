//! What is compared: the engines themselves, other proxies, and gateways started from a command
//! line, each perhaps under several policies.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::CompareOptions;
use super::config::{Configured, Setup};
use crate::blocking;
use crate::process::{CommandTemplate, Running, find_program, free_port, output_of};

/// One peer. It is an arm of the cost loads once, and of the routing load once per policy.
#[derive(Debug, Clone)]
pub struct ArmSpec {
    pub name: String,
    pub kind: ArmKind,
    /// What `{policy}` in its command stands for under the cost loads.
    pub cost_policy: Option<String>,
    /// The same under the routing load, one arm each. Empty: one arm without a policy to choose.
    pub routing_policies: Vec<String>,
    pub version: VersionSource,
    pub how_to_install: String,
}

/// How a peer is started.
#[derive(Debug, Clone)]
pub enum ArmKind {
    /// No gateway: the client talks to the engines.
    Direct,
    /// nginx with one worker, `proxy_buffering off` and keep-alive to the engines.
    Nginx { program: PathBuf },
    /// HAProxy with one thread.
    Haproxy { program: PathBuf },
    /// Envoy with one worker thread.
    Envoy { program: PathBuf },
    /// A gateway that answers 200 on `/readiness` once it can serve. Placeholders: `{port}`,
    /// `{metrics_port}`, `{workers}` (the engines' URLs), `{policy}`.
    Gateway { command: CommandTemplate },
}

/// How to learn a peer's version.
#[derive(Debug, Clone)]
pub enum VersionSource {
    None,
    /// Its program prints it when it gets this argument.
    Argument(&'static str),
    /// The Python beside its program knows it by this name.
    PythonPackage(&'static str),
}

/// An arm that could not be started, or that ended too early.
#[derive(Debug, Clone, Serialize)]
pub struct Missing {
    pub arm: String,
    pub reason: String,
}

/// How an arm was started, for the reader of a report.
#[derive(Debug, Clone, Serialize)]
pub struct Started {
    pub arm: String,
    pub version: Option<String>,
    /// Command line under the cost loads, if it was run there; ports differ from run to run.
    pub cost_command: Option<String>,
    /// Command lines under the routing load, by policy; the key is empty for a peer without any.
    pub routing_commands: BTreeMap<String, String>,
    /// The configuration file the command reads.
    pub configuration: Option<String>,
}

impl Started {
    /// Notes how it was started under the routing load; the last start under a policy counts.
    pub(super) fn note_routing(
        &mut self,
        policy: Option<&str>,
        command: String,
        configuration: Option<&str>,
    ) {
        let policy = policy.unwrap_or_default().to_owned();
        self.routing_commands.insert(policy, command);
        self.configuration = self.configuration.take().or_else(|| configuration.map(str::to_owned));
    }
}

/// A started arm.
pub(super) struct Arm {
    /// Where requests go; several are taken in turn.
    pub urls: Vec<String>,
    pub process: Option<Running>,
    pub command: String,
    pub configuration: Option<String>,
}

/// How long a gateway may take. A machine that stands still uses up no more of it than a probe may.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const PROBE_PAUSE: Duration = Duration::from_millis(30);
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

/// A version line is cut here.
const VERSION_MAX_CHARS: usize = 80;

impl ArmSpec {
    /// The arms of the routing load: a name and a policy each.
    pub(super) fn routing_arms(&self) -> Vec<(String, Option<&str>)> {
        match self.routing_policies.as_slice() {
            [] => vec![(self.name.clone(), None)],
            policies => policies
                .iter()
                .map(|policy| (format!("{} {policy}", self.name), Some(policy.as_str())))
                .collect(),
        }
    }

    /// What nobody else will say about a peer that was not started yet.
    pub(super) fn introduction(&self) -> Started {
        Started {
            arm: self.name.clone(),
            version: self.version(),
            cost_command: None,
            routing_commands: BTreeMap::new(),
            configuration: None,
        }
    }

    fn program(&self) -> Option<PathBuf> {
        match &self.kind {
            ArmKind::Direct => None,
            ArmKind::Nginx { program }
            | ArmKind::Haproxy { program }
            | ArmKind::Envoy { program } => Some(find_program(program)),
            ArmKind::Gateway { command } => Some(find_program(Path::new(command.program()))),
        }
    }

    fn version(&self) -> Option<String> {
        let program = self.program()?;
        let words = match self.version {
            VersionSource::None => return None,
            VersionSource::Argument(argument) => {
                vec![program.display().to_string(), argument.into()]
            }
            VersionSource::PythonPackage(package) => vec![
                program.with_file_name("python3").display().to_string(),
                "-c".into(),
                format!(
                    "import importlib.metadata as m; print('{package}', m.version('{package}'))"
                ),
            ],
        };
        version_in(&output_of(&words, VERSION_TIMEOUT).ok()?)
    }

    /// Starts the peer under a policy and waits until it is ready.
    pub(super) fn start(
        &self,
        policy: Option<&str>,
        engines: &[String],
        options: &CompareOptions,
    ) -> Result<Arm, String> {
        let port = free_port().map_err(|error| error.to_string())?;
        let directory = &options.directory;
        let (words, configuration, probe) = match &self.kind {
            ArmKind::Direct => {
                return Ok(Arm {
                    urls: engines.to_vec(),
                    process: None,
                    command: String::new(),
                    configuration: None,
                });
            }
            ArmKind::Gateway { command } => {
                (fill(command, policy, port, engines)?, None, "/readiness")
            }
            ArmKind::Nginx { .. } | ArmKind::Haproxy { .. } | ArmKind::Envoy { .. } => {
                let program = self.program().unwrap_or_default();
                let setup = Setup { program: &program, port, engines, directory };
                let configured = match &self.kind {
                    ArmKind::Nginx { .. } => setup.nginx(),
                    ArmKind::Haproxy { .. } => setup.haproxy(),
                    _ => setup.envoy(),
                };
                let Configured { words, text } = configured.map_err(|error| error.to_string())?;
                // Which path of the API is asked does not matter: engines know this one.
                (words, Some(text), "/health")
            }
        };
        let log = directory.join(format!("{}.log", self.name));
        let process = Running::start(&words, &options.gateway_cpus, &log).map_err(|error| {
            format!("cannot start {}: {error}; to install it: {}", words[0], self.how_to_install)
        })?;
        let command = words.join(" ");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let urls = vec![format!("http://{address}")];
        let mut arm = Arm { urls, process: Some(process), command, configuration };
        arm.wait_until_ready(address, probe, options.should_stop)?;
        Ok(arm)
    }
}

fn fill(
    command: &CommandTemplate,
    policy: Option<&str>,
    port: u16,
    engines: &[String],
) -> Result<Vec<String>, String> {
    let metrics_port = free_port().map_err(|error| error.to_string())?;
    let policy: Vec<String> = policy.map(str::to_owned).into_iter().collect();
    let mut values: Vec<(&str, &[String])> = vec![("workers", engines)];
    let (port, metrics_port) = ([port.to_string()], [metrics_port.to_string()]);
    values.extend([("port", &port[..]), ("metrics_port", &metrics_port[..])]);
    if !policy.is_empty() {
        values.push(("policy", &policy));
    }
    command.fill(&values).map_err(|error| error.to_string())
}

impl Arm {
    fn wait_until_ready(
        &mut self,
        address: SocketAddr,
        probe: &str,
        should_stop: fn() -> bool,
    ) -> Result<(), String> {
        let mut spent = Duration::ZERO;
        loop {
            let before = Instant::now();
            let answer = blocking::get(address, probe, PROBE_TIMEOUT);
            let alive = self.is_alive();
            if alive && answer.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            if should_stop() {
                return Err("interrupted".into());
            }
            spent += before.elapsed().min(PROBE_TIMEOUT) + PROBE_PAUSE;
            if spent >= READY_TIMEOUT || !alive {
                let what = if alive { "did not answer" } else { "ended before it answered" };
                let words = self.process.as_ref().map(Running::last_lines).unwrap_or_default();
                return Err(format!(
                    "{} {what} {probe} with 200; its last words:\n{words}",
                    self.command
                ));
            }
            blocking::pause(PROBE_PAUSE);
        }
    }

    /// Whether its process still runs; true without one.
    pub fn is_alive(&mut self) -> bool {
        self.process.as_mut().is_none_or(Running::is_alive)
    }

    /// Why it is not alive any more.
    pub fn obituary(&self) -> String {
        let words = self.process.as_ref().map(Running::last_lines).unwrap_or_default();
        format!("it ended while it was measured; its last words:\n{words}")
    }

    /// Ends it at once. Nothing is under way any more, so there is nothing to drain.
    pub fn kill(self) {
        if let Some(process) = self.process {
            process.kill();
        }
    }

    /// Resident memory in MiB; none for an arm without a process.
    pub fn resident_mib(&self) -> Option<f64> {
        self.process.as_ref().map(|process| process.resident_bytes() as f64 / 1_048_576.0)
    }

    /// The command line, or what is done without one.
    pub fn command_or(&self, without: &str) -> String {
        if self.command.is_empty() { without.to_owned() } else { self.command.clone() }
    }
}

/// The first line with a digit in it, without what commonly stands around a version.
fn version_in(output: &str) -> Option<String> {
    let line = output.lines().find(|line| line.bytes().any(|byte| byte.is_ascii_digit()))?.trim();
    let line = line.rsplit_once("version: ").map_or(line, |(_, version)| version);
    let line = line.split(" - ").next().unwrap_or(line);
    Some(line.chars().take(VERSION_MAX_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_print() {
        for (output, version) in [
            ("nginx version: nginx/1.22.1\n", "nginx/1.22.1"),
            (
                "HAProxy version 2.6.12-1+deb12u4 2026/01/02 - https://haproxy.org/\nStatus:\n",
                "HAProxy version 2.6.12-1+deb12u4 2026/01/02",
            ),
            (
                "\n/x/envoy  version: 0abc/1.40.0/Clean/RELEASE/BoringSSL\n",
                "0abc/1.40.0/Clean/RELEASE/BoringSSL",
            ),
            ("smg 1.11.0\n", "smg 1.11.0"),
        ] {
            assert_eq!(version_in(output).as_deref(), Some(version));
        }
        assert_eq!(version_in("usage: nothing\n"), None);
    }

    #[test]
    fn a_peer_is_one_routing_arm_per_policy() {
        let mut spec = ArmSpec {
            name: "ours".into(),
            kind: ArmKind::Direct,
            cost_policy: None,
            routing_policies: Vec::new(),
            version: VersionSource::None,
            how_to_install: String::new(),
        };
        assert_eq!(spec.routing_arms(), [("ours".to_owned(), None)]);
        spec.routing_policies = vec!["random".into(), "manual".into()];
        let names: Vec<_> = spec.routing_arms().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["ours random", "ours manual"]);
    }
}
