//! What changes in a head on its way through the gateway (gateway.md §2). Everything else is
//! copied as raw lines, whole runs at a time.

use super::fields::{BodyLength, Header, Known};
use super::request::RequestHead;
use super::response::ResponseHead;
use super::syntax::{eq_ignore_case, push_decimal};
use super::target::path_and_query;

/// The changes on the way to a worker. The values are written as they are: they must satisfy
/// [`super::is_field_value`].
#[derive(Clone, Copy, Debug)]
pub struct RequestRewrite<'a> {
    /// The worker's authority, `host[:port]`.
    pub host: &'a [u8],
    /// Path of the worker's URL without a slash at its end; usually empty.
    pub path_prefix: &'a [u8],
    pub authorization: Authorization<'a>,
    /// The client proved itself to the gateway with `x-api-key`: the worker must not learn it.
    pub drop_x_api_key: bool,
    /// Added as `x-request-id` when the client sent none.
    pub request_id: Option<&'a [u8]>,
    /// The client's IP address as text, appended to `x-forwarded-for`.
    pub client_addr: Option<&'a [u8]>,
    /// Some: exactly one `Content-Length` with this value. None: no framing headers, no body.
    pub content_length: Option<u64>,
}

/// What happens to the client's `Authorization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authorization<'a> {
    Keep,
    Drop,
    /// The worker's own credentials, such as `Bearer key`, in place of the client's.
    Replace(&'a [u8]),
}

/// Appends the request head for a worker: HTTP/1.1, origin form, end-to-end headers in their
/// order and spelling. `buf`, `head` and `headers` are as [`super::parse_request`] had them.
pub fn write_request_head(
    out: &mut Vec<u8>,
    buf: &[u8],
    head: &RequestHead,
    headers: &[Header],
    rewrite: &RequestRewrite<'_>,
) {
    out.reserve(head.len + rewrite.path_prefix.len() + rewrite.host.len() + ADDED_BYTES);
    out.extend_from_slice(head.method.name(buf));
    out.push(b' ');
    let target = path_and_query(head.target.of(buf));
    match target {
        b"*" => {}
        [b'/', ..] => out.extend_from_slice(rewrite.path_prefix),
        _ => {
            out.extend_from_slice(rewrite.path_prefix);
            out.push(b'/');
        }
    }
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    push_header(out, b"Host", rewrite.host);

    let mut request_id = rewrite.request_id;
    let mut client_addr = rewrite.client_addr;
    let mut lines = Lines::of(buf, headers);
    for (index, header) in headers.iter().enumerate() {
        let keep = !header.hop_by_hop
            && match header.known {
                Known::Host
                | Known::ContentLength
                | Known::SmgRoutingTokens
                | Known::SmgExplain => false,
                Known::Authorization => rewrite.authorization == Authorization::Keep,
                Known::XApiKey => !rewrite.drop_x_api_key,
                Known::XRequestId => {
                    request_id = None;
                    true
                }
                Known::XForwardedFor => {
                    let later = &headers[index + 1..];
                    client_addr.is_none()
                        || later.iter().any(|other| other.known == Known::XForwardedFor)
                }
                _ => true,
            };
        if keep {
            continue;
        }
        lines.skip(out, header);
        if header.known == Known::XForwardedFor
            && let Some(addr) = client_addr.take()
        {
            append_to_list(out, buf, header, addr);
        }
    }
    lines.finish(out);

    if let Authorization::Replace(credentials) = rewrite.authorization {
        push_header(out, b"Authorization", credentials);
    }
    if let Some(id) = request_id {
        push_header(out, b"x-request-id", id);
    }
    if let Some(addr) = client_addr {
        push_header(out, b"x-forwarded-for", addr);
    }
    if let Some(length) = rewrite.content_length {
        push_length(out, length);
    }
    out.extend_from_slice(b"\r\n");
}

/// The changes on the way to the client. The values must satisfy [`super::is_field_value`].
#[derive(Clone, Copy, Debug)]
pub struct ResponseRewrite<'a> {
    pub request_id: &'a [u8],
    /// None with `--hide-worker-id`.
    pub routed_worker: Option<&'a [u8]>,
    pub framing: ClientFraming,
    /// Some: these in place of every `Access-Control-*` of the worker's.
    pub cors: Option<&'a [(&'a str, &'a [u8])]>,
    pub connection_close: bool,
    /// The client speaks HTTP/1.0 and must be told when the connection stays open.
    pub http10_client: bool,
}

/// How the client will find the end of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFraming {
    AsContentLength(u64),
    Chunked,
    /// By the end of the connection, which is therefore announced.
    CloseDelimited,
    /// There is no body: 204, 304, or an answer to HEAD, whose `Content-Length` (of the body
    /// that is not sent) is kept except with 204, which must have none.
    NoBody,
}

