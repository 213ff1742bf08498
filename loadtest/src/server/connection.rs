//! One client connection of an engine: requests in, answers out, until either side closes.

use std::future::{Future, poll_fn};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant as Clock};

use monoio::buf::IoBuf;
use monoio::io::{AsyncWriteRentExt, OwnedWriteHalf, Splitable};
use monoio::net::TcpStream;
use smg_core::http1::{
    BodyLength, CONTINUE, ChunkedDecoder, Header, Known, Method, RequestHead, SimpleResponse, find,
    parse_request, path_and_query, split_query, write_simple_response,
};
use xxhash_rust::xxh3::Xxh3;

use super::answer::{Answer, payloads, push_end};
use super::endpoint::{Endpoint, Kind};
use super::fault::Fault;
use super::host::{Host, Ready, Ticket};
use super::instant::{Instant, LOOK_BYTES};
use super::reader::Reader;
use super::request::{Api, BadRequest, Generation};
use super::routes::{self, Reply};
use super::stats::OpenRequest;
use crate::clock::now_ns;
use crate::engine::SubmitError;
use crate::proof;

/// A larger request body is refused with 413.
const MAX_BODY_BYTES: u64 = 64 * 1024 * 1024;

pub(super) const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; \
    charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

/// How often a request that stands still looks whether it may go on.
const STALL_LOOK: Duration = Duration::from_millis(10);

/// The peer is gone, or sent what cannot be understood: the connection ends.
struct Closed;

/// Serves the connection to its end.
pub(super) async fn serve(stream: TcpStream, endpoint: Rc<Endpoint>) {
    // Without it only small answers would be late.
    let _ = stream.set_nodelay(true);
    let fd = stream.as_raw_fd();
    let (read, write) = stream.into_split();
    let mut connection = Connection {
        reader: Reader::new(read),
        writer: write,
        fd,
        headers: Vec::new(),
        out: Vec::new(),
        endpoint,
    };
    while let Ok(true) = connection.serve_one().await {}
}

struct Connection {
    reader: Reader,
    writer: OwnedWriteHalf<TcpStream>,
    /// Of both halves.
    fd: RawFd,
    headers: Vec<Header>,
    /// Reused for every write of this connection's own making.
    out: Vec<u8>,
    endpoint: Rc<Endpoint>,
}

impl Connection {
    /// Serves one request. True: the connection can carry another one.
    async fn serve_one(&mut self) -> Result<bool, Closed> {
        let head = self.read_head().await?;
        if let BodyLength::Fixed(length) = head.body
            && length > MAX_BODY_BYTES
        {
            return self.reply(&head, &Reply::error(413, "request body is too large")).await;
        }
        if head.expect_continue {
            self.write(CONTINUE).await?;
        }
        let (path, query) = split_query(path_and_query(head.target.of(&self.reader.buf)));
        let api = Api::of_path(path).filter(|_| head.method == Method::Post);
        let endpoint = self.endpoint.clone();
        if path == b"/sim/fault" && head.method == Method::Post {
            let reply = routes::begin_fault(&endpoint, query.unwrap_or_default());
            self.read_body(&head).await?;
            return self.reply(&head, &reply).await;
        }
        if path == b"/sim/stats" {
            // Whoever watches an engine sees it also when it is ill.
            let reply = routes::answer(&endpoint, head.method, path);
            self.read_body(&head).await?;
            return self.reply(&head, &reply).await;
        }
        let fault = endpoint.faults.now();
        if let Some(status) = self.fail(fault, api).await? {
            self.read_body(&head).await?;
            return self.reply(&head, &Reply::error(status, "a fault on command")).await;
        }
        let (path, _) = split_query(path_and_query(head.target.of(&self.reader.buf)));
        match (api, &endpoint.kind) {
            (Some(_), Kind::Instant(instant)) => self.answer_instantly(&head, instant).await,
            (Some(api), Kind::Simulated(host)) => self.generate(&head, api, host).await,
            (None, _) => {
                let reply = routes::answer(&endpoint, head.method, path);
                self.read_body(&head).await?;
                self.reply(&head, &reply).await
            }
        }
    }

