//! The gateway's own answers.

use super::rewrite::{push_connection, push_header, push_length};
use super::syntax::push_decimal;

/// The interim answer to `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A whole answer with its body in memory. Header values must satisfy
/// [`super::is_field_value`].
#[derive(Clone, Copy, Debug)]
pub struct SimpleResponse<'a> {
    /// 200 to 599.
    pub status: u16,
    /// Empty: no `Content-Type`.
    pub content_type: &'a str,
    pub extra_headers: &'a [(&'a str, &'a [u8])],
    pub body: &'a [u8],
    pub connection_close: bool,
    /// The client speaks HTTP/1.0 and must be told when the connection stays open.
    pub http10_client: bool,
    /// The request was HEAD: the body's length is given, the body is not sent.
    pub head_only: bool,
}

/// Appends the answer. 204 and 304 are written without a body or length.
pub fn write_simple_response(out: &mut Vec<u8>, response: &SimpleResponse<'_>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    push_decimal(out, u64::from(response.status));
    out.push(b' ');
    out.extend_from_slice(reason(response.status).as_bytes());
    out.extend_from_slice(b"\r\n");
    if !response.content_type.is_empty() {
        push_header(out, b"content-type", response.content_type.as_bytes());
    }
    for (name, value) in response.extra_headers {
        push_header(out, name.as_bytes(), value);
    }
    let bodiless = matches!(response.status, 204 | 304);
    if !bodiless {
        push_length(out, response.body.len() as u64);
    }
    push_connection(out, response.connection_close, response.http10_client);
    out.extend_from_slice(b"\r\n");
    if !bodiless && !response.head_only {
        out.extend_from_slice(response.body);
    }
}

/// The reason phrase of a status (RFC 9110 §15, RFC 6585); empty for others.
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        511 => "Network Authentication Required",
        _ => "",
    }
}
