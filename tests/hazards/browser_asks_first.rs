//! A web page uses the gateway: its browser asks first whether it may, without a key, and looks for
//! the permission again in the answer.

use crate::harness::{Client, Gateway, Response, Worker, post};

const PAGE: &str = "https://app.example.com";
const ROUTE: &str = "/v1/chat/completions";

/// A worker with CORS headers of its own, as vLLM's and SGLang's are set by default.
fn permissive() -> Worker {
    Worker::start(|exchange| {
        let _ = exchange.body();
        exchange.send(
            b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nVary: Accept\r\n\
              access-control-allow-credentials: true\r\nContent-Length: 2\r\n\r\n{}",
        );
    })
}

fn preflight(origin: &str, more: &str) -> String {
    format!(
        "OPTIONS {ROUTE} HTTP/1.1\r\nHost: g\r\nOrigin: {origin}\r\n\
         Access-Control-Request-Method: POST\r\n{more}\r\n"
    )
}

/// A request of a page with these header lines.
fn of_page(path: &str, lines: &str) -> Vec<u8> {
    let request = String::from_utf8(post(path, br#"{"model":"m"}"#)).expect("ASCII");
    request.replacen("\r\n", &format!("\r\n{lines}"), 1).into_bytes()
}

/// All values of a header in their order.
fn all<'a>(response: &'a Response, name: &str) -> Vec<&'a str> {
    let headers = response.head.headers.iter();
    headers.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| &**value).collect()
}

fn cors_headers(response: &Response) -> Vec<&str> {
    let names = response.head.headers.iter().map(|(name, _)| &**name);
    names.filter(|name| name.to_ascii_lowercase().starts_with("access-control-")).collect()
}

#[test]
fn a_preflight_is_answered_without_a_key_and_without_a_worker() {
    let worker = permissive();
    let flags =
        format!("--shards 3 --api-key k --cors-allowed-origins {PAGE} http://localhost:5173");
    let gateway = Gateway::before([&worker]).flags(&flags).start();
    let mut client = Client::connect(&gateway);
    // Some say that the question has no body.
    for (origin, length) in [(PAGE, ""), ("http://localhost:5173", "Content-Length: 0\r\n")] {
        let wanted = "Access-Control-Request-Headers: authorization,x-stainless-os\r\n";
        client.send(preflight(origin, &format!("{length}{wanted}")).as_bytes());
        let answer = client.response();
        assert_eq!(answer.status(), 204);
        assert!(answer.body.is_empty() && all(&answer, "content-length").is_empty());
        for (name, value) in [
            ("access-control-allow-origin", origin),
            ("access-control-allow-methods", "POST"),
            ("access-control-allow-headers", "authorization,x-stainless-os"),
            ("access-control-max-age", "3600"),
            ("vary", "origin, access-control-request-method, access-control-request-headers"),
        ] {
            assert_eq!(all(&answer, name), [value], "{name}");
        }
    }
    client.send(preflight("https://evil.example.com", "").as_bytes());
    let stranger = client.response();
    assert_eq!((stranger.status(), cors_headers(&stranger)), (204, vec![]));
    // The same connection serves the request that was asked about.
    client.send(&of_page(ROUTE, &format!("Origin: {PAGE}\r\nx-api-key: k\r\n")));
    assert_eq!(client.response().status(), 200);
    assert_eq!(worker.dispatched(), 1);
    let answered = gateway.metrics().sum_of("smg_http_responses_total", "status_code=\"204\"");
    assert_eq!(answered, 3.0);
    client.leave();
    gateway.is_at_rest();
}

