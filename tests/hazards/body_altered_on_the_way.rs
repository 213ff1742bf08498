//! Bytes of a request or an answer are changed, lost, repeated or put in another order.

use crate::harness::{Client, Gateway, Worker, post};

const LARGE: usize = 5 << 20;

/// Answers with the request's body, framed as the query says.
fn echoing() -> Worker {
    Worker::start(|exchange| {
        let Ok(body) = exchange.body().map(<[u8]>::to_vec) else { return };
        let line = exchange.head.first_line.clone();
        if line.contains("?until-close") {
            exchange.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
            exchange.send(&body);
            exchange.close();
        } else if line.contains("?chunked") {
            exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for piece in uneven_pieces(&body) {
                exchange.chunk(piece);
            }
            exchange.end();
        } else {
            exchange.answer(200, &body);
        }
    })
}

#[test]
fn bodies_arrive_byte_for_byte_both_ways() {
    let worker = echoing();
    let gateway = Gateway::before([&worker]).start();
    let mut sent = 0;
    for body in bodies() {
        for query in ["", "?chunked", "?until-close"] {
            let path = format!("/v1/chat/completions{query}");
            for request in [post(&path, &body), post_in_chunks(&path, &body)] {
                let mut client = Client::connect(&gateway);
                client.send(&request);
                let response = client.response();
                let what = format!("{} bytes, {path:?}", body.len());
                assert_eq!((response.status(), response.complete), (200, true), "{what}");
                assert!(response.body == body, "{what}: got {} bytes", response.body.len());
                sent += 1;
            }
        }
    }
    assert_eq!(worker.dispatched(), sent);
    gateway.is_at_rest();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    const REQUESTS: usize = 40;
    let worker = echoing();
    let gateway = Gateway::before([&worker]).start();

    let body = |turn: usize| {
        let text = format!("turn {turn} {}", "and more ".repeat(turn * 7 % 50));
        serde_json::json!({"model": "m", "prompt": text}).to_string().into_bytes()
    };
    let mut requests = Vec::new();
    for turn in 0..REQUESTS {
        let post = if turn % 3 == 0 { post_in_chunks } else { post };
        requests
            .extend(post(["/v1/completions", "/v1/completions?chunked"][turn % 2], &body(turn)));
    }
    let mut client = Client::connect(&gateway);
    client.send(&requests);
    for turn in 0..REQUESTS {
        let response = client.response();
        assert!(response.complete && response.body == body(turn), "{turn}: {}", response.text());
    }
    assert_eq!(worker.dispatched(), REQUESTS);
    client.leave();
    gateway.is_at_rest();
}

fn bodies() -> Vec<Vec<u8>> {
    let odd = concat!(
        " {\"model\" : \"m\",\t\"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9 \\\"q\\\" \\\\ é 漢字 🙂\"}],\r\n",
        "\"temperature\": 0.10000000000000001, \"seed\":1e2, \"seed\":-0, \"x\":{\"a\":[null,true,{}]}}\n\n"
    );
    let no_prompt = "{\"model\":\"m\"}";
    let large = format!(
        "{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"{}\"}}]}}",
        noise(LARGE)
    );
    vec![odd.into(), no_prompt.into(), large.into()]
}

/// Text without two equal stretches, some of it escaped or of several bytes per character.
fn noise(length: usize) -> String {
    let mut text = String::with_capacity(length + 16);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    while text.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match state % 19 {
            0 => text.push_str("\\n"),
            1 => text.push_str("\\u0151"),
            2 => text.push('ő'),
            3 => text.push('🙂'),
            _ => text.push_str(&format!("{:x} ", state >> 32)),
        }
    }
    text
}

/// A POST request in chunks of many sizes, with an extension and trailers.
fn post_in_chunks(path: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    for piece in uneven_pieces(body) {
        request.extend_from_slice(format!("{:X};name=\"value\"\r\n", piece.len()).as_bytes());
        request.extend_from_slice(piece);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\nX-Trailer: yes\r\n\r\n");
    request
}

/// All of `body` in pieces of 1 byte to 100 kB.
fn uneven_pieces(body: &[u8]) -> Vec<&[u8]> {
    let mut rest = body;
    let mut pieces = Vec::new();
    for size in [1, 2, 15, 16, 17, 4095, 4096, 65_536, 100_000].into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, left) = rest.split_at(rest.len().min(size));
        pieces.push(piece);
        rest = left;
    }
    pieces
}
