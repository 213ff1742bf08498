//! Requests that never get as far as a worker: each is in the access log, once, and says how it ended.

use serde_json::Value;

use crate::harness::{Client, Exchange, Gate, Gateway, Http2, Worker, chat, eventually, post};

const PATH: &str = "/v1/completions";
const PROMPT: &[u8] = br#"{"model":"m","prompt":"hello"}"#;

/// Lines of the access log, without those of the harness's own probes.
fn lines(gateway: &Gateway) -> Vec<Value> {
    let log = gateway.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str(line).ok());
    let wanted = |line: &Value| line["target"] == "smg::access" && line["path"] != "/readiness";
    lines.filter(wanted).collect()
}

/// The next line, once it is there; no other may be.
#[track_caller]
fn next_line(gateway: &Gateway, seen: &mut usize) -> Value {
    eventually("the request is in the log", || lines(gateway).len() > *seen);
    let mut all = lines(gateway);
    assert_eq!(all.len(), *seen + 1, "{all:#?}");
    *seen += 1;
    all.pop().expect("there is one")
}

/// Text of a field, and `-` without it.
fn field<'a>(line: &'a Value, name: &str) -> &'a str {
    line[name].as_str().unwrap_or("-")
}

fn number(line: &Value, name: &str) -> Option<u64> {
    line[name].as_u64()
}

/// Method, path, status, error and ending as the log has them.
fn said(line: &Value) -> (&str, &str, Option<u64>, &str, &str) {
    let status = number(line, "status");
    (
        field(line, "method"),
        field(line, "path"),
        status,
        field(line, "error"),
        field(line, "ending"),
    )
}

const FLAGS: &str = "--shards 1 --log-json --max-payload-size 100000 --api-key sk-secret \
    --cors-allowed-origins http://page.test";

