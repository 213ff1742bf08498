//! What a worker sends is not HTTP, not what it announced, or comes before its turn.

use crate::harness::{Client, Exchange, Gateway, Worker, chat};

/// One dispatch to a fleet of two workers that behave like this; what the client got of it.
fn answered_by(speak: fn(&mut Exchange)) -> (u16, Option<String>, bool) {
    let workers = [Worker::start(speak), Worker::start(speak)];
    let gateway = Gateway::before(&workers).start();
    let mut client = Client::connect(&gateway);
    client.send(&chat("hello"));
    let response = client.response();
    client.leave();
    gateway.is_at_rest();
    assert_eq!(workers.iter().map(Worker::dispatched).sum::<usize>(), 1, "it was sent once");
    (response.status(), response.error_code().map(str::to_owned), response.complete)
}

#[test]
fn what_is_not_http_is_not_passed_on() {
    let protocol_error = (502, Some("upstream_protocol_error".to_owned()), true);
    for speak in [
        (|exchange| exchange.send(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")) as fn(&mut Exchange),
        |exchange| exchange.send(b"HTTP/1.1 2OO OK\r\n\r\n"),
        |exchange| {
            exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
        },
        |exchange| exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
        // Without an end: it must not be gathered for ever.
        |exchange| {
            exchange.send(b"HTTP/1.1 200 OK\r\n");
            while exchange.is_open() {
                exchange.send(&b"X-Padding: on and on and on\r\n".repeat(1000));
            }
        },
    ] {
        assert_eq!(answered_by(speak), protocol_error);
    }
}

#[test]
fn a_body_that_breaks_its_framing_is_visibly_cut() {
    let cut = (200, None, false);
    for speak in [
        (|exchange| {
            exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            exchange.chunk(b"good");
            exchange.send(b"not a size\r\n");
        }) as fn(&mut Exchange),
        |exchange| {
            exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            exchange.send(b"4\r\ngoodness\r\n0\r\n\r\n");
        },
    ] {
        assert_eq!(answered_by(speak), cut);
    }
}

#[test]
fn bytes_beyond_the_announced_length_are_no_part_of_the_answer() {
    let worker = Worker::start(|exchange| {
        let _ = exchange.body();
        exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngoodHTTP/1.1 200 OK\r\n\r\n");
        exchange.until_abandoned();
    });
    let gateway = Gateway::before([&worker]).start();
    let mut client = Client::connect(&gateway);
    for _ in 0..3 {
        assert_eq!(client.ask("hello").text(), "good");
    }
    assert_eq!(worker.dispatched(), 3);
}

#[test]
fn an_answer_before_the_request_has_been_read_is_the_answer() {
    // Too much for the kernel's buffers: the gateway is still sending when the answer comes.
    const TEXT: usize = 8 << 20;
    let worker = Worker::start(|exchange| {
        exchange.send(b"HTTP/1.1 413 Too Much\r\nContent-Length: 3\r\n\r\nno!");
        exchange.until_abandoned();
    });
    let gateway = Gateway::before([&worker]).flags("--policy round_robin").start();
    let mut client = Client::connect(&gateway);
    let response = client.ask(&"x".repeat(TEXT));
    assert_eq!((response.status(), response.text().as_str()), (413, "no!"));
    assert_eq!(worker.dispatched(), 1);
    client.leave();
    gateway.is_at_rest();
}
