//! A client leaves while its answer is awaited.

use crate::harness::{Client, Exchange, Gate, Gateway, Worker, chat, eventually};

#[test]
fn the_worker_is_let_go_when_the_client_closes() {
    worker_is_let_go(Client::leave);
}

#[test]
fn the_worker_is_let_go_when_the_client_is_killed() {
    worker_is_let_go(Client::vanish);
}

fn worker_is_let_go(leave: fn(Client)) {
    let gate = Gate::default();
    let worker = hanging_worker(gate.clone());
    let gateway = Gateway::before([&worker]).start();

    let mut bystander = Client::connect(&gateway);
    bystander.send(&chat("patient"));
    let mut leaver = Client::connect(&gateway);
    leaver.send(&chat("hang"));
    eventually("both requests are at the worker", || worker.dispatched() == 2);
    assert_eq!(gateway.metrics().sum("smg_worker_requests_active"), 2.0);

    leave(leaver);
    eventually("the leaver's connection to the worker is closed", || worker.abandoned() == 1);
    eventually("only the bystander is in flight", || {
        gateway.metrics().sum("smg_worker_requests_active") == 1.0
    });

    gate.open();
    assert_eq!(bystander.response().text(), "patience rewarded");
    bystander.leave();
    gateway.is_at_rest();
    assert_eq!(worker.dispatched(), 2, "nothing was sent twice");
}

#[test]
fn what_it_sent_ahead_is_not_dispatched() {
    let worker = hanging_worker(Gate::default());
    let gateway = Gateway::before([&worker]).start();

    let mut leaver = Client::connect(&gateway);
    leaver.send(&[chat("hang"), chat("hang too")].concat());
    eventually("the first request is at the worker", || worker.dispatched() == 1);
    leaver.leave();

    eventually("its connection to the worker is closed", || worker.abandoned() == 1);
    gateway.is_at_rest();
    assert_eq!(worker.dispatched(), 1);
}

#[test]
fn the_pause_before_a_retry_ends_with_the_client() {
    let worker = Worker::start(|exchange| {
        let _ = exchange.body();
        exchange.send(b"HTTP/1.1 503 Busy\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n");
    });
    // The pause would be longer than any test waits.
    let gateway = Gateway::before([&worker]).flags("--retry-max-backoff-ms 3600000").start();

    let mut leaver = Client::connect(&gateway);
    leaver.send(&chat("hello"));
    eventually("the pause has begun", || gateway.metrics().sum("smg_worker_retries_total") == 1.0);
    leaver.leave();
    gateway.is_at_rest();
    assert_eq!(worker.dispatched(), 1);
}

#[test]
fn an_attempt_to_connect_ends_with_the_client() {
    let mut worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags("--connect-timeout-secs 3600").start();
    worker.stop_answering_connects();

    let mut leaver = Client::connect(&gateway);
    leaver.send(&chat("hello"));
    eventually("the request is on its way", || {
        gateway.metrics().sum("smg_worker_requests_active") == 1.0
    });
    leaver.leave();
    gateway.is_at_rest();
    assert_eq!(worker.dispatched(), 0);
}

fn hanging_worker(gate: Gate) -> Worker {
    Worker::start(move |exchange| {
        if exchange.mentions("hang") {
            exchange.until_abandoned();
        } else {
            gate.wait();
            exchange.answer(200, b"patience rewarded");
        }
    })
}

#[test]
fn a_client_that_had_sent_much_ahead_is_noticed_too() {
    // More than is read ahead of a request that is under way.
    const AHEAD: usize = 70_000;
    let worker = Worker::start(Exchange::until_abandoned);
    let gateway = Gateway::before([&worker]).start();
    let mut client = Client::connect(&gateway);
    client.send(&chat("hello"));
    eventually("the request is at the worker", || worker.dispatched() == 1);
    client.send(&vec![b'x'; AHEAD]);
    client.leave();
    eventually("the connection to the worker is closed", || worker.abandoned() == 1);
    gateway.is_at_rest();
}
