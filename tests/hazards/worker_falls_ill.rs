//! A worker's health comes and goes, or its host swallows connections.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Client, Gateway, Worker, eventually};

const QUICK_PROBES: &str = "--health-check-interval-secs 1 --health-failure-threshold 2 \
    --health-success-threshold 2 --policy round_robin";

#[test]
fn a_failing_worker_gets_nothing_until_it_has_recovered() {
    let workers = [Worker::obliging(), Worker::obliging()];
    let gateway = Gateway::before(&workers).flags(QUICK_PROBES).start();
    let [failing, sound] = &workers;
    let mut client = Client::connect(&gateway);

    failing.set_healthy(false);
    becomes(&gateway, failing, 0.0);
    let before = (failing.dispatched(), sound.dispatched());
    for _ in 0..6 {
        assert_eq!(client.ask("hello").status(), 200);
    }
    assert_eq!((failing.dispatched(), sound.dispatched()), (before.0, before.1 + 6));

    sound.set_healthy(false);
    becomes(&gateway, sound, 0.0);
    assert_eq!(gateway.readiness(), Some(503));
    let response = client.ask("hello");
    assert_eq!((response.status(), response.error_code()), (503, Some("no_available_workers")));

    failing.set_healthy(true);
    sound.set_healthy(true);
    becomes(&gateway, failing, 1.0);
    becomes(&gateway, sound, 1.0);
    assert_eq!(gateway.readiness(), Some(200));
    for _ in 0..6 {
        assert_eq!(client.ask("hello").status(), 200);
    }
    assert_eq!(
        (failing.dispatched(), sound.dispatched()),
        (before.0 + 3, before.1 + 6 + 3),
        "round robin over both again"
    );
}

#[test]
fn a_black_hole_delays_nobody_else() {
    // The kernel completes connections to it; nobody ever reads or answers.
    let hole = TcpListener::bind("127.0.0.1:0").expect("a port");
    let hole_url = format!("http://{}", hole.local_addr().expect("its address"));
    let workers = [Worker::obliging(), Worker::obliging()];
    // If anything waited for the hole, it would wait longer than the test does.
    let gateway = Gateway::before(&workers)
        .and_unready(&hole_url)
        .flags(QUICK_PROBES)
        .flags("--health-check-timeout-secs 600 --load-monitor-interval 1")
        .start();

    let [failing, sound] = &workers;
    failing.set_healthy(false);
    becomes(&gateway, failing, 0.0);
    assert_eq!(Client::connect(&gateway).ask("hello").status(), 200);
    failing.set_healthy(true);
    becomes(&gateway, failing, 1.0);
    assert_eq!((failing.dispatched(), sound.dispatched()), (0, 1));
}

#[test]
fn a_worker_that_turns_into_a_black_hole_is_taken_out() {
    let workers = [Worker::obliging(), Worker::obliging()];
    let gateway = Gateway::before(&workers)
        .flags(QUICK_PROBES)
        .flags("--health-check-timeout-secs 1 --connect-timeout-secs 1 --request-timeout-secs 600")
        .start();
    let [swallowed, sound] = &workers;

    swallowed.swallow();
    becomes(&gateway, swallowed, 0.0);
    let mut client = Client::connect(&gateway);
    for _ in 0..6 {
        assert_eq!(client.ask("hello").status(), 200);
    }
    assert_eq!((swallowed.dispatched(), sound.dispatched()), (0, 6));
}

#[test]
fn a_worker_that_is_up_later_than_the_gateway_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("its address");
    drop(listener);
    let gateway = Gateway::before([])
        .and_unready(&format!("http://{addr}"))
        .flags("--worker-startup-check-interval 1")
        .start();
    assert_eq!(gateway.readiness(), Some(503));
    let response = Client::connect(&gateway).ask("too early");
    assert_eq!((response.status(), response.error_code()), (503, Some("no_available_workers")));

    let listener = TcpListener::bind(addr).expect("the same port");
    let worker = Worker::listening(listener, "m", |exchange| exchange.answer(200, b"up"));
    eventually("the worker is ready", || gateway.readiness() == Some(200));
    assert_eq!(Client::connect(&gateway).ask("now").text(), "up");
    assert_eq!(worker.dispatched(), 1);
}

#[test]
fn a_worker_that_fails_to_say_what_it_serves_is_asked_again() {
    let worker = Worker::obliging();
    worker.break_off(3);
    let gateway = Gateway::before([&worker]).flags("--worker-startup-check-interval 1").start();
    assert_eq!(Client::connect(&gateway).ask("hello").status(), 200, "it serves model m");
    assert!(gateway.log().contains("its model is not known yet"), "{}", gateway.log());
}

#[test]
fn a_worker_that_fails_in_turn_in_different_ways_does_not_fill_the_log() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let checks = Arc::new(AtomicUsize::new(0));
    let counted = checks.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if counted.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
                // The gateway may have hung up.
                let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
            }
        }
    });
    let gateway = Gateway::before([])
        .and_unready(&url)
        .flags("--worker-startup-check-interval 1")
        .start_without_waiting();
    eventually("it is checked again and again", || checks.load(Ordering::SeqCst) >= 8);
    let log = gateway.log();
    let lines = log.matches("worker is not up yet").count();
    // A reset or an end of the connection, and the status; and another of them after a minute.
    assert!((2..=5).contains(&lines), "{lines} lines: {log}");
}

fn becomes(gateway: &Gateway, worker: &Worker, health: f64) {
    let label = format!("worker=\"{}", worker.url());
    eventually(&format!("{} has health {health}", worker.url()), || {
        gateway.metrics().sum_of("smg_worker_health", &label) == health
    });
}
