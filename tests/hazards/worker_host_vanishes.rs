//! The host of a worker is gone from one moment to the next: connections to it stay open, and nothing
//! that is sent over them is ever acknowledged. A worker that takes a request and hangs looks the same
//! to a program, and not to its kernel.

use std::time::Duration;

use crate::harness::{Certificate, Client, Gate, Gateway, Worker, chat, eventually, post};

/// More than it takes until a host is seen not to answer.
const STALLED: Duration = Duration::from_secs(1);

/// Nothing else notices it.
const FLAGS: &str = "--shards 1 --policy round_robin --retry-initial-backoff-ms 1 \
    --connect-timeout-secs 1 --health-check-interval-secs 600 --request-timeout-secs 600";

#[test]
fn another_worker_answers_what_was_sent_over_a_kept_connection() {
    another_worker_answers([Worker::obliging(), Worker::obliging()], "");
}

#[test]
fn another_worker_answers_what_was_sent_over_tls() {
    let certificate = Certificate::new();
    let worker =
        || Worker::secure(certificate.server_config(None), |exchange| exchange.answer(200, b"{}"));
    let trust = format!("--ca-cert-paths {}", certificate.authority_path());
    another_worker_answers([worker(), worker()], &trust);
}

fn another_worker_answers(workers: [Worker; 2], flags: &str) {
    let gateway = Gateway::before(&workers).flags(FLAGS).flags(flags).start();
    let [gone, sound] = &workers;
    let mut client = Client::connect(&gateway);
    for _ in 0..2 {
        assert_eq!(client.ask("hello").status(), 200);
    }
    assert_eq!((gone.dispatched(), sound.dispatched()), (1, 1), "a connection to each is kept");

    gone.vanish();
    for _ in 0..4 {
        assert_eq!(client.ask("hello").status(), 200);
    }
    assert_eq!((gone.dispatched(), sound.dispatched()), (1, 5));
    let metrics = gateway.metrics();
    let errors = |kind| metrics.sum_of("smg_worker_errors_total", &format!("\"{kind}\""));
    assert!(errors("connect") >= 1.0);
    // What the kernel itself gives up, half a minute later, looks like a reset.
    assert_eq!((errors("reset"), errors("timeout")), (0.0, 0.0));
    client.leave();
    gateway.is_at_rest();
}

#[test]
fn a_worker_that_hangs_is_left_alone_with_the_prompt() {
    // It has not read the request; its kernel has it.
    left_alone("hang");
}

#[test]
fn a_worker_that_takes_no_more_of_a_prompt_is_left_alone() {
    // More than the buffers on the way hold.
    left_alone(&"hang ".repeat(1 << 20));
}

fn left_alone(prompt: &str) {
    let over = Gate::default();
    let workers = [(); 2].map(|()| {
        let over = over.clone();
        Worker::start(move |exchange| {
            over.wait();
            exchange.close();
        })
    });
    // Three looks at what became of it.
    let flags = "--connect-timeout-secs 1 --request-timeout-secs 4";
    let gateway = Gateway::before(&workers).flags(flags).start();
    let mut client = Client::connect(&gateway);
    let body = serde_json::json!({"model": "m", "prompt": prompt}).to_string();
    client.send(&post("/v1/completions", body.as_bytes()));
    let response = client.response();
    assert_eq!((response.status(), response.error_code()), (504, Some("upstream_timeout")));
    assert_eq!(workers.iter().map(Worker::dispatched).sum::<usize>(), 1, "no other was asked");
    over.open();
    client.leave();
    gateway.is_at_rest();
}

#[test]
fn who_comes_meanwhile_is_not_kept_waiting() {
    let mut workers = [Worker::obliging(), Worker::obliging()];
    // Longer than the test waits for an answer.
    let gateway = Gateway::before(&workers)
        .flags("--shards 1 --policy round_robin --connect-timeout-secs 600")
        .flags("--health-check-interval-secs 600")
        .start();
    workers[0].stop_answering_connects();
    let [gone, sound] = &workers;
    // One of each two meets the host that is gone; the others are answered.
    let mut stuck = [Client::connect(&gateway), Client::connect(&gateway)];
    for client in &mut stuck {
        client.send(&chat("hello"));
    }
    eventually("one is answered", || sound.dispatched() == 1);
    std::thread::park_timeout(STALLED);
    let mut client = Client::connect(&gateway);
    for _ in 0..6 {
        assert_eq!(client.ask("hello").status(), 200);
    }
    assert_eq!((gone.dispatched(), sound.dispatched()), (0, 7));
    drop((stuck, client));
    gateway.is_at_rest();
}

#[test]
fn keys_that_are_new_go_elsewhere_and_those_that_are_there_stay() {
    for policy in ["manual", "round_robin --routing-key-override"] {
        for shards in [1, 3] {
            new_keys_go_elsewhere(&format!("--policy {policy} --shards {shards}"));
        }
    }
}

fn new_keys_go_elsewhere(flags: &str) {
    let workers = [Worker::obliging(), Worker::obliging()];
    let gateway = Gateway::before(&workers)
        .flags(flags)
        .flags("--connect-timeout-secs 600 --health-check-interval-secs 600")
        .start();
    let [gone, sound] = &workers;
    let with_key = |key: &str| {
        let body = chat("hello");
        let (line, rest) =
            body.split_at(body.windows(2).position(|two| two == b"\r\n").expect("a line"));
        [line, format!("\r\nX-SMG-Routing-Key: {key}").as_bytes(), rest].concat()
    };
    let ask = |client: &mut Client, key: &str| {
        client.send(&with_key(key));
        assert_eq!(client.response().status(), 200);
    };
    let mut client = Client::connect(&gateway);
    let at_home = (0..100).map(|key| format!("old-{key}")).find(|key| {
        ask(&mut client, key);
        gone.dispatched() > 0
    });
    let at_home = at_home.expect("a key of the worker that will be gone");

    gone.vanish();
    // Several, so that one of them begins as the others go on.
    let mut stuck = [Client::connect(&gateway), Client::connect(&gateway)];
    let hits = || gateway.metrics().sum_of("smg_manual_policy_branch_total", "\"occupied_hit\"");
    for (already, client) in stuck.iter_mut().enumerate() {
        client.send(&with_key(&at_home));
        eventually("the key stays where it is", || hits() == already as f64 + 1.0);
        std::thread::park_timeout(STALLED);
    }
    let before = sound.dispatched();
    for key in 0..12 {
        ask(&mut client, &format!("new-{key}"));
    }
    assert_eq!(sound.dispatched(), before + 12, "{flags}");
    assert_eq!(hits(), 2.0);
    drop((stuck, client));
    gateway.is_at_rest();
}
