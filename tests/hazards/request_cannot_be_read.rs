//! A client's head leaves it open where its request ends, or what it is: it is refused and the
//! connection ends, and nothing of it reaches a worker.

use crate::harness::{Client, Gateway, Worker};

#[test]
fn it_is_answered_400_and_the_connection_ends() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).start();
    let post = "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n";
    for head in [
        "GET /health HTTP/1.2\r\nHost: gateway\r\n\r\n",
        "GET /health HTTP/2.0\r\nHost: gateway\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        "GET /health HTTP/0.9\r\nHost: gateway\r\n\r\n",
        "CONNECT 127.0.0.1:443 HTTP/1.1\r\nHost: 127.0.0.1:443\r\n\r\n",
        "P(ST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n\r\n",
        &format!("{post}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}"),
        &format!("{post}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        &format!("{post}Content-Length : 2\r\n\r\n{{}}"),
        &format!("{post}Content-Length: 2\n\r\n{{}}"),
        &format!("{post}X: a\r\n b\r\nContent-Length: 2\r\n\r\n{{}}"),
        &format!("{post}Transfer-Encoding: chunked\r\n\r\n0x2\r\n{{}}\r\n0\r\n\r\n"),
    ] {
        let mut client = Client::connect(&gateway);
        client.send(head.as_bytes());
        let response = client.response();
        assert_eq!(
            (response.status(), response.error_code()),
            (400, Some("bad_request")),
            "{head}"
        );
        assert!(client.is_at_end(), "{head}");
    }
    assert_eq!(worker.dispatched(), 0);
}

#[test]
fn a_transfer_coding_that_is_not_undone_here_is_answered_501() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).start();
    let mut client = Client::connect(&gateway);
    client.send(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n\
          Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    );
    assert_eq!(client.response().status(), 501);
    assert!(client.is_at_end());
    assert_eq!(worker.dispatched(), 0);
}
