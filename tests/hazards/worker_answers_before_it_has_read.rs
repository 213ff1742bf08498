//! A worker begins its answer before it has read the whole request. It still gets all of it.

use std::time::Duration;

use crate::harness::{Client, Gateway, Worker, post};

#[test]
fn the_rest_of_the_request_follows_its_answers_head() {
    // More than the sockets in between hold.
    const BODY: usize = 40 << 20;
    let worker = Worker::start(|exchange| {
        exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        exchange.chunk(b"early ");
        std::thread::park_timeout(Duration::from_millis(200));
        let received = exchange.body().map(<[u8]>::len).unwrap_or_default();
        exchange.chunk(received.to_string().as_bytes());
        exchange.end();
    });
    let gateway = Gateway::before([&worker]).start();
    let mut client = Client::connect(&gateway);
    for _ in 0..2 {
        let prompt = "x".repeat(BODY);
        let body = format!("{{\"model\":\"m\",\"prompt\":\"{prompt}\"}}");
        client.send(&post("/v1/completions", body.as_bytes()));
        let response = client.response();
        assert_eq!(response.text(), format!("early {}", body.len()));
    }
    assert_eq!(worker.dispatched(), 2);
    client.leave();
    gateway.is_at_rest();
}
