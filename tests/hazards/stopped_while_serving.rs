//! The gateway is told to stop while requests are under way.

use crate::harness::{Client, Exchange, Gate, Gateway, Worker, chat, eventually};

#[test]
fn requests_in_flight_finish_before_it_stops() {
    let gate = Gate::default();
    let worker = Worker::pausing(&gate);
    let mut gateway = Gateway::before([&worker]).flags("--shards 2 --drain-settle-secs 3").start();
    let mut idle = Client::connect(&gateway);
    assert_eq!(idle.ask("hello").status(), 200);
    let mut streaming = Client::connect(&gateway);
    streaming.send(&chat("stream"));
    streaming.response_head();
    assert_eq!(streaming.chunk().as_deref(), Some("data: one\n\n"));

    gateway.signal(libc::SIGTERM);
    eventually("readiness is 503", || gateway.readiness() == Some(503));
    let mut late = Client::connect(&gateway);
    assert_eq!(late.ask("during the settle time").text(), "at once");

    eventually("connections are refused", || Client::connect_to(gateway.addr()).is_err());
    assert!(idle.is_at_end() && late.is_at_end(), "idle connections are closed");
    assert!(gateway.is_running(), "a request is in flight");

    gate.open();
    assert_eq!(streaming.chunk().as_deref(), Some("data: two\n\n"));
    assert_eq!(streaming.chunk().as_deref(), Some(""), "the stream ends whole");
    assert!(streaming.is_at_end());
    assert_eq!(gateway.exit_status().code(), Some(0));
}

#[test]
fn a_request_whose_body_is_on_its_way_is_answered() {
    let worker = Worker::obliging();
    let mut gateway = Gateway::before([&worker]).flags("--drain-settle-secs 1").start();
    let request = chat(&"long ".repeat(1000));
    let (begun, rest) = request.split_at(request.len() / 2);
    let mut uploading = Client::connect(&gateway);
    uploading.send(begun);
    eventually("the request has begun", || {
        gateway.metrics().sum_of("smg_http_requests_total", "path=\"/v1/chat/completions\"") == 1.0
    });

    gateway.signal(libc::SIGTERM);
    eventually("connections are refused", || Client::connect_to(gateway.addr()).is_err());
    uploading.send(rest);
    assert_eq!(uploading.response().status(), 200);
    assert!(uploading.is_at_end());
    assert_eq!(gateway.exit_status().code(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for (first, second) in [(libc::SIGTERM, libc::SIGTERM), (libc::SIGINT, libc::SIGTERM)] {
        // The request would hold it for the grace period, which is longer than any test waits.
        let (mut gateway, _worker, mut hanging) = with_a_request_in_flight("");
        gateway.signal(first);
        eventually("readiness is 503", || gateway.readiness() == Some(503));
        gateway.signal(second);
        assert_eq!(gateway.exit_status().code(), Some(1));
        assert!(gateway.log().contains("second signal"), "{}", gateway.log());
        assert!(hanging.is_at_end());
    }
}

#[test]
fn what_outlasts_the_grace_period_is_cut() {
    let flags = "--drain-settle-secs 0 --shutdown-grace-period-secs 1";
    let (mut gateway, worker, mut hanging) = with_a_request_in_flight(flags);
    gateway.signal(libc::SIGTERM);
    assert_eq!(gateway.exit_status().code(), Some(0));
    assert!(hanging.is_at_end());
    eventually("the worker is let go", || worker.abandoned() == 1);
}

fn with_a_request_in_flight(flags: &str) -> (Gateway, Worker, Client) {
    let worker = Worker::start(Exchange::until_abandoned);
    let gateway = Gateway::before([&worker]).flags(flags).start();
    let mut client = Client::connect(&gateway);
    client.send(&chat("hang"));
    eventually("the request is at the worker", || worker.dispatched() == 1);
    (gateway, worker, client)
}
