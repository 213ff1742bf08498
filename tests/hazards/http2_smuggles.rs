//! Heads and bodies of HTTP/2 that HTTP/1.1 would read in another way: nothing of them reaches a worker.

use crate::harness::http2::{
    DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, RST_STREAM, block, post_block,
};
use crate::harness::{Gateway, Http2, RawHttp2, Worker};

const BODY: &[u8] = br#"{"model":"m","prompt":"a"}"#;

#[test]
fn fields_that_mean_more_in_http_1_are_refused() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).start();
    for (name, value) in [
        (&b"transfer-encoding"[..], &b"chunked"[..]),
        (b"connection", b"close"),
        (b"connection", b"x-api-key"),
        (b"keep-alive", b"1"),
        (b"proxy-connection", b"close"),
        (b"upgrade", b"websocket"),
        (b"te", b"gzip"),
        (b"x-a", b"b\r\nx-smuggled: 1"),
        (b"x-a", b"b\nx-smuggled: 1"),
        (b"x-a", b"b\0c"),
        (b"x-a", b"b\rc"),
        (b"x-a", b" padded"),
        (b"x-a: b\r\nx-smuggled", b"1"),
        (b"x a", b"1"),
        (b"X-Upper", b"1"),
        (b"", b"1"),
        (b"x-a:", b"1"),
        (b"host", b"elsewhere.test"),
        (b"content-length", b"5"),
        (b"content-length", b"+26"),
        (b"content-length", b"26, 26"),
        (b":path", b"/other"),
        (b":status", b"200"),
        (b":unknown", b"1"),
    ] {
        let mut client = RawHttp2::connect(&gateway);
        client.post(1, &[(name, value)], false);
        // It may have been refused before it is whole.
        client.try_send(DATA, END_STREAM, 1, BODY);
        assert_refused(&mut client, &format!("{:?}", String::from_utf8_lossy(name)));
    }
    assert_eq!(worker.dispatched(), 0);
    assert_eq!(Http2::connect(&gateway).post("/v1/completions", BODY).status, 200);
    gateway.is_at_rest();
}

#[test]
fn request_lines_hold_one_request() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).start();
    let lines: [[&[u8]; 3]; 9] = [
        [b"POST", b"/v1/chat/completions HTTP/1.1\r\nx: y", b"gateway"],
        [b"POST", b"/v1/chat/completions HTTP/1.1", b"gateway"],
        [b"POST", b"", b"gateway"],
        [b"POST", b"v1/chat/completions", b"gateway"],
        [b"POST", b"http://other.test/v1/chat/completions", b"gateway"],
        [b"POST /x HTTP/1.1\r\n\r\nGET", b"/v1/chat/completions", b"gateway"],
        [b"", b"/v1/chat/completions", b"gateway"],
        [b"POST", b"/v1/chat/completions", b"user@gateway"],
        [b"POST", b"/v1/chat/completions", b"gate\r\nway"],
    ];
    for line @ [method, path, authority] in lines {
        let mut client = RawHttp2::connect(&gateway);
        let fields: [(&[u8], &[u8]); 4] = [
            (b":method", method),
            (b":scheme", b"http"),
            (b":path", path),
            (b":authority", authority),
        ];
        client.send(HEADERS, END_HEADERS, 1, &block(&fields));
        client.try_send(DATA, END_STREAM, 1, BODY);
        let line = line.map(String::from_utf8_lossy);
        assert_refused(&mut client, &format!("{line:?}"));
    }
    assert_eq!(worker.dispatched(), 0);
}

#[test]
fn two_lengths_or_two_hosts_are_refused() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).start();
    for fields in [
        [(&b"content-length"[..], &b"26"[..]), (b"content-length", b"27")],
        [(b"content-length", b"26"), (b"content-length", b"26")],
        [(b"host", b"gateway"), (b"host", b"other")],
    ] {
        let mut client = RawHttp2::connect(&gateway);
        client.post(1, &fields, false);
        client.try_send(DATA, END_STREAM, 1, BODY);
        assert_refused(&mut client, &format!("{fields:?}"));
    }
    assert_eq!(worker.dispatched(), 0);
}

#[test]
fn a_length_that_does_not_match_the_data_reaches_nobody() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).start();
    let next = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
    for (length, data) in
        [("26", [BODY, next].concat()), ("200", BODY.to_vec()), ("0", BODY.to_vec())]
    {
        let mut client = RawHttp2::connect(&gateway);
        client.post(1, &[(b"content-length", length.as_bytes())], false);
        client.try_send(DATA, END_STREAM, 1, &data);
        assert_refused(&mut client, length);
    }
    // A request within a body is that body.
    let mut client = RawHttp2::connect(&gateway);
    client.post(1, &[], false);
    client.send(DATA, END_STREAM, 1, next);
    let frame = client.frame_of(&[HEADERS]).expect("an answer");
    assert_eq!(status(&frame), 400, "not JSON");
    assert_eq!(worker.dispatched(), 0);
    drop(client);
    gateway.is_at_rest();
}

#[test]
fn a_head_without_end_is_refused() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).start();
    const CONTINUATION: u8 = 9;
    let mut client = RawHttp2::connect(&gateway);
    client.send(HEADERS, 0, 1, &post_block(&[]));
    let more = block(&[(&b"x-more"[..], &[b'y'; 10_000][..])]);
    let taken = (0..10_000).take_while(|_| client.try_send(CONTINUATION, 0, 1, &more)).count();
    assert!(taken < 10_000, "100 MB of a head were taken");
    assert_eq!(worker.dispatched(), 0);
    gateway.is_at_rest();
}

/// The stream is reset, or answered with an error of the client, or the connection ended.
#[track_caller]
fn assert_refused(client: &mut RawHttp2, what: &str) {
    match client.frame_of(&[HEADERS, RST_STREAM, GOAWAY]) {
        None => {}
        Some(frame) if frame.kind == HEADERS => assert_eq!(status(&frame), 400, "{what}"),
        Some(_) => {}
    }
}

/// The status of an answer, which the gateway takes from the static table or writes as a literal.
fn status(frame: &Frame) -> u16 {
    match frame.payload[0] {
        0x88 => 200,
        0x8c => 400,
        0x8d => 404,
        0x8e => 500,
        other => panic!("neither 200, 400, 404 nor 500: {other:#x} in {frame:?}"),
    }
}
