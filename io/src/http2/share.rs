//! What a stream takes of the budget of bodies beside its body, until nothing of it waits for its client.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::body_memory::{BodyMemory, Exhausted, Share};

/// Streams of a connection that take nothing for themselves, those among them whose answer waits for the
/// client.
const FREE_STREAMS: usize = 8;
/// What each further one takes: about what it costs beside its head and body.
const STREAM_BYTES: usize = 32 << 10;
/// A longer head counts as well, in bytes: a client may send it as a few references (RFC 7541).
const FREE_HEAD: usize = 4 << 10;
/// What a field takes beside name and value (RFC 9113 §6.5.2).
const FIELD_BYTES: usize = 32;

/// The streams of one connection that hold a share, be it none.
#[derive(Debug, Default)]
pub struct Shares(Rc<Cell<usize>>);

/// That of one stream.
#[derive(Debug)]
pub struct StreamShare {
    _taken: Share,
    streams: Rc<Cell<usize>>,
}

impl Shares {
    /// The share of a stream with this head.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn take(
        &self,
        memory: &Arc<BodyMemory>,
        head: &HeaderMap,
    ) -> Result<Rc<StreamShare>, Exhausted> {
        let field = |(name, value): (&HeaderName, &HeaderValue)| {
            name.as_str().len() + value.len() + FIELD_BYTES
        };
        let head: usize = head.iter().map(field).sum();
        let counted_head = if head > FREE_HEAD { head } else { 0 };
        let itself = if self.0.get() < FREE_STREAMS { 0 } else { STREAM_BYTES };
        let taken = Share::take(memory, itself + counted_head)?;
        self.0.set(self.0.get() + 1);
        Ok(Rc::new(StreamShare { _taken: taken, streams: self.0.clone() }))
    }
}

impl Drop for StreamShare {
    fn drop(&mut self) {
        self.streams.set(self.streams.get() - 1);
    }
}

/// A part of an answer's body. Until the client's connection has taken it the stream keeps its share.
pub struct Piece {
    data: Bytes,
    _share: Rc<StreamShare>,
}

impl Piece {
    /// `data` of the stream with this share.
    pub fn new(data: Bytes, share: &Rc<StreamShare>) -> Self {
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
