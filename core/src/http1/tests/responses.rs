//! Response heads: what a worker may send, and what makes its answer an error.

use super::super::{BodyLength, MAX_HEAD_BYTES, ResponseError, ResponseHead};
use super::{fields, parse_response, response};

#[track_caller]
fn refused(bytes: &[u8], error: ResponseError) {
    let shown = String::from_utf8_lossy(bytes);
    assert_eq!(parse_response(bytes), Err(error), "{shown:?}");
}

fn to_head(bytes: &[u8]) -> ResponseHead {
    super::super::parse_response(bytes, true, &mut Vec::new()).expect("valid").expect("whole")
}

#[test]
fn a_response_is_read_as_ranges_of_the_buffer() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Latin: caf\xe9\r\n\
        Set-Cookie: a=1\r\nX-Empty:\r\nSet-Cookie: b=2\r\ncontent-length: 2\r\n\r\n{}HTTP";
    let (head, headers) = response(bytes);
    assert_eq!(head.len, bytes.len() - 6);
    assert_eq!(head.status, 200);
    assert_eq!(head.reason.of(bytes), b"OK");
    assert_eq!(head.body, BodyLength::Fixed(2));
    assert!(head.keep_alive && !head.http10 && !head.event_stream && !head.is_interim());
    let want: [(&[u8], &[u8]); 6] = [
        (b"Content-Type", b"application/json"),
        (b"X-Latin", b"caf\xe9"),
        (b"Set-Cookie", b"a=1"),
        (b"X-Empty", b""),
        (b"Set-Cookie", b"b=2"),
        (b"content-length", b"2"),
    ];
    assert_eq!(fields(bytes, &headers), want);
}

#[test]
fn odd_reason_phrases_are_accepted() {
    let cases: [(&[u8], &[u8]); 6] = [
        (b"HTTP/1.1 200 ", b""),
        (b"HTTP/1.1 200", b""),
        (b"HTTP/1.1 200 All is \xe9 well; ok", b"All is \xe9 well; ok"),
        (b"HTTP/1.1 200 \"tab\there\"", b"\"tab\there\""),
        (b"HTTP/1.1 200  OK", b" OK"),
        (b"HTTP/1.0 200 O", b"O"),
    ];
    for (line, reason) in cases {
        for rest in [&b"\r\ncontent-length: 2\r\n\r\n{}"[..], b"\r\n\r\n"] {
            let bytes = [line, rest].concat();
            let (head, _) = response(&bytes);
            assert_eq!(head.reason.of(&bytes), reason, "{}", String::from_utf8_lossy(&bytes));
        }
    }
}

#[test]
fn where_the_body_ends() {
    let cases = [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", BodyLength::Fixed(2), true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", BodyLength::Fixed(0), true),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n", BodyLength::Chunked, true),
        ("HTTP/1.1 200 OK\r\n\r\n", BodyLength::UntilClose, false),
        ("HTTP/1.1 500 No\r\n\r\n", BodyLength::UntilClose, false),
        (
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n",
            BodyLength::Fixed(2),
            false,
        ),
        ("HTTP/1.0 200 OK\r\n\r\n", BodyLength::UntilClose, false),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n", BodyLength::Fixed(2), false),
        (
            "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\n",
            BodyLength::Fixed(2),
            true,
        ),
        ("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n\r\n", BodyLength::UntilClose, false),
        // Read as chunked, as RFC 9112 §6.3 allows, and never trusted again.
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
            BodyLength::Chunked,
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n",
            BodyLength::Chunked,
            false,
        ),
        ("HTTP/1.1 204 No Content\r\nx-w: 1\r\n\r\n", BodyLength::None, true),
        ("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n", BodyLength::None, true),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 100\r\n\r\n", BodyLength::None, true),
        ("HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n", BodyLength::None, true),
    ];
    for (bytes, body, keep_alive) in cases {
        let (head, _) = response(bytes.as_bytes());
        assert_eq!((head.body, head.keep_alive), (body, keep_alive), "{bytes:?}");
    }
}

#[test]
fn answers_to_head_have_no_body() {
    for lines in ["", "content-length: 100\r\n", "transfer-encoding: chunked\r\n"] {
        let head = to_head(format!("HTTP/1.1 200 OK\r\n{lines}\r\n").as_bytes());
        assert_eq!((head.body, head.keep_alive), (BodyLength::None, true));
    }
}

#[test]
fn interim_responses_have_no_body_and_are_told_apart() {
    for bytes in [
        &b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"[..],
        b"HTTP/1.1 102 Processing\r\nx: 1\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\ncontent-length: 5\r\n\r\n",
    ] {
        let (head, _) = response(bytes);
        assert!(head.is_interim() && head.keep_alive);
        assert_eq!(head.body, BodyLength::None);
    }
    refused(
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n",
        ResponseError::SwitchingProtocols,
    );
}