    /// Does to a new request what is wrong with the engine; a status is for the caller to answer with.
    async fn fail(
        &mut self,
        fault: Option<Fault>,
        api: Option<Api>,
    ) -> Result<Option<u16>, Closed> {
        match fault {
            Some(Fault::Stall) => {
                self.stand_still(self.endpoint.faults.cuts()).await.map(|()| None)
            }
            Some(Fault::Reset) => Err(self.reset()),
            Some(Fault::Status(status)) => Ok(api.map(|_| status)),
            Some(Fault::Starting) => Ok(Some(503)),
            None => Ok(None),
        }
    }

    /// Returns when the engine does not stall. `cuts` is from when the request came.
    async fn stand_still(&mut self, cuts: u64) -> Result<(), Closed> {
        loop {
            if self.endpoint.faults.cuts() != cuts {
                return Err(self.reset());
            }
            if self.endpoint.faults.now() != Some(Fault::Stall) {
                return Ok(());
            }
            let mut pause = pin!(monoio::time::sleep(STALL_LOOK));
            poll_fn(|cx| match pause.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Ok(())),
                Poll::Pending => self.reader.poll_gone(cx).map(|()| Err(Closed)),
            })
            .await?;
        }
    }

    /// Resets the connection. Closing it would not do: the write half says goodbye in order first.
    fn reset(&self) -> Closed {
        // SAFETY: all zero is a valid address, that of no family.
        let nobody: libc::sockaddr = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open as long as `self`, and the address is valid for the call.
        // Connecting to nobody breaks a TCP connection off with a reset.
        unsafe { libc::connect(self.fd, &raw const nobody, size_of_val(&nobody) as _) };
        Closed
    }

    async fn read_head(&mut self) -> Result<RequestHead, Closed> {
        loop {
            match parse_request(&self.reader.buf, &mut self.headers) {
                Ok(Some(head)) => return Ok(head),
                Ok(None) => {
                    if !self.reader.fill().await {
                        return Err(Closed);
                    }
                }
                Err(error) => {
                    let body = routes::error_body(error.status(), error.message());
                    write_simple_response(
                        &mut self.out,
                        &SimpleResponse {
                            status: error.status(),
                            content_type: routes::JSON,
                            extra_headers: &[],
                            body: &body,
                            connection_close: true,
                            http10_client: false,
                            head_only: false,
                        },
                    );
                    let _ = self.flush().await;
                    return Err(Closed);
                }
            }
        }
    }

    /// Takes head and body off the buffer and returns the body, decoded.
    async fn read_body(&mut self, head: &RequestHead) -> Result<Vec<u8>, Closed> {
        self.reader.buf.drain(..head.len);
        let mut body = Vec::new();
        match head.body {
            BodyLength::Fixed(length) => {
                while (self.reader.buf.len() as u64) < length {
                    self.fill().await?;
                }
                // Fits: at most MAX_BODY_BYTES.
                body.extend(self.reader.buf.drain(..length as usize));
            }
            BodyLength::Chunked => {
                let mut decoder = ChunkedDecoder::new();
                loop {
                    let decoded =
                        decoder.decode(&mut self.reader.buf).map_err(|_malformed| Closed)?;
                    body.extend_from_slice(&self.reader.buf[..decoded.payload]);
                    self.reader.buf.drain(..decoded.consumed);
                    if decoded.done {
                        break;
                    }
                    if body.len() as u64 > MAX_BODY_BYTES {
                        return Err(Closed);
                    }
                    self.fill().await?;
                }
            }
            BodyLength::None | BodyLength::UntilClose => {}
        }
        Ok(body)
    }

    async fn answer_instantly(
        &mut self,
        head: &RequestHead,
        instant: &Instant,
    ) -> Result<bool, Closed> {
        let endpoint = self.endpoint.clone();
        let _open = OpenRequest::new(&endpoint.stats);
        let stream = match head.body {
            BodyLength::Fixed(length) => self.skip_body(head.len, length).await?,
            _ => Instant::asks_for_stream(&self.read_body(head).await?),
        };
        if !stream {
            self.write(instant.whole.clone()).await?;
            return Ok(head.keep_alive);
        }
        self.out.extend_from_slice(&instant.stream_head);
        let start = Clock::now();
        for index in 0..instant.options.events {
            if index > 0 && !instant.options.interval.is_zero() {
                let due = start + instant.options.interval * index;
                monoio::time::sleep_until(due.into()).await;
            }
            instant.push_event(&mut self.out, now_ns());
            if index + 1 == instant.options.events {
                break;
            }
            self.flush().await?;
        }
        self.out.extend_from_slice(&instant.stream_end);
        self.flush().await?;
        Ok(head.keep_alive)
    }

    /// Takes a head and its body off the stream and says whether either end of the body asks for
    /// a stream. The middle of a long body is never kept.
    async fn skip_body(&mut self, head_len: usize, length: u64) -> Result<bool, Closed> {
        // Both fit: they are bounded by the look-ahead and by the 64 KiB of a head.
        let start = head_len + length.min(LOOK_BYTES) as usize;
        while self.reader.buf.len() < start {
            self.fill().await?;
        }
        let mut stream = Instant::asks_for_stream(&self.reader.buf[head_len..start]);
        let end = length.min(LOOK_BYTES) as usize;
        if length > LOOK_BYTES {
            if !self.reader.skip(head_len as u64 + length - LOOK_BYTES).await {
                return Err(Closed);
            }
            while self.reader.buf.len() < end {
                self.fill().await?;
            }
            stream |= Instant::asks_for_stream(&self.reader.buf[..end]);
            self.reader.buf.drain(..end);
        } else {
            self.reader.buf.drain(..start);
        }
        Ok(stream)
    }

    async fn generate(
        &mut self,
        head: &RequestHead,
        api: Api,
        host: &Rc<Host>,
    ) -> Result<bool, Closed> {
        let endpoint = self.endpoint.clone();
        let _open = OpenRequest::new(&endpoint.stats);
        let id = match find(&self.headers, Known::XRequestId) {
            Some(header) => endpoint.request_id(Some(header.value.of(&self.reader.buf))),
            None => endpoint.request_id(None),
        };
        let proves = proof::header(&self.headers, &self.reader.buf).is_some();
        let body = self.read_body(head).await?;
        let received = proves.then(|| proof::hash(&body));
        let parsed =
            host.read(|engine| Generation::parse(api, &body, &endpoint.model, engine.profile()));
        drop(body);
        let generation = match parsed {
            Ok(generation) => generation,
            Err(error) => return self.reply(head, &bad_request(error, &endpoint.model)).await,
        };
        let Generation { stream, include_usage, sequence } = generation;
        let answer = Answer {
            api,
            id: &id,
            created: crate::clock::unix_seconds(),
            model_json: &endpoint.model_json,
            prompt_tokens: sequence.prompt_tokens,
            answer_tokens: sequence.answer_tokens,
            seed: sequence.answer_seed,
        };
        let ticket = match host.submit(sequence) {
            Ok(ticket) => ticket,
            Err(error) => return self.reply(head, &refused(error)).await,
        };
        let cuts = endpoint.faults.cuts();
        if stream {
            self.stream(&answer, &ticket, include_usage, cuts, received).await?;
            Ok(head.keep_alive)
        } else {
            let ready = self.tokens(&ticket, answer.answer_tokens - 1, cuts).await?;
            drop(ticket);
            let body = answer.whole(ready.cached_tokens);
            let proof = received.map(|request| proof::value(request, Some(proof::hash(&body))));
            let reply = Reply { status: 200, content_type: routes::JSON, body };
            self.reply_proved(head, &reply, proof.as_deref()).await
        }
    }

    async fn stream(
        &mut self,
        answer: &Answer<'_>,
        ticket: &Ticket,
        include_usage: bool,
        cuts: u64,
        received: Option<u64>,
    ) -> Result<(), Closed> {
        // vLLM sends the head as soon as the request is accepted.
        let Some(request) = received else {
            self.write(STREAM_HEAD).await?;
            return self.events(answer, ticket, include_usage, cuts, None).await;
        };
        // Without the empty line at its end.
        let head = &STREAM_HEAD[..STREAM_HEAD.len() - 2];
        let proof = format!("{}: {}\r\n\r\n", proof::HEADER, proof::value(request, None));
        self.write([head, proof.as_bytes()].concat()).await?;
        self.events(answer, ticket, include_usage, cuts, Some(Xxh3::new())).await
    }

    /// Sends the events of a stream as their tokens come, and their hash if there is to be one.
    async fn events(
        &mut self,
        answer: &Answer<'_>,
        ticket: &Ticket,
        include_usage: bool,
        cuts: u64,
        mut hasher: Option<Xxh3>,
    ) -> Result<(), Closed> {
        let mut sent = 0;
        loop {
            let ready = self.tokens(ticket, sent, cuts).await?;
            for index in sent..ready.generated {
                answer.push_token(&mut self.out, index, ready.cached_tokens, now_ns());
            }
            sent = ready.generated;
            if ready.finished {
                answer.push_usage(&mut self.out, include_usage, ready.cached_tokens);
            }
            if let Some(hasher) = &mut hasher {
                payloads(&self.out).for_each(|payload| hasher.update(payload));
            }
            if ready.finished {
                push_end(&mut self.out, hasher.as_ref().map(proof::comment).as_deref());
                return self.flush().await;
            }
            self.flush().await?;
        }
    }

    /// Waits until the engine has generated more than `seen` tokens and does not stall, or the client
    /// leaves. `cuts` is from when the request came.
    async fn tokens(&mut self, ticket: &Ticket, seen: u32, cuts: u64) -> Result<Ready, Closed> {
        let endpoint = self.endpoint.clone();
        let ready = poll_fn(|cx| {
            if endpoint.faults.cuts() != cuts {
                return Poll::Ready(None);
            }
            if let Poll::Ready(ready) = ticket.poll_tokens(seen, cx) {
                return Poll::Ready(Some(Ok(ready)));
            }
            self.reader.poll_gone(cx).map(|()| Some(Err(Closed)))
        })
        .await;
        let ready = ready.unwrap_or_else(|| Err(self.reset()))?;
        self.stand_still(cuts).await?;
        Ok(ready)
    }

    async fn reply(&mut self, head: &RequestHead, reply: &Reply) -> Result<bool, Closed> {
        self.reply_proved(head, reply, None).await
    }

    async fn reply_proved(
        &mut self,
        head: &RequestHead,
        reply: &Reply,
        proof: Option<&str>,
    ) -> Result<bool, Closed> {
        let proof = proof.map(|proof| (proof::HEADER, proof.as_bytes()));
        write_simple_response(
            &mut self.out,
            &SimpleResponse {
                status: reply.status,
                content_type: reply.content_type,
                extra_headers: proof.as_slice(),
                body: &reply.body,
                connection_close: !head.keep_alive,
                http10_client: head.http10,
                head_only: head.method == Method::Head,
            },
        );
        self.flush().await?;
        // The body of a request refused by its length alone is still to come.
        Ok(head.keep_alive && reply.status != 413)
    }

    async fn fill(&mut self) -> Result<(), Closed> {
        if self.reader.fill().await { Ok(()) } else { Err(Closed) }
    }

    /// Sends what was prepared in `out`.
    async fn flush(&mut self) -> Result<(), Closed> {
        let mut out = std::mem::take(&mut self.out);
        let result;
        (result, out) = self.writer.write_all(out).await;
        out.clear();
        self.out = out;
        result.map(drop).map_err(|_gone| Closed)
    }

    async fn write(&mut self, bytes: impl IoBuf + 'static) -> Result<(), Closed> {
        self.writer.write_all(bytes).await.0.map(drop).map_err(|_gone| Closed)
    }
}

fn bad_request(error: BadRequest, model: &str) -> Reply {
    match error {
        BadRequest::Json(what) => Reply::error(400, &format!("JSON decode error: {what}")),
        BadRequest::Missing(field) => Reply::error(400, &format!("Field required: {field}")),
        BadRequest::UnknownModel(asked) => Reply::error(
            404,
            &format!("The model `{asked}` does not exist. Valid aliases: {model}."),
        ),
    }
}

fn refused(error: SubmitError) -> Reply {
    match error {
        SubmitError::TooLong { tokens, limit } => Reply::error(
            400,
            &format!("Prompt and answer need {tokens} tokens; the engine takes {limit}."),
        ),
        SubmitError::QueueFull => Reply::error(503, "The waiting queue is full."),
    }
}
