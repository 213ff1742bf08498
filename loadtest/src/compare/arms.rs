//! What is compared: the engines themselves, nginx, or a gateway started from a command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::CompareOptions;
use crate::blocking;
use crate::process::{CommandTemplate, Running, free_port};

/// One arm of a comparison.
#[derive(Debug, Clone)]
pub enum ArmSpec {
    /// No gateway: the client talks to one engine.
    Direct,
    /// nginx with one worker, `proxy_buffering off` and keep-alive to the engines.
    Nginx { program: PathBuf },
    /// A gateway that answers 200 on `/readiness` once it can serve. Placeholders: `{port}`,
    /// `{metrics_port}`, `{workers}` (the engines' URLs).
    Gateway { name: String, command: CommandTemplate, how_to_install: String },
}

/// An arm that could not be started.
#[derive(Debug, Clone, Serialize)]
pub struct Missing {
    pub arm: String,
    pub reason: String,
}

/// A started arm.
pub(super) struct Arm {
    pub name: String,
    pub url: String,
    pub process: Option<Running>,
}

const READY_TIMEOUT: Duration = Duration::from_secs(20);

impl ArmSpec {
    pub fn name(&self) -> &str {
        match self {
            Self::Direct => "direct",
            Self::Nginx { .. } => "nginx",
            Self::Gateway { name, .. } => name,
        }
    }
}

impl Arm {
    /// Starts the arm and waits until it is ready.
    pub fn start(
        spec: &ArmSpec,
        engines: &[String],
        options: &CompareOptions,
    ) -> Result<Self, Missing> {
        let missing = |reason: String| Missing { arm: spec.name().to_owned(), reason };
        let failed = |error: std::io::Error| missing(error.to_string());
        let port = free_port().map_err(failed)?;
        let (words, probe, install) = match spec {
            ArmSpec::Direct => {
                let url = engines.first().cloned().unwrap_or_default();
                return Ok(Self { name: spec.name().into(), url, process: None });
            }
            ArmSpec::Nginx { program } => {
                let words = nginx(program, port, engines, &options.directory).map_err(failed)?;
                (words, "/health", "apt-get install nginx-light".to_owned())
            }
            ArmSpec::Gateway { command, how_to_install, .. } => {
                let metrics_port = free_port().map_err(failed)?;
                let words = command
                    .fill(&[
                        ("port", &[port.to_string()]),
                        ("metrics_port", &[metrics_port.to_string()]),
                        ("workers", engines),
                    ])
                    .map_err(|error| missing(error.to_string()))?;
                (words, "/readiness", how_to_install.clone())
            }
        };
        let log = options.directory.join(format!("{}.log", spec.name()));
        let mut process = Running::start(&words, &options.gateway_cpus, &log).map_err(|error| {
            missing(format!("cannot start {}: {error}; to install it: {install}", words[0]))
        })?;
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        if !blocking::wait_until_ok(address, probe, READY_TIMEOUT) || !process.is_alive() {
            return Err(missing(format!(
                "{} did not answer {probe} with 200; its last words:\n{}",
                words.join(" "),
                process.last_lines()
            )));
        }
        let url = format!("http://{address}");
        Ok(Self { name: spec.name().into(), url, process: Some(process) })
    }

    /// Resident memory in MiB; none for an arm without a process.
    pub fn resident_mib(&self) -> Option<f64> {
        self.process.as_ref().map(|process| process.resident_bytes() as f64 / 1_048_576.0)
    }
}

/// Writes nginx's configuration and returns its command line.
fn nginx(
    program: &Path,
    port: u16,
    engines: &[String],
    directory: &Path,
) -> std::io::Result<Vec<String>> {
    let directory = directory.canonicalize()?;
    let at = |name: &str| directory.join(name).display().to_string();
    let servers: String = engines
        .iter()
        .map(|url| format!("        server {};\n", url.trim_start_matches("http://")))
        .collect();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("    {kind}_temp_path {};\n", at(&format!("nginx-{kind}"))))
        .collect();
    // Without module paths: nothing beyond the core and the HTTP proxy is needed.
    let text = format!(
        "worker_processes 1;\n\
         daemon off;\n\
         pid {pid};\n\
         error_log stderr warn;\n\
         events {{ worker_connections 8192; }}\n\
         http {{\n\
         {temporary}\
         \x20   access_log off;\n\
         \x20   keepalive_requests 1000000000;\n\
         \x20   client_max_body_size 512m;\n\
         \x20   client_body_buffer_size 1m;\n\
         \x20   upstream engines {{\n\
         {servers}\
         \x20       keepalive 512;\n\
         \x20       keepalive_requests 1000000000;\n\
         \x20   }}\n\
         \x20   server {{\n\
         \x20       listen 127.0.0.1:{port};\n\
         \x20       location / {{\n\
         \x20           proxy_pass http://engines;\n\
         \x20           proxy_http_version 1.1;\n\
         \x20           proxy_set_header Connection \"\";\n\
         \x20           proxy_buffering off;\n\
         \x20           proxy_read_timeout 1800s;\n\
         \x20       }}\n\
         \x20   }}\n\
         }}\n",
        pid = at("nginx.pid"),
    );
    std::fs::write(directory.join("nginx.conf"), text)?;
    let words = [
        program.display().to_string(),
        "-p".into(),
        directory.display().to_string(),
        "-e".into(),
        "stderr".into(),
        "-c".into(),
        at("nginx.conf"),
    ];
    Ok(words.into())
}
