//! A stream of an HTTP/2 connection ends before its answer does: what else is on the connection goes on.

use std::sync::mpsc::channel;
use std::time::Duration;

use h2::Reason;

use crate::harness::{Exchange, Gate, Gateway, Http2, Worker, eventually};

/// More than the kernel buffers hold.
const ANSWER: usize = 96 << 20;
/// What the gateway itself may hold, and what else may come and go in its process meanwhile.
const GROWTH: usize = 8 << 20;

#[test]
fn the_worker_of_the_stream_is_let_go_and_no_other() {
    let gate = Gate::default();
    let opened = gate.clone();
    let worker = Worker::start(move |exchange| {
        if exchange.mentions("silent") {
            return exchange.until_abandoned();
        }
        exchange.begin_events();
        exchange.event("one");
        if exchange.mentions("hang") {
            return exchange.until_abandoned();
        }
        opened.wait();
        exchange.event("two");
        exchange.end();
    });
    let gateway = Gateway::before([&worker]).start();
    let mut client = Http2::connect(&gateway);
    let patient = client.chat("patient");
    let mut events = client.head(patient.answer).into_body();
    assert_eq!(client.data(&mut events).unwrap().unwrap(), "data: one\n\n");

    let mut hanging = client.chat("hang");
    let mut cut = client.head(hanging.answer).into_body();
    assert_eq!(client.data(&mut cut).unwrap().unwrap(), "data: one\n\n");
    hanging.sending.send_reset(Reason::CANCEL);
    let mut silent = client.chat("silent");
    eventually("it is at the worker", || {
        client.run_for(Duration::from_millis(5));
        worker.dispatched() == 3
    });
    silent.sending.send_reset(Reason::CANCEL);
    eventually("both are let go", || {
        client.run_for(Duration::from_millis(5));
        worker.abandoned() == 2
    });
    assert_eq!(gateway.metrics().sum("smg_worker_requests_active"), 1.0);

    gate.open();
    assert_eq!(client.data(&mut events).unwrap().unwrap(), "data: two\n\n");
    assert!(client.data(&mut events).is_none());
    drop((client, events, cut, silent.answer));
    gateway.is_at_rest();
}

#[test]
fn every_worker_is_let_go_when_the_connection_breaks() {
    let worker = Worker::start(Exchange::until_abandoned);
    let gateway = Gateway::before([&worker]).start();
    let mut client = Http2::connect(&gateway);
    let asked = [client.chat("a"), client.chat("b"), client.chat("c")];
    eventually("they are at the worker", || {
        client.run_for(Duration::from_millis(5));
        worker.dispatched() == 3
    });
    drop((client, asked));
    eventually("all are let go", || worker.abandoned() == 3);
    gateway.is_at_rest();
}

#[test]
fn an_answer_that_is_cut_is_reset_and_events_say_so_first() {
    let worker = Worker::start(|exchange| {
        let _ = exchange.body();
        if exchange.mentions("events") {
            exchange.begin_events();
            exchange.event("one");
        } else {
            exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this");
        }
        exchange.close();
    });
    let gateway = Gateway::before([&worker]).start();
    let mut client = Http2::connect(&gateway);
    let asked = client.chat("plain");
    let answer = client.answer(asked.answer);
    let reason = answer.broken.and_then(|error| error.reason());
    assert_eq!(reason, Some(Reason::INTERNAL_ERROR));

    let asked = client.chat("events");
    let events = String::from_utf8(client.answer(asked.answer).whole()).unwrap();
    assert!(events.starts_with("data: one\n\nevent: error\ndata: {"), "{events}");
    gateway_is_fine(client, &gateway);
}

#[test]
fn a_slow_reader_slows_its_worker_and_nobody_else() {
    let (stalled, stalls) = channel();
    let worker = Worker::start(move |exchange| {
        let _ = exchange.body();
        if exchange.mentions("short") {
            return exchange.answer(200, b"short");
        }
        let answer = vec![b'x'; ANSWER];
        exchange.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {ANSWER}\r\n\r\n").as_bytes());
        let sent = exchange.send_until_stalled(&answer, Duration::from_secs(1));
        let _ = stalled.send(sent);
        exchange.send(&answer[sent..]);
    });
    let gateway = Gateway::before([&worker]).start();
    let resident = gateway.resident_bytes();
    let mut builder = h2::client::Builder::new();
    // One stream cannot use up what the connection allows.
    builder.initial_window_size(1 << 16).initial_connection_window_size(1 << 20);
    let mut client = Http2::connect_with(&gateway, builder);
    let asked = client.chat("everything");
    let head = client.head(asked.answer);
    let mut sent = None;
    eventually("the worker comes to a stop", || {
        client.run_for(Duration::from_millis(5));
        sent = stalls.try_recv().ok();
        sent.is_some()
    });
    let sent = sent.unwrap();
    assert!(sent < ANSWER, "the worker was never slowed");
    let growth = gateway.resident_bytes().saturating_sub(resident);
    assert!(growth < GROWTH, "{growth} bytes more in the gateway after {sent} bytes");

    let asked = client.chat("short");
    assert_eq!(client.answer(asked.answer).whole(), b"short");
    let body = client.rest_of(head).whole();
    assert_eq!(body.len(), ANSWER);
    gateway_is_fine(client, &gateway);
}

#[test]
fn a_body_larger_than_every_window_arrives() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).start();
    let mut client = Http2::connect(&gateway);
    let body = format!("{{\"model\":\"m\",\"prompt\":\"{}\"}}", "z".repeat(4 << 20)).into_bytes();
    for _ in 0..3 {
        let answer = client.post("/v1/completions", &body);
        assert_eq!(answer.status, 200);
    }
    gateway_is_fine(client, &gateway);
}

fn gateway_is_fine(client: Http2, gateway: &Gateway) {
    drop(client);
    gateway.is_at_rest();
}
