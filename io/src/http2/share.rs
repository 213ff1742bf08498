//! What a stream takes of the budget of bodies beside its body, until nothing of it waits for its client.

use std::rc::Rc;

use bytes::{Buf, Bytes};
use http::HeaderMap;

use crate::body_memory::{Exhausted, Share};

/// Streams of a connection that take nothing for themselves.
const FREE_STREAMS: usize = 8;
/// What each further one takes: about what it costs beside its head and body.
const STREAM_BYTES: usize = 32 << 10;
/// A longer head counts as well, in bytes: a client may send it as a few references (RFC 7541).
const FREE_HEAD: usize = 4 << 10;
/// What a field takes beside name and value (RFC 9113 §6.5.2).
const FIELD_BYTES: usize = 32;

/// The share of a stream with this head, of a connection that has so many streams already.
///
/// # Errors
/// When there is no room for it.
pub fn of_stream(
    memory: &std::sync::Arc<crate::body_memory::BodyMemory>,
    streams: usize,
    head: &HeaderMap,
) -> Result<Rc<Share>, Exhausted> {
    let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        name.as_str().len() + value.len() + FIELD_BYTES
    };
    let head: usize = head.iter().map(field).sum();
    let counted_head = if head > FREE_HEAD { head } else { 0 };
    let itself = if streams < FREE_STREAMS { 0 } else { STREAM_BYTES };
    Share::take(memory, itself + counted_head).map(Rc::new)
}

/// A part of an answer's body. Until the client's connection has taken it the stream keeps its share.
pub struct Piece {
    data: Bytes,
    _share: Rc<Share>,
}

impl Piece {
    /// `data` of the stream with this share.
    pub fn new(data: Bytes, share: &Rc<Share>) -> Self {
        Self { data, _share: share.clone() }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.data.advance(count);
    }
}
