//! A worker takes a request and never answers.

use crate::harness::{Client, Exchange, Gateway, Worker, eventually};

#[test]
fn the_client_is_told_and_the_prompt_runs_once() {
    let hanging = || Worker::start(Exchange::until_abandoned);
    let workers = [hanging(), hanging()];
    let gateway = Gateway::before(&workers).flags("--request-timeout-secs 1").start();

    let mut client = Client::connect(&gateway);
    let response = client.ask("hang");
    assert_eq!(response.status(), 504);
    assert_eq!(response.error_code(), Some("upstream_timeout"));

    let abandoned = || workers.iter().map(Worker::abandoned).sum::<usize>();
    eventually("the connection to the worker is closed", || abandoned() == 1);
    assert_eq!(workers.iter().map(Worker::dispatched).sum::<usize>(), 1, "no other was asked");
    client.leave();
    gateway.is_at_rest();
}

#[test]
fn a_stream_that_falls_silent_ends_like_one_whose_worker_died() {
    let worker = Worker::start(|exchange| {
        exchange.begin_events();
        exchange.event("one");
        exchange.until_abandoned();
    });
    let gateway = Gateway::before([&worker]).flags("--stream-idle-timeout-secs 1").start();

    let mut client = Client::connect(&gateway);
    let response = client.ask("hang");
    assert!(response.text().starts_with("data: one\n\nevent: error\ndata: {"), "{response:?}");
    assert!(client.is_at_end());
    eventually("the connection to the worker is closed", || worker.abandoned() == 1);
    assert_eq!(worker.dispatched(), 1);
    gateway.is_at_rest();
}

#[test]
fn requests_for_other_workers_are_answered_meanwhile() {
    let hanging = Worker::start(Exchange::until_abandoned);
    let sound = Worker::obliging();
    let gateway = Gateway::before([&hanging, &sound]).flags("--policy power_of_two").start();

    // Whoever the hanging worker gets raises its count, so power_of_two avoids it from then on.
    let mut clients = Vec::new();
    eventually("a request hangs", || {
        let mut client = Client::connect(&gateway);
        client.send(&crate::harness::chat("hello"));
        clients.push(client);
        eventually("it is dispatched", || {
            hanging.dispatched() + sound.dispatched() == clients.len()
        });
        hanging.dispatched() == 1
    });
    let answered = sound.dispatched();
    for _ in 0..20 {
        assert_eq!(Client::connect(&gateway).ask("hello").status(), 200);
    }
    assert_eq!((hanging.dispatched(), sound.dispatched()), (1, answered + 20));
    drop(clients);
    gateway.is_at_rest();
}
