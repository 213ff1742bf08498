//! The certificate the gateway shows its clients, and its replacement while connections are open.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::ring;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ServerConfig;
use rustls::{Error, InconsistentKeys};
use tracing::{info, warn};

/// Protocols offered, the better one first (RFC 7301).
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Files of a certificate chain and its private key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `--tls-cert-path`: the gateway's own certificate first, then the ones that vouch for it.
    pub cert_path: PathBuf,
    /// `--tls-key-path`: PKCS#8, PKCS#1 or SEC1.
    pub key_path: PathBuf,
}

/// Why a certificate and key cannot be used. The text names the flag, the file and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {}: {problem}", path.display())]
pub struct TlsError {
    flag: &'static str,
    path: PathBuf,
    problem: String,
}

impl TlsError {
    fn new(flag: &'static str, path: &Path, problem: impl Display) -> Self {
        Self { flag, path: path.to_owned(), problem: problem.to_string() }
    }
}

/// TLS towards clients: where its files are, and what new connections are served with.
pub struct TlsServer {
    identity: Identity,
    current: ArcSwap<ServerConfig>,
}

impl TlsServer {
    /// Loads the files of `identity`.
    ///
    /// # Errors
    /// A file that cannot be read or used, or a key that is not the certificate's.
    pub fn load(identity: Identity) -> Result<Self, TlsError> {
        let current = ArcSwap::new(server_config(&identity)?);
        Ok(Self { identity, current })
    }

    /// What a connection accepted now is served with.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// Loads the files anew for connections accepted from now on; open ones go on as they are.
    ///
    /// # Errors
    /// As [`TlsServer::load`]; the certificate in use stays, and a log line says so.
    pub fn reload(&self) -> Result<(), TlsError> {
        match server_config(&self.identity) {
            Ok(config) => {
                self.current.store(config);
                info!(target: "smg::tls", certificate = %self.identity.cert_path.display(),
                    "certificate and key were loaded anew; new connections get them");
                Ok(())
            }
            Err(error) => {
                warn!(target: "smg::tls", %error,
                    "certificate and key were not replaced; the ones loaded before stay in use");
                Err(error)
            }
        }
    }
}

fn server_config(identity: &Identity) -> Result<Arc<ServerConfig>, TlsError> {
    let Identity { cert_path, key_path } = identity;
    let chain = certificates(CERT_FLAG, cert_path)?;
    let key = private_key(KEY_FLAG, key_path)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(CERT_FLAG, cert_path, error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unusable(error, identity))?;
    config.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
    // Sessions are resumed from what the client keeps, whichever shard it comes back to.
    config.ticketer =
        ring::Ticketer::new().map_err(|error| TlsError::new(KEY_FLAG, key_path, error))?;
    Ok(Arc::new(config))
}

const CERT_FLAG: &str = "--tls-cert-path";
const KEY_FLAG: &str = "--tls-key-path";

fn certificates(flag: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| TlsError::new(flag, path, unreadable(error)))?;
    if chain.is_empty() {
        let problem = "the file holds no certificate; give a PEM file with BEGIN CERTIFICATE";
        return Err(TlsError::new(flag, path, problem));
    }
    Ok(chain)
}

fn private_key(flag: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| match error {
        PemError::NoItemsFound => {
            let problem = "the file holds no private key that is not encrypted; give a PEM file \
                           with BEGIN PRIVATE KEY";
            TlsError::new(flag, path, problem)
        }
        error => TlsError::new(flag, path, unreadable(error)),
    })
}

fn unreadable(error: PemError) -> String {
    match error {
        PemError::Io(error) => {
            format!("cannot be read: {error}; give a PEM file that this user may read")
        }
        error => format!("not a PEM file: {error}"),
    }
}

fn unusable(error: Error, identity: &Identity) -> TlsError {
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            let cert_path = identity.cert_path.display();
            let problem = format!(
                "the key is not that of the certificate in {cert_path} ({CERT_FLAG}); give the key \
                 that the certificate was made for"
            );
            TlsError::new(KEY_FLAG, &identity.key_path, problem)
        }
        Error::InvalidCertificate(error) => {
            let problem = format!("the certificate cannot be used: {error:?}; give an X.509 one");
            TlsError::new(CERT_FLAG, &identity.cert_path, problem)
        }
        error => {
            let problem =
                format!("the key cannot be used: {error}; give an RSA, ECDSA or Ed25519 one");
            TlsError::new(KEY_FLAG, &identity.key_path, problem)
        }
    }
}
