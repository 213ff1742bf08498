//! Whoever reads the gateway's output stops doing so.

use crate::harness::{Client, Gateway, Worker};

#[test]
fn requests_are_answered_and_the_process_can_end() {
    let worker = Worker::obliging();
    let mut gateway =
        Gateway::before([&worker]).flags("--drain-settle-secs 0").output_unread().start();

    // A line each, many times what the pipe holds.
    let mut client = Client::connect(&gateway);
    for _ in 0..300 {
        assert_eq!(client.ask("hello").status(), 200);
    }
    client.leave();
    gateway.is_at_rest();

    gateway.signal(libc::SIGTERM);
    assert_eq!(gateway.exit_status().code(), Some(0));
}
