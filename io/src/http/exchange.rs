//! One dispatch of a request to a worker, up to the head of its answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use smg_core::fleet::WorkerId;
use smg_core::http1::{Authorization, Header, RequestRewrite, ResponseHead, write_request_head};

use crate::fleet::Worker;
use crate::http::client::{ClientSide, Interrupt};
use crate::http::pool::{RESPONSE_BUFFER, Upstream};
use crate::http::request::Request;
use crate::http::response_head::HeadParser;
use crate::http::stalls::{STALLED_AFTER, Stall};
use crate::http::transport::{Reader, Writer};
use crate::runtime::reachability::Delivery;
use crate::runtime::{clock, descriptors};
use crate::shard::Shard;
use crate::shared::Shared;

/// Bodies up to this many bytes are copied behind the head: one buffer, one write. Larger ones are
/// sent from where they are.
const COPY_LIMIT: usize = 4 * 1024;

/// Between two looks at a host that is silent, at least.
const SHORTEST_LOOK: Duration = Duration::from_millis(10);

/// What the client's credentials are to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Credentials {
    /// `Authorization` held the gateway's key: no worker may see it.
    pub authorization_is_ours: bool,
    /// `x-api-key` held the gateway's key.
    pub x_api_key_is_ours: bool,
}

/// A worker's answer: its head, and what came with it.
pub struct Answer {
    /// Receiving half of the connection it comes over.
    pub reader: Reader,
    /// Its sending half, and what is still to be sent.
    pub outgoing: Outgoing,
    /// Bytes received, from the start of the head.
    pub buf: Vec<u8>,
    /// The parsed head.
    pub head: ResponseHead,
    /// Its headers.
    pub headers: Vec<Header>,
}

/// Why a dispatch brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// No connection could be opened, or its other end acknowledged nothing and it was taken back.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The gateway lacks what a connection takes: descriptors, memory, local ports.
    #[error("cannot open a connection: {0}")]
    Shortage(io::Error),
    /// The worker closed or reset the connection before the first byte of an answer.
    #[error("connection closed before an answer")]
    Closed,
    /// What the worker sent is not HTTP.
    #[error("not an HTTP response: {0}")]
    Protocol(&'static str),
    /// No head within the request timeout.
    #[error("no answer in time")]
    Timeout,
    /// The client left: nobody waits for an answer.
    #[error("client left")]
    ClientGone,
}

/// Sends `request` to `worker` and waits for the head of the answer.
///
/// A pooled connection that turns out to have been closed is replaced at once, once; that is not a
/// failure of the worker and is not reported as one.
pub async fn dispatch(
    shard: &Rc<Shard>,
    client: &mut ClientSide,
    worker: &Worker,
    request: &Request,
    credentials: Credentials,
    client_addr: &[u8],
) -> Result<Answer, ExchangeError> {
    let limits = &shard.shared.config.limits;
    let pooled = shard.pools.borrow_mut().take(worker.id);
    let mut patience =
        Patience::new(shard, worker, limits.request_timeout_secs, limits.connect_timeout_secs);
    client.set_deadline(patience.left());
    let mut upstream = match pooled {
        Some(upstream) => upstream,
        None => connect(shard, client, worker).await?,
    };
    loop {
        let reused = upstream.reused;
        let head = request_head(worker, request, credentials, client_addr);
        match exchange(client, upstream, head, request, &mut patience).await {
            Err(ExchangeError::Closed) if reused => {
                shard.cells().upstream_send_retries.inc();
                client.set_deadline(patience.left());
                upstream = connect(shard, client, worker).await?;
            }
            outcome => return outcome,
        }
    }
}

/// How long a worker may take for its answer, and its host to acknowledge the request.
struct Patience<'a> {
    shared: &'a Arc<Shared>,
    worker: WorkerId,
    /// On [`clock::now_ms`].
    until_ms: u64,
    /// When the request began to be sent, on the same clock.
    sent_at_ms: u64,
    silence: Duration,
    /// While its host is silent.
    stall: Option<Stall>,
}