#[test]
fn answers_of_workers_say_what_the_gateway_allows_and_no_more() {
    let worker = permissive();
    let flags = format!("--cors-allowed-origins {PAGE}");
    let gateway = Gateway::before([&worker]).flags(&flags).start();
    let mut client = Client::connect(&gateway);
    client.send(&of_page(ROUTE, &format!("Origin: {PAGE}\r\n")));
    let answer = client.response();
    assert_eq!(all(&answer, "access-control-allow-origin"), [PAGE]);
    assert_eq!(all(&answer, "access-control-allow-credentials"), [""; 0]);
    assert!(all(&answer, "access-control-expose-headers")[0].contains("x-request-id"));
    assert_eq!(all(&answer, "vary"), ["Accept", "origin"]);
    for lines in ["", "Origin: https://evil.example.com\r\n", "Origin: null\r\n"] {
        client.send(&of_page(ROUTE, lines));
        let answer = client.response();
        assert_eq!((answer.status(), cors_headers(&answer)), (200, vec![]), "{lines}");
        assert_eq!(all(&answer, "vary"), ["Accept", "origin"], "{lines}");
    }
}

#[test]
fn errors_and_own_answers_can_be_read_by_the_page() {
    let worker = permissive();
    let flags = format!("--api-key k --cors-allowed-origins {PAGE} --max-payload-size 1024");
    let gateway = Gateway::before([&worker]).flags(&flags).start();
    let long = format!("Content-Length: 4096\r\nOrigin: {PAGE}\r\nx-api-key: k\r\n");
    let origin = format!("Origin: {PAGE}\r\n");
    for (request, status) in [
        (of_page(ROUTE, &origin), 401),
        (format!("POST {ROUTE} HTTP/1.1\r\nHost: g\r\n{long}\r\n").into_bytes(), 413),
        (format!("GET /nothing HTTP/1.1\r\nHost: g\r\n{origin}\r\n").into_bytes(), 404),
        (format!("DELETE /health HTTP/1.1\r\nHost: g\r\n{origin}\r\n").into_bytes(), 405),
        (format!("GET /v1/models HTTP/1.1\r\nHost: g\r\n{origin}\r\n").into_bytes(), 200),
        (format!("GET /health HTTP/1.1\r\nHost: g\r\n{origin}\r\n").into_bytes(), 200),
    ] {
        let mut client = Client::connect(&gateway);
        client.send(&request);
        let answer = client.response();
        assert_eq!(answer.status(), status);
        assert_eq!(all(&answer, "access-control-allow-origin"), [PAGE], "{status}");
        assert_eq!(all(&answer, "vary"), ["origin"], "{status}");
    }
    assert_eq!(worker.dispatched(), 0);
}

#[test]
fn a_star_lets_every_page_in() {
    let worker = permissive();
    let gateway = Gateway::before([&worker]).flags("--cors-allowed-origins *").start();
    let mut client = Client::connect(&gateway);
    client.send(preflight("null", "").as_bytes());
    let answer = client.response();
    assert_eq!(all(&answer, "access-control-allow-origin"), ["*"]);
    let usual = ["authorization, content-type, x-api-key"];
    assert_eq!(all(&answer, "access-control-allow-headers"), usual);
    client.send(&of_page(ROUTE, "Origin: https://anywhere.example\r\n"));
    let answer = client.response();
    assert_eq!(all(&answer, "access-control-allow-origin"), ["*"]);
    assert_eq!(all(&answer, "access-control-allow-credentials"), [""; 0]);
    // Even a request that cannot be read.
    client.send(b"GET / HTTP/1.1\r\nHost : g\r\n\r\n");
    let answer = client.response();
    assert_eq!(answer.status(), 400);
    assert_eq!(all(&answer, "access-control-allow-origin"), ["*"]);
}

#[test]
fn without_the_flag_the_workers_headers_pass_and_the_gateway_says_nothing() {
    let worker = permissive();
    let gateway = Gateway::before([&worker]).start();
    let mut client = Client::connect(&gateway);
    client.send(preflight(PAGE, "").as_bytes());
    let answer = client.response();
    assert_eq!((answer.status(), answer.head.header("allow")), (405, Some("POST")));
    assert_eq!((cors_headers(&answer), all(&answer, "vary")), (vec![], vec![]));
    client.send(&of_page(ROUTE, &format!("Origin: {PAGE}\r\n")));
    let answer = client.response();
    assert_eq!(all(&answer, "access-control-allow-origin"), ["*"]);
    assert_eq!(all(&answer, "access-control-allow-credentials"), ["true"]);
    assert_eq!(all(&answer, "vary"), ["Accept"]);
}
