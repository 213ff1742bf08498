//! One request of a client, read whole: head, headers and body in one buffer.

use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use smg_core::http1::{Header, Known, RequestHead, find, path_and_query, split_query};

use crate::http::route::Route;

/// A request as the relay sends it on: the client's bytes, and where things are in them.
pub struct Request {
    /// Head and decoded body, contiguous.
    pub buf: Rc<Vec<u8>>,
    /// The parsed head.
    pub head: RequestHead,
    /// Its headers.
    pub headers: Vec<Header>,
    /// Where the body is in `buf`.
    pub body: Range<usize>,
    /// What it asks for.
    pub route: Route,
    /// The id returned to the client and sent to the worker.
    pub id: Box<[u8]>,
    /// When its first byte was read.
    pub started: Instant,
}

impl Request {
    /// The body's bytes.
    pub fn body(&self) -> &[u8] {
        &self.buf[self.body.clone()]
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
