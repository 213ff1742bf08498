//! TLS between a socket and the relay: rustls without I/O of its own, one task per connection that
//! moves bytes between the socket and a [`pipe`](crate::http::pipe). What is in the pipe is what a
//! plain connection would carry, so nothing behind it knows of TLS.

mod identity;
mod pump;
mod server;

pub use identity::{Identity, TlsError, TlsServer};
pub use server::serve;
