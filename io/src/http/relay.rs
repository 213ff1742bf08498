//! An answer on its way from a worker to the client: each read is written at once, and no more than
//! one read's worth is held.

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use smg_core::http1::{
    CHUNK_HEADROOM, ClientFraming, LAST_CHUNK, ResponseRewrite, chunk_prefix, write_response_head,
};

use crate::fleet::Worker;
use crate::http::answer::{ErrorAnswer, ErrorCode};
use crate::http::body::{Body, CHUNK_TAIL};
use crate::http::client::{ClientSide, Interrupt};
use crate::http::cors::Cors;
use crate::http::exchange::{Answer, Outgoing};
use crate::http::meter::Meter;
use crate::http::pool::Upstream;
use crate::http::request::Request;
use crate::http::transport::{Reader, Writer};
use crate::messages::Taken;
use crate::shard::Shard;

/// First buffer for a body in bytes; tokens of a stream are far smaller.
const FIRST_BODY_BUFFER: usize = 1024;
/// Largest buffer for a body in bytes, reached by doubling while reads fill it.
const LARGEST_BODY_BUFFER: usize = 64 * 1024;
/// A client that takes nothing for this long is given up.
const CLIENT_STALL: Duration = Duration::from_secs(300);

/// How a relayed answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Whole, and the client's connection may be used again.
    Complete,
    /// Whole, and the connection ends with it.
    CompleteClose,
    /// The worker broke off; the client saw that.
    WorkerDied,
    /// The client left or stopped reading.
    ClientGone,
    /// The gateway could not send the request.
    NotSent,
}

impl Ending {
    /// Its name in the access log.
    pub fn label(self) -> &'static str {
        match self {
            Self::Complete | Self::CompleteClose => "complete",
            Self::WorkerDied => "worker_died",
            Self::ClientGone => "client_gone",
            Self::NotSent => "not_sent",
        }
    }
}

/// What is needed around an answer to relay it.
pub struct Relay<'a> {
    /// The shard it happens on.
    pub shard: &'a Rc<Shard>,
    /// The client's receiving side, watched all the time.
    pub client: &'a mut ClientSide,
    /// The client's sending side.
    pub writer: &'a mut Writer,
    /// The request being answered.
    pub request: &'a mut Request,
    /// The worker that answers.
    pub worker: &'a Worker,
    /// Close the client's connection after this answer.
    pub close: bool,
    /// What is measured of the answer's body.
    pub meter: Option<Meter>,
}

impl Relay<'_> {
    /// Relays head and body. `in_flight` is released with the worker's last byte.
    pub async fn run(mut self, answer: Answer, in_flight: Taken) -> (Ending, u64) {
        let Answer { reader, outgoing, buf, head, headers } = answer;
        let framing = ClientFraming::for_body(head.body, self.request.head.http10);
        let close = self.close || framing == ClientFraming::CloseDelimited;
        let mut out = Vec::with_capacity(head.len + 512 + (buf.len() - head.len));
        let cors = self.request.cors.headers();
        let rewrite = self.rewrite(framing, close, &cors);
        write_response_head(&mut out, &buf, &head, &headers, &rewrite);
        if let Some(route) = in_flight.route() {
            append_route(&mut out, route);
        }
        let body = Body::new(head.body, framing).metered(self.meter.take());
        let mut flow = Flow::new(reader, outgoing, body, in_flight);
        flow.cut = flow.body.first(&buf[head.len..], &mut out).is_err();
        drop(buf);
        if !flow.finished() {
            self.request.release_body();
        }
        let sent = match self.pump(&mut flow, Framed { buf: out, start: 0 }).await {
            Ok(sent) => sent,
            Err(sent) => {
                if framing == ClientFraming::CloseDelimited {
                    // It may have closed its own side alone, and would take an orderly end for that of
                    // the answer.
                    self.writer.reset();
                }
                return (Ending::ClientGone, sent);
            }
        };
        let Flow { reader, outgoing, body, cut, .. } = flow;
        if cut {
            let told = self.tell_cut(framing, head.event_stream, body.at_event_end);
            // On the heap, because it is large and rare.
            let told = Box::pin(told).await;
            return (Ending::WorkerDied, sent + told);
        }
        if head.keep_alive
            && body.leaves_connection_in_step()
            && let Outgoing::Sent(writer) = outgoing
        {
            let upstream = Upstream { reader, writer, reused: true };
            self.shard.pools.borrow_mut().put(self.worker.id, upstream);
        }
        (if close { Ending::CompleteClose } else { Ending::Complete }, sent)
    }

    /// Writes what is there and reads on until the body has ended; the bytes written. `Err` when the
    /// client left.
    async fn pump(&mut self, flow: &mut Flow, first: Framed) -> Result<u64, u64> {
        let mut framed = first;
        let mut sent = 0;
        loop {
            let finished = flow.finished();
            if finished {
                flow.in_flight = None;
            }
            let Framed { mut buf, start } = framed;
            if start < buf.len() {
                sent += (buf.len() - start) as u64;
                self.client.set_deadline(CLIENT_STALL);
                let mut write = std::pin::pin!(self.writer.write_all(buf, start));
                let written = std::future::poll_fn(|cx| {
                    flow.outgoing.drive(cx);
                    write.as_mut().poll(cx)
                });
                match self.client.watch(written).await {
                    Ok((Ok(()), back)) => buf = back,
                    Ok((Err(_), _)) | Err(_) => return Err(sent),
                }
            }
            if finished {
                return Ok(sent);
            }
            flow.arm(buf);
            self.client.set_deadline(self.stream_idle());
            let (reader, outgoing) = (&mut flow.reader, &mut flow.outgoing);
            let read = std::future::poll_fn(|cx| {
                outgoing.drive(cx);
                reader.poll(cx)
            });
            framed = match self.client.watch(read).await {
                Ok((outcome, buf)) => flow.take_in(outcome, buf),
                Err(Interrupt::ClientGone) => return Err(sent),
                Err(Interrupt::Deadline) => {
                    flow.cut = true;
                    Framed { buf: Vec::new(), start: 0 }
                }
            };
        }
    }

    fn rewrite<'a>(
        &'a self,
        framing: ClientFraming,
        close: bool,
        cors: &'a [(&'a str, &'a [u8])],
    ) -> ResponseRewrite<'a> {
        let config = &self.shard.shared.config;
        ResponseRewrite {
            request_id: &self.request.id,
            routed_worker: (!config.hide_worker_id).then(|| self.worker.url.as_str().as_bytes()),
            framing,
            cors: (self.request.cors != Cors::Off).then_some(cors),
            connection_close: close,
            http10_client: self.request.head.http10,
        }
    }

    fn stream_idle(&self) -> Duration {
        const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);
        let limit = self.shard.shared.config.limits.stream_idle_timeout_secs;
        limit.map_or(FOR_EVER, Duration::from_secs)
    }

    /// A broken stream of events ends with an error event, unless its length was promised; anything else is
    /// left visibly cut.
    async fn tell_cut(&mut self, framing: ClientFraming, events: bool, at_event_end: bool) -> u64 {
        let ended_by_close = framing == ClientFraming::CloseDelimited;
        if !events || !(ended_by_close || framing == ClientFraming::Chunked) {
            if ended_by_close {
                // An orderly end would make it look whole.
                self.writer.reset();
            } else {
                self.writer.cut();
            }
            return 0;
        }
        let event = self.error_event(at_event_end);
        let told = if ended_by_close { event } else { last_chunks(&event) };
        let length = told.len() as u64;
        self.client.set_deadline(CLIENT_STALL);
        // The client may be gone as well; there is nobody else to tell.
        let _ = self.client.watch(self.writer.write_all(told, 0)).await;
        length
    }

    fn error_event(&self, at_event_end: bool) -> Vec<u8> {
        let answer = ErrorAnswer::new(
            ErrorCode::UpstreamReset,
            "the worker closed the stream before its end; what was generated so far was delivered",
        );
        let before: &[u8] = if at_event_end { b"" } else { b"\n\n" };
        let body = answer.body(self.request.anthropic());
        [before, b"event: error\ndata: ", &body, b"\n\n"].concat()
    }
}

