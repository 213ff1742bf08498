//! A worker ends, or spoils, a connection that was kept for the next request.

use crate::harness::{Client, Gate, Gateway, Worker};

const REQUESTS: usize = 20;

#[test]
fn an_idle_connection_that_was_closed_is_not_shown_to_a_client() {
    let worker = Worker::start(|exchange| {
        exchange.answer(200, b"fresh");
        // No announcement: the gateway has put the connection away by now.
        if exchange.mentions("reset") { exchange.reset() } else { exchange.close() }
    });
    let gateway = Gateway::before([&worker]).start();

    let mut client = Client::connect(&gateway);
    for turn in 0..REQUESTS {
        let response = client.ask(if turn % 2 == 0 { "close" } else { "reset" });
        assert_eq!((response.status(), response.text().as_str()), (200, "fresh"), "turn {turn}");
    }
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum("smg_worker_retries_total"), 0.0, "no worker has failed");
    assert_eq!(worker.dispatched(), REQUESTS, "none was answered twice");
}

#[test]
fn one_that_closes_under_the_next_request_is_replaced_at_once() {
    let worker = Worker::start(|exchange| {
        if !exchange.reused {
            exchange.answer(200, b"fresh");
        } else if exchange.mentions("close") {
            exchange.close();
        } else {
            exchange.reset();
        }
    });
    let gateway = Gateway::before([&worker]).flags("--shards 1").start();

    let mut client = Client::connect(&gateway);
    for turn in 0..REQUESTS {
        let response = client.ask(if turn % 2 == 0 { "close" } else { "reset" });
        assert_eq!((response.status(), response.text().as_str()), (200, "fresh"), "turn {turn}");
    }
    let metrics = gateway.metrics();
    let replaced = metrics.sum("smg_router_upstream_send_retries_total") as usize;
    assert!(replaced > 0, "the worker closed connections in use");
    assert_eq!(worker.dispatched(), REQUESTS + replaced);
    assert_eq!(metrics.sum("smg_worker_retries_total"), 0.0, "no worker has failed");
}

#[test]
fn nothing_is_dispatched_again_once_an_answer_has_begun() {
    let begins_to_answer = || {
        Worker::start(|exchange| {
            if exchange.mentions("warm") {
                return exchange.answer(200, b"warm");
            }
            exchange.send(b"HTTP/1.1 200 OK\r\nContent-Le");
            exchange.close();
        })
    };
    let workers = [begins_to_answer(), begins_to_answer()];
    let gateway = Gateway::before(&workers).flags("--shards 1 --policy round_robin").start();

    let mut client = Client::connect(&gateway);
    for _ in &workers {
        assert_eq!(client.ask("warm").text(), "warm");
    }
    let response = client.ask("break off");
    assert_eq!(response.status(), 502);
    assert_eq!(response.error_code(), Some("upstream_protocol_error"));
    let dispatched: usize = workers.iter().map(Worker::dispatched).sum();
    assert_eq!(dispatched, 3, "two warm-ups and one broken answer");
}

#[test]
fn an_answer_nobody_asked_for_is_given_to_nobody() {
    let (answered, said) = (Gate::default(), Gate::default());
    let (put_away, spoilt) = (answered.clone(), said.clone());
    let worker = Worker::start(move |exchange| {
        if exchange.mentions("first") {
            exchange.answer(200, b"first");
            put_away.wait();
            exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison");
            spoilt.open();
        } else {
            let body: &[u8] = if exchange.reused { b"over a spoilt connection" } else { b"next" };
            exchange.answer(200, body);
        }
    });
    let gateway = Gateway::before([&worker]).flags("--shards 1").start();

    let mut client = Client::connect(&gateway);
    assert_eq!(client.ask("first").text(), "first");
    answered.open();
    said.wait();
    let mut other = Client::connect(&gateway);
    assert_eq!(other.ask("something else").text(), "next");
    drop((client, other));
    gateway.is_at_rest();
}
