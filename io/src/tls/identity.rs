//! The certificate the gateway shows its clients, and its replacement while connections are open.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::ring;
use rustls::server::ServerConfig;

use super::files::{Identity, Named, TlsError};

/// Protocols offered, the better one first (RFC 7301).
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

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
    /// As [`TlsServer::load`]; what was loaded before stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.current.store(server_config(&self.identity)?);
        Ok(())
    }
}

fn server_config(identity: &Identity) -> Result<Arc<ServerConfig>, TlsError> {
    let files = Named { identity, cert_flag: "--tls-cert-path", key_flag: "--tls-key-path" };
    let (chain, key) = files.read()?;
    let unusable = |error| files.unusable(error);
    let mut config = ServerConfig::builder_with_provider(super::provider())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(unusable)?;
    // Most clients put AES-256 first and would as soon have AES-128 (see `provider`).
    config.ignore_client_order = true;
    config.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
    // Sessions are resumed from what the client keeps, whichever shard it comes back to.
    config.ticketer = ring::Ticketer::new().map_err(unusable)?;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::path::PathBuf;

    use rustls::client::ClientConfig;
    use rustls::pki_types::CertificateDer;
    use rustls::{ClientConnection, RootCertStore, ServerConnection};

    use super::*;

    /// Files in a directory that goes with it.
    struct Files(PathBuf);

    impl Files {
        fn new() -> Self {
            let name = format!("smg-tls-reload-{}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&directory).unwrap();
            Self(directory)
        }

        fn identity(&self) -> Identity {
            Identity { cert_path: self.0.join("cert.pem"), key_path: self.0.join("key.pem") }
        }

        /// Another certificate in the place of the one before.
        fn replace(&self) -> CertificateDer<'static> {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            let Identity { cert_path, key_path } = self.identity();
            std::fs::write(cert_path, made.cert.pem()).unwrap();
            std::fs::write(key_path, made.signing_key.serialize_pem()).unwrap();
            made.cert.der().clone()
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// A client that trusts `certificate` alone, and what serves it.
    fn shaken(
        tls: &TlsServer,
        certificate: &CertificateDer<'static>,
    ) -> Option<(ClientConnection, ServerConnection)> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut server = ServerConnection::new(tls.current()).unwrap();
        for _ in 0..10 {
            pass(&mut client, &mut server)?;
        }
        (!client.is_handshaking() && !server.is_handshaking()).then_some((client, server))
    }

    /// Moves what either has to say to the other.
    fn pass(client: &mut ClientConnection, server: &mut ServerConnection) -> Option<()> {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut rest = &wire[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().ok()?;
        }
        wire.clear();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut rest = &wire[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().ok()?;
        }
        Some(())
    }

    #[test]
    fn a_certificate_is_replaced_under_open_connections_or_not_at_all() {
        let files = Files::new();
        let first = files.replace();
        let tls = TlsServer::load(files.identity()).unwrap();
        let (mut client, mut server) = shaken(&tls, &first).expect("the first one is shown");

        let second = files.replace();
        assert!(shaken(&tls, &first).is_some(), "nothing has been loaded yet");
        tls.reload().unwrap();
        assert!(shaken(&tls, &first).is_none(), "the first one is no longer shown");
        assert!(shaken(&tls, &second).is_some(), "the second one is");
        client.writer().write_all(b"still here").unwrap();
        pass(&mut client, &mut server).unwrap();
        let mut heard = [0; 10];
        server.reader().read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"still here", "a connection that was open goes on");

        std::fs::write(files.identity().key_path, "no key").unwrap();
        let error = tls.reload().unwrap_err().to_string();
        assert!(error.contains("--tls-key-path") && error.contains("; give"), "{error}");
        assert!(shaken(&tls, &second).is_some(), "what was loaded before stays");
    }
}
