//! One connection is busy without a pause. The others on its shard are served all the same, and timers
//! fire.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{Client, Exchange, Gateway, Worker, chat};

/// How long the one is busy; nobody may have to wait for its end.
const BUSY: Duration = Duration::from_secs(3);

#[test]
fn requests_are_sent_without_a_pause() {
    others_are_served(Worker::obliging(), |addr, over| {
        let mut sending = TcpStream::connect(addr).expect("a connection");
        let reading = sending.try_clone().expect("another descriptor");
        let reader = std::thread::spawn(move || swallow(reading));
        let requests = b"GET /liveness HTTP/1.1\r\nHost: gateway\r\n\r\n".repeat(500);
        while !over() && sending.write_all(&requests).is_ok() {}
        // The reader has ended when the gateway closes; it may have done so already.
        let _ = sending.shutdown(Shutdown::Both);
        reader.join().expect("a thread that reads");
    });
}

/// Reads to the end, as fast as it can.
fn swallow(mut stream: TcpStream) {
    let mut bytes = [0; 64 << 10];
    while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
}

#[test]
fn a_body_arrives_in_chunks_of_a_byte() {
    others_are_served(Worker::obliging(), |addr, over| {
        let mut sending = Client::connect_to(addr).expect("a connection");
        sending.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        let chunks = b"1\r\n \r\n".repeat(1000);
        while !over() {
            sending.send(&chunks);
        }
    });
}

#[test]
fn a_worker_streams_as_fast_as_it_can() {
    let streaming = Worker::start(|exchange| {
        if !exchange.mentions("stream") {
            return exchange.answer(200, b"{}");
        }
        exchange.begin_events();
        let events = b"d\r\ndata: token\n\n\r\n".repeat(500);
        let begun = Instant::now();
        while exchange.is_open() && begun.elapsed() < BUSY {
            exchange.send(&events);
        }
        exchange.close();
    });
    others_are_served(streaming, |addr, _| {
        let mut reading = TcpStream::connect(addr).expect("a connection");
        reading.write_all(&chat("stream")).expect("the gateway takes the request");
        swallow(reading);
    });
}

#[test]
fn a_worker_says_100_continue_without_end() {
    let worker = Worker::start(|exchange: &mut Exchange| {
        if !exchange.mentions("stream") {
            return exchange.answer(200, b"{}");
        }
        let begun = Instant::now();
        while exchange.is_open() && begun.elapsed() < BUSY {
            exchange.send(&b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100));
        }
        exchange.close();
    });
    others_are_served(worker, |addr, _| {
        let mut asking = Client::connect_to(addr).expect("a connection");
        asking.send(&chat("stream"));
        assert_eq!(asking.response().status(), 502);
    });
}

/// Another client asks again and again while `busy` runs, which is told when its time is over.
fn others_are_served(worker: Worker, busy: fn(SocketAddr, &dyn Fn() -> bool)) {
    let gateway = Gateway::before([&worker]).flags("--shards 1").start();
    let over = Arc::new(AtomicBool::new(false));
    let (addr, told) = (gateway.addr(), over.clone());
    let begun = Instant::now();
    let one = std::thread::spawn(move || {
        busy(addr, &|| told.load(Ordering::SeqCst) || begun.elapsed() > 2 * BUSY);
    });
    let mut other = Client::connect(&gateway);
    let mut answered = 0;
    while begun.elapsed() < BUSY / 2 {
        assert_eq!(other.ask("hello").status(), 200);
        answered += 1;
    }
    over.store(true, Ordering::SeqCst);
    one.join().expect("the busy one goes through");
    // Behind the busy one, the first would have been answered after its end.
    assert!(answered > 5, "only {answered} others were answered meanwhile");
    other.leave();
    gateway.is_at_rest();
}
