//! Response heads, as a worker sends them: RFC 9112 §4–§6, strictly but for the reason phrase.

use std::fmt;
use std::mem::MaybeUninit;

use super::fields::{BodyLength, FieldError, Framing, Header, Known, Transfer, collect, find};
use super::head::{
    MAX_HEAD_BYTES, MAX_HEADERS, MAX_REWRITTEN_HEAD_BYTES, MAX_REWRITTEN_HEADERS, Span,
};
use super::syntax::{eq_ignore_case, trim_whitespace};

/// A parsed response head. Its headers are in the vector given to [`parse_response`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Bytes from the start of the buffer to the end of the blank line.
    pub len: usize,
    /// 100 to 599, never 101.
    pub status: u16,
    /// Often empty, and not always ASCII.
    pub reason: Span,
    pub http10: bool,
    pub body: BodyLength,
    /// Whether the worker's connection may carry another request once the body was read.
    pub keep_alive: bool,
    /// The content type is `text/event-stream`.
    pub event_stream: bool,
}

impl ResponseHead {
    /// An interim (1xx) response: skip it, the answer is still to come.
    pub fn is_interim(&self) -> bool {
        self.status < 200
    }
}

/// Why a response cannot be relayed. The connection cannot be used afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseError {
    StatusLine,
    /// 101: no upgrade was asked for.
    SwitchingProtocols,
    HeaderName,
    HeaderValue,
    BareLineFeed,
    HeadTooLong,
    TooManyHeaders,
    TooManyConnectionOptions,
    ContentLength,
    RepeatedContentLength,
    TransferEncoding,
    TransferEncodingInHttp10,
}

impl ResponseError {
    /// One clause that says what is wrong with the worker's answer.
    pub fn message(self) -> &'static str {
        match self {
            Self::StatusLine => "malformed status line",
            Self::SwitchingProtocols => "unexpected 101 Switching Protocols",
            Self::HeaderName => "malformed header name",
            Self::HeaderValue => "malformed header value",
            Self::BareLineFeed => "line end without CR",
            Self::HeadTooLong => "response head is longer than 64 KiB",
            Self::TooManyHeaders => "response has more than 256 header lines",
            Self::TooManyConnectionOptions => "Connection lists more than 32 options",
            Self::ContentLength => "malformed Content-Length",
            Self::RepeatedContentLength => "repeated Content-Length",
            Self::TransferEncoding => "unsupported or malformed Transfer-Encoding",
            Self::TransferEncodingInHttp10 => "Transfer-Encoding in an HTTP/1.0 response",
        }
    }
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for ResponseError {}

impl From<FieldError> for ResponseError {
    fn from(error: FieldError) -> Self {
        match error {
            FieldError::BareLineFeed => Self::BareLineFeed,
            FieldError::ContentLength => Self::ContentLength,
            FieldError::RepeatedContentLength => Self::RepeatedContentLength,
            FieldError::TransferEncoding => Self::TransferEncoding,
            FieldError::TooManyConnectionOptions => Self::TooManyConnectionOptions,
        }
    }
}

/// Parses the response head at the start of `buf`. `Ok(None)`: more bytes are needed.
/// `to_head`: the request was a HEAD, so there is no body whatever the headers say. 1xx, 204 and
/// 304 have none either. `headers` is cleared and refilled.
pub fn parse_response(
    buf: &[u8],
    to_head: bool,
    headers: &mut Vec<Header>,
) -> Result<Option<ResponseHead>, ResponseError> {
    parse_within::<MAX_HEADERS>(buf, to_head, headers, MAX_HEAD_BYTES)
}

/// The same for a head of [`write_response_head`](super::write_response_head): with room for all that adds to
/// one that [`parse_response`] let through.
pub fn parse_rewritten_response(
    buf: &[u8],
    to_head: bool,
    headers: &mut Vec<Header>,
) -> Result<Option<ResponseHead>, ResponseError> {
    parse_within::<MAX_REWRITTEN_HEADERS>(buf, to_head, headers, MAX_REWRITTEN_HEAD_BYTES)
}

