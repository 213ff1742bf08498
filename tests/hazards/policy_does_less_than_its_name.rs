//! A policy is asked for that cannot do here what its name promises: the log says so, once.

use crate::harness::{Client, Gateway, Worker, eventually};

#[test]
fn passthrough_with_more_than_one_worker_is_warned_about() {
    let workers = [Worker::obliging(), Worker::obliging(), Worker::obliging()];
    let gateway = Gateway::before(&workers).flags("--policy passthrough").start();
    warns_once(&gateway, "policy passthrough sends every request to the first");

    let alone = Worker::obliging();
    let gateway = Gateway::before([&alone]).flags("--policy passthrough").start();
    assert_eq!(Client::connect(&gateway).ask("hello").status(), 200);
    assert!(!gateway.log().contains("WARN"), "{}", gateway.log());
}

#[test]
fn bucket_without_prefill_workers_is_warned_about() {
    let workers = [Worker::obliging(), Worker::obliging()];
    let gateway = Gateway::before(&workers).flags("--policy bucket").start();
    warns_once(&gateway, "policy bucket is for prefill workers");
}

fn warns_once(gateway: &Gateway, words: &str) {
    for _ in 0..4 {
        assert_eq!(Client::connect(gateway).ask("hello").status(), 200);
    }
    eventually(words, || gateway.log().contains(words));
    let log = gateway.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert!(matches!(lines[..], [line] if line.contains(words)), "{log}");
}
