//! What reaches the other side: whole heads as they are written.

use super::super::{
    Authorization, BodyLength, ClientFraming, RequestRewrite, ResponseRewrite, write_request_head,
    write_response_head,
};
use super::{request, response};

const REWRITE: RequestRewrite<'static> = RequestRewrite {
    host: b"w1:8000",
    path_prefix: b"",
    authorization: Authorization::Keep,
    drop_x_api_key: false,
    request_id: Some(b"gen-1"),
    client_addr: Some(b"10.0.0.9"),
    content_length: Some(7),
};

const ANSWER: ResponseRewrite<'static> = ResponseRewrite {
    request_id: b"id-1",
    routed_worker: Some(b"w1"),
    framing: ClientFraming::AsContentLength(2),
    cors: None,
    connection_close: false,
    http10_client: false,
};

/// The head written for the worker.
fn forwarded(bytes: &[u8], rewrite: &RequestRewrite<'_>) -> String {
    let (head, headers) = request(bytes);
    let mut out = b"before".to_vec();
    write_request_head(&mut out, bytes, &head, &headers, rewrite);
    let out = String::from_utf8(out).expect("ASCII in, ASCII out");
    out.strip_prefix("before").expect("appended").to_owned()
}

/// The head written for the client.
fn returned(bytes: &[u8], rewrite: &ResponseRewrite<'_>) -> String {
    let (head, headers) = response(bytes);
    let mut out = b"before".to_vec();
    write_response_head(&mut out, bytes, &head, &headers, rewrite);
    let out = String::from_utf8(out).expect("ASCII in, ASCII out");
    out.strip_prefix("before").expect("appended").to_owned()
}

#[test]
fn a_request_goes_out_with_its_end_to_end_headers_as_they_were() {
    let out = forwarded(
        b"POST /v1/chat/completions?a=1&b=%2F%20+c HTTP/1.1\r\nUser-Agent:  odd  spacing \r\n\
          hOsT: gw.test\r\nX-Tag: one\r\nConnection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\n\
          x-hop: 1\r\nX-Tag: two\r\nContent-Length: 0007\r\nx-smg-routing-tokens: 1,2,3\r\n\
          X-Smg-Explain: 1\r\nx-smg-routing-key: k\r\nTE: trailers\r\nTrailer: X-Sum\r\nUpgrade: h2c\r\n\
          Proxy-Authorization: Basic abc\r\nProxy-Connection: keep-alive\r\nExpect: 100-continue\r\n\
          Authorization: Basic dXNlcjpwYXNz\r\nX-Api-Key: sk\r\ntraceparent: 00-1\r\nX-End: 3\r\n\r\n{\"a\":1}",
        &REWRITE,
    );
    let want = "POST /v1/chat/completions?a=1&b=%2F%20+c HTTP/1.1\r\nHost: w1:8000\r\n\
         User-Agent:  odd  spacing \r\nX-Tag: one\r\nX-Tag: two\r\nx-smg-routing-key: k\r\n\
         Authorization: Basic dXNlcjpwYXNz\r\nX-Api-Key: sk\r\ntraceparent: 00-1\r\nX-End: 3\r\n\
         x-request-id: gen-1\r\nx-forwarded-for: 10.0.0.9\r\ncontent-length: 7\r\n\r\n";
    assert_eq!(out, want);
}

#[test]
fn a_bare_request_gets_what_it_lacks() {
    let rewrite = RequestRewrite { content_length: None, client_addr: None, ..REWRITE };
    let out = forwarded(b"\r\nGET /health HTTP/1.0\r\n\r\n", &rewrite);
    assert_eq!(out, "GET /health HTTP/1.1\r\nHost: w1:8000\r\nx-request-id: gen-1\r\n\r\n");
}

#[test]
fn targets_go_out_in_origin_form_behind_the_workers_path() {
    for (target, prefix, want) in [
        ("/a?b", "", "/a?b"),
        ("/a?b", "/base", "/base/a?b"),
        ("http://gw.test/a?b", "", "/a?b"),
        ("http://gw.test/a?b", "/base", "/base/a?b"),
        ("http://gw.test", "", "/"),
        ("http://gw.test?b", "/base", "/base/?b"),
        ("*", "/base", "*"),
    ] {
        let bytes = format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let rewrite = RequestRewrite { path_prefix: prefix.as_bytes(), ..REWRITE };
        let out = forwarded(bytes.as_bytes(), &rewrite);
        assert_eq!(out.lines().next(), Some(format!("OPTIONS {want} HTTP/1.1").as_str()));
    }
}

