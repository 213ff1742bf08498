//! Encryption between clients and the gateway, and between the gateway and its workers.

use std::path::PathBuf;

use clap::Args;
use smg_io::tls::{Identity, WorkerTlsConfig};

use crate::cli::error::ConfigError;

/// Encryption between clients and the gateway, and between the gateway and its workers.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// Certificate chain of the gateway, PEM: clients then speak TLS, HTTP/2 or HTTP/1.1. The ports
    /// of --health-check-port and --prometheus-port stay plain [default: none, plain HTTP]
    #[arg(long, value_name = "FILE")]
    tls_cert_path: Option<PathBuf>,
    /// Private key of that certificate, PEM [default: none]
    #[arg(long, value_name = "FILE")]
    tls_key_path: Option<PathBuf>,
    /// Authorities that vouch for https workers, PEM, besides those this system trusts
    #[arg(long, value_name = "FILE", num_args = 1..)]
    ca_cert_paths: Vec<PathBuf>,
    /// Certificate chain that https workers get to see if they ask for one, PEM
    /// [default: none]
    #[arg(long, value_name = "FILE")]
    client_cert_path: Option<PathBuf>,
    /// Private key of that certificate, PEM [default: none]
    #[arg(long, value_name = "FILE")]
    client_key_path: Option<PathBuf>,
}

/// What [`TlsArgs`] come to.
pub struct Tls {
    pub clients: Option<Identity>,
    pub workers: WorkerTlsConfig,
}

impl TlsArgs {
    pub fn resolve(self) -> Result<Tls, ConfigError> {
        let server = ("--tls-cert-path", "--tls-key-path");
        let client = ("--client-cert-path", "--client-key-path");
        Ok(Tls {
            clients: pair(server, self.tls_cert_path, self.tls_key_path)?,
            workers: WorkerTlsConfig {
                ca_cert_paths: self.ca_cert_paths,
                identity: pair(client, self.client_cert_path, self.client_key_path)?,
            },
        })
    }
}

fn pair(
    (cert_flag, key_flag): (&str, &str),
    cert_path: Option<PathBuf>,
    key_path: Option<PathBuf>,
) -> Result<Option<Identity>, ConfigError> {
    let (given, missing) = match (cert_path, key_path) {
        (None, None) => return Ok(None),
        (Some(cert_path), Some(key_path)) => return Ok(Some(Identity { cert_path, key_path })),
        (Some(_), None) => (cert_flag, key_flag),
        (None, Some(_)) => (key_flag, cert_flag),
    };
    Err(ConfigError::Incompatible(format!(
        "{given} is given without {missing}; give both, or neither"
    )))
}