/// The chunk with `data`, and the end of the body.
fn last_chunks(data: &[u8]) -> Vec<u8> {
    let (prefix, at) = chunk_prefix(data.len());
    [&prefix[at..], data, b"\r\n", LAST_CHUNK].concat()
}

/// Puts `x-smg-route` before the empty line that ends the head.
fn append_route(out: &mut Vec<u8>, route: &str) {
    out.truncate(out.len() - b"\r\n".len());
    out.extend_from_slice(b"x-smg-route: ");
    out.extend_from_slice(route.as_bytes());
    out.extend_from_slice(b"\r\n\r\n");
}

/// A buffer whose bytes from `start` on are ready for the client.
struct Framed {
    buf: Vec<u8>,
    start: usize,
}

/// A body on its way.
struct Flow {
    reader: Reader,
    outgoing: Outgoing,
    body: Body,
    /// The worker broke off.
    cut: bool,
    /// Size of the next read.
    size: usize,
    in_flight: Option<Taken>,
}

impl Flow {
    fn new(reader: Reader, outgoing: Outgoing, body: Body, in_flight: Taken) -> Self {
        let in_flight = Some(in_flight);
        Self { reader, outgoing, body, cut: false, size: FIRST_BODY_BUFFER, in_flight }
    }

    fn finished(&self) -> bool {
        self.body.done || self.cut
    }

    /// Starts a read that leaves room for a chunk's size line in front.
    fn arm(&mut self, mut buf: Vec<u8>) {
        buf.clear();
        if buf.capacity() < self.size {
            buf.reserve_exact(self.size);
        }
        buf.resize(CHUNK_HEADROOM, 0);
        self.reader.arm(buf);
    }

    /// Frames what a read brought.
    fn take_in(&mut self, outcome: io::Result<usize>, mut buf: Vec<u8>) -> Framed {
        match outcome {
            Ok(received) if received > 0 => {
                if buf.len() + CHUNK_TAIL >= self.size {
                    self.size = (self.size * 2).min(LARGEST_BODY_BUFFER);
                }
                let framed = self.body.next(&mut buf);
                self.cut = framed.is_err();
                let (Ok(start) | Err(start)) = framed;
                Framed { buf, start }
            }
            Ok(_) => {
                buf.clear();
                self.cut = self.body.end_of_stream(&mut buf).is_err();
                Framed { buf, start: 0 }
            }
            Err(_) => {
                self.cut = true;
                Framed { buf: Vec::new(), start: 0 }
            }
        }
    }
}