impl ClientFraming {
    /// The framing for a worker's body as it is relayed: the same length, or chunks where only
    /// the worker's framing tells the end, which HTTP/1.0 clients do not know.
    pub fn for_body(body: BodyLength, http10_client: bool) -> Self {
        match body {
            BodyLength::None => Self::NoBody,
            BodyLength::Fixed(length) => Self::AsContentLength(length),
            BodyLength::Chunked | BodyLength::UntilClose if http10_client => Self::CloseDelimited,
            BodyLength::Chunked | BodyLength::UntilClose => Self::Chunked,
        }
    }
}

/// Appends the response head for the client: always HTTP/1.1, end-to-end headers in their order
/// and spelling, framing and connection headers of our own. `buf`, `head` and `headers` are as
/// [`super::parse_response`] had them.
pub fn write_response_head(
    out: &mut Vec<u8>,
    buf: &[u8],
    head: &ResponseHead,
    headers: &[Header],
    rewrite: &ResponseRewrite<'_>,
) {
    out.reserve(head.len + ADDED_BYTES);
    out.extend_from_slice(b"HTTP/1.1 ");
    push_decimal(out, u64::from(head.status));
    out.push(b' ');
    out.extend_from_slice(head.reason.of(buf));
    out.extend_from_slice(b"\r\n");

    let keep_length = rewrite.framing == ClientFraming::NoBody && head.status != 204;
    let mut lines = Lines::of(buf, headers);
    for header in headers {
        let replaced = rewrite.cors.is_some() && is_cors(header.name.of(buf));
        let keep = !header.hop_by_hop
            && !replaced
            && match header.known {
                Known::ContentLength => keep_length,
                Known::SmgErrorCode
                | Known::SmgRoute
                | Known::SmgRoutedWorkerId
                | Known::XRequestId => false,
                _ => true,
            };
        if !keep {
            lines.skip(out, header);
        }
    }
    lines.finish(out);

    push_header(out, b"x-request-id", rewrite.request_id);
    if let Some(worker) = rewrite.routed_worker {
        push_header(out, b"x-smg-routed-worker-id", worker);
    }
    for (name, value) in rewrite.cors.unwrap_or_default() {
        push_header(out, name.as_bytes(), value);
    }
    match rewrite.framing {
        ClientFraming::AsContentLength(length) => push_length(out, length),
        ClientFraming::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        ClientFraming::CloseDelimited | ClientFraming::NoBody => {}
    }
    let close = rewrite.connection_close || rewrite.framing == ClientFraming::CloseDelimited;
    push_connection(out, close, rewrite.http10_client);
    out.extend_from_slice(b"\r\n");
}

fn is_cors(name: &[u8]) -> bool {
    const PREFIX: &[u8] = b"access-control-";
    name.get(..PREFIX.len()).is_some_and(|prefix| eq_ignore_case(PREFIX, prefix))
}

/// Room for the headers the gateway adds, so that a head is written with one allocation at most.
const ADDED_BYTES: usize = 512;

/// Copies header lines in runs: what lies between two skipped lines is one copy.
struct Lines<'a> {
    buf: &'a [u8],
    /// Lines up to here are copied or skipped.
    copied: usize,
    end: usize,
}

impl<'a> Lines<'a> {
    fn of(buf: &'a [u8], headers: &[Header]) -> Self {
        let copied = headers.first().map_or(0, |first| first.name.start as usize);
        let end = headers.last().map_or(0, |last| last.line_end as usize);
        Self { buf, copied, end }
    }

    /// Copies everything before this line and leaves it out.
    fn skip(&mut self, out: &mut Vec<u8>, header: &Header) {
        self.copy_up_to(out, header.name.start as usize);
        self.copied = header.line_end as usize;
    }

    fn finish(mut self, out: &mut Vec<u8>) {
        self.copy_up_to(out, self.end);
    }

    fn copy_up_to(&mut self, out: &mut Vec<u8>, end: usize) {
        out.extend_from_slice(self.buf.get(self.copied..end).unwrap_or_default());
        self.copied = end;
    }
}

/// Writes the header again with one more element in its list.
fn append_to_list(out: &mut Vec<u8>, buf: &[u8], header: &Header, element: &[u8]) {
    out.extend_from_slice(header.name.of(buf));
    out.extend_from_slice(b": ");
    if !header.value.is_empty() {
        out.extend_from_slice(header.value.of(buf));
        out.extend_from_slice(b", ");
    }
    out.extend_from_slice(element);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn push_header(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn push_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"content-length: ");
    push_decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

/// HTTP/1.1 keeps connections open by default, HTTP/1.0 closes them.
pub(super) fn push_connection(out: &mut Vec<u8>, close: bool, http10_client: bool) {
    if close {
        out.extend_from_slice(b"connection: close\r\n");
    } else if http10_client {
        out.extend_from_slice(b"connection: keep-alive\r\n");
    }
}
