//! What one HTTP/2 connection may cost: streams given up as fast as they are opened, frames that ask
//! for answers, heads and prefaces that never end.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::http2::{
    DATA, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};
use crate::harness::{Client, Exchange, Gate, Gateway, Http2, RawHttp2, Worker, eventually, http2};

#[test]
fn streams_that_are_given_up_as_they_are_opened_end_the_connection() {
    let worker = Worker::start(Exchange::until_abandoned);
    let gateway = Gateway::before([&worker]).start();
    let resident = gateway.resident_bytes();
    let mut client = RawHttp2::connect(&gateway);
    // Many times what buffers hold and what is still read of a connection that is being ended.
    const STREAMS: u32 = 1_000_000;
    let opened = (0..STREAMS)
        .take_while(|n| {
            let head = crate::harness::http2::post_block(&[]);
            client.try_send(HEADERS, 4, 2 * n + 1, &head)
                && client.try_send(RST_STREAM, 0, 2 * n + 1, &[0, 0, 0, 8])
        })
        .count();
    assert!(opened < STREAMS as usize, "it was never ended");
    let growth = gateway.resident_bytes().saturating_sub(resident);
    assert!(growth < 32 << 20, "{growth} bytes more in the gateway");
    drop(client);
    gateway.is_at_rest();
}

#[test]
fn bodies_of_refused_requests_do_not_wait_for_their_answers_to_be_taken() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags("--api-key sk-secret").start();
    let part = [0; 16 << 10];
    let (mut clients, mut resident) = (Vec::new(), 0);
    for wave in 1..=3 {
        for _ in 0..20 {
            let mut client = RawHttp2::connect(&gateway);
            // Nothing of an answer may be sent.
            client.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
            // The gateway's windows hold once it has widened that of the connection and its settings
            // are acknowledged.
            client.frame_of(&[SETTINGS]).expect("the gateway's settings");
            client.frame_of(&[WINDOW_UPDATE]).expect("the connection's window");
            client.send(SETTINGS, 1, 0, b"");
            // All that a connection may send before something of it is read.
            for n in 0..15 {
                client.post(2 * n + 1, &[(b"content-length", b"1048576")], false);
                (0..8).for_each(|_| client.send(DATA, 0, 2 * n + 1, &part));
            }
            clients.push(client);
        }
        let refused =
            || gateway.metrics().sum_of("smg_http_responses_total", "invalid_api_key") as usize;
        eventually("all are refused", || refused() == 300 * wave);
        if wave == 1 {
            resident = gateway.resident_bytes();
        }
    }
    // What they were sent in, of 40 MB a wave, was used again: it did not wait.
    let growth = gateway.resident_bytes().saturating_sub(resident);
    assert!(growth < 30 << 20, "{growth} bytes more in the gateway");
    for client in &mut clients {
        assert!(client.try_send(PING, 0, 0, &[0; 8]));
        let frame = client.frame_of(&[PING, GOAWAY]).expect("a frame");
        assert_eq!(frame.kind, PING, "{:?}", frame.payload);
    }
    drop(clients);
    gateway.is_at_rest();
}

#[test]
fn refused_bodies_give_the_connection_back_what_it_may_send() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags("--max-payload-size 1000000").start();
    let mut client = Http2::connect(&gateway);
    // Each takes a stream's whole window: together three times what the connection may send.
    let unread = vec![0; 128 << 10];
    for path in ["/nowhere", "/v1/completions"].into_iter().cycle().take(48) {
        let mut request = http2::post(path);
        let announced = http::HeaderValue::from_static("2000000");
        request.headers_mut().insert("content-length", announced);
        let mut asked = client.open(request, false);
        client.send_some(&mut asked.sending, &unread);
        let status = client.answer(asked.answer).status;
        assert_eq!(status, if path == "/nowhere" { 404 } else { 413 });
    }
    let text = "x".repeat(900_000);
    let body = format!(r#"{{"model":"m","prompt":"{text}"}}"#);
    assert_eq!(client.post("/v1/completions", body.as_bytes()).status, 200);
    drop(client);
    gateway.is_at_rest();
}

