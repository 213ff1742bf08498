//! What one HTTP/2 connection may cost: streams given up as fast as they are opened, frames that ask
//! for answers, heads and prefaces that never end.

use std::io::Write;
use std::net::TcpStream;

use crate::harness::http2::{DATA, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS};
use crate::harness::{Client, Exchange, Gateway, Http2, RawHttp2, Worker, eventually};

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
    let resident = gateway.resident_bytes();
    let mut clients: Vec<RawHttp2> = (0..20).map(|_| RawHttp2::connect(&gateway)).collect();
    let part = [0; 16 << 10];
    for client in &mut clients {
        // Nothing of an answer may be sent.
        client.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        // All that a connection may send before something of it is read.
        for n in 0..15 {
            client.post(2 * n + 1, &[(b"content-length", b"1048576")], false);
            (0..8).for_each(|_| client.send(DATA, 0, 2 * n + 1, &part));
        }
    }
    eventually("all are refused", || {
        gateway.metrics().sum_of("smg_http_responses_total", "invalid_api_key") == 300.0
    });
    let growth = || gateway.resident_bytes().saturating_sub(resident);
    eventually("their bodies are gone", || growth() < 16 << 20);
    drop(clients);
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