#[test]
fn credentials() {
    let with = b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer c\r\nX-A: b\r\n\
        authorization: Bearer d\r\nX-API-Key: k\r\n\r\n";
    let without = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let credentials = |bytes: &[u8], authorization, drop_x_api_key| {
        let rewrite = RequestRewrite { authorization, drop_x_api_key, ..REWRITE };
        let out = forwarded(bytes, &rewrite).to_ascii_lowercase();
        let lines = out.lines().filter(|line| line.starts_with("auth") || line.contains("-key"));
        lines.collect::<Vec<_>>().join("|")
    };
    use Authorization as A;
    let both = "authorization: bearer c|authorization: bearer d|x-api-key: k";
    assert_eq!(credentials(with, A::Keep, false), both);
    assert_eq!(credentials(with, A::Drop, true), "");
    let replaced = credentials(with, A::Replace(b"Bearer w"), true);
    assert_eq!(replaced, "authorization: bearer w");
    assert_eq!(credentials(without, A::Keep, true), "");
    assert_eq!(credentials(without, A::Replace(b"Bearer w"), true), "authorization: bearer w");
}

#[test]
fn the_clients_request_id_stays() {
    let out = forwarded(b"GET / HTTP/1.1\r\nHost: a\r\nX-Request-ID: mine\r\n\r\n", &REWRITE);
    assert!(out.contains("\r\nX-Request-ID: mine\r\n") && !out.contains("gen-1"), "{out}");
    // Naming it in Connection does not get it lost.
    let out = forwarded(
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x-request-id\r\nX-Request-ID: mine\r\n\r\n",
        &REWRITE,
    );
    assert!(out.contains("\r\nX-Request-ID: mine\r\n") && !out.contains("gen-1"), "{out}");
}

#[test]
fn the_clients_address_is_appended_to_the_last_list() {
    let chain = |lines: &str, client_addr: Option<&[u8]>| {
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}X-A: b\r\n\r\n");
        let out = forwarded(bytes.as_bytes(), &RequestRewrite { client_addr, ..REWRITE });
        let values = out.lines().filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("x-forwarded-for").then_some(value)
        });
        values.collect::<Vec<_>>().join("|")
    };
    let addr = Some(&b"10.0.0.9"[..]);
    assert_eq!(chain("", addr), "10.0.0.9");
    assert_eq!(chain("X-Forwarded-For: 1.1.1.1\r\n", addr), "1.1.1.1, 10.0.0.9");
    assert_eq!(chain("X-Forwarded-For:\r\n", addr), "10.0.0.9");
    let two = "X-Forwarded-For: 1.1.1.1\r\nx-forwarded-for: 2.2.2.2 , 3.3.3.3\r\n";
    assert_eq!(chain(two, addr), "1.1.1.1|2.2.2.2 , 3.3.3.3, 10.0.0.9");
    assert_eq!(chain(two, None), "1.1.1.1|2.2.2.2 , 3.3.3.3");
}

#[test]
fn obs_text_passes_in_both_directions() {
    let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nX-Latin: caf\xe9\r\n\r\n";
    let (head, headers) = request(bytes);
    let mut out = Vec::new();
    write_request_head(&mut out, bytes, &head, &headers, &REWRITE);
    assert!(out.windows(16).any(|window| window == b"X-Latin: caf\xe9\r\nx"));
    let bytes = b"HTTP/1.1 200 \xe9\r\nX-Latin: caf\xe9\r\n\r\n";
    let (head, headers) = response(bytes);
    let mut out = Vec::new();
    write_response_head(&mut out, bytes, &head, &headers, &ANSWER);
    assert!(out.starts_with(b"HTTP/1.1 200 \xe9\r\nX-Latin: caf\xe9\r\n"));
}