impl<'a> Patience<'a> {
    fn new(
        shard: &'a Rc<Shard>,
        worker: &Worker,
        request_timeout_secs: u64,
        connect_timeout_secs: u64,
    ) -> Self {
        let now_ms = clock::now_ms();
        Self {
            shared: &shard.shared,
            worker: worker.id,
            until_ms: now_ms.saturating_add(request_timeout_secs.saturating_mul(1000)),
            sent_at_ms: now_ms,
            silence: Duration::from_secs(connect_timeout_secs),
            stall: None,
        }
    }

    /// Until the request has taken too long.
    fn left(&self) -> Duration {
        Duration::from_millis(self.until_ms.saturating_sub(clock::now_ms()))
    }

    /// A request is being sent: until the first look at what became of it.
    fn first_look(&mut self) -> Duration {
        self.sent_at_ms = clock::now_ms();
        self.left().min(STALLED_AFTER)
    }

    /// Looks, once a deadline has passed: when to look again. A host that takes nothing of the request
    /// for as long as a connection may take to open is one that cannot be connected to. It has not been
    /// seen to have the request, and does not get it any more; what hangs in a worker whose host is
    /// there is left alone.
    fn look(
        &mut self,
        reader: &mut Reader,
        outgoing: &Outgoing,
    ) -> Result<Duration, ExchangeError> {
        let delivery = reader.delivery();
        let left = self.left();
        if left.is_zero() {
            // What has arrived may run on; what has not will not.
            if matches!(delivery, Delivery::Silence(_)) {
                reader.reset();
            }
            return Err(ExchangeError::Timeout);
        }
        if let Delivery::Silence(silence) = delivery {
            // A connection that was kept may have been silent for long before.
            let asked_for = clock::now_ms().saturating_sub(self.sent_at_ms);
            let silent = silence.min(Duration::from_millis(asked_for));
            if silent < self.silence {
                let begin = || Stall::begin(self.shared, self.worker);
                self.stall.get_or_insert_with(begin);
                let rest = (self.silence - silent).max(SHORTEST_LOOK);
                return Ok(rest.min(STALLED_AFTER).min(left));
            }
            reader.reset();
            let silent = "the worker's host acknowledges nothing of the request";
            return Err(ExchangeError::Connect(io::Error::new(io::ErrorKind::TimedOut, silent)));
        }
        self.stall = None;
        let arrived =
            delivery == Delivery::Acknowledged && !matches!(outgoing, Outgoing::Sending(_));
        Ok(if arrived { left } else { left.min(STALLED_AFTER) })
    }
}

async fn connect(
    shard: &Rc<Shard>,
    client: &mut ClientSide,
    worker: &Worker,
) -> Result<Upstream, ExchangeError> {
    let timeout = Duration::from_secs(shard.shared.config.limits.connect_timeout_secs);
    // On the heap, because it is large and rare.
    match client.watch(Box::pin(Upstream::connect(shard, worker, timeout))).await {
        Ok(outcome) => outcome.map_err(|error| match descriptors::is_local_shortage(&error) {
            true => ExchangeError::Shortage(error),
            false => ExchangeError::Connect(error),
        }),
        Err(interrupt) => Err(interrupt.into()),
    }
}

fn request_head(
    worker: &Worker,
    request: &Request,
    credentials: Credentials,
    client_addr: &[u8],
) -> Vec<u8> {
    let authorization = match &worker.authorization {
        Some(own) => Authorization::Replace(own),
        None if credentials.authorization_is_ours => Authorization::Drop,
        None => Authorization::Keep,
    };
    let mut head = Vec::with_capacity(request.head.len + 256 + copied_len(request));
    write_request_head(
        &mut head,
        &request.buf,
        &request.head,
        &request.headers,
        &RequestRewrite {
            host: worker.url.authority().as_bytes(),
            path_prefix: worker.url.base_path().as_bytes(),
            authorization,
            drop_x_api_key: credentials.x_api_key_is_ours,
            request_id: Some(&request.id),
            client_addr: Some(client_addr),
            content_length: Some(request.body.len() as u64),
        },
    );
    head
}

fn copied_len(request: &Request) -> usize {
    if request.body.len() <= COPY_LIMIT { request.body.len() } else { 0 }
}

