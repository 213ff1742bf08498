//! The gateway is told to stop while HTTP/2 connections are open.

use crate::harness::{Gate, Gateway, Http2, Worker, eventually};

#[test]
fn streams_finish_and_idle_connections_end() {
    let gate = Gate::default();
    let worker = Worker::pausing(&gate);
    let mut gateway = Gateway::before([&worker]).flags("--drain-settle-secs 0").start();
    let mut idle = Http2::connect(&gateway);
    let asked = idle.chat("hello");
    assert_eq!(idle.answer(asked.answer).whole(), b"at once");
    let mut streaming = Http2::connect(&gateway);
    let asked = streaming.chat("stream");
    let mut events = streaming.head(asked.answer).into_body();
    assert_eq!(streaming.data(&mut events).unwrap().unwrap(), "data: one\n\n");

    gateway.signal(libc::SIGTERM);
    idle.end().expect("it is told to go in good order");
    assert!(gateway.is_running(), "a request is in flight");
    gate.open();
    assert_eq!(streaming.data(&mut events).unwrap().unwrap(), "data: two\n\n");
    assert!(streaming.data(&mut events).is_none(), "the stream ends whole");
    streaming.end().expect("the connection ends in good order");
    assert_eq!(gateway.exit_status().code(), Some(0));
}

#[test]
fn a_client_that_does_not_take_leave_holds_nobody_up() {
    let worker = Worker::obliging();
    let mut gateway = Gateway::before([&worker]).flags("--drain-settle-secs 0").start();
    let mut client = Http2::connect(&gateway);
    let asked = client.chat("hello");
    assert_eq!(client.answer(asked.answer).status, 200);
    gateway.signal(libc::SIGTERM);
    // It does nothing from here on.
    eventually("the gateway ends", || !gateway.is_running());
    assert_eq!(gateway.exit_status().code(), Some(0));
    drop(client);
}
