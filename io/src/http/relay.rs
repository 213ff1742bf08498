//! An answer on its way from a worker to the client: each read is written at once, and no more than
//! one read's worth is held.

use std::rc::Rc;
use std::time::Duration;

use smg_core::http1::{
    BodyLength, CHUNK_HEADROOM, ChunkedDecoder, ClientFraming, LAST_CHUNK, ResponseRewrite,
    chunk_prefix, write_response_head,
};

use crate::fleet::Worker;
use crate::http::answer::{ErrorAnswer, ErrorCode};
use crate::http::client::{ClientSide, Interrupt};
use crate::http::exchange::Answer;
use crate::http::request::Request;
use crate::http::transport::Writer;
use crate::messages::Taken;
use crate::shard::Shard;

/// First buffer for a body in bytes; tokens of a stream are far smaller.
const FIRST_BODY_BUFFER: usize = 4 * 1024;
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
}

impl Ending {
    /// Its name in the access log.
    pub fn label(self) -> &'static str {
        match self {
            Self::Complete | Self::CompleteClose => "complete",
            Self::WorkerDied => "worker_died",
            Self::ClientGone => "client_gone",
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
    pub request: &'a Request,
    /// The worker that answers.
    pub worker: &'a Worker,
    /// Close the client's connection after this answer.
    pub close: bool,
}

impl Relay<'_> {
    /// Relays head and body. `in_flight` is released with the worker's last byte.
    pub async fn run(mut self, answer: Answer, in_flight: Taken) -> (Ending, u64) {
        let Answer { mut upstream, buf, head, headers, request_sent } = answer;
        let framing = ClientFraming::for_body(head.body, self.request.head.http10);
        let close = self.close || framing == ClientFraming::CloseDelimited;
        let mut out = Vec::with_capacity(head.len + 512 + (buf.len() - head.len));
        write_response_head(&mut out, &buf, &head, &headers, &self.rewrite(framing, close));
        if let Some(route) = in_flight.route() {
            // Before the empty line that ends the head.
            out.truncate(out.len() - 2);
            out.extend_from_slice(b"x-smg-route: ");
            out.extend_from_slice(route.as_bytes());
            out.extend_from_slice(b"\r\n\r\n");
        }

        let mut body = Body::new(head.body, framing);
        let mut cut = body.first(&buf[head.len..], &mut out).is_err();
        drop(buf);
        let mut in_flight = Some(in_flight);
        let mut sent = 0;
        let mut size = FIRST_BODY_BUFFER;
        let (mut chunk, mut start) = (out, 0);
        loop {
            let finished = body.done || cut;
            if finished {
                in_flight = None;
            }
            if start < chunk.len() {
                sent += (chunk.len() - start) as u64;
                self.client.set_deadline(CLIENT_STALL);
                match self.client.watch(self.writer.write_all(chunk, start)).await {
                    Ok((Ok(()), buf)) => chunk = buf,
                    Ok((Err(_), _)) | Err(_) => return (Ending::ClientGone, sent),
                }
            }
            if finished {
                break;
            }
            let mut buf = chunk;
            buf.clear();
            if buf.capacity() < size {
                buf.reserve_exact(size);
            }
            buf.resize(CHUNK_HEADROOM, 0);
            upstream.reader.arm(buf);
            self.client.set_deadline(self.stream_idle());
            let (outcome, buf) = match self.client.watch(upstream.reader.read()).await {
                Ok(read) => read,
                Err(Interrupt::ClientGone) => return (Ending::ClientGone, sent),
                Err(Interrupt::Deadline) => {
                    cut = true;
                    (chunk, start) = (Vec::new(), 0);
                    continue;
                }
            };
            (chunk, start) = (buf, CHUNK_HEADROOM);
            match outcome {
                Ok(0) => cut = body.end_of_stream().is_err(),
                Ok(received) => {
                    if received + CHUNK_HEADROOM + CHUNK_TAIL >= size {
                        size = (size * 2).min(LARGEST_BODY_BUFFER);
                    }
                    match body.next(&mut chunk) {
                        Ok(at) => start = at,
                        Err(at) => (start, cut) = (at, true),
                    }
                }
                Err(_) => cut = true,
            }
            if chunk.len() == CHUNK_HEADROOM && start == CHUNK_HEADROOM {
                start = chunk.len();
            }
            if body.ended_by_close && framing == ClientFraming::Chunked {
                chunk.extend_from_slice(LAST_CHUNK);
                body.ended_by_close = false;
            }
        }
        drop(in_flight);
        if cut {
            sent += self.tell_cut(framing, head.event_stream, body.at_event_end).await;
            return (Ending::WorkerDied, sent);
        }
        if head.keep_alive && request_sent && !body.surplus && !body.closed {
            self.shard.pools.borrow_mut().put(self.worker.id, upstream);
        }
        (if close { Ending::CompleteClose } else { Ending::Complete }, sent)
    }