/// Sends head and body while listening: a worker may answer before it has read everything.
async fn exchange(
    client: &mut ClientSide,
    mut upstream: Upstream,
    mut head: Vec<u8>,
    request: &Request,
    patience: &mut Patience<'_>,
) -> Result<Answer, ExchangeError> {
    client.set_deadline(patience.first_look());
    upstream.arm();
    let copied = copied_len(request);
    head.extend_from_slice(&request.body()[..copied]);
    let rest = request.body.start + copied..request.body.end;
    let body = request.buf.clone();
    let Upstream { reader, mut writer, reused } = upstream;
    let outgoing = Outgoing::Sending(Box::pin(async move {
        let outcome = if rest.is_empty() {
            writer.write_all(head, 0).await.0
        } else {
            writer.write_message(head, body, rest).await.0
        };
        (outcome, writer)
    }));
    send_and_listen(client, reader, outgoing, reused, patience).await
}

/// A request on its way out. A worker that answers early still gets the rest of it.
pub enum Outgoing {
    /// More is to be sent.
    Sending(Pin<Box<dyn Future<Output = (io::Result<()>, Writer)>>>),
    /// All of it was taken.
    Sent(Writer),
    /// The worker does not take the rest. What it said, or that it said nothing, comes out of reads.
    Failed(Writer),
}

impl Outgoing {
    /// Sends on, as far as the worker takes it now; `cx` is woken when it takes more.
    pub fn drive(&mut self, cx: &mut Context<'_>) {
        if let Self::Sending(sending) = self
            && let Poll::Ready((outcome, writer)) = sending.as_mut().poll(cx)
        {
            *self = if outcome.is_ok() { Self::Sent(writer) } else { Self::Failed(writer) };
        }
    }
}

/// Sends while reading until the final head is whole.
async fn send_and_listen(
    client: &mut ClientSide,
    mut reader: Reader,
    mut outgoing: Outgoing,
    reused: bool,
    patience: &mut Patience<'_>,
) -> Result<Answer, ExchangeError> {
    let mut parser = HeadParser::default();
    let (buf, head) = loop {
        let event = std::future::poll_fn(|cx| {
            outgoing.drive(cx);
            if let Poll::Ready(outcome) = reader.poll(cx) {
                return Poll::Ready(Ok(outcome));
            }
            client.poll_interrupt(cx).map(Err)
        })
        .await;
        let (outcome, mut buf) = match event {
            Ok(read) => read,
            Err(Interrupt::Deadline) => {
                client.set_deadline(patience.look(&mut reader, &outgoing)?);
                continue;
            }
            Err(interrupt) => return Err(interrupt.into()),
        };
        match outcome {
            Ok(received) if received > 0 => {}
            Ok(_) | Err(_) if buf.is_empty() && !parser.interim_seen() => {
                return Err(ExchangeError::Closed);
            }
            Ok(_) | Err(_) => {
                return Err(ExchangeError::Protocol("connection closed inside the response head"));
            }
        }
        match parser.parse(&mut buf) {
            Ok(Some(head)) => break (buf, head),
            // What was left over of an earlier answer: the connection had been out of step before
            // the request went out, which is no better than closed.
            Err(_) if reused && !parser.interim_seen() && !begins_a_response(&buf) => {
                return Err(ExchangeError::Closed);
            }
            Err(message) => return Err(ExchangeError::Protocol(message)),
            Ok(None) => {
                if buf.capacity() == buf.len() {
                    buf.reserve(buf.len().max(RESPONSE_BUFFER));
                }
                reader.arm(buf);
            }
        }
    };
    Ok(Answer { reader, outgoing, buf, head, headers: parser.headers })
}

/// Whether `buf` can be the beginning of an HTTP/1 response.
fn begins_a_response(buf: &[u8]) -> bool {
    const START: &[u8] = b"HTTP/1.";
    let compared = buf.len().min(START.len());
    buf[..compared] == START[..compared]
}

impl From<Interrupt> for ExchangeError {
    fn from(interrupt: Interrupt) -> Self {
        match interrupt {
            Interrupt::ClientGone => Self::ClientGone,
            Interrupt::Deadline => Self::Timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn left_over_bytes_are_told_from_a_response() {
        for response in [&b""[..], b"H", b"HTTP/1.", b"HTTP/1.1 200 OK"] {
            assert!(begins_a_response(response), "{response:?}");
        }
        for left_over in [&b"0\r\n\r\n"[..], b"\r\n", b"HTTP/2", b"{}"] {
            assert!(!begins_a_response(left_over), "{left_over:?}");
        }
    }
}
