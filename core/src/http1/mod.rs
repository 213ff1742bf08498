//! HTTP/1.1 on the wire, without a socket: message heads are parsed from bytes and written to
//! bytes, chunked bodies are decoded in place (RFC 9112, RFC 9110; gateway.md §2, §3).
//!
//! Both peers are taken for hostile. Whatever two readers of the same bytes could frame
//! differently is an error here, and what is relayed is framed anew, so nothing can hide in a
//! message that only the next hop would see.

mod chunked;
mod fields;
mod head;
mod request;
mod response;
mod rewrite;
mod simple;
mod syntax;
mod target;

pub use chunked::{
    CHUNK_HEADROOM, ChunkError, ChunkErrorKind, ChunkedDecoder, Decoded, LAST_CHUNK,
    MAX_CHUNK_EXTENSION_BYTES, MAX_CHUNK_SIZE_DIGITS, MAX_MESSAGE_EXTENSION_BYTES,
    MAX_TRAILER_BYTES, chunk_prefix,
};
pub use fields::{BodyLength, Header, Known, find};
pub use head::{
    HeadCursor, MAX_CONNECTION_OPTIONS, MAX_HEAD_BYTES, MAX_HEADERS, MAX_LEADING_EMPTY_LINES, Span,
};
pub use request::{Method, RequestError, RequestHead, parse_request};
pub use response::{ResponseError, ResponseHead, parse_response, parse_rewritten_response};
pub use rewrite::{
    Authorization, ClientFraming, RequestRewrite, ResponseRewrite, write_request_head,
    write_response_head,
};
pub use simple::{CONTINUE, SimpleResponse, reason, write_simple_response};
pub use syntax::{
    eq_ignore_case, is_field_value, is_token, list_elements, parse_decimal, push_decimal,
    trim_whitespace,
};
pub use target::{is_valid_host, path_and_query, split_query};

#[cfg(test)]
mod tests;
