//! Whoever reads the gateway's output stops doing so.

use crate::harness::{Client, Gateway, Worker};

#[test]
fn requests_are_answered_and_the_process_can_end() {
    answers_and_ends("info");
}

#[test]
fn also_with_debug_lines() {
    answers_and_ends("debug");
}

fn answers_and_ends(level: &str) {
    let worker = Worker::obliging();
    let mut gateway = Gateway::before([&worker])
        .flags(&format!("--drain-settle-secs 0 --log-level {level}"))
        .output_unread()
        .start();

    // At least a line each, many times what the pipe holds.
    let mut client = Client::connect(&gateway);
    for _ in 0..300 {
        assert_eq!(client.ask("hello").status(), 200);
    }
    client.leave();
    gateway.is_at_rest();

    gateway.signal(libc::SIGTERM);
    assert_eq!(gateway.exit_status().code(), Some(0));
}
