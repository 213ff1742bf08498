//! A worker refuses, closes or resets before it has answered anything.

use crate::harness::{Client, Exchange, Gateway, Worker};

const REQUESTS: usize = 8;
const FLAGS: &str = "--policy round_robin --retry-initial-backoff-ms 1";

#[test]
fn another_worker_answers_when_one_closes() {
    another_worker_answers(|exchange| {
        // With the request read, the end is an orderly close.
        let _ = exchange.body();
        exchange.close();
    });
}

#[test]
fn another_worker_answers_when_one_resets() {
    another_worker_answers(Exchange::reset);
}

fn another_worker_answers(die: fn(&mut Exchange)) {
    let dying = Worker::start(die);
    let sound = Worker::obliging();
    let gateway = Gateway::before([&dying, &sound]).flags(FLAGS).start();

    let mut client = Client::connect(&gateway);
    for _ in 0..REQUESTS {
        assert_eq!(client.ask("hello").status(), 200);
    }
    assert_eq!(sound.dispatched(), REQUESTS, "each was answered once");
    assert!(dying.dispatched() > 0);
    let retries = gateway.metrics().sum("smg_worker_retries_total");
    assert_eq!(retries as usize, dying.dispatched(), "one further attempt per failure");
    client.leave();
    gateway.is_at_rest();
}

#[test]
fn another_worker_answers_when_one_refuses_connections() {
    another_worker_is_connected_to(REQUESTS, Worker::stop);
}

#[test]
fn another_worker_answers_when_one_does_not_answer_connects() {
    // Half of them wait for --connect-timeout-secs first.
    another_worker_is_connected_to(2, Worker::stop_answering_connects);
}

fn another_worker_is_connected_to(requests: usize, go: fn(&mut Worker)) {
    let mut gone = Worker::obliging();
    let sound = Worker::obliging();
    let launch = Gateway::before([&gone, &sound]).flags(FLAGS).flags("--connect-timeout-secs 1");
    let gateway = launch.start();
    go(&mut gone);

    let mut client = Client::connect(&gateway);
    for _ in 0..requests {
        assert_eq!(client.ask("hello").status(), 200);
    }
    assert_eq!((gone.dispatched(), sound.dispatched()), (0, requests));
    assert!(gateway.metrics().sum("smg_worker_retries_total") > 0.0);
    client.leave();
    gateway.is_at_rest();
}

#[test]
fn the_client_is_told_when_there_is_no_other() {
    let dying = Worker::start(Exchange::reset);
    let gateway = Gateway::before([&dying]).flags(FLAGS).start();

    let mut client = Client::connect(&gateway);
    let response = client.ask("hello");
    assert_eq!(response.status(), 502);
    assert_eq!(response.error_code(), Some("upstream_connection_closed"));
    assert_eq!(dying.dispatched(), 5, "--retry-max-retries counts the first attempt");
    assert!(!response.text().contains("127.0.0.1"), "no worker is named: {}", response.text());
    client.leave();
    gateway.is_at_rest();
}