#[test]
fn a_response_comes_back_with_its_end_to_end_headers_as_they_were() {
    let out = returned(
        b"HTTP/1.0 404 Not Here\r\nDate: Tue, 15 Nov 1994 08:12:31 GMT\r\nServer: uvicorn\r\n\
          Connection: keep-alive, X-Private\r\nX-Private: 1\r\nSet-Cookie: a=1; Path=/\r\n\
          X-SMG-Error-Code: forged\r\nX-Mid:  m \r\nx-smg-routed-worker-id: forged\r\n\
          X-SMG-Route: forged\r\n\
          Set-Cookie: b=2\r\nX-Request-Id: from-worker\r\nKeep-Alive: timeout=5, max=10\r\n\
          Proxy-Authenticate: Basic\r\nUpgrade: h2c\r\nTE: trailers\r\nProxy-Connection: keep-alive\r\n\
          Trailer: X-Sum\r\ncontent-length: 2\r\nRetry-After: 7\r\nContent-Encoding: gzip\r\n\r\n{}",
        &ANSWER,
    );
    let want = "HTTP/1.1 404 Not Here\r\nDate: Tue, 15 Nov 1994 08:12:31 GMT\r\nServer: uvicorn\r\n\
         Set-Cookie: a=1; Path=/\r\nX-Mid:  m \r\nSet-Cookie: b=2\r\nRetry-After: 7\r\n\
         Content-Encoding: gzip\r\nx-request-id: id-1\r\nx-smg-routed-worker-id: w1\r\n\
         content-length: 2\r\n\r\n";
    assert_eq!(out, want);
}

#[test]
fn what_a_worker_tells_browsers_is_replaced_as_a_whole() {
    let bytes = b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nVary: Accept\r\n\
        access-control-ALLOW-credentials: true\r\nX-Access-Control-A: 1\r\nAccess-Control: 2\r\n\
        content-length: 2\r\n\r\n{}";
    let ours: [(&str, &[u8]); 2] =
        [("access-control-allow-origin", b"https://a"), ("vary", b"origin")];
    let rewrite = ResponseRewrite { cors: Some(&ours), routed_worker: None, ..ANSWER };
    let want = "HTTP/1.1 200 OK\r\nVary: Accept\r\nX-Access-Control-A: 1\r\nAccess-Control: 2\r\n\
        x-request-id: id-1\r\naccess-control-allow-origin: https://a\r\nvary: origin\r\n\
        content-length: 2\r\n\r\n";
    assert_eq!(returned(bytes, &rewrite), want);
    let nothing = ResponseRewrite { cors: Some(&[]), ..rewrite };
    assert!(!returned(bytes, &nothing).to_ascii_lowercase().contains("\naccess-control-"));
    let off = ResponseRewrite { cors: None, ..rewrite };
    assert!(returned(bytes, &off).contains("access-control-ALLOW-credentials: true\r\n"));
}

#[test]
fn the_client_gets_one_framing() {
    let chunked =
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n";
    let (head, _) = response(chunked);
    for (http10_client, close, want) in [
        (false, false, "transfer-encoding: chunked\r\n"),
        (false, true, "transfer-encoding: chunked\r\nconnection: close\r\n"),
        // HTTP/1.0 clients do not know chunks: the close is the end.
        (true, false, "connection: close\r\n"),
        (true, true, "connection: close\r\n"),
    ] {
        let rewrite = ResponseRewrite {
            framing: ClientFraming::for_body(head.body, http10_client),
            routed_worker: None,
            connection_close: close,
            http10_client,
            ..ANSWER
        };
        let want = format!("HTTP/1.1 200 OK\r\nX-A: b\r\nx-request-id: id-1\r\n{want}\r\n");
        assert_eq!(returned(chunked, &rewrite), want);
    }
}

#[test]
fn kept_connections_are_announced_to_http10_clients() {
    let bytes = b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\n";
    let rewrite = ResponseRewrite { http10_client: true, routed_worker: None, ..ANSWER };
    let want = "HTTP/1.1 200 \r\nx-request-id: id-1\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\n";
    assert_eq!(returned(bytes, &rewrite), want);
}

#[test]
fn bodiless_answers_keep_the_workers_length_but_not_with_204() {
    let rewrite = ResponseRewrite { framing: ClientFraming::NoBody, ..ANSWER };
    for (status, kept) in [(200, true), (304, true), (204, false)] {
        let bytes = format!("HTTP/1.1 {status} X\r\nContent-Length: 100\r\nETag: \"x\"\r\n\r\n");
        let out = returned(bytes.as_bytes(), &rewrite);
        assert_eq!(out.contains("Content-Length: 100\r\n"), kept, "{out}");
        assert!(out.contains("ETag: \"x\"\r\n"));
    }
    assert_eq!(ClientFraming::for_body(BodyLength::None, false), ClientFraming::NoBody);
    let fixed = ClientFraming::for_body(BodyLength::Fixed(3), true);
    assert_eq!(fixed, ClientFraming::AsContentLength(3));
    let until_close = ClientFraming::for_body(BodyLength::UntilClose, false);
    assert_eq!(until_close, ClientFraming::Chunked);
}