    fn rewrite(&self, framing: ClientFraming, close: bool) -> ResponseRewrite<'_> {
        let config = &self.shard.shared.config;
        ResponseRewrite {
            request_id: &self.request.id,
            routed_worker: (!config.hide_worker_id).then(|| self.worker.url.as_str().as_bytes()),
            framing,
            connection_close: close,
            http10_client: self.request.head.http10,
        }
    }

    fn stream_idle(&self) -> Duration {
        const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);
        let limit = self.shard.shared.config.limits.stream_idle_timeout_secs;
        limit.map_or(FOR_EVER, Duration::from_secs)
    }

    /// A broken stream of events ends with an error event; anything else is left visibly cut.
    async fn tell_cut(&mut self, framing: ClientFraming, events: bool, at_event_end: bool) -> u64 {
        if !events || framing != ClientFraming::Chunked {
            return 0;
        }
        let answer = ErrorAnswer::new(
            ErrorCode::UpstreamReset,
            "the worker closed the stream before its end; what was generated so far was delivered",
        );
        let mut event = Vec::new();
        if !at_event_end {
            event.extend_from_slice(b"\n\n");
        }
        event.extend_from_slice(b"event: error\ndata: ");
        event.extend_from_slice(&answer.body(self.request.anthropic()));
        event.extend_from_slice(b"\n\n");
        let (prefix, at) = chunk_prefix(event.len());
        let mut chunk = prefix[at..].to_vec();
        chunk.extend_from_slice(&event);
        chunk.extend_from_slice(b"\r\n");
        chunk.extend_from_slice(LAST_CHUNK);
        let length = chunk.len() as u64;
        self.client.set_deadline(CLIENT_STALL);
        // The client may be gone as well; there is nobody else to tell.
        let _ = self.client.watch(self.writer.write_all(chunk, 0)).await;
        length
    }
}

/// Bytes behind a chunk's payload: its line end and the last chunk.
const CHUNK_TAIL: usize = 2 + LAST_CHUNK.len();

/// A body read in the worker's framing and written in the client's.
struct Body {
    source: Source,
    chunked_out: bool,
    /// The last byte was seen.
    done: bool,
    /// Bytes came after it: the connection is out of step.
    surplus: bool,
    /// It was ended by the end of the connection.
    closed: bool,
    /// The same, and the client has not been told yet.
    ended_by_close: bool,
    /// What was relayed so far ends with an empty line.
    at_event_end: bool,
    /// Last two payload bytes.
    tail: [u8; 2],
}

enum Source {
    Fixed(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
}

impl Body {
    fn new(length: BodyLength, framing: ClientFraming) -> Self {
        let (source, done) = match length {
            BodyLength::None => (Source::Fixed(0), true),
            BodyLength::Fixed(length) => (Source::Fixed(length), length == 0),
            BodyLength::Chunked => (Source::Chunked(ChunkedDecoder::new()), false),
            BodyLength::UntilClose => (Source::UntilClose, false),
        };
        Self {
            source,
            chunked_out: framing == ClientFraming::Chunked,
            done,
            surplus: false,
            closed: false,
            ended_by_close: false,
            at_event_end: true,
            tail: *b"\n\n",
        }
    }

    /// Takes the bytes that came with the head and appends them, framed, to `out`.
    fn first(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.done {
            self.surplus = true;
            return Ok(());
        }
        let at = out.len();
        out.resize(at + CHUNK_HEADROOM, 0);
        out.extend_from_slice(bytes);
        let taken = self.take(&mut out[at + CHUNK_HEADROOM..]);
        let (Ok(payload) | Err(payload)) = taken;
        out.truncate(at + CHUNK_HEADROOM + payload);
        if self.chunked_out && payload > 0 {
            let (prefix, start) = chunk_prefix(payload);
            let payload_at = at + CHUNK_HEADROOM;
            out.copy_within(payload_at.., at + CHUNK_HEADROOM - start);
            out.truncate(out.len() - start);
            out[at..at + CHUNK_HEADROOM - start].copy_from_slice(&prefix[start..]);
            out.extend_from_slice(b"\r\n");
        } else {
            out.copy_within(at + CHUNK_HEADROOM.., at);
            out.truncate(at + payload);
        }
        self.finish(out);
        taken.map(|_| ()).map_err(|_| ())
    }

    /// Takes the bytes from [`CHUNK_HEADROOM`] on and frames them in place. Where the framed bytes
    /// begin; an error is a worker that broke its framing, after what was good.
    fn next(&mut self, buf: &mut Vec<u8>) -> Result<usize, usize> {
        let taken = self.take(&mut buf[CHUNK_HEADROOM..]);
        let (Ok(payload) | Err(payload)) = taken;
        buf.truncate(CHUNK_HEADROOM + payload);
        let mut at = CHUNK_HEADROOM;
        if self.chunked_out && payload > 0 {
            let (prefix, start) = chunk_prefix(payload);
            buf[start..CHUNK_HEADROOM].copy_from_slice(&prefix[start..]);
            buf.extend_from_slice(b"\r\n");
            at = start;
        }
        self.finish(buf);
        taken.map(|_| at).map_err(|_| at)
    }

    fn finish(&self, out: &mut Vec<u8>) {
        if self.done && self.chunked_out {
            out.extend_from_slice(LAST_CHUNK);
        }
    }

    /// The payload in `bytes`, moved to their front.
    fn take(&mut self, bytes: &mut [u8]) -> Result<usize, usize> {
        let payload = match &mut self.source {
            Source::Fixed(left) => {
                let payload = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= payload as u64;
                self.done = *left == 0;
                self.surplus |= payload < bytes.len();
                Ok(payload)
            }
            Source::Chunked(decoder) => match decoder.decode(bytes) {
                Ok(decoded) => {
                    self.done = decoded.done;
                    self.surplus |= decoded.consumed < bytes.len();
                    Ok(decoded.payload)
                }
                Err(error) => Err(error.payload),
            },
            Source::UntilClose => Ok(bytes.len()),
        };
        let (Ok(length) | Err(length)) = payload;
        for &byte in &bytes[length.saturating_sub(2)..length] {
            self.tail = [self.tail[1], byte];
        }
        self.at_event_end = self.tail == *b"\n\n";
        payload
    }

    /// The worker closed its side.
    fn end_of_stream(&mut self) -> Result<(), ()> {
        self.closed = true;
        if matches!(self.source, Source::UntilClose) {
            self.done = true;
            self.ended_by_close = true;
            return Ok(());
        }
        Err(())
    }
}
