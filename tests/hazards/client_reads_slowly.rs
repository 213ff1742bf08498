//! A client reads more slowly than its worker generates.

use std::sync::mpsc::channel;
use std::time::Duration;

use crate::harness::{Client, Gateway, PATIENCE, Worker, chat};

/// More than the kernel buffers of both connections hold.
const ANSWER: usize = 96 << 20;
/// What the gateway itself may hold, and what else may come and go in its process meanwhile.
const GROWTH: usize = 8 << 20;

#[test]
fn the_worker_is_slowed_and_nothing_piles_up() {
    let (stalled, stalls) = channel();
    let worker = Worker::start(move |exchange| {
        let _ = exchange.body();
        let answer = vec![b'x'; ANSWER];
        exchange.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {ANSWER}\r\n\r\n").as_bytes());
        let sent = exchange.send_until_stalled(&answer, Duration::from_secs(1));
        let _ = stalled.send(sent);
        exchange.send(&answer[sent..]);
    });
    let gateway = Gateway::before([&worker]).start();
    let resident = gateway.resident_bytes();

    let mut client = Client::connect(&gateway);
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
