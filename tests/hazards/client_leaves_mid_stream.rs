//! A client leaves while its answer is streamed.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::harness::{Client, Gate, Gateway, PATIENCE, Worker, chat, eventually};

#[test]
fn the_worker_is_let_go_when_the_client_closes() {
    worker_is_let_go(Client::leave);
}

#[test]
fn the_worker_is_let_go_when_the_client_is_killed() {
    worker_is_let_go(Client::vanish);
}

fn worker_is_let_go(leave: fn(Client)) {
    let gate = Gate::default();
    let opened = gate.clone();
    let worker = Worker::start(move |exchange| {
        exchange.begin_events();
        exchange.event("one");
        if exchange.mentions("hang") {
            return exchange.until_abandoned();
        }
        opened.wait();
        exchange.event("two");
        exchange.end();
    });
    let gateway = Gateway::before([&worker]).start();

    let mut bystander = streaming(&gateway, "patient");
    let leaver = streaming(&gateway, "hang");

    leave(leaver);
    eventually("the leaver's connection to the worker is closed", || worker.abandoned() == 1);
    eventually("only the bystander is in flight", || {
        gateway.metrics().sum("smg_worker_requests_active") == 1.0
    });

    gate.open();
    assert_eq!(bystander.chunk().as_deref(), Some("data: two\n\n"));
    assert_eq!(bystander.chunk().as_deref(), Some(""), "the stream ends whole");
    bystander.leave();
    gateway.is_at_rest();
    assert_eq!(worker.dispatched(), 2, "nothing was sent twice");
}

/// A client that has received the first event of its stream.
fn streaming(gateway: &Gateway, text: &str) -> Client {
    let mut client = Client::connect(gateway);
    client.send(&chat(text));
    assert_eq!(client.response_head().status(), 200);
    assert_eq!(client.chunk().as_deref(), Some("data: one\n\n"));
    client
}

#[test]
fn a_client_of_http_1_0_that_ends_its_own_side_sees_that_the_answer_is_cut() {
    let worker = Worker::start(|exchange| {
        exchange.begin_events();
        exchange.event("one");
        exchange.until_abandoned();
    });
    let gateway = Gateway::before([&worker]).start();
    let mut client = TcpStream::connect(gateway.addr()).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).expect("a duration above 0");
    let request = String::from_utf8(chat("hello")).expect("text").replace("HTTP/1.1", "HTTP/1.0");
    client.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"data: one\n\n") {
        let mut piece = [0; 1024];
        let received = client.read(&mut piece).expect("an answer");
        answer.extend_from_slice(&piece[..received]);
    }
    client.shutdown(Shutdown::Write).expect("it can");
    let end = client.read_to_end(&mut Vec::new()).expect_err("not an end that looks orderly");
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    gateway.is_at_rest();
}
