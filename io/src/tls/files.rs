//! Certificates and keys in PEM files, and what is wrong with them.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, InconsistentKeys};

/// Files of a certificate chain and its private key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate of the holder first, then the ones that vouch for it.
    pub cert_path: PathBuf,
    /// PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key_path: PathBuf,
}

/// Why a file cannot be used. The text names the flag, the file and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {}: {problem}", path.display())]
pub struct TlsError {
    flag: &'static str,
    path: PathBuf,
    problem: String,
}

impl TlsError {
    pub(super) fn new(flag: &'static str, path: &Path, problem: impl Display) -> Self {
        Self { flag, path: path.to_owned(), problem: problem.to_string() }
    }
}

/// An identity and the flags that name its files.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub identity: &'a Identity,
    pub cert_flag: &'static str,
    pub key_flag: &'static str,
}

impl Named<'_> {
    /// Reads both files.
    pub fn read(self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let chain = certificates(self.cert_flag, &self.identity.cert_path)?;
        Ok((chain, private_key(self.key_flag, &self.identity.key_path)?))
    }

    /// What `error` says about the files.
    pub fn unusable(self, error: Error) -> TlsError {
        let Identity { cert_path, key_path } = self.identity;
        match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                let problem = format!(
                    "the key is not that of the certificate in {} ({}); give the key that the \
                     certificate was made for",
                    cert_path.display(),
                    self.cert_flag
                );
                TlsError::new(self.key_flag, key_path, problem)
            }
            Error::InvalidCertificate(error) => {
                let problem =
                    format!("the certificate cannot be used: {error:?}; give an X.509 one");
                TlsError::new(self.cert_flag, cert_path, problem)
            }
            error => {
                let problem =
                    format!("the key cannot be used: {error}; give an RSA, ECDSA or Ed25519 one");
                TlsError::new(self.key_flag, key_path, problem)
            }
        }
    }
}

/// The certificates in a file, at least one.
pub fn certificates(
    flag: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
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
        error => format!("not a PEM file: {error}; give one with BEGIN and END lines"),
    }
}
