//! TLS or HTTP/2 between client and gateway: what is relayed must be the same, as soon as without.

use crate::harness::{Certificate, Client, Gate, Gateway, Http2, Worker, http2, post};

const MIB: usize = 1 << 20;
const PATH: &str = "/v1/completions";

/// Bodies of requests; the worker sends each back.
fn bodies() -> Vec<Vec<u8>> {
    let prompt = |length: usize| {
        format!("{{\"model\":\"m\",\"prompt\":\"{}\"}}", "é".repeat(length / 2)).into_bytes()
    };
    vec![prompt(1), prompt(70_000), prompt(MIB)]
}

/// Answers with the request's body, framed as it says, or with what it asks for.
fn echo() -> Worker {
    Worker::start(|exchange| {
        let Ok(body) = exchange.body().map(<[u8]>::to_vec) else { return };
        let stream = |exchange: &mut crate::harness::Exchange, size: usize| {
            exchange.begin_events();
            body.chunks(size).for_each(|chunk| exchange.chunk(chunk));
            exchange.end();
        };
        if exchange.mentions("empty") {
            exchange.answer(200, b"");
        } else if exchange.mentions("single") {
            exchange.answer(200, b"x");
        } else if exchange.mentions("chunks") {
            stream(exchange, 1000);
        } else if exchange.mentions("until-close") {
            exchange.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
            exchange.send(&body);
            exchange.close();
        } else {
            exchange.answer(200, &body);
        }
    })
}

fn named(name: &str) -> Vec<u8> {
    format!("{{\"model\":\"m\",\"prompt\":\"{name} {}\"}}", "y".repeat(100_000)).into_bytes()
}

#[test]
fn bodies_pass_unaltered() {
    let worker = echo();
    let certificate = Certificate::new();
    let plain = Gateway::before([&worker]).start();
    let secure = Gateway::before([&worker]).tls(&certificate).start();
    let mut http1 = Client::connect_tls(&secure, &certificate);
    let mut clients = [Http2::connect(&plain), Http2::connect_tls(&secure, &certificate)];
    for (body, wanted) in bodies()
        .into_iter()
        .map(|body| (body.clone(), body))
        .chain([(named("empty"), Vec::new()), (named("single"), b"x".to_vec())])
        .chain(["chunks", "until-close"].map(|name| (named(name), named(name))))
    {
        http1.send(&post(PATH, &body));
        let response = http1.response();
        assert!(response.complete && response.body == wanted, "HTTP/1.1, {}", body.len());
        for client in &mut clients {
            let answer = client.post(PATH, &body);
            assert_eq!(answer.status, 200);
            assert!(answer.whole() == wanted, "HTTP/2, {}", body.len());
        }
    }
    drop((http1, clients));
    plain.is_at_rest();
    secure.is_at_rest();
}

#[test]
fn streams_of_one_connection_are_not_mixed_up() {
    let worker = echo();
    let certificate = Certificate::new();
    let gateway = Gateway::before([&worker]).flags("--shards 2").tls(&certificate).start();
    let mut client = Http2::connect_tls(&gateway, &certificate);
    let body = |n: usize| {
        let kind = ["plain", "chunks"][n % 2];
        format!("{{\"model\":\"m\",\"prompt\":\"{kind} {}\"}}", n.to_string().repeat(n * 17))
    };
    let asked: Vec<_> = (0..100)
        .map(|n| {
            let mut asked = client.open(http2::post(PATH), false);
            client.send_all(&mut asked.sending, body(n).as_bytes());
            asked.answer
        })
        .collect();
    for (n, answer) in asked.into_iter().enumerate().rev() {
        assert!(client.answer(answer).whole() == body(n).as_bytes(), "{n}");
    }
    drop(client);
    gateway.is_at_rest();
}

#[test]
fn an_answer_passes_through_a_window_of_a_few_bytes() {
    let worker = echo();
    let gateway = Gateway::before([&worker]).start();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(7);
    let mut client = Http2::connect_with(&gateway, builder);
    for kind in ["plain", "chunks"] {
        let body = format!("{{\"model\":\"m\",\"prompt\":\"{kind} {}\"}}", "w".repeat(3000));
        let answer = client.post(PATH, body.as_bytes());
        assert!(answer.whole() == body.as_bytes(), "{kind}");
    }
}

#[test]
fn an_event_arrives_before_the_next_is_made() {
    let certificate = Certificate::new();
    for tls in [false, true] {
        let gate = Gate::default();
        let opened = gate.clone();
        let worker = Worker::start(move |exchange| {
            exchange.begin_events();
            exchange.event("one");
            opened.wait();
            exchange.event("two");
            exchange.end();
        });
        let launch = Gateway::before([&worker]);
        let gateway = if tls { launch.tls(&certificate) } else { launch }.start();
        let mut client = match tls {
            true => Http2::connect_tls(&gateway, &certificate),
            false => Http2::connect(&gateway),
        };
        let asked = client.chat("events");
        let head = client.head(asked.answer);
        assert_eq!(head.headers()["content-type"], "text/event-stream");
        assert!(!head.headers().contains_key("transfer-encoding"));
        let mut events = head.into_body();
        assert_eq!(client.data(&mut events).unwrap().unwrap(), "data: one\n\n");
        let mut http1 = tls.then(|| Client::connect_tls(&gateway, &certificate));
        if let Some(client) = &mut http1 {
            client.send(&crate::harness::chat("events"));
            assert_eq!(client.response_head().status(), 200);
            assert_eq!(client.chunk().as_deref(), Some("data: one\n\n"));
        }
        gate.open();
        assert_eq!(client.data(&mut events).unwrap().unwrap(), "data: two\n\n");
        assert!(client.data(&mut events).is_none());
        if let Some(client) = &mut http1 {
            assert_eq!(client.chunk().as_deref(), Some("data: two\n\n"));
            assert_eq!(client.chunk().as_deref(), Some(""));
        }
    }
}

