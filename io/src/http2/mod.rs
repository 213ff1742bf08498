//! HTTP/2 towards clients, by ALPN or by prior knowledge (RFC 9113 §3.3).
//!
//! The `h2` crate speaks the protocol. Each stream becomes a connection of HTTP/1.1 in memory with one
//! request on it, served by the code that serves the others: routing, limits, keys, errors, counters
//! and what happens when a client leaves are the same. Nothing of a request is understood here.

mod frames;
pub mod head;
mod session;
mod share;
mod stream;
mod transport;

use std::rc::Rc;

use crate::http::transport::{Reader, Writer};
use crate::shard::ConnectionState;

pub use session::serve;

/// The first bytes of a client that speaks HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether a connection begins with the preface of HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preface {
    /// It does not.
    Absent,
    /// It may; more bytes will tell.
    Begun,
    /// It does.
    Whole,
}

impl Preface {
    /// What the bytes received so far say.
    pub fn of(received: &[u8]) -> Self {
        let compared = received.len().min(PREFACE.len());
        match received[..compared] == PREFACE[..compared] {
            false => Self::Absent,
            true if compared < PREFACE.len() => Self::Begun,
            true => Self::Whole,
        }
    }
}

/// A connection on which HTTP/2 is about to be spoken.
pub struct Start {
    transport: (Reader, Writer),
    received: Vec<u8>,
    client_addr: Box<[u8]>,
    state: Rc<ConnectionState>,
}

impl Start {
    /// `received` are bytes that were read before it was known, the preface among them.
    /// `client_addr` is the client's IP address as text.
    pub fn new(
        transport: (Reader, Writer),
        received: Vec<u8>,
        client_addr: Box<[u8]>,
        state: Rc<ConnectionState>,
    ) -> Self {
        Self { transport, received, client_addr, state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preface_is_told_from_requests_of_http_1() {
        for begun in 1..PREFACE.len() {
            assert_eq!(Preface::of(&PREFACE[..begun]), Preface::Begun, "{begun}");
        }
        assert_eq!(Preface::of(PREFACE), Preface::Whole);
        assert_eq!(Preface::of(&[PREFACE, b"more"].concat()), Preface::Whole);
        for other in
            ["POST / HTTP/1.1", "PRI / HTTP/1.1", "PROPFIND / ", "GET", "PRI * HTTP/2.0\r\n\r\nX"]
        {
            assert_eq!(Preface::of(other.as_bytes()), Preface::Absent, "{other}");
        }
    }
}