fn parse_within<const LINES: usize>(
    buf: &[u8],
    to_head: bool,
    headers: &mut Vec<Header>,
    bytes: usize,
) -> Result<Option<ResponseHead>, ResponseError> {
    headers.clear();
    if matches!(buf.first(), Some(b'\r' | b'\n')) {
        // httparse skips empty lines; before a response they are surplus bytes of the last one.
        return Err(ResponseError::StatusLine);
    }
    let limited = &buf[..buf.len().min(bytes)];
    let mut storage = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; LINES];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let head_len =
        match config.parse_response_with_uninit_headers(&mut parsed, limited, &mut storage) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) if limited.len() == bytes => {
                return Err(ResponseError::HeadTooLong);
            }
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(classify(error)),
        };
    let (Some(minor), Some(status)) = (parsed.version, parsed.code) else {
        // httparse sets both when it reports a whole head.
        return Err(ResponseError::StatusLine);
    };
    match status {
        101 => return Err(ResponseError::SwitchingProtocols),
        100..=599 => {}
        _ => return Err(ResponseError::StatusLine),
    }

    let http10 = minor == 0;
    let framing = collect(buf, head_len, parsed.headers, headers)?;
    let bodiless = to_head || status < 200 || matches!(status, 204 | 304);
    let body = body_length(&framing, http10, bodiless)?;
    let both_framings = framing.length.is_some() && framing.transfer.is_some();
    Ok(Some(ResponseHead {
        len: head_len,
        status,
        reason: reason_span(headers, head_len),
        http10,
        body,
        keep_alive: !framing.close
            && (!http10 || framing.keep_alive)
            && !both_framings
            && body != BodyLength::UntilClose,
        event_stream: find(headers, Known::ContentType)
            .is_some_and(|content_type| is_event_stream(content_type.value.of(buf))),
    }))
}

fn classify(error: httparse::Error) -> ResponseError {
    match error {
        httparse::Error::HeaderName => ResponseError::HeaderName,
        httparse::Error::HeaderValue => ResponseError::HeaderValue,
        httparse::Error::TooManyHeaders => ResponseError::TooManyHeaders,
        httparse::Error::NewLine
        | httparse::Error::Status
        | httparse::Error::Token
        | httparse::Error::Version => ResponseError::StatusLine,
    }
}

/// RFC 9112 §6.3. With both framings the chunked one counts, and the caller drops the length.
fn body_length(
    framing: &Framing,
    http10: bool,
    bodiless: bool,
) -> Result<BodyLength, ResponseError> {
    match (framing.transfer, framing.length) {
        (Some(_), _) if http10 => Err(ResponseError::TransferEncodingInHttp10),
        (Some(Transfer::Unsupported), _) => Err(ResponseError::TransferEncoding),
        _ if bodiless => Ok(BodyLength::None),
        (Some(Transfer::Chunked), _) => Ok(BodyLength::Chunked),
        (None, Some(length)) => Ok(BodyLength::Fixed(length)),
        (None, None) => Ok(BodyLength::UntilClose),
    }
}

/// The reason phrase lies between the status code and the end of the first line. Taken from the
/// bytes because httparse blanks phrases with obs-text.
fn reason_span(headers: &[Header], head_len: usize) -> Span {
    const STATUS_LINE_PREFIX: usize = "HTTP/1.1 200 ".len();
    let line_end = headers.first().map_or(head_len - 2, |header| header.name.start as usize);
    let end = line_end - 2;
    Span::new(STATUS_LINE_PREFIX.min(end), end)
}

fn is_event_stream(content_type: &[u8]) -> bool {
    let media_type = content_type.split(|&byte| byte == b';').next().unwrap_or_default();
    eq_ignore_case(trim_whitespace(media_type), b"text/event-stream")
}