#[test]
fn no_more_streams_run_than_are_allowed() {
    let worker = Worker::start(Exchange::until_abandoned);
    let gateway = Gateway::before([&worker]).start();
    let mut client = RawHttp2::connect(&gateway);
    for n in 0..200 {
        client.post(2 * n + 1, &[], false);
    }
    // Those beyond are refused, which says that they were not begun.
    let frame = client.frame_of(&[RST_STREAM, GOAWAY]).expect("a refusal");
    assert_eq!((frame.kind, &frame.payload[..]), (RST_STREAM, &[0, 0, 0, 7][..]));
    let begun = gateway.metrics().sum_of("smg_http_requests_total", "chat/completions");
    assert!(begun <= 128.0, "{begun}");
    drop(client);
    gateway.is_at_rest();
}

#[test]
fn frames_that_ask_for_answers_pile_nothing_up() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).start();
    let resident = gateway.resident_bytes();
    for kind in [PING, SETTINGS] {
        let mut client = RawHttp2::connect(&gateway);
        client.stop_waiting_to_send();
        let payload: &[u8] = if kind == PING { &[0; 8] } else { &[] };
        for _ in 0..200_000 {
            if !client.try_send(kind, 0, 0, payload) {
                break;
            }
        }
        let growth = gateway.resident_bytes().saturating_sub(resident);
        assert!(growth < 8 << 20, "{growth} bytes more in the gateway");
        assert_eq!(Http2::connect(&gateway).ask("GET", "/liveness").status, 200);
    }
    gateway.is_at_rest();
}

#[test]
fn a_connection_that_asks_for_nothing_is_closed() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags("--header-read-timeout-secs 1").start();
    for begun in [&b"PRI * HTTP/2.0\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut socket = TcpStream::connect(gateway.addr()).unwrap();
        socket.write_all(begun).unwrap();
        assert!(Client::from_socket(socket).ends());
    }
    let mut client = RawHttp2::connect(&gateway);
    assert!(client.frame_of(&[GOAWAY]).is_some(), "it is told");
    while client.frame().is_some() {}
    gateway.is_at_rest();
}

#[test]
fn a_head_that_never_ends_ends_the_connection_when_its_streams_have_ended() {
    // Part of a head; a whole frame of one; part of what is before a frame.
    let unfinished = [
        &[0, 0, 200, HEADERS, 0, 0, 0, 0, 5, 0x82][..],
        &[0, 0, 0, HEADERS, 0, 0, 0, 0, 5],
        &[0, 0, 1],
    ];
    for bytes in unfinished {
        let told = Gate::default();
        let opened = told.clone();
        let worker = Worker::start(move |exchange| {
            exchange.begin_events();
            exchange.event("one");
            opened.wait();
            exchange.event("two");
            exchange.end();
        });
        let gateway = Gateway::before([&worker]).flags("--header-read-timeout-secs 1").start();
        let mut client = RawHttp2::connect(&gateway);
        client.post(1, &[], false);
        client.send(DATA, END_STREAM, 1, br#"{"model":"m","prompt":""}"#);
        client.write_raw(bytes);
        assert!(client.frame_of(&[GOAWAY]).is_some(), "in a second, and not in an hour");
        told.open();
        let mut answer = Vec::new();
        while let Some(frame) = client.frame() {
            if frame.kind == DATA {
                answer.extend(frame.payload);
            }
        }
        assert!(answer.ends_with(b"data: two\n\n"), "{}", String::from_utf8_lossy(&answer));
        gateway.is_at_rest();
    }
}

#[test]
fn heads_that_follow_each_other_have_their_time_each() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags("--header-read-timeout-secs 1").start();
    let mut client = RawHttp2::connect(&gateway);
    client.post(1, &[], false);
    let ping = [&[0, 0, 8, PING, 0, 0, 0, 0, 0][..], &[7; 8]].concat();
    // At each moment a frame is unfinished, none of them for long.
    client.write_raw(&ping[..5]);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2500) {
        client.write_raw(&[&ping[5..], &ping[..5]].concat());
        assert_eq!(client.frame_of(&[PING, GOAWAY]).expect("a frame").kind, PING);
    }
}

#[test]
fn a_connection_counts_once() {
    let worker = Worker::start(Exchange::until_abandoned);
    let gateway = Gateway::before([&worker]).flags("--max-connections 2").start();
    let mut client = Http2::connect(&gateway);
    let asked = [client.chat("a"), client.chat("b"), client.chat("c")];
    eventually("they are at the worker", || {
        client.run_for(std::time::Duration::from_millis(5));
        worker.dispatched() == 3
    });
    // Those that asked whether the gateway is ready may take a moment to be gone.
    eventually("one connection is left", || gateway.metrics().sum("smg_client_connections") == 1.0);
    drop((client, asked));
    gateway.is_at_rest();
}
