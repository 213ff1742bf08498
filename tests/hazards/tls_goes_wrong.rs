//! Certificates that cannot be used, clients that do not speak TLS or stop in the middle of it.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::harness::{
    Certificate, Client, Exchange, Gate, Gateway, Http2, PATIENCE, Refusal, Worker, chat,
    eventually,
};

#[test]
fn half_a_pair_is_refused() {
    let certificate = Certificate::new();
    let cert = format!("--tls-cert-path {}", certificate.cert_path());
    let key = format!("--tls-key-path {}", certificate.key_path());
    for (given, missing) in [(cert, "--tls-key-path"), (key, "--tls-cert-path")] {
        let Refusal { code, output } = Gateway::before([]).flags(&given).refused();
        assert_eq!(code, Some(2), "{output}");
        assert!(output.contains(&format!("without {missing}; give both")), "{output}");
    }
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_remedy() {
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let empty = certificate.directory.join("empty.pem").to_str().unwrap().to_owned();
    std::fs::write(&empty, "nothing\n").unwrap();
    let (cert, key) = (certificate.cert_path(), certificate.key_path());
    let none = "/nonexistent/x.pem".to_owned();
    for (cert, key, flag, words) in [
        (&cert, &other.key_path(), "--tls-key-path", "not that of the certificate"),
        (&none, &key, "--tls-cert-path", "cannot be read"),
        (&cert, &none, "--tls-key-path", "cannot be read"),
        (&empty, &key, "--tls-cert-path", "holds no certificate"),
        (&cert, &empty, "--tls-key-path", "holds no private key"),
        (&key, &key, "--tls-cert-path", "holds no certificate"),
    ] {
        let flags = format!("--tls-cert-path {cert} --tls-key-path {key}");
        let Refusal { code, output } = Gateway::before([]).flags(&flags).refused();
        assert_eq!(code, Some(2), "{output}");
        assert!(output.contains(flag) && output.contains(words), "{output}");
        assert!(output.contains("; give "), "no remedy: {output}");
    }
}

#[test]
fn a_client_that_does_not_speak_tls_is_told_or_closed() {
    let worker = Worker::obliging();
    let certificate = Certificate::new();
    let gateway = Gateway::before([&worker]).tls(&certificate).start();
    let mut client = Client::connect(&gateway);
    let response = client.ask("in the clear");
    assert_eq!(response.status(), 400);
    assert!(response.text().contains("https://"), "{}", response.text());
    assert!(client.is_at_end());
    for garbage in [&b"\0\0\0\0\0\0\0\0"[..], b"\x16\x03\x01\x00\x05hello", &[0xff; 100]] {
        let mut client = Client::connect(&gateway);
        client.send(garbage);
        // An alert, perhaps, and then the end.
        assert!(client.ends(), "{garbage:?}");
    }
    Client::connect(&gateway).leave();
    // One that trusts another authority.
    assert!(Client::connect_tls(&gateway, &Certificate::new()).ends());
    eventually("each is counted by its reason", || {
        let metrics = gateway.metrics();
        let count = |reason: &str| {
            let label = format!("reason=\"{reason}\"");
            metrics.sum_of("smg_tls_handshake_failures_total", &label)
        };
        let reasons = ["plain_http", "protocol", "connection", "alert", "timeout"];
        reasons.map(count) == [1.0, 3.0, 1.0, 1.0, 0.0]
    });
    assert_eq!(worker.dispatched(), 0);
    assert_eq!(Client::connect_tls(&gateway, &certificate).ask("hello").status(), 200);
    gateway.is_at_rest();
}

#[test]
fn a_handshake_that_stalls_is_given_up() {
    let certificate = Certificate::new();
    let worker = Worker::obliging();
    let gateway =
        Gateway::before([&worker]).flags("--header-read-timeout-secs 1").tls(&certificate).start();
    for begun in [&b""[..], b"\x16\x03\x01\x02\x00\x01\x00"] {
        let mut socket = TcpStream::connect(gateway.addr()).unwrap();
        socket.write_all(begun).unwrap();
        let mut client = Client::from_socket(socket);
        assert!(client.ends(), "{begun:?}");
    }
    // A handshake without a request after it.
    let mut idle = Client::connect_tls(&gateway, &certificate);
    idle.flush_handshake();
    assert!(idle.ends());
    let timeouts = gateway.metrics().sum_of("smg_tls_handshake_failures_total", "\"timeout\"");
    assert_eq!(timeouts, 2.0);
    gateway.is_at_rest();
}

#[test]
fn the_worker_is_let_go_when_the_client_leaves() {
    let certificate = Certificate::new();
    for streams in [true, false] {
        let worker = Worker::start(move |exchange| {
            if streams {
                exchange.begin_events();
                exchange.event("one");
            }
            exchange.until_abandoned();
        });
        let gateway = Gateway::before([&worker]).tls(&certificate).start();
        let leave: [fn(Client); 3] = [Client::leave, Client::vanish, |mut client| {
            client.close_notify();
            // Its socket stays open until the gateway has closed its side.
            assert!(client.ends());
        }];
        for (number, leave) in leave.into_iter().enumerate() {
            let mut client = Client::connect_tls(&gateway, &certificate);
            client.send(&chat("hang"));
            if streams {
                client.response_head();
                assert_eq!(client.chunk().as_deref(), Some("data: one\n\n"));
            } else {
                eventually("it is at the worker", || worker.dispatched() == number + 1);
            }
            leave(client);
            eventually("the worker is let go", || worker.abandoned() == number + 1);
        }
        gateway.is_at_rest();
    }
}

#[test]
fn a_client_that_had_sent_much_ahead_is_noticed_too() {
    let certificate = Certificate::new();
    let worker = Worker::start(Exchange::until_abandoned);
    let gateway = Gateway::before([&worker]).tls(&certificate).start();
    // More than is read ahead of a request that is under way, and more than the pipe holds besides.
    for (number, ahead) in [70_000, 300_000].into_iter().enumerate() {
        let mut client = Client::connect_tls(&gateway, &certificate);
        client.send(&chat("hello"));
        eventually("the request is at the worker", || worker.dispatched() == number + 1);
        client.send(&vec![b'x'; ahead]);
        client.leave();
        eventually("the worker is let go", || worker.abandoned() == number + 1);
    }
    gateway.is_at_rest();
}

#[test]
fn a_slow_reader_slows_its_worker() {
    /// More than the kernel buffers of both connections hold.
    const ANSWER: usize = 96 << 20;
    /// What the gateway itself may hold, and what else may come and go in its process meanwhile.
    const GROWTH: usize = 8 << 20;
    let (stalled, stalls) = channel();
    let worker = Worker::start(move |exchange| {
        let _ = exchange.body();
        let answer = vec![b'x'; ANSWER];
        exchange.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {ANSWER}\r\n\r\n").as_bytes());
        let sent = exchange.send_until_stalled(&answer, Duration::from_secs(1));
        let _ = stalled.send(sent);
        exchange.send(&answer[sent..]);
    });
    let certificate = Certificate::new();
    let gateway = Gateway::before([&worker]).tls(&certificate).start();
    let resident = gateway.resident_bytes();
    let mut client = Client::connect_tls(&gateway, &certificate);
    client.send(&chat("everything"));
    let sent = stalls.recv_timeout(PATIENCE).expect("the worker comes to a stop");
    assert!(sent < ANSWER, "the worker was never slowed");
    let growth = gateway.resident_bytes().saturating_sub(resident);
    assert!(growth < GROWTH, "{growth} bytes more in the gateway after {sent} bytes");
    let response = client.response();
    assert!(response.complete && response.body.len() == ANSWER);
    client.leave();
    gateway.is_at_rest();
}

#[test]
fn an_answer_that_is_cut_shows_it() {
    let certificate = Certificate::new();
    let worker = Worker::start(|exchange: &mut Exchange| {
        let _ = exchange.body();
        if exchange.mentions("whole") {
            return exchange.answer(200, b"whole");
        }
        exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this");
        exchange.close();
    });
    let gateway = Gateway::before([&worker]).tls(&certificate).start();
    let mut client = Client::connect_tls(&gateway, &certificate);
    let response = client.ask("cut");
    assert!(!response.complete && response.body == b"only this", "{response:?}");
    assert!(client.was_cut(), "it ended as if nothing were missing");

    let mut client = Client::connect_tls(&gateway, &certificate);
    let body = br#"{"model":"m","prompt":"whole"}"#;
    client.send(
        &[
            format!(
                "POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
                 Content-Length: {}\r\n\r\n",
                body.len()
            )
            .as_bytes(),
            body,
        ]
        .concat(),
    );
    assert_eq!(client.response().text(), "whole");
    assert!(client.is_at_end() && !client.was_cut(), "a whole answer ends in good order");
}

#[test]
fn an_upload_through_tls_is_held_to_its_limits() {
    let worker = Worker::obliging();
    let certificate = Certificate::new();
    let gateway =
        Gateway::before([&worker]).flags("--max-payload-size 1000").tls(&certificate).start();
    let mut client = Client::connect_tls(&gateway, &certificate);
    let response = client.ask(&"long ".repeat(100_000));
    assert_eq!(response.status(), 413);
    assert_eq!(worker.dispatched(), 0);
}

#[test]
fn a_certificate_is_replaced_while_a_stream_is_open() {
    let gate = Gate::default();
    let opened = gate.clone();
    let worker = Worker::start(move |exchange| {
        exchange.begin_events();
        exchange.event("one");
        opened.wait();
        exchange.event("two");
        exchange.end();
    });
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let gateway = Gateway::before([&worker]).tls(&certificate).start();
    let mut streaming = Client::connect_tls(&gateway, &certificate);
    streaming.send(&chat("stream"));
    streaming.response_head();
    assert_eq!(streaming.chunk().as_deref(), Some("data: one\n\n"));

    std::fs::write(certificate.cert_path(), "no certificate").unwrap();
    gateway.signal(libc::SIGHUP);
    eventually("the files are refused", || gateway.log().contains("holds no certificate"));
    assert_eq!(Client::connect_tls(&gateway, &certificate).get("/health").unwrap().status(), 200);
    std::fs::copy(other.cert_path(), certificate.cert_path()).unwrap();
    std::fs::copy(other.key_path(), certificate.key_path()).unwrap();
    gateway.signal(libc::SIGHUP);
    eventually("the new one is shown", || {
        Client::connect_tls(&gateway, &other).get("/health").is_ok()
    });
    gate.open();
    assert_eq!(streaming.chunk().as_deref(), Some("data: two\n\n"));
    assert_eq!(streaming.chunk().as_deref(), Some(""));
}

#[test]
fn drain_ends_idle_connections_and_lets_streams_finish() {
    let gate = Gate::default();
    let worker = Worker::pausing(&gate);
    let certificate = Certificate::new();
    let mut gateway =
        Gateway::before([&worker]).flags("--drain-settle-secs 0").tls(&certificate).start();
    let mut idle = Client::connect_tls(&gateway, &certificate);
    assert_eq!(idle.ask("hello").status(), 200);
    let mut streaming = Client::connect_tls(&gateway, &certificate);
    streaming.send(&chat("stream"));
    streaming.response_head();
    assert_eq!(streaming.chunk().as_deref(), Some("data: one\n\n"));
    let mut second = Http2::connect_tls(&gateway, &certificate);
    let asked = second.chat("stream");
    let mut events = second.head(asked.answer).into_body();
    assert_eq!(second.data(&mut events).unwrap().unwrap(), "data: one\n\n");

    gateway.signal(libc::SIGTERM);
    assert!(idle.is_at_end() && !idle.was_cut(), "an idle connection is ended in good order");
    assert!(gateway.is_running());
    gate.open();
    assert_eq!(streaming.chunk().as_deref(), Some("data: two\n\n"));
    assert_eq!(streaming.chunk().as_deref(), Some(""));
    assert!(streaming.is_at_end() && !streaming.was_cut());
    assert_eq!(second.data(&mut events).unwrap().unwrap(), "data: two\n\n");
    assert!(second.data(&mut events).is_none());
    second.end().expect("the connection ends in good order");
    assert_eq!(gateway.exit_status().code(), Some(0));
}
