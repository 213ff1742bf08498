//! A client leaves before the gateway, or the worker, has its whole request.

use std::sync::mpsc::channel;

use crate::harness::{Client, Gate, Gateway, PATIENCE, Worker, chat, eventually, post};

#[test]
fn half_a_request_reaches_no_worker() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).start();

    let whole = chat(&"long ".repeat(50_000));
    let half = &whole[..whole.len() / 2];
    let half_chunked = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n\
        Transfer-Encoding: chunked\r\n\r\n100\r\n{\"model\": \"m\", ";
    let half_head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gate";
    for (begun, leave) in [
        (half, Client::leave as fn(Client)),
        (half, Client::vanish),
        (half_chunked, Client::leave),
        (half_chunked, Client::vanish),
        (half_head, Client::leave),
    ] {
        let mut leaver = Client::connect(&gateway);
        leaver.send(begun);
        eventually("the leaver is connected", || {
            gateway.metrics().sum("smg_client_connections") == 1.0
        });
        leave(leaver);
        gateway.is_at_rest();
    }

    assert_eq!(Client::connect(&gateway).ask("whole").status(), 200);
    assert_eq!(worker.dispatched(), 1);
}

#[test]
fn a_worker_that_does_not_read_is_let_go_too() {
    const BODY: usize = 8 << 20;
    let gate = Gate::default();
    let opened = gate.clone();
    let (received, bytes_received) = channel();
    let worker = Worker::start(move |exchange| {
        opened.wait();
        let _ = received.send(exchange.until_abandoned_after());
    });
    let gateway = Gateway::before([&worker]).flags("--policy round_robin").start();

    let text = "x".repeat(BODY);
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let mut leaver = Client::connect(&gateway);
    leaver.send(&post("/v1/chat/completions", body.as_bytes()));
    eventually("the request's head is at the worker", || worker.dispatched() == 1);
    leaver.leave();
    gateway.is_at_rest();

    gate.open();
    let received = bytes_received.recv_timeout(PATIENCE).expect("the connection ends");
    assert!(received < BODY, "{received} bytes: the worker was to see a part only");
    assert_eq!(worker.dispatched(), 1);
}
