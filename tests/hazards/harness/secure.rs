//! TLS as both ends of the tests use it: certificates made on the spot, and a stream that is encrypted
//! or not.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

/// A certificate for `localhost` and 127.0.0.1, its key, and the authority that vouches for it, in
/// files of their own.
pub struct Certificate {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    pub authority: CertificateDer<'static>,
    pub directory: PathBuf,
}

impl Certificate {
    pub fn new() -> Self {
        Self::naming(&["localhost", "127.0.0.1"])
    }

    pub fn naming(names: &[&str]) -> Self {
        Self::with(names, |_| {})
    }

    /// One that was valid until long ago.
    pub fn expired() -> Self {
        Self::with(&["localhost", "127.0.0.1"], |params| {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        })
    }

    fn with(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("smg-hazards-tls-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a directory for certificates");
        let authority = format!("authority {number}");
        let (pem, key_pem, authority_pem, certificate) =
            issue(&authority, names, change, directory);
        for (file, text) in [("cert.pem", pem), ("key.pem", key_pem), ("ca.pem", authority_pem)] {
            std::fs::write(certificate.directory.join(file), text).expect("a file for it");
        }
        certificate
    }

    pub fn cert_path(&self) -> String {
        self.path("cert.pem")
    }

    pub fn key_path(&self) -> String {
        self.path("key.pem")
    }

    pub fn authority_path(&self) -> String {
        self.path("ca.pem")
    }

    fn path(&self, file: &str) -> String {
        self.directory.join(file).to_str().expect("a path in ASCII").to_owned()
    }

    /// What shows it, and asks its peers for a certificate of `vouched_by` if there is one.
    pub fn server_config(&self, vouched_by: Option<&Self>) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions of TLS");
        let builder = match vouched_by {
            None => builder.with_no_client_auth(),
            Some(other) => {
                let mut roots = RootCertStore::empty();
                roots.add(other.authority.clone()).expect("an authority");
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots.into(), provider()).build();
                builder.with_client_cert_verifier(verifier.expect("a verifier"))
            }
        };
        let config = builder.with_single_cert(self.chain.clone(), self.key.clone_key());
        config.expect("a certificate and its key").into()
    }

    /// What trusts it, and offers these protocols.
    pub fn client_config(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.clone()).expect("an authority");
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.into()
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        // It is in the directory for temporary files anyway.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Certificate, key and authority as PEM, and the certificate in `directory`.
fn issue(
    authority: &str,
    names: &[&str],
    change: impl FnOnce(&mut CertificateParams),
    directory: PathBuf,
) -> (String, String, String, Certificate) {
    let authority_key = KeyPair::generate().expect("a key");
    let name = authority;
    let mut authority = CertificateParams::new(Vec::new()).expect("no names");
    authority.distinguished_name.push(rcgen::DnType::CommonName, name);
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_cert = authority.self_signed(&authority_key).expect("an authority");
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().expect("a key");
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names");
    change(&mut params);
    let cert = params.signed_by(&key, &issuer).expect("a certificate");
    let (pem, key_pem, authority_pem) = (cert.pem(), key.serialize_pem(), authority_cert.pem());
    let certificate = Certificate {
        chain: vec![cert.der().clone()],
        key: PrivateKeyDer::try_from(key.serialize_der()).expect("PKCS#8"),
        authority: authority_cert.der().clone(),
        directory,
    };
    (pem, key_pem, authority_pem, certificate)
}

pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A connection, encrypted or not.
pub enum Stream {
    Plain(TcpStream),
    Client(Box<StreamOwned<ClientConnection, TcpStream>>),
    Server(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Stream {
    /// Begins TLS as a client of `localhost`.
    pub fn client(socket: TcpStream, config: Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(config, name).expect("a session");
        Self::Client(Box::new(StreamOwned::new(session, socket)))
    }

    /// Begins TLS as a server.
    pub fn server(socket: TcpStream, config: Arc<ServerConfig>) -> Self {
        let session = ServerConnection::new(config).expect("a session");
        Self::Server(Box::new(StreamOwned::new(session, socket)))
    }

    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Client(stream) => &stream.sock,
            Self::Server(stream) => &stream.sock,
        }
    }

    /// Says that nothing more will be sent, as far as TLS has a word for it.
    pub fn close_notify(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Client(stream) => {
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
            Self::Server(stream) => {
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    }

    fn inner(&mut self) -> &mut dyn ReadWrite {
        match self {
            Self::Plain(socket) => socket,
            Self::Client(stream) => &mut **stream,
            Self::Server(stream) => &mut **stream,
        }
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner().read(buf)
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.inner().write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner().flush()
    }
}
