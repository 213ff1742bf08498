//! A worker is taken out of the fleet by an operator while it streams.

use crate::harness::{Client, Gate, Gateway, Worker, chat, eventually, free_port};

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
    let path = path_of_the_only_worker(&mut admin);
    assert_eq!(admin.delete(&path).expect("an answer").status(), 202);
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

#[test]
fn until_it_is_gone_it_can_be_neither_changed_nor_added_and_the_answer_says_so() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags("--drain-settle-secs 2").start();
    let mut admin = Client::connect(&gateway);
    let path = path_of_the_only_worker(&mut admin);
    assert_eq!(admin.delete(&path).expect("an answer").status(), 202);
    let response = Client::connect(&gateway).ask("anyone?");
    assert_eq!(response.status(), 503, "it takes nothing new from the answer on");

    let spec = format!("{{\"url\": \"{}\"}}", worker.url());
    for (method, path, body) in [
        ("POST", "/workers", spec.as_str()),
        ("PUT", &path, spec.as_str()),
        ("PATCH", &path, "{\"priority\": 7}"),
    ] {
        let response = admin.with_body(method, path, body);
        let text = response.text();
        assert_eq!((response.status(), response.error_code()), (409, Some("WORKER_BEING_REMOVED")));
        assert!(text.contains("being removed") && text.contains("POST it"), "{method}: {text}");
        let retry_after = response.head.header("retry-after").expect("a time to come back");
        assert!(matches!(retry_after, "1" | "2" | "3"), "{method}: {retry_after}");
    }
    let again = admin.delete(&path).expect("an answer");
    assert_eq!(again.status(), 202, "it is being removed as asked");

    eventually("it can be added again", || {
        admin.with_body("POST", "/workers", &spec).status() == 202
    });
    eventually("it takes requests", || gateway.readiness() == Some(200));
    assert_eq!(Client::connect(&gateway).ask("hello").status(), 200);
}

#[test]
fn one_that_takes_no_requests_is_gone_at_once() {
    let worker = Worker::obliging();
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let gateway =
        Gateway::before([&worker]).and_unready(&nobody).flags("--drain-settle-secs 600").start();
    let mut admin = Client::connect(&gateway);
    let spec = format!("{{\"url\": \"{nobody}\"}}");
    let existing = admin.with_body("POST", "/workers", &spec);
    assert_eq!((existing.status(), existing.error_code()), (409, Some("WORKER_ALREADY_EXISTS")));
    let elsewhere = format!("{{\"url\": \"{nobody}/other\"}}");
    let added = admin.with_body("POST", "/workers", &elsewhere);
    assert_eq!(added.status(), 202);
    let path = added.head.header("location").expect("its place").to_owned();
    assert_eq!(admin.delete(&path).expect("an answer").status(), 202);
    eventually("it is gone", || admin.get(&path).expect("an answer").status() == 404);
    assert_eq!(admin.with_body("POST", "/workers", &elsewhere).status(), 202);
}

fn path_of_the_only_worker(admin: &mut Client) -> String {
    let workers = admin.get("/workers").expect("the workers");
    let workers: serde_json::Value = serde_json::from_slice(&workers.body).expect("JSON");
    format!("/workers/{}", workers["workers"][0]["id"].as_str().expect("an id"))
}
