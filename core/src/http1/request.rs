//! Request heads: RFC 9112 §2–§6, strictly.

use std::fmt;
use std::mem::MaybeUninit;

use super::fields::{BodyLength, FieldError, Framing, Header, Known, Transfer, collect};
use super::head::{MAX_HEAD_BYTES, MAX_HEADERS, MAX_LEADING_EMPTY_LINES, Span};
use super::syntax::eq_ignore_case;
use super::target::{is_valid_host, is_valid_target};

/// A parsed request head. Its headers are in the vector given to [`parse_request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// Bytes from the start of the buffer to the end of the blank line. The body begins here.
    pub len: usize,
    pub method: Method,
    /// As received: origin form, absolute form or `*`. See [`super::path_and_query`].
    pub target: Span,
    pub http10: bool,
    /// Never [`BodyLength::UntilClose`].
    pub body: BodyLength,
    /// Whether the client lets the connection be used again.
    pub keep_alive: bool,
    /// The client may hold the body back until it sees [`super::CONTINUE`].
    pub expect_continue: bool,
}

/// Methods are case-sensitive: `post` is an `Other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
    Other(Span),
}

impl Method {
    /// The method's name, given the buffer the head was parsed from.
    pub fn name<'a>(&self, buf: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Get => b"GET",
            Self::Head => b"HEAD",
            Self::Post => b"POST",
            Self::Put => b"PUT",
            Self::Patch => b"PATCH",
            Self::Delete => b"DELETE",
            Self::Options => b"OPTIONS",
            Self::Other(name) => name.of(buf),
        }
    }
}

/// Why a request is refused. The connection cannot be used afterwards: where the next request
/// would begin is not known. The `Display` text names the fault and may be shown to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    RequestLine,
    /// `HTTP/x.y` of a version other than 1.0 and 1.1.
    UnsupportedVersion,
    Target,
    /// The gateway makes no tunnels.
    Connect,
    HeaderName,
    HeaderValue,
    /// A line that ends in LF without CR.
    BareLineFeed,
    TooManyEmptyLines,
    HeadTooLong,
    TooManyHeaders,
    TooManyConnectionOptions,
    MissingHost,
    RepeatedHost,
    InvalidHost,
    ContentLength,
    RepeatedContentLength,
    TransferEncoding,
    UnsupportedTransferCoding,
    TransferEncodingInHttp10,
    LengthAndTransferEncoding,
    Expectation,
}

impl RequestError {
    /// The HTTP status to answer with.
    pub fn status(self) -> u16 {
        match self {
            Self::HeadTooLong | Self::TooManyHeaders => 431,
            // Well-formed and with a known end, only not undone here (RFC 9112 §6.1).
            Self::UnsupportedTransferCoding => 501,
            Self::Expectation => 417,
            _ => 400,
        }
    }

