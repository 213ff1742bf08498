//! Reading one request off a client connection: head, then body, into one buffer.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smg_core::http1::{
    BodyLength, CONTINUE, ChunkedDecoder, HeadCursor, Header, RequestError, RequestHead,
    parse_request,
};

use crate::body_memory::{BodyMemory, Buffer};
use crate::config::Config;
use crate::http::answer::{ErrorAnswer, ErrorCode};
use crate::http::client::{ClientSide, Interrupt};
use crate::http::route::BodyLimit;
use crate::http::transport::Writer;
use crate::http2::Preface;
use crate::shard::ConnectionState;
use crate::shared::Shared;

/// How long an idle connection is kept between requests.
pub const KEEP_ALIVE: Duration = Duration::from_secs(600);
/// Where address space for a whole body is refused, it begins with so much and doubles as it arrives.
const FIRST_PART: usize = 128 << 10;

/// Why no request came out of the connection.
pub enum Stop {
    /// The client is gone, or said nothing for too long: close without a word.
    Close,
    /// The client is told why, and the connection ends.
    Refuse(ErrorAnswer),
    /// The connection begins as one of HTTP/2.
    Http2,
}

/// Reads a request head; the body is still to come. `first` is the connection's first; `started` is
/// set when its first byte is there.
pub async fn head(
    client: &mut ClientSide,
    config: &Config,
    headers: &mut Vec<Header>,
    first: bool,
    state: &ConnectionState,
    started: &mut Option<Instant>,
) -> Result<RequestHead, Stop> {
    let limit = Duration::from_secs(config.limits.header_read_timeout_secs);
    client.set_deadline(if first { limit } else { KEEP_ALIVE });
    let mut cursor = HeadCursor::default();
    loop {
        if !client.received().is_empty() {
            if started.is_none() {
                *started = Some(Instant::now());
                state.begin_request();
                client.set_deadline(limit);
            }
            let preface = if first { Preface::of(client.received()) } else { Preface::Absent };
            if preface == Preface::Whole {
                return Err(Stop::Http2);
            }
            if preface == Preface::Absent && cursor.ready(client.received()) {
                match parse_request(client.received(), headers) {
                    Ok(Some(head)) => return Ok(head),
                    Ok(None) => {}
                    Err(error) => return Err(Stop::Refuse(refusal(error))),
                }
            }
        }
        match client.fill(512).await {
            Ok(_) => {}
            Err(Interrupt::ClientGone) => return Err(Stop::Close),
            Err(Interrupt::Deadline) if started.is_none() => return Err(Stop::Close),
            Err(Interrupt::Deadline) => {
                return Err(Stop::Refuse(ErrorAnswer::new(
                    ErrorCode::RequestTimeout,
                    "the request head did not arrive in time; send it at once",
                )));
            }
        }
    }
}

fn refusal(error: RequestError) -> ErrorAnswer {
    let code = match error.status() {
        431 => ErrorCode::HeadTooLarge,
        417 => ErrorCode::ExpectationFailed,
        501 => ErrorCode::NotImplemented,
        _ => ErrorCode::BadRequest,
    };
    ErrorAnswer::new(code, error.message())
}

/// A request's bytes: its head and decoded body, what followed them, and where the body is.
pub struct WholeRequest {
    /// Head and body.
    pub buf: Buffer,
    /// The body in `buf`.
    pub body: Range<usize>,
    /// Bytes of the next request.
    pub ahead: Vec<u8>,
}

/// Reads the body that belongs to `head`, whose bytes are at the front of what was received.
pub async fn body(
    client: &mut ClientSide,
    writer: &mut Writer,
    shared: &Shared,
    head: &RequestHead,
    limit: BodyLimit,
) -> Result<WholeRequest, Stop> {
    let limits = &shared.config.limits;
    let stall = Duration::from_secs(limits.stream_body_stall_timeout_secs);
    let memory = &shared.body_memory;
    if let BodyLength::Fixed(length) = head.body
        && length > limit.bytes as u64
    {
        return Err(Stop::Refuse(too_large(limit)));
    }
    if head.expect_continue && client.received().len() == head.len && !head.body.is_empty() {
        client.set_deadline(stall);
        match client.watch(writer.write_all(CONTINUE.to_vec(), 0)).await {
            Ok((Ok(()), _)) => {}
            _ => return Err(Stop::Close),
        }
    }
    match head.body {
        BodyLength::Chunked => chunked(client, head.len, limit, memory, Pace::new(stall)).await,
        BodyLength::Fixed(length) => {
            // INVARIANT: `length` is at most `limit`, a usize.
            fixed(client, head.len..head.len + length as usize, memory, Pace::new(stall)).await
        }
        BodyLength::None | BodyLength::UntilClose => {
            fixed(client, head.len..head.len, memory, Pace::new(stall)).await
        }
    }
}

