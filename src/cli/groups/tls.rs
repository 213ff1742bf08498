//! Encryption between clients and the gateway.

use std::path::PathBuf;

use clap::Args;
use smg_io::tls::Identity;

use crate::cli::error::ConfigError;

/// Encryption between clients and the gateway.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// Certificate chain of the gateway, PEM: clients then speak TLS, HTTP/2 or HTTP/1.1. The ports
    /// of --health-check-port and --prometheus-port stay plain [default: none, plain HTTP]
    #[arg(long, value_name = "FILE")]
    tls_cert_path: Option<PathBuf>,
    /// Private key of that certificate, PEM
    #[arg(long, value_name = "FILE")]
    tls_key_path: Option<PathBuf>,
}

impl TlsArgs {
    pub fn resolve(self) -> Result<Option<Identity>, ConfigError> {
        match (self.tls_cert_path, self.tls_key_path) {
            (None, None) => Ok(None),
            (Some(cert_path), Some(key_path)) => Ok(Some(Identity { cert_path, key_path })),
            (given, _) => {
                let (given, missing) = match given {
                    Some(_) => ("--tls-cert-path", "--tls-key-path"),
                    None => ("--tls-key-path", "--tls-cert-path"),
                };
                Err(ConfigError::Incompatible(format!(
                    "{given} is given without {missing}; give both, or neither for plain HTTP"
                )))
            }
        }
    }
}
