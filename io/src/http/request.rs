//! One request of a client, read whole: head, headers and body in one buffer.

use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use smg_core::http1::{Header, Known, RequestHead, find, path_and_query, split_query};

use crate::body_memory::Buffer;
use crate::http::coding::Coding;
use crate::http::cors::Cors;
use crate::http::route::Route;

/// Buffers up to this size in bytes are not worth giving up.
const RELEASED_FROM: usize = 1024;

/// A request as the relay sends it on: the client's bytes, and where things are in them.
pub struct Request {
    /// Head and decoded body, contiguous.
    pub buf: Rc<Buffer>,
    /// The parsed head.
    pub head: RequestHead,
    /// Its headers.
    pub headers: Vec<Header>,
    /// Where the body is in `buf`; empty once it has been released.
    pub body: Range<usize>,
    /// Bytes of the body, released or not.
    pub body_len: usize,
    /// What it asks for.
    pub route: Route,
    /// The id returned to the client and sent to the worker.
    pub id: Rc<[u8]>,
    /// Codings of the body, in the order they were applied.
    pub codings: Vec<Coding>,
    /// What its answers tell browsers.
    pub cors: Cors,
    /// When its first byte was read.
    pub started: Instant,
}

impl Request {
    /// The body's bytes.
    pub fn body(&self) -> &[u8] {
        &self.buf[self.body.clone()]
    }

    /// Gives up the body's memory: no further attempt will send it. The head stays.
    pub fn release_body(&mut self) {
        let start = self.body.start;
        if self.buf.capacity() > RELEASED_FROM {
            self.buf = Rc::new(self.buf[..start].to_vec().into());
            self.body = start..start;
        }
    }

    /// Whether errors take Anthropic's shape.
    pub fn anthropic(&self) -> bool {
        self.route.is_anthropic()
    }

    /// Path without query.
    pub fn path(&self) -> &[u8] {
        split_query(path_and_query(self.head.target.of(&self.buf))).0
    }

    /// Query, without its question mark.
    pub fn query(&self) -> Option<&[u8]> {
        split_query(path_and_query(self.head.target.of(&self.buf))).1
    }

    /// Value of the first header of that name.
    pub fn header(&self, known: Known) -> Option<&[u8]> {
        find(&self.headers, known).map(|header| header.value.of(&self.buf))
    }
}