async fn fixed(
    client: &mut ClientSide,
    body: Range<usize>,
    memory: &Arc<BodyMemory>,
    mut pace: Pace,
) -> Result<WholeRequest, Stop> {
    loop {
        let have = client.received().len();
        client
            .cover(memory, have.min(body.end) - client.counted_from(body.start))
            .map_err(|full| Stop::Refuse(full.answer()))?;
        if have >= body.end {
            break;
        }
        let missing = body.end - have;
        // Address space for all of it: memory follows what arrives and not what was announced, and
        // nothing is copied from buffer to buffer.
        let spare = match client.received().try_reserve_exact(missing) {
            Ok(()) => missing,
            Err(_) => missing.min(have.max(FIRST_PART)),
        };
        pace.note(client, have - body.start);
        fill(client, spare).await?;
    }
    let (buf, ahead) = client.take_request(body.end);
    Ok(WholeRequest { buf, body, ahead })
}

async fn chunked(
    client: &mut ClientSide,
    start: usize,
    limit: BodyLimit,
    memory: &Arc<BodyMemory>,
    mut pace: Pace,
) -> Result<WholeRequest, Stop> {
    let mut decoder = ChunkedDecoder::new();
    let mut decoded = start;
    let counted_from = client.counted_from(start);
    loop {
        let held = client.received().len() - counted_from;
        client.cover(memory, held).map_err(|full| Stop::Refuse(full.answer()))?;
        let buf = client.received();
        let progress = decoder.decode(&mut buf[decoded..]).map_err(|error| {
            Stop::Refuse(ErrorAnswer::new(ErrorCode::BadRequest, error.kind.message()))
        })?;
        let consumed = decoded + progress.consumed;
        decoded += progress.payload;
        let size = (decoded - start) as u64;
        if size.saturating_add(decoder.announced()) > limit.bytes as u64 {
            return Err(Stop::Refuse(too_large(limit)));
        }
        if progress.done {
            let ahead = buf[consumed..].to_vec();
            buf.truncate(decoded);
            let (buf, _) = client.take_request(decoded);
            return Ok(WholeRequest { buf, body: start..decoded, ahead });
        }
        buf.truncate(decoded);
        let announced = usize::try_from(decoder.announced()).unwrap_or(usize::MAX);
        let spare = announced.clamp(512, decoded.max(64 * 1024));
        pace.note(client, decoded - start);
        fill(client, spare).await?;
    }
}

/// When a body counts as stalled. One that is counted in the budget must grow by a share of itself within
/// the time, so that nobody holds much of the budget for ever by a byte now and then.
struct Pace {
    stall: Duration,
    /// Bytes there were when the time began.
    from: usize,
}

/// 32 MiB of the largest body by default: within 300 s that is 0.1 MiB/s, and as much less as it is smaller.
const LEAST_GROWTH: usize = 16;

impl Pace {
    fn new(stall: Duration) -> Self {
        Self { stall, from: 0 }
    }

    /// `have` bytes of the body are there.
    fn note(&mut self, client: &mut ClientSide, have: usize) {
        if have <= client.free() || have - self.from >= self.from / LEAST_GROWTH {
            client.set_deadline(self.stall);
            self.from = have;
        }
    }
}

async fn fill(client: &mut ClientSide, spare: usize) -> Result<(), Stop> {
    match client.fill(spare).await {
        Ok(_) => Ok(()),
        Err(Interrupt::ClientGone) => Err(Stop::Close),
        Err(Interrupt::Deadline) => Err(Stop::Refuse(ErrorAnswer::new(
            ErrorCode::RequestTimeout,
            "the request body stopped arriving, or arrives too slowly for its size",
        ))),
    }
}

/// 413.
pub fn too_large(limit: BodyLimit) -> ErrorAnswer {
    let BodyLimit { bytes, is_payload } = limit;
    let whose = if is_payload { "--max-payload-size" } else { "of this path" };
    ErrorAnswer::new(
        ErrorCode::RequestTooLarge,
        format!("the request body is over the limit of {bytes} bytes ({whose})"),
    )
}
