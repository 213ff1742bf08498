//! TLS to workers: whom to trust, and a connection.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use rustls::client::{ClientConfig, ClientConnection};
use rustls::pki_types::ServerName;
use rustls::{
    AlertDescription, CertificateError, Connection as Session, Error, InvalidMessage, RootCertStore,
};
use tracing::warn;

use super::files::{self, Identity, Named, TlsError};
use super::pump::{self, HandshakeError};
use crate::config::WorkerUrl;
use crate::http::pipe;
use crate::http::transport::{Reader, SocketBelow, Writer, split_pipe};
use crate::shard::Shard;

/// What an operator says about TLS to workers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkerTlsConfig {
    /// `--ca-cert-paths`: authorities trusted besides the system's.
    pub ca_cert_paths: Vec<PathBuf>,
    /// `--client-cert-path` and `--client-key-path`: what the gateway shows workers that ask.
    pub identity: Option<Identity>,
}

/// TLS to workers.
pub struct WorkerTls {
    settings: WorkerTlsConfig,
    /// Reading the system's authorities takes milliseconds and most gateways need none.
    config: OnceLock<Arc<ClientConfig>>,
}

impl WorkerTls {
    /// Checks the files that `settings` name; `needed` if a worker is known to need TLS.
    ///
    /// # Errors
    /// A file that cannot be read or used, or a key that is not the certificate's.
    pub fn load(settings: WorkerTlsConfig, needed: bool) -> Result<Self, TlsError> {
        let config = OnceLock::new();
        if needed || settings != WorkerTlsConfig::default() {
            // It has just been made: nothing is in it.
            let _ = config.set(client_config(&settings)?);
        }
        Ok(Self { settings, config })
    }

    /// The beginning of a session with the worker at `url`; `None` if it is spoken to in the clear.
    ///
    /// # Errors
    /// A host that no certificate can name; files that have gone since the start.
    pub fn session(&self, url: &WorkerUrl) -> Option<io::Result<Session>> {
        url.is_tls().then(|| self.begin(url))
    }

    fn begin(&self, url: &WorkerUrl) -> io::Result<Session> {
        let config = match self.config.get() {
            Some(config) => config.clone(),
            // Without files of its own there is nothing that can be wrong with it.
            None => {
                let config = client_config(&self.settings).map_err(io::Error::other)?;
                self.config.get_or_init(|| config).clone()
            }
        };
        let name = ServerName::try_from(url.host().to_owned()).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, "no certificate can name this host")
        })?;
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(session.into())
    }
}

fn client_config(settings: &WorkerTlsConfig) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    for path in &settings.ca_cert_paths {
        for authority in files::certificates(CA_FLAG, path)? {
            roots.add(authority).map_err(|error| {
                let problem = format!("not an authority's certificate: {error}; give an X.509 one");
                TlsError::new(CA_FLAG, path, problem)
            })?;
        }
    }
    if roots.is_empty() {
        warn!(target: "smg::tls",
            "no certificate authority is known, so no https worker will be trusted; install the \
             system's (ca-certificates) or name some with --ca-cert-paths");
    }
    let builder = ClientConfig::builder_with_provider(super::provider())
        .with_safe_default_protocol_versions()
        // Not a file's fault, and not possible with this provider.
        .map_err(|error| TlsError::new(CA_FLAG, Path::new(""), error))?
        .with_root_certificates(roots);
    let mut config = match &settings.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let files =
                Named { identity, cert_flag: "--client-cert-path", key_flag: "--client-key-path" };
            let (chain, key) = files.read()?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(|error| files.unusable(error))?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

const CA_FLAG: &str = "--ca-cert-paths";

/// A session that came to nothing, and what an operator can do about it.
pub fn refused(error: Error) -> io::Error {
    let remedy = match &error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "; name the authority that issued it with --ca-cert-paths"
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "; if this worker does not speak TLS, its URL begins with http://"
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "; give one with --client-cert-path and --client-key-path"
        }
        _ => "",
    };
    io::Error::new(io::ErrorKind::InvalidData, format!("{error}{remedy}"))
}

/// Completes the handshake over a connection to a worker and puts TLS under what is returned.
///
/// # Errors
/// What the socket says; `InvalidData` for what is wrong with the certificate or with TLS.
pub async fn secure(
    shard: &Rc<Shard>,
    mut session: Session,
    (mut reader, mut writer): (Reader, Writer),
) -> io::Result<(Reader, Writer)> {
    match pump::handshake(&mut session, &mut reader, &mut writer).await {
        Ok(()) => {}
        Err(HandshakeError::Io(error)) => return Err(error),
        Err(HandshakeError::Tls { error, .. }) => {
            // The worker learns the cause if it still listens.
            let _ = pump::flush(&mut session, &mut writer).await;
            return Err(refused(error));
        }
    }
    let (near, far) = pipe::duplex();
    let (socket, open) = SocketBelow::of(&reader);
    let shard = shard.clone();
    drop(monoio::spawn(async move {
        let pumped = async move {
            pump::run(session, reader, writer, near, |_| Poll::Pending).await;
            drop(open);
        };
        shard.contain(pumped).await;
    }));
    let (mut reader, writer) = split_pipe(far);
    reader.lies_over(socket);
    Ok((reader, writer))
}