    /// One clause for the error answer. Holds nothing of what the client sent.
    pub fn message(self) -> &'static str {
        match self {
            Self::RequestLine => "malformed request line",
            Self::UnsupportedVersion => "HTTP version is not supported; use HTTP/1.1",
            Self::Target => "malformed request target",
            Self::Connect => "CONNECT is not supported; send the request itself",
            Self::HeaderName => "malformed header name",
            Self::HeaderValue => "malformed header value",
            Self::BareLineFeed => "line ends must be CRLF",
            Self::TooManyEmptyLines => "too many empty lines before the request",
            Self::HeadTooLong => "request head is longer than 64 KiB",
            Self::TooManyHeaders => "request has more than 256 header lines",
            Self::TooManyConnectionOptions => "Connection lists more than 32 options",
            Self::MissingHost => "Host header is missing",
            Self::RepeatedHost => "Host header is repeated",
            Self::InvalidHost => "malformed Host header",
            Self::ContentLength => "malformed Content-Length",
            Self::RepeatedContentLength => "Content-Length is repeated",
            Self::TransferEncoding => "malformed Transfer-Encoding; only chunked is supported",
            Self::UnsupportedTransferCoding => "transfer coding is not supported; use chunked",
            Self::TransferEncodingInHttp10 => "Transfer-Encoding is not allowed in HTTP/1.0",
            Self::LengthAndTransferEncoding => {
                "Content-Length and Transfer-Encoding must not both be given"
            }
            Self::Expectation => "expectation is not supported; only 100-continue is",
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for RequestError {}

impl From<FieldError> for RequestError {
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

/// Parses the request head at the start of `buf`; bytes behind it are not looked at.
/// `Ok(None)`: more bytes are needed (see [`super::HeadCursor`] for when to try again).
/// `headers` is cleared and refilled, so one vector serves a connection without allocating.
pub fn parse_request(
    buf: &[u8],
    headers: &mut Vec<Header>,
) -> Result<Option<RequestHead>, RequestError> {
    headers.clear();
    let Some(start) = skip_empty_lines(buf)? else { return Ok(None) };
    let limited = &buf[..buf.len().min(MAX_HEAD_BYTES)];
    let mut storage = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut []);
    let head_len = match parsed.parse_with_uninit_headers(&limited[start..], &mut storage) {
        Ok(httparse::Status::Complete(len)) => start + len,
        Ok(httparse::Status::Partial) if limited.len() == MAX_HEAD_BYTES => {
            return Err(RequestError::HeadTooLong);
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(classify(error, &limited[start..])),
    };
    let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version)
    else {
        // httparse sets all three when it reports a whole head.
        return Err(RequestError::RequestLine);
    };

    let method = parse_method(buf, method)?;
    if !is_valid_target(target.as_bytes(), method == Method::Options) {
        return Err(RequestError::Target);
    }
    let http10 = minor == 0;
    let framing = collect(buf, head_len, parsed.headers, headers)?;
    let body = body_length(&framing, http10)?;
    check_host(buf, headers, http10)?;
    Ok(Some(RequestHead {
        len: head_len,
        method,
        target: Span::within(buf, target.as_bytes()),
        http10,
        body,
        keep_alive: !framing.close && (!http10 || framing.keep_alive),
        expect_continue: expects_continue(buf, headers, http10, body)?,
    }))
}

/// The offset of the request line, or None when it has not begun yet.
fn skip_empty_lines(buf: &[u8]) -> Result<Option<usize>, RequestError> {
    let mut start = 0;
    while let [b'\r', b'\n', ..] = buf[start..] {
        start += 2;
        if start > 2 * MAX_LEADING_EMPTY_LINES {
            return Err(RequestError::TooManyEmptyLines);
        }
    }
    match buf[start..] {
        [] | [b'\r'] => Ok(None),
        // httparse would skip an LF here; it is no empty line of ours.
        [b'\n', ..] => Err(RequestError::BareLineFeed),
        [b'\r', ..] => Err(RequestError::RequestLine),
        _ => Ok(Some(start)),
    }
}

fn classify(error: httparse::Error, head: &[u8]) -> RequestError {
    match error {
        httparse::Error::HeaderName => RequestError::HeaderName,
        httparse::Error::HeaderValue => RequestError::HeaderValue,
        httparse::Error::TooManyHeaders => RequestError::TooManyHeaders,
        httparse::Error::Version if names_other_version(head) => RequestError::UnsupportedVersion,
        httparse::Error::NewLine
        | httparse::Error::Status
        | httparse::Error::Token
        | httparse::Error::Version => RequestError::RequestLine,
    }
}

/// Whether the request line has three parts, the last of which is a well-formed version, or the
/// beginning of one if the line is not complete.
fn names_other_version(head: &[u8]) -> bool {
    let line_end = memchr::memchr2(b'\r', b'\n', head).unwrap_or(head.len());
    let mut parts = head[..line_end].split(|&byte| byte == b' ').skip(2);
    let (Some(version), None) = (parts.next(), parts.next()) else { return false };
    match version.strip_prefix(b"HTTP/") {
        Some([major, b'.', minor]) => major.is_ascii_digit() && minor.is_ascii_digit(),
        Some([major] | [major, b'.']) => line_end == head.len() && major.is_ascii_digit(),
        _ => false,
    }
}

fn parse_method(buf: &[u8], method: &str) -> Result<Method, RequestError> {
    Ok(match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "PATCH" => Method::Patch,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "CONNECT" => return Err(RequestError::Connect),
        other => Method::Other(Span::within(buf, other.as_bytes())),
    })
}

/// RFC 9112 §6.3 allows both framings together to be read as chunked; §11.2 says why it is
/// better refused.
fn body_length(framing: &Framing, http10: bool) -> Result<BodyLength, RequestError> {
    match (framing.transfer, framing.length) {
        (Some(_), Some(_)) => Err(RequestError::LengthAndTransferEncoding),
        (Some(_), None) if http10 => Err(RequestError::TransferEncodingInHttp10),
        (Some(Transfer::Unsupported), None) => Err(RequestError::UnsupportedTransferCoding),
        (Some(Transfer::Chunked), None) => Ok(BodyLength::Chunked),
        (None, Some(length)) => Ok(BodyLength::Fixed(length)),
        (None, None) => Ok(BodyLength::None),
    }
}

fn check_host(buf: &[u8], headers: &[Header], http10: bool) -> Result<(), RequestError> {
    let mut hosts = headers.iter().filter(|header| header.known == Known::Host);
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Err(RequestError::RepeatedHost),
        (None, None) if http10 => Ok(()),
        (None, None) => Err(RequestError::MissingHost),
        (Some(host), None) if is_valid_host(host.value.of(buf)) => Ok(()),
        (Some(_), None) => Err(RequestError::InvalidHost),
    }
}

/// RFC 9110 §10.1.1: ignored from HTTP/1.0 clients, and pointless without a body.
fn expects_continue(
    buf: &[u8],
    headers: &[Header],
    http10: bool,
    body: BodyLength,
) -> Result<bool, RequestError> {
    if http10 {
        return Ok(false);
    }
    let mut expected = false;
    for header in headers.iter().filter(|header| header.known == Known::Expect) {
        if !eq_ignore_case(header.value.of(buf), b"100-continue") {
            return Err(RequestError::Expectation);
        }
        expected = true;
    }
    Ok(expected && !matches!(body, BodyLength::None | BodyLength::Fixed(0)))
}
