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