#[test]
fn event_streams_are_told_by_their_media_type() {
    for (value, event_stream) in [
        ("text/event-stream", true),
        ("text/event-stream; charset=utf-8", true),
        ("Text/Event-Stream;charset=utf-8", true),
        ("text/event-stream ;", true),
        ("application/json", false),
        ("text/event-streams", false),
        ("application/json; a=text/event-stream", false),
        ("", false),
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\nContent-Type: {value}\r\n\r\n");
        assert_eq!(response(bytes.as_bytes()).0.event_stream, event_stream, "{value:?}");
    }
    assert!(!response(b"HTTP/1.1 200 OK\r\n\r\n").0.event_stream);
}

#[test]
fn broken_heads() {
    use ResponseError as E;
    let cases: [(&[u8], E); 29] = [
        (b"garbage\r\n\r\n", E::StatusLine),
        (b"\r\nHTTP/1.1 200 OK\r\n\r\n", E::StatusLine),
        (b"\nHTTP/1.1 200 OK\r\n\r\n", E::StatusLine),
        (b"\x15\x03\x01\x00\x02\x02\x16", E::StatusLine),
        (b"HTTP/3.7 200 OK\r\ncontent-length: 2\r\n\r\n{}", E::StatusLine),
        (b"HTTP/2 200 OK\r\n\r\n", E::StatusLine),
        (b"HTTP/1.1  200 OK\r\n\r\n", E::StatusLine),
        (b"HTTP/1.1 2x0 OK\r\ncontent-length: 2\r\n\r\n{}", E::StatusLine),
        (b"HTTP/1.1 20 OK\r\n\r\n", E::StatusLine),
        (b"HTTP/1.1 2000 OK\r\n\r\n", E::StatusLine),
        (b"HTTP/1.1 099 OK\r\n\r\n", E::StatusLine),
        (b"HTTP/1.1 600 OK\r\n\r\n", E::StatusLine),
        (b"HTTP/1.1 200 a\0b\r\n\r\n", E::StatusLine),
        (b"HTTP/1.1 200 a\rb\r\n\r\n", E::StatusLine),
        (b"HTTP/1.1 200 OK\r\nbroken header\r\ncontent-length: 2\r\n\r\n{}", E::HeaderName),
        (b"HTTP/1.1 200 OK\r\nx : a\r\n\r\n", E::HeaderName),
        (b"HTTP/1.1 200 OK\r\n x: a\r\n\r\n", E::HeaderName),
        (b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\n\r\n", E::HeaderName),
        (b"HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 2\r\n\r\n{}", E::HeaderValue),
        (b"HTTP/1.1 200 OK\ncontent-length: 2\r\n\r\n{}", E::BareLineFeed),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\n\r\n{}", E::BareLineFeed),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2x\r\n\r\n{}", E::ContentLength),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n{}", E::ContentLength),
        (b"HTTP/1.1 204 OK\r\ncontent-length: -1\r\n\r\n", E::ContentLength),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 4\r\n\r\n{}{}",
            E::RepeatedContentLength,
        ),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n", E::TransferEncoding),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n", E::TransferEncoding),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\n", E::TransferEncoding),
        (b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", E::TransferEncodingInHttp10),
    ];
    for (bytes, error) in cases {
        refused(bytes, error);
        assert!(!error.message().contains(['\r', '\n', '"']));
    }
}

#[test]
fn a_cut_head_needs_more() {
    let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    for len in 0..whole.len() - 2 {
        assert_eq!(parse_response(&whole[..len]), Ok(None), "{len}");
    }
}

#[test]
fn heads_are_bounded() {
    let lines: String = (0..2000).map(|i| format!("x-{i}: {}\r\n", "y".repeat(1000))).collect();
    let bytes = format!("HTTP/1.1 200 OK\r\n{lines}content-length: 2\r\n\r\n{{}}");
    refused(bytes.as_bytes(), ResponseError::HeadTooLong);
    assert_eq!(parse_response(&bytes.as_bytes()[..MAX_HEAD_BYTES - 1]), Ok(None));
    let many: String = (0..1000).map(|i| format!("x-{i}: y\r\n")).collect();
    refused(format!("HTTP/1.1 200 OK\r\n{many}\r\n").as_bytes(), ResponseError::TooManyHeaders);
    let sixty: String = (0..60).map(|i| format!("x-f{i}: {}\r\n", "v".repeat(100))).collect();
    assert_eq!(response(format!("HTTP/1.1 200 OK\r\n{sixty}\r\n").as_bytes()).1.len(), 60);
}
