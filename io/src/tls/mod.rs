//! TLS between a socket and the relay: rustls without I/O of its own, one task per connection that
//! moves bytes between the socket and a [`pipe`](crate::http::pipe). What is in the pipe is what a
//! plain connection would carry, so nothing behind it knows of TLS.

mod files;
mod identity;
mod pump;
mod server;
mod workers;

pub use files::{Identity, TlsError};
pub use identity::TlsServer;
pub use server::serve;
pub use workers::{WorkerTls, WorkerTlsConfig, refused, secure};

use std::sync::Arc;

use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, ring};

use crate::config::Config;

/// TLS on both sides of the gateway.
pub struct Tls {
    /// Towards clients; `None` is plain HTTP.
    pub clients: Option<TlsServer>,
    /// Towards workers whose URL begins with `https`.
    pub workers: WorkerTls,
}

impl Tls {
    /// Loads the files that `config` names.
    ///
    /// # Errors
    /// A file that cannot be read or used, or a key that is not its certificate's.
    pub fn load(config: &Config) -> Result<Self, TlsError> {
        let needed = config.worker_urls.iter().any(|url| url.is_tls());
        Ok(Self {
            clients: config.tls.clone().map(TlsServer::load).transpose()?,
            workers: WorkerTls::load(config.worker_tls.clone(), needed)?,
        })
    }
}

/// Cryptography for both sides. AES-128-GCM with SHA-256 comes first: ring has SHA-256 in hardware but
/// SHA-384, which AES-256-GCM brings along, in portable C, a tenth of the CPU of a handshake.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    // A stable sort: what is not named keeps its order.
    provider.cipher_suites.sort_by_key(|suite| {
        use CipherSuite as Suite;
        !matches!(
            suite.suite(),
            Suite::TLS13_AES_128_GCM_SHA256
                | Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        )
    });
    // TLS 1.3 before TLS 1.2, whatever the order within.
    provider.cipher_suites.sort_by_key(|suite| suite.tls13().is_none());
    Arc::new(provider)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_with_sha_256_come_first_and_none_is_lost() {
        let names = |provider: &CryptoProvider| {
            provider.cipher_suites.iter().map(|suite| suite.suite()).collect::<Vec<_>>()
        };
        let ours = names(&provider());
        assert_eq!(ours[0], CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(ours[3], CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
        let all = names(&ring::default_provider());
        assert_eq!(ours.len(), all.len());
        assert!(all.iter().all(|suite| ours.contains(suite)));
    }
}
