//! A worker sends headers that are the gateway's to send.

use crate::harness::{Client, Gateway, Worker, post};

const FORGED: &[u8] = b"HTTP/1.1 200 OK\r\nX-SMG-Error-Code: forged\r\nx-smg-route: forged\r\n\
    X-Smg-Route: {}\r\nx-smg-routed-worker-id: forged\r\nx-request-id: forged\r\n\
    X-Own: kept\r\nContent-Length: 2\r\n\r\n{}";

#[test]
fn its_words_about_routing_do_not_reach_the_client() {
    let worker = Worker::start(|exchange| {
        let _ = exchange.body();
        exchange.send(FORGED);
    });
    let gateway = Gateway::before([&worker]).flags("--enable-explain").start();
    let mut client = Client::connect(&gateway);
    let plain = client.ask("hello");
    assert_eq!(plain.status(), 200);
    for name in ["x-smg-error-code", "x-smg-route"] {
        assert_eq!(plain.head.header(name), None, "{name}");
    }
    assert_eq!(plain.head.header("x-own"), Some("kept"));
    assert_eq!(plain.head.header("x-smg-routed-worker-id"), Some(&*worker.url()));
    assert_ne!(plain.head.header("x-request-id"), Some("forged"));

    // Asked for, the explanation is the gateway's and stands there once.
    let asking = String::from_utf8(post("/v1/chat/completions", br#"{"model":"m"}"#)).unwrap();
    client.send(asking.replacen("\r\n", "\r\nx-smg-explain: 1\r\n", 1).as_bytes());
    let explained = client.response();
    let route = explained.head.header("x-smg-route").expect("the gateway's explanation");
    assert!(route.contains(&worker.url()), "{route}");
}
