//! A worker is taken out of the fleet by an operator while it streams.

use crate::harness::{Client, Gate, Gateway, Worker, chat, eventually};

#[test]
fn its_stream_ends_whole_and_nothing_new_reaches_it() {
    let gate = Gate::default();
    let opened = gate.clone();
    let leaving = Worker::start(move |exchange| {
        exchange.begin_events();
        exchange.event("one");
        opened.wait();
        exchange.event("two");
        exchange.end();
    });
    let gateway = Gateway::before([&leaving]).flags("--drain-settle-secs 0").start();
    let mut streaming = Client::connect(&gateway);
    streaming.send(&chat("hello"));
    assert_eq!(streaming.response_head().status(), 200);
    assert_eq!(streaming.chunk().as_deref(), Some("data: one\n\n"));

    let mut admin = Client::connect(&gateway);
    let workers = admin.get("/workers").expect("the workers");
    let workers: serde_json::Value = serde_json::from_slice(&workers.body).expect("JSON");
    let id = workers["workers"][0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(admin.delete(&format!("/workers/{id}")).expect("an answer").status(), 202);
    eventually("the worker is gone", || {
        admin.get("/workers").expect("the workers").text().contains("\"total\":0")
    });

    let response = Client::connect(&gateway).ask("anyone?");
    assert_eq!((response.status(), response.error_code()), (503, Some("no_available_workers")));
    gate.open();
    assert_eq!(streaming.chunk().as_deref(), Some("data: two\n\n"));
    assert_eq!(streaming.chunk().as_deref(), Some(""), "the stream ends whole");
    assert_eq!(leaving.dispatched(), 1);
    streaming.leave();
    drop(admin);
    eventually("no request is under way", || {
        gateway.metrics().is_zero("smg_http_connections_active")
    });
}
