//! hyper as the other reader: what a server of it sees in a client's bytes, and what a client of it
//! sees in a server's.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::grammar::Field;

/// A request that hyper saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRequest {
    pub method: Vec<u8>,
    /// As text, in the form it was sent in.
    pub target: String,
    pub fields: Vec<Field>,
    /// `None`: it broke off.
    pub body: Option<Vec<u8>>,
}

/// The requests that a server sees in `wire`, which is all that a client sends.
pub fn requests(wire: &[u8]) -> Vec<SeenRequest> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let service = hyper::service::service_fn(|request: hyper::Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.ok().map(|body| body.to_bytes().to_vec());
            seen.borrow_mut().push(SeenRequest {
                method: head.method.as_str().into(),
                target: head.uri.to_string(),
                fields: sorted(head.headers.iter().map(own).collect()),
                body,
            });
            Ok::<_, Infallible>(hyper::Response::new(Empty::<Bytes>::new()))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .max_headers(MAX_HEADERS)
        // The client's end of sending is not its leaving.
        .half_close(true)
        .serve_connection(Wire { input: wire, read: 0, may_read: true }, service);
    // How it ends does not matter, only what it saw.
    let _ = finish(connection);
    seen.take()
}

/// An answer that hyper saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenResponse {
    pub status: u16,
    pub fields: Vec<Field>,
    /// What came of the body.
    pub body: Vec<u8>,
    /// The body ended as it was framed.
    pub whole: bool,
}

/// What a client sees in `wire`, which is all that a server sends; `None` if it is no answer.
pub fn response(wire: &[u8], to_head: bool) -> Option<SeenResponse> {
    let wire = Wire { input: wire, read: 0, may_read: false };
    let handshake =
        hyper::client::conn::http1::Builder::new().max_headers(MAX_HEADERS).handshake(wire);
    let (mut sender, connection) = finish(handshake).expect("nothing is exchanged");
    let method = if to_head { "HEAD" } else { "POST" };
    let request = hyper::Request::builder().method(method).uri("/").body(Empty::<Bytes>::new());
    let answer = sender.send_request(request.expect("a sound request"));
    let (seen, _) = finish(both(
        async move {
            let (head, mut body) = answer.await.ok()?.into_parts();
            let mut seen = SeenResponse {
                status: head.status.as_u16(),
                fields: sorted(head.headers.iter().map(own).collect()),
                body: Vec::new(),
                whole: true,
            };
            while let Some(frame) = body.frame().await {
                match frame {
                    Ok(frame) => seen.body.extend(frame.into_data().unwrap_or_default()),
                    Err(_) => {
                        seen.whole = false;
                        break;
                    }
                }
            }
            drop(sender);
            Some(seen)
        },
        connection,
    ));
    seen
}

/// Fields in an order that leaves only the order within a name, in lower case.
pub fn sorted(mut fields: Vec<Field>) -> Vec<Field> {
    for (name, _) in &mut fields {
        name.make_ascii_lowercase();
    }
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    fields
}

fn own((name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)) -> Field {
    (name.as_str().into(), value.as_bytes().to_vec())
}

/// More than the gateway passes on with what it adds.
const MAX_HEADERS: usize = 300;

/// A connection whose other side says `input` and closes; what is written to it is lost. A client
/// must have spoken before it is answered.
struct Wire<'a> {
    input: &'a [u8],
    read: usize,
    may_read: bool,
}

impl Read for Wire<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        if !self.may_read {
            return Poll::Pending;
        }
        let rest = &self.input[self.read..];
        let length = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..length]);
        self.read += length;
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.may_read = true;
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Polls until it is done. Nothing here waits for anything outside.
fn finish<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..1_000_000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
    panic!("hyper waits for ever");
}

/// Drives both to their ends.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut a_output, mut b_output) = (None, None);
    std::future::poll_fn(|context| {
        if a_output.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(context)
        {
            a_output = Some(output);
        }
        if b_output.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(context)
        {
            b_output = Some(output);
        }
        match (a_output.is_some(), b_output.is_some()) {
            (true, true) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    })
    .await;
    (a_output.expect("done"), b_output.expect("done"))
}