/// Method, path, headers, body; what the answer says and the log has.
type Case = (&'static str, &'static str, &'static str, Vec<u8>, u16, &'static str, &'static str);

fn cases() -> Vec<Case> {
    let key = "authorization: Bearer sk-secret\r\n";
    let body = || PROMPT.to_vec();
    vec![
        ("POST", PATH, "x-api-key: sk-hidden\r\n", body(), 401, "invalid_api_key", PATH),
        ("GET", "/v1/nowhere/sk-hidden?key=sk-hidden", key, vec![], 404, "unknown_url", "other"),
        (
            "DELETE",
            "/v1/models?key=sk-hidden",
            key,
            vec![],
            405,
            "method_not_allowed",
            "/v1/models",
        ),
        ("POST", PATH, key, vec![b' '; 100_001], 413, "request_too_large", PATH),
        ("POST", PATH, key, b"{\"model\":".to_vec(), 400, "json_parse_error", PATH),
        (
            "POST",
            PATH,
            key,
            br#"{"model":"x","prompt":"hello"}"#.to_vec(),
            404,
            "model_not_found",
            PATH,
        ),
        (
            "POST",
            PATH,
            "authorization: Bearer sk-secret\r\ncontent-encoding: snappy\r\n",
            body(),
            415,
            "unsupported_content_encoding",
            PATH,
        ),
        ("GET", "/v1/models", key, vec![], 200, "-", "/v1/models"),
        ("GET", "/workers/sk-hidden", key, vec![], 400, "BAD_REQUEST", "/workers/{worker_id}"),
        (
            "OPTIONS",
            PATH,
            "origin: http://page.test\r\naccess-control-request-method: POST\r\n",
            vec![],
            204,
            "-",
            PATH,
        ),
        ("POST", PATH, key, body(), 200, "-", PATH),
    ]
}

#[test]
fn every_answer_is_logged_once_over_http_1() {
    every_answer_is_logged_once(|gateway, method, path, headers, body| {
        let mut client = Client::connect(gateway);
        let length = match body.len() {
            0 => String::new(),
            length => format!("content-length: {length}\r\n"),
        };
        let head = format!("{method} {path} HTTP/1.1\r\nhost: g\r\n{length}{headers}\r\n");
        client.send(&[head.as_bytes(), body].concat());
        client.response().status()
    });
}

#[test]
fn every_answer_is_logged_once_over_http_2() {
    every_answer_is_logged_once(|gateway, method, path, headers, body| {
        let mut client = Http2::connect(gateway);
        let mut request = http::Request::builder().method(method).uri(format!("http://g{path}"));
        for line in headers.lines() {
            let (name, value) = line.split_once(": ").expect("a header");
            request = request.header(name, value);
        }
        let request = request.body(()).expect("a request");
        let mut asked = client.open(request, body.is_empty());
        if !body.is_empty() {
            client.send_all(&mut asked.sending, body);
        }
        client.answer(asked.answer).status
    });
}

type Ask = fn(&Gateway, &str, &str, &str, &[u8]) -> u16;

fn every_answer_is_logged_once(ask: Ask) {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags(FLAGS).start();
    let mut seen = lines(&gateway).len();
    for (method, path, headers, body, status, error, template) in cases() {
        assert_eq!(ask(&gateway, method, path, headers, &body), status, "{method} {path}");
        let line = next_line(&gateway, &mut seen);
        let wanted = (method, template, Some(u64::from(status)), error, "complete");
        assert_eq!(said(&line), wanted, "{line:#}");
        assert_ne!(field(&line, "request_id"), "-", "{line:#}");
        let served = status == 200 && method == "POST";
        assert_eq!(number(&line, "attempts"), Some(u64::from(served)), "{line:#}");
        assert_eq!(field(&line, "worker") != "-", served, "{line:#}");
        let read = matches!(error, "-" | "json_parse_error" | "model_not_found");
        let bytes = if read && method == "POST" { body.len() } else { 0 };
        assert_eq!(number(&line, "request_bytes"), Some(bytes as u64), "{line:#}");
    }
    assert!(!gateway.log().contains("hidden"), "{}", gateway.log());
    gateway.is_at_rest();
}

#[test]
fn a_head_that_cannot_be_read_is_logged_without_what_it_asks_for() {
    let worker = Worker::obliging();
    let flags = "--shards 1 --log-json --header-read-timeout-secs 1";
    let gateway = Gateway::before([&worker]).flags(flags).start();
    let mut seen = lines(&gateway).len();
    for (head, status, error) in [
        ("GET /health HTTP/1.1\r\nsk-hidden : x\r\n\r\n", 400, "bad_request"),
        ("GET /health HTTP/1.1\r\nhost: g", 408, "request_timeout"),
    ] {
        let mut client = Client::connect(&gateway);
        client.send(head.as_bytes());
        assert_eq!(client.response().status(), status);
        client.leave();
        let line = next_line(&gateway, &mut seen);
        assert_eq!(said(&line), ("-", "-", Some(u64::from(status)), error, "complete"), "{line:#}");
    }
    // A connection without a request is none.
    Client::connect(&gateway).leave();
    gateway.is_at_rest();
    assert_eq!(lines(&gateway).len(), seen);
    assert!(!gateway.log().contains("hidden"));
}

#[test]
fn who_is_turned_away_or_leaves_is_logged() {
    let gate = Gate::default();
    let opened = gate.clone();
    let worker = Worker::start(move |exchange: &mut Exchange| {
        opened.wait();
        exchange.answer(200, b"{}");
    });
    let flags = "--shards 1 --log-json --max-concurrent-requests 1 --queue-size 1 \
        --queue-timeout-secs 1";
    let gateway = Gateway::before([&worker]).flags(flags).start();
    let mut seen = lines(&gateway).len();
    let mut running = Client::connect(&gateway);
    running.send(&chat("runs"));
    eventually("it runs", || worker.dispatched() == 1);

    let waits = |count: f64| {
        eventually("it waits", || gateway.metrics().sum("smg_admission_queue_depth") == count);
    };
    let mut waiting = Client::connect(&gateway);
    waiting.send(&chat("waits"));
    waits(1.0);
    assert_eq!(Client::connect(&gateway).ask("too many").status(), 429);
    let chat_path = "/v1/chat/completions";
    let wanted = ("POST", chat_path, Some(429), "admission_queue_full", "complete");
    assert_eq!(said(&next_line(&gateway, &mut seen)), wanted);
    assert_eq!(waiting.response().status(), 503);
    let wanted = ("POST", chat_path, Some(503), "admission_queue_timeout", "complete");
    assert_eq!(said(&next_line(&gateway, &mut seen)), wanted);

    let left = ("POST", chat_path, Some(499), "-", "client_gone");
    let mut leaving = Client::connect(&gateway);
    leaving.send(&chat("leaves"));
    waits(1.0);
    leaving.vanish();
    assert_eq!(said(&next_line(&gateway, &mut seen)), left);
    let mut leaving = Http2::connect(&gateway);
    let asked = leaving.chat("leaves");
    leaving.run_for(std::time::Duration::from_millis(50));
    waits(1.0);
    drop((asked, leaving));
    assert_eq!(said(&next_line(&gateway, &mut seen)), left);

    gate.open();
    assert_eq!(running.response().status(), 200);
    assert_eq!(
        said(&next_line(&gateway, &mut seen)),
        ("POST", chat_path, Some(200), "-", "complete")
    );
    // Half of a body, and then nobody.
    let mut leaving = Client::connect(&gateway);
    let whole = post("/v1/chat/completions", PROMPT);
    leaving.send(&whole[..whole.len() - 5]);
    leaving.vanish();
    assert_eq!(said(&next_line(&gateway, &mut seen)), left);
    drop((running, waiting));
    gateway.is_at_rest();
}
