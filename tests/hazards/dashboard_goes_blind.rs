//! Numbers that operators watch stay away: of streams, of breakers, of requests that hang. Or they are
//! looked for under names that do not exist.

use std::collections::BTreeSet;

use crate::harness::{Client, Gate, Gateway, Worker, chat, eventually};

const CHAT: &str = "model=\"m\",endpoint=\"chat\"";

#[test]
fn streams_are_timed_and_their_tokens_counted() {
    let worker = Worker::start(|exchange| {
        exchange.begin_events();
        for text in ["one", "two", "three"] {
            exchange.event(text);
        }
        exchange.event(r#"{"usage":{"prompt_tokens":7,"completion_tokens":3}}"#);
        exchange.event("[DONE]");
        exchange.end();
    });
    let gateway = Gateway::before([&worker]).start();
    for _ in 0..2 {
        let mut client = Client::connect(&gateway);
        assert_eq!(client.ask("hello").status(), 200);
    }
    let metrics = gateway.metrics();
    for (family, count) in [
        ("smg_router_ttft_seconds", 2.0),
        ("smg_router_tpot_seconds", 2.0),
        ("smg_router_generation_duration_seconds", 2.0),
    ] {
        assert_eq!(metrics.sum_of(&format!("{family}_count"), CHAT), count, "{family}");
        assert!(metrics.sum_of(&format!("{family}_sum"), CHAT) > 0.0, "{family}");
    }
    let first = metrics.sum_of("smg_router_ttft_seconds_sum", CHAT);
    let whole = metrics.sum_of("smg_router_generation_duration_seconds_sum", CHAT);
    assert!(first <= whole, "{first} {whole}");
    for (kind, count) in [("input", 14.0), ("output", 6.0)] {
        let labels = format!("{CHAT},token_type=\"{kind}\"");
        assert_eq!(metrics.sum_of("smg_router_tokens_total", &labels), count, "{kind}");
    }
}

#[test]
fn tokens_of_plain_answers_are_counted_and_errors_are_not() {
    let usage = br#"{"usage": {"prompt_tokens": 11, "completion_tokens": 4}}"#;
    let good = Worker::start(move |exchange| exchange.answer(200, usage));
    let bad = Worker::start(move |exchange| exchange.answer(400, usage));
    for (worker, input, output) in [(good, 11.0, 4.0), (bad, 0.0, 0.0)] {
        let gateway = Gateway::before([&worker]).start();
        Client::connect(&gateway).ask("hello");
        let metrics = gateway.metrics();
        let tokens = |kind| metrics.sum_of("smg_router_tokens_total", kind);
        assert_eq!((tokens("\"input\""), tokens("\"output\"")), (input, output));
        assert_eq!(metrics.sum("smg_router_ttft_seconds_count"), 0.0, "not a stream");
    }
}

#[test]
fn counts_no_engine_can_have_are_not_added() {
    let worker = Worker::start(|exchange| {
        let absurd = exchange.mentions("absurd");
        let count = if absurd { 1u64 << 63 } else { 7 };
        let usage =
            format!(r#"{{"usage":{{"prompt_tokens":{count},"completion_tokens":{count}}}}}"#);
        exchange.answer(200, usage.as_bytes());
    });
    let gateway = Gateway::before([&worker]).start();
    for text in ["hello", "absurd", "absurd", "absurd", "hello"] {
        assert_eq!(Client::connect(&gateway).ask(text).status(), 200);
    }
    for kind in ["input", "output"] {
        let labels = format!("{CHAT},token_type=\"{kind}\"");
        assert_eq!(gateway.metrics().sum_of("smg_router_tokens_total", &labels), 14.0, "{kind}");
    }
}

#[test]
fn outcomes_and_runs_of_failures_are_counted_per_worker() {
    let good = Worker::obliging();
    let bad = Worker::start(|exchange| exchange.answer(500, b"{}"));
    let gateway = Gateway::before([&good, &bad])
        .flags("--policy round_robin --disable-retries --cb-failure-threshold 9")
        .start();
    for _ in 0..6 {
        Client::connect(&gateway).ask("hello");
    }
    let metrics = gateway.metrics();
    let outcomes = |worker: &Worker, outcome| {
        let labels = format!("worker=\"{}\",outcome=\"{outcome}\"", worker.url());
        metrics.sum_of("smg_worker_cb_outcomes_total", &labels)
    };
    assert_eq!((outcomes(&good, "success"), outcomes(&good, "failure")), (3.0, 0.0));
    assert_eq!((outcomes(&bad, "success"), outcomes(&bad, "failure")), (0.0, 3.0));
    let failures = |worker: &Worker| {
        metrics.sum_of("smg_worker_cb_consecutive_failures", &format!("\"{}\"", worker.url()))
    };
    assert_eq!((failures(&good), failures(&bad)), (0.0, 3.0));
}

#[test]
fn pauses_before_retries_are_measured() {
    let worker = Worker::start(|exchange| exchange.answer(503, b"{}"));
    let gateway = Gateway::before([&worker])
        .flags("--retry-max-retries 3 --retry-initial-backoff-ms 1")
        .start();
    assert_eq!(Client::connect(&gateway).ask("hello").status(), 503);
    let metrics = gateway.metrics();
    for (retry, count) in [("1", 1.0), ("2", 1.0), ("3", 0.0)] {
        let label = format!("attempt=\"{retry}\"");
        assert_eq!(metrics.sum_of("smg_worker_retry_backoff_seconds_count", &label), count);
    }
}

#[test]
fn a_request_that_hangs_is_seen_among_the_ages() {
    let gate = Gate::default();
    let opened = gate.clone();
    let worker = Worker::start(move |exchange| {
        opened.wait();
        exchange.answer(200, b"{}");
    });
    let gateway = Gateway::before([&worker]).start();
    let mut client = Client::connect(&gateway);
    client.send(&chat("hello"));
    let young =
        || gateway.metrics().sum_of("smg_http_inflight_request_age_count", "gt=\"0\",le=\"30\"");
    eventually("it is seen", || young() == 1.0);
    gate.open();
    assert_eq!(client.response().status(), 200);
    eventually("it is over", || young() == 0.0);
}

#[test]
fn what_dashboard_alerts_and_pages_name_is_exported() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags("--max-concurrent-requests 9").start();
    let metrics = gateway.metrics();
    for (file, at_least) in [
        ("observe/dashboards/smg.json", 50),
        ("observe/alerts.yml", 15),
        ("docs/observe.md", 1),
        ("README.md", 10),
    ] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = std::fs::read_to_string(path).expect("a file of the repository");
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names: BTreeSet<_> = words.filter(|word| word.starts_with("smg_")).collect();
        assert!(names.len() >= at_least, "{file} names {} metrics", names.len());
        for name in names.into_iter().filter(|name| !name.ends_with('_')) {
            assert!(metrics.declares(name), "{file} names {name}, which is not exported");
        }
    }
}