#[test]
fn answers_without_a_body_end_with_their_head() {
    let worker = Worker::start(|exchange| {
        let _ = exchange.body();
        exchange.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
        exchange.send(b"HTTP/1.1 204 No Content\r\nX-Said: yes\r\n\r\n");
    });
    let gateway = Gateway::before([&worker]).start();
    let mut client = Http2::connect(&gateway);
    let answer = client.post(PATH, b"{\"model\":\"m\",\"prompt\":\"a\"}");
    assert_eq!((answer.status, answer.header("x-said")), (204, Some("yes")));
    assert!(answer.whole().is_empty());
    let answer = client.ask("HEAD", "/health");
    assert_eq!((answer.status, answer.header("content-length")), (200, Some("2")));
    assert!(answer.whole().is_empty());
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).start();
    let mut client = Http2::connect(&gateway);
    let mut request = http2::post(PATH);
    request.headers_mut().insert("expect", "100-continue".parse().unwrap());
    let mut asked = client.open(request, false);
    let interim = client.until(std::future::poll_fn(|cx| asked.answer.poll_informational(cx)));
    assert_eq!(interim.unwrap().unwrap().status(), 100);
    client.send_all(&mut asked.sending, b"{\"model\":\"m\",\"prompt\":\"a\"}");
    assert_eq!(client.answer(asked.answer).status, 200);
}

#[test]
fn the_gateway_answers_as_it_does_in_http_1() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags("--api-key k --max-payload-size 1000").start();
    let mut client = Http2::connect(&gateway);
    let refused = client.post(PATH, b"{}");
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")));
    assert!(refused.header("x-smg-error-code").is_some());
    assert_eq!(client.ask("GET", "/nowhere").status, 404);
    assert_eq!(client.ask("GET", PATH).status, 401);

    let mut with_key = |body: &[u8], field: Option<(&str, String)>| {
        let mut request = http2::post(PATH);
        request.headers_mut().insert("x-api-key", "k".parse().unwrap());
        if let Some((name, value)) = field {
            request.headers_mut().insert(
                http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                value.parse().unwrap(),
            );
        }
        let mut asked = client.open(request, false);
        client.send_all(&mut asked.sending, body);
        client.answer(asked.answer)
    };
    assert_eq!(with_key(b"{\"model\":\"m\",\"prompt\":\"a\"}", None).status, 200);
    let too_large = with_key(&vec![b' '; 300_000], None);
    assert_eq!((too_large.status, too_large.header("x-smg-error-code").is_some()), (413, true));
    let announced = with_key(b"", Some(("x-none", "1".into())));
    assert_eq!(announced.status, 400, "an empty body is no JSON");
    let long = with_key(b"{}", Some(("x-long", "y".repeat(70_000))));
    assert_eq!((long.status, long.header("x-smg-error-code").is_some()), (431, true));
    assert_eq!(worker.dispatched(), 1);
    // The connection outlives all of it.
    assert_eq!(with_key(b"{\"model\":\"m\",\"prompt\":\"a\"}", None).status, 200);
    let log = gateway.log();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn the_address_of_the_client_is_that_of_its_connection() {
    let worker = Worker::start(|exchange| {
        let seen = exchange.head.header("x-forwarded-for").unwrap_or_default().to_owned();
        let cookie = exchange.head.header("cookie").unwrap_or_default().to_owned();
        let host = exchange.head.header("host").unwrap_or_default().to_owned();
        exchange.answer(200, format!("{seen}|{cookie}|{host}").as_bytes());
    });
    let gateway = Gateway::before([&worker]).start();
    let mut client = Http2::connect(&gateway);
    let mut request = http2::post(PATH);
    request.headers_mut().append("cookie", "a=1".parse().unwrap());
    request.headers_mut().append("cookie", "b=2".parse().unwrap());
    let mut asked = client.open(request, false);
    client.send_all(&mut asked.sending, b"{\"model\":\"m\",\"prompt\":\"a\"}");
    let body = String::from_utf8(client.answer(asked.answer).whole()).unwrap();
    let host = worker.url().trim_start_matches("http://").to_owned();
    assert_eq!(body, format!("127.0.0.1|a=1; b=2|{host}"));
}

#[test]
fn heads_at_the_limits_reach_clients_of_http_2_too() {
    let longest = Worker::start(|exchange| {
        let _ = exchange.body();
        // 64 KiB in all.
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-long: ";
        let value = vec![b'v'; (64 << 10) - head.len() - 4];
        exchange.send(&[head, &value[..], b"\r\n\r\n{}"].concat());
    });
    let most = Worker::start(|exchange| {
        let _ = exchange.body();
        let lines = "x-many: 1\r\n".repeat(255);
        exchange
            .send(format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n{lines}\r\n{{}}").as_bytes());
    });
    for worker in [&longest, &most] {
        let gateway = Gateway::before([worker]).start();
        let body = br#"{"model":"m","prompt":"p"}"#;
        let mut client = Client::connect(&gateway);
        client.send(&post("/v1/completions", body));
        let response = client.response();
        assert_eq!((response.status(), response.text().as_str()), (200, "{}"));
        let mut builder = h2::client::Builder::new();
        builder.max_header_list_size(1 << 20);
        let mut session = Http2::connect_with(&gateway, builder);
        let answer = session.post("/v1/completions", body);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.headers.len(), response.head.headers.len());
        assert_eq!(answer.whole(), b"{}");
    }
}
