//! Request heads: what is accepted, and the status of everything that is not.

use super::super::{BodyLength, Known, MAX_HEAD_BYTES, MAX_HEADERS, Method, RequestError, find};
use super::{fields, parse_request, request};

const START: &str = "POST /v1/chat/completions HTTP/1.1";
const BODY: &str = "{\"a\":1}";

/// A POST with these header lines behind a valid Host.
fn post(lines: &[&[u8]]) -> Vec<u8> {
    let start = format!("{START}\r\nHost: gw.test\r\nContent-Type: application/json\r\n");
    let mut out = start.into_bytes();
    for line in lines {
        out.extend_from_slice(line);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(BODY.as_bytes());
    out
}

#[track_caller]
fn refused(bytes: &[u8], error: RequestError) {
    let shown = String::from_utf8_lossy(bytes);
    assert_eq!(parse_request(bytes), Err(error), "{shown:?}");
}

#[test]
fn a_request_is_read_as_ranges_of_the_buffer() {
    let bytes =
        b"POST /generate?a=b HTTP/1.1\r\nhOsT:h\r\nX-Tag:  one \t\r\nx-empty:\r\nX-Tag: two\r\n\
        Content-Length: 007\r\n\r\n{\"a\":1}GET ";
    let (head, headers) = request(bytes);
    assert_eq!(head.len, bytes.len() - 11);
    assert_eq!(head.method, Method::Post);
    assert_eq!(head.target.of(bytes), b"/generate?a=b");
    assert_eq!(head.body, BodyLength::Fixed(7));
    assert!(head.keep_alive && !head.http10 && !head.expect_continue);
    let want: [(&[u8], &[u8]); 5] = [
        (b"hOsT", b"h"),
        (b"X-Tag", b"one"),
        (b"x-empty", b""),
        (b"X-Tag", b"two"),
        (b"Content-Length", b"007"),
    ];
    assert_eq!(fields(bytes, &headers), want);
    let lines: Vec<_> = headers.iter().map(|header| header.line().of(bytes)).collect();
    assert_eq!(lines[1], b"X-Tag:  one \t\r\n");
    assert_eq!(lines.concat(), &bytes[29..head.len - 2]);
    assert_eq!(find(&headers, Known::Host), Some(&headers[0]));
    assert_eq!(find(&headers, Known::Expect), None);
}

#[test]
fn values_are_kept_byte_for_byte() {
    let bytes = post(&[
        b"X-Latin: caf\xe9 \xff",
        "X-Utf: é你".as_bytes(),
        b"X-Tab: a\tb  c",
        b"X-Quote: \"a\\\"b\"",
    ]);
    let (_, headers) = request(&bytes);
    let values: Vec<_> = headers[2..].iter().map(|header| header.value.of(&bytes)).collect();
    assert_eq!(values, [&b"caf\xe9 \xff"[..], "é你".as_bytes(), b"a\tb  c", b"\"a\\\"b\""]);
}

#[test]
fn methods_are_case_sensitive_tokens() {
    let cases: [(&str, Method); 7] = [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("PATCH", Method::Patch),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
    ];
    for (name, method) in cases {
        let bytes = format!("{name} / HTTP/1.1\r\nHost: a\r\n\r\n");
        let (head, _) = request(bytes.as_bytes());
        assert_eq!(head.method, method);
        assert_eq!(head.method.name(b""), name.as_bytes());
    }
    for name in ["post", "TRACE", "PROPFIND", "FOO", "M-SEARCH", "P!#$%&'*+-.^_`|~0"] {
        let bytes = format!("\r\n{name} / HTTP/1.1\r\nHost: a\r\n\r\n");
        let (head, _) = request(bytes.as_bytes());
        assert!(matches!(head.method, Method::Other(_)), "{name}");
        assert_eq!(head.method.name(bytes.as_bytes()), name.as_bytes());
    }
}

#[test]
fn connection_reuse_follows_version_and_connection_header() {
    let cases = [
        ("1.1", "", true),
        ("1.1", "Connection: close", false),
        ("1.1", "Connection: Close", false),
        ("1.1", "Connection: keep-alive", true),
        ("1.1", "Connection: keep-alive, x-hop ,\tCLOSE", false),
        ("1.1", "Connection: x-close", true),
        ("1.1", "Connection:", true),
        ("1.1", "Connection: keep-alive\r\nConnection: close", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive", true),
        ("1.0", "Connection: keep-alive, close", false),
        ("1.0", "Keep-Alive: timeout=5", false),
    ];
    for (version, line, keep_alive) in cases {
        let line = if line.is_empty() { String::new() } else { format!("{line}\r\n") };
        let bytes = format!("GET / HTTP/{version}\r\nHost: a\r\n{line}\r\n");
        let (head, _) = request(bytes.as_bytes());
        assert_eq!(head.keep_alive, keep_alive, "{bytes:?}");
        assert_eq!(head.http10, version == "1.0");
    }
}

#[test]
fn http10_needs_no_host() {
    let (head, _) = request(b"GET /health HTTP/1.0\r\n\r\n");
    assert_eq!((head.len, head.body), (24, BodyLength::None));
}

#[test]
fn expectations() {
    let with = |version: &str, lines: &str| {
        parse_request(format!("POST / HTTP/{version}\r\nHost: a\r\n{lines}\r\n").as_bytes())
            .map(|parsed| parsed.expect("whole").0.expect_continue)
    };
    assert_eq!(with("1.1", "Expect: 100-continue\r\nContent-Length: 5\r\n"), Ok(true));
    assert_eq!(with("1.1", "expect: 100-Continue\r\nTransfer-Encoding: chunked\r\n"), Ok(true));
    assert_eq!(with("1.1", "Content-Length: 5\r\n"), Ok(false));
    // Nothing to wait for.
    assert_eq!(with("1.1", "Expect: 100-continue\r\nContent-Length: 0\r\n"), Ok(false));
    assert_eq!(with("1.1", "Expect: 100-continue\r\n"), Ok(false));
    // RFC 9110 §10.1.1: ignored from HTTP/1.0 clients.
    assert_eq!(with("1.0", "Expect: 100-continue\r\nContent-Length: 5\r\n"), Ok(false));
    assert_eq!(with("1.0", "Expect: x\r\nContent-Length: 5\r\n"), Ok(false));
    let unknown = with("1.1", "Expect: x\r\nContent-Length: 5\r\n");
    assert_eq!(unknown, Err(RequestError::Expectation));
    assert_eq!(RequestError::Expectation.status(), 417);
}

#[test]
fn empty_lines_before_the_request_are_skipped_up_to_a_limit() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for count in 0..=4 {
        let bytes = format!("{}{get}", "\r\n".repeat(count));
        let (head, headers) = request(bytes.as_bytes());
        assert_eq!(head.len, bytes.len());
        assert_eq!(head.target.of(bytes.as_bytes()), b"/");
        assert_eq!(headers[0].value.of(bytes.as_bytes()), b"a");
    }
    refused(format!("{}{get}", "\r\n".repeat(5)).as_bytes(), RequestError::TooManyEmptyLines);
    refused(format!("\n{get}").as_bytes(), RequestError::BareLineFeed);
    refused(format!("\r\n\n{get}").as_bytes(), RequestError::BareLineFeed);
    refused(format!("\r{get}").as_bytes(), RequestError::RequestLine);
    for partial in ["", "\r", "\r\n", "\r\n\r", "\r\n\r\nG"] {
        assert_eq!(parse_request(partial.as_bytes()), Ok(None), "{partial:?}");
    }
}

#[test]
fn transfer_encodings_that_two_readers_could_read_differently() {
    use RequestError as E;
    const CL: &[u8] = b"Content-Length: 7";
    const TE: &[u8] = b"Transfer-Encoding: chunked";
    let cases: [(&[&[u8]], E); 23] = [
        (&[CL, TE], E::LengthAndTransferEncoding),
        (&[TE, CL], E::LengthAndTransferEncoding),
        (&[b"Content-Length: 0", TE], E::LengthAndTransferEncoding),
        (&[b"Content-Length: 4", TE], E::LengthAndTransferEncoding),
        (&[TE, TE], E::TransferEncoding),
        (&[b"Transfer-Encoding: chunked, chunked"], E::TransferEncoding),
        (&[b"Transfer-Encoding: chunked, gzip"], E::TransferEncoding),
        (&[b"Transfer-Encoding: gzip"], E::TransferEncoding),
        (&[b"Transfer-Encoding: gzip", TE], E::TransferEncoding),
        (&[b"Transfer-Encoding: identity"], E::TransferEncoding),
        (&[b"Transfer-Encoding: identity, chunked"], E::TransferEncoding),
        (&[b"Transfer-Encoding: identity", CL], E::TransferEncoding),
        (&[b"Transfer-Encoding:", CL], E::TransferEncoding),
        (&[b"Transfer-Encoding: xchunked", CL], E::TransferEncoding),
        (&[b"Transfer-Encoding: \x0bchunked", CL], E::HeaderValue),
        (&[b"Transfer-Encoding: \"chunked\"", CL], E::TransferEncoding),
        (&[b"Transfer-Encoding: , chunked", CL], E::TransferEncoding),
        (&[b"Transfer-Encoding: chunked,", CL], E::TransferEncoding),
        (&[b"Transfer-Encoding: chunked;q=1", CL], E::TransferEncoding),
        (&[b"Transfer-Encoding : chunked", CL], E::HeaderName),
        (&[b"Transfer-Encoding\t: chunked", CL], E::HeaderName),
        (&[b"Transfer-Encoding\0: chunked", CL], E::HeaderName),
        (&[b"Transfer-Encoding: gzip, chunked"], E::UnsupportedTransferCoding),
    ];
    for (lines, error) in cases {
        refused(&post(lines), error);
        assert!(matches!(error.status(), 400 | 501));
    }
    assert_eq!(E::UnsupportedTransferCoding.status(), 501);
    for (lines, error) in [
        ("Transfer-Encoding: chunked\r\n", E::TransferEncodingInHttp10),
        ("Content-Length: 7\r\nTransfer-Encoding: chunked\r\n", E::LengthAndTransferEncoding),
    ] {
        refused(format!("POST / HTTP/1.0\r\nHost: a\r\n{lines}\r\n").as_bytes(), error);
        assert_eq!(error.status(), 400);
    }
}

#[test]
fn content_lengths_that_are_not_one_number() {
    use RequestError as E;
    let cases: [(&[&[u8]], E); 21] = [
        (&[b"Content-Length: 7", b"Content-Length: 12"], E::RepeatedContentLength),
        (&[b"Content-Length: 0", b"Content-Length: 7"], E::RepeatedContentLength),
        (&[b"Content-Length: 7", b"Content-Length: 7"], E::RepeatedContentLength),
        (&[b"Content-Length: 7, 8"], E::ContentLength),
        (&[b"Content-Length: 5, 5"], E::ContentLength),
        (&[b"Content-Length: -7"], E::ContentLength),
        (&[b"Content-Length: +7"], E::ContentLength),
        (&[b"Content-Length: 0x7"], E::ContentLength),
        (&[b"Content-Length: 7.0"], E::ContentLength),
        (&[b"Content-Length: 1e2"], E::ContentLength),
        (&[b"Content-Length: 1_0"], E::ContentLength),
        (&[b"Content-Length: 1 0"], E::ContentLength),
        (&[b"Content-Length: 7abc"], E::ContentLength),
        (&[b"Content-Length: "], E::ContentLength),
        (&[b"Content-Length:"], E::ContentLength),
        (&[b"Content-Length: 18446744073709551616"], E::ContentLength),
        (&[b"Content-Length: 18446744073709551626"], E::ContentLength),
        (&[b"Content-Length: 99999999999999999999999999999999999999999"], E::ContentLength),
        (&[b"Content-Length : 7"], E::HeaderName),
        (&[b"Content-Length: \x0b7"], E::HeaderValue),
        (&["Content-Length: \u{ff11}\u{ff12}".as_bytes()], E::ContentLength),
    ];
    for (lines, error) in cases {
        refused(&post(lines), error);
        assert_eq!(error.status(), 400);
    }
}

#[test]
fn odd_but_legal_framing() {
    for (line, body) in [
        ("content-length:   7  ", BodyLength::Fixed(7)),
        ("Content-Length:7", BodyLength::Fixed(7)),
        ("Content-Length: 0007", BodyLength::Fixed(7)),
        ("cONTENT-lENGTH:\t7\t", BodyLength::Fixed(7)),
        ("Content-Length: 0", BodyLength::Fixed(0)),
        ("Content-Length: 18446744073709551615", BodyLength::Fixed(u64::MAX)),
        ("transfer-encoding: CHUNKED", BodyLength::Chunked),
        ("Transfer-Encoding:chunked", BodyLength::Chunked),
        ("X-None: 1", BodyLength::None),
    ] {
        assert_eq!(request(&post(&[line.as_bytes()])).0.body, body, "{line}");
    }
}

#[test]
fn malformed_header_lines() {
    use RequestError as E;
    let cases: [(&[u8], E); 16] = [
        (b"X-A : b", E::HeaderName),
        (b"X-A\t: b", E::HeaderName),
        (b"X-A b", E::HeaderName),
        (b": b", E::HeaderName),
        (b" X-A: b", E::HeaderName),
        (b"X\0A: b", E::HeaderName),
        (b"X-A: b\0c", E::HeaderValue),
        (b"X-A: b\rc", E::HeaderValue),
        (b"X-A: b\r\n c: d", E::HeaderName),
        (b"X-A: b\r\n\tContent-Length: 5", E::HeaderName),
        (b"X-A:\r\n b", E::HeaderName),
        (b"X-A: b\nX-B: c", E::BareLineFeed),
        (b"X-A:\nX-B: c", E::BareLineFeed),
        (b"X-A: b\n", E::BareLineFeed),
        ("X-é: b".as_bytes(), E::HeaderName),
        (b"X(A): b", E::HeaderName),
    ];
    for (line, error) in cases {
        refused(&post(&[line, b"Content-Length: 7"]), error);
        assert_eq!(error.status(), 400);
    }
}

#[test]
fn control_characters_are_refused_wherever_they_stand() {
    // httparse looks at 8, 16 or 32 bytes at a time: every lane and the rest behind them.
    let controls = (0..0x20u8).filter(|byte| !b"\t\r\n".contains(byte)).chain([0x7f]);
    for control in controls {
        for offset in 0..70 {
            let mut value = [b'v'; 70];
            value[offset] = control;
            let line = [b"X-A: ", &value[..]].concat();
            refused(&post(&[&line]), RequestError::HeaderValue);
            let line = [&value[..], b": v"].concat();
            refused(&post(&[&line]), RequestError::HeaderName);
            let start = [b"GET /", &value[..], b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
            refused(&start, RequestError::RequestLine);
        }
    }
}

#[test]
fn lines_end_in_crlf_only() {
    let good = "POST / HTTP/1.1\r\nHost: a\r\nX-A: b\r\nContent-Length: 7\r\n\r\n";
    assert!(parse_request(good.as_bytes()).is_ok());
    for (at, _) in good.match_indices("\r\n") {
        let bytes = [&good[..at], "\n", &good[at + 2..]].concat();
        refused(bytes.as_bytes(), RequestError::BareLineFeed);
    }
    refused(good.replace("\r\n", "\n").as_bytes(), RequestError::BareLineFeed);
    refused(b"GET / HTTP/1.0\n\n", RequestError::BareLineFeed);
    refused(b"GET / HTTP/1.0\r\n\n", RequestError::BareLineFeed);
    refused(b"GET / HTTP/1.0\n\r\n", RequestError::BareLineFeed);
}

#[test]
fn hosts() {
    use RequestError as E;
    let cases = [
        ("", E::MissingHost),
        ("Host: a\r\nHost: b\r\n", E::RepeatedHost),
        ("Host: a\r\nhost: a\r\n", E::RepeatedHost),
        ("Host: a b\r\n", E::InvalidHost),
        ("Host: a/b@c\r\n", E::InvalidHost),
        ("Host: a, b\r\n", E::InvalidHost),
        ("Host: h\u{e9}\r\n", E::InvalidHost),
    ];
    for (lines, error) in cases {
        refused(format!("{START}\r\n{lines}Content-Length: 7\r\n\r\n").as_bytes(), error);
        assert_eq!(error.status(), 400);
    }
    refused(b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", E::RepeatedHost);
    for host in ["", "a", "A.example:1234", "[::1]:80"] {
        request(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    }
}

#[test]
fn malformed_request_lines() {
    use RequestError as E;
    let cases: [(&[u8], E); 27] = [
        (b"POST /a HTTP/2.0", E::UnsupportedVersion),
        (b"POST /a HTTP/9.9", E::UnsupportedVersion),
        (b"POST /a HTTP/1.2", E::UnsupportedVersion),
        (b"POST /a HTTP/0.9", E::UnsupportedVersion),
        (b"PRI * HTTP/2.0", E::UnsupportedVersion),
        (b"POST /a HTTQ/1.1", E::RequestLine),
        (b"POST /a", E::RequestLine),
        (b"POST /a ", E::RequestLine),
        (b"POST /a http/1.1", E::RequestLine),
        (b"POST /a HTTP/1.1x", E::RequestLine),
        (b"POST /a HTTP/1.1 ", E::RequestLine),
        (b"POST /a HTTP/11", E::RequestLine),
        (b"POST /a HTTP/2.0x", E::RequestLine),
        (b"POST /a  HTTP/1.1", E::RequestLine),
        (b"POST  /a HTTP/1.1", E::RequestLine),
        (b"POST\t/a\tHTTP/1.1", E::RequestLine),
        (b"POST /v1/chat /completions HTTP/1.1", E::RequestLine),
        (b"POST /v1\0/a HTTP/1.1", E::RequestLine),
        (b"PO(ST /a HTTP/1.1", E::RequestLine),
        (b" /a HTTP/1.1", E::RequestLine),
        (b"POST /a\x01 HTTP/1.1", E::RequestLine),
        (b"POST /a\rX HTTP/1.1", E::RequestLine),
        (b"POST v1/chat/completions HTTP/1.1", E::Target),
        (b"POST /a#x HTTP/1.1", E::Target),
        ("POST /é HTTP/1.1".as_bytes(), E::Target),
        (b"POST * HTTP/1.1", E::Target),
        (b"CONNECT 10.0.0.1:443 HTTP/1.1", E::Connect),
    ];
    for (start, error) in cases {
        let bytes = [start, b"\r\nHost: a\r\nContent-Length: 7\r\n\r\n{\"a\":1}"].concat();
        refused(&bytes, error);
        assert_eq!(error.status(), 400);
    }
    refused(b"GET /health\r\n\r\n", E::RequestLine);
    refused(b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", E::RequestLine);
    request(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
}

#[test]
fn garbage_is_refused_before_its_end() {
    let hello = [b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03".as_slice(), &[0; 190]].concat();
    for len in 1..hello.len() {
        refused(&hello[..len], RequestError::RequestLine);
    }
    refused(b"POST /a HTTP/2", RequestError::UnsupportedVersion);
    refused(b"POST /a HTTP/2.0", RequestError::UnsupportedVersion);
    refused(b"POST /a HTTX", RequestError::RequestLine);
    refused(b"GET / HTTP/1.1\r\nbad name", RequestError::HeaderName);
}

#[test]
fn heads_are_bounded_in_bytes() {
    let frame = "GET / HTTP/1.1\r\nHost: a\r\nX-Big: \r\n\r\n";
    for (len, fits) in [(MAX_HEAD_BYTES, true), (MAX_HEAD_BYTES + 1, false)] {
        let value = "b".repeat(len - frame.len());
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Big: {value}\r\n\r\n");
        assert_eq!(bytes.len(), len);
        match parse_request(bytes.as_bytes()) {
            Ok(Some((head, _))) => assert!(fits && head.len == len),
            other => assert!(!fits && other == Err(RequestError::HeadTooLong), "{len}"),
        }
    }
    for endless in ["GET /", "GET / HTTP/1.1\r\nX-A: ", "GET / HTTP/1.1\r\nX-", "G"] {
        let bytes = format!("{endless}{}", "a".repeat(2 << 20));
        assert_eq!(parse_request(&bytes.as_bytes()[..MAX_HEAD_BYTES - 1]), Ok(None), "{endless}");
        refused(&bytes.as_bytes()[..MAX_HEAD_BYTES], RequestError::HeadTooLong);
        refused(bytes.as_bytes(), RequestError::HeadTooLong);
    }
    assert_eq!(RequestError::HeadTooLong.status(), 431);
}

#[test]
fn heads_are_bounded_in_lines() {
    for (count, fits) in [(MAX_HEADERS, true), (MAX_HEADERS + 1, false), (5000, false)] {
        let lines: String = (1..count).map(|i| format!("X-S{i}: 1\r\n")).collect();
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        match parse_request(bytes.as_bytes()) {
            Ok(Some((_, headers))) => assert!(fits && headers.len() == MAX_HEADERS),
            other => assert!(!fits && other == Err(RequestError::TooManyHeaders), "{count}"),
        }
    }
    assert_eq!(RequestError::TooManyHeaders.status(), 431);
}

#[test]
fn connection_marks_the_headers_it_names_but_not_the_essential_ones() {
    let bytes = post(&[
        b"Connection: keep-alive, X-Hop , x-smg-routing-key",
        b"X-Hop: 1",
        b"x-hop: 2",
        b"X-Hop-Not: 3",
        b"x-smg-routing-key: k",
        b"connection: content-length, host, content-type, authorization, x-request-id",
        b"Content-Length: 7",
        b"Authorization: Bearer a",
        b"X-Request-Id: 1",
        b"TE: trailers",
    ]);
    let (head, headers) = request(&bytes);
    assert_eq!(head.body, BodyLength::Fixed(7));
    let hop_by_hop: Vec<_> = headers
        .iter()
        .filter(|header| header.hop_by_hop)
        .map(|header| header.name.of(&bytes))
        .collect();
    let want: [&[u8]; 6] =
        [b"Connection", b"X-Hop", b"x-hop", b"x-smg-routing-key", b"connection", b"TE"];
    assert_eq!(hop_by_hop, want);
}

#[test]
fn connection_options_are_bounded() {
    let list = |count| {
        let options: Vec<_> = (0..count).map(|i| format!("x-{i}")).collect();
        post(&[format!("Connection: {}", options.join(",")).as_bytes(), b"x-31: 1"])
    };
    assert!(request(&list(32)).1.last().expect("a header").hop_by_hop);
    refused(&list(33), RequestError::TooManyConnectionOptions);
    assert_eq!(RequestError::TooManyConnectionOptions.status(), 400);
}

#[test]
fn every_known_name_is_known_in_any_case() {
    use Known as K;
    let names = [
        ("Accept", K::Accept),
        ("Authorization", K::Authorization),
        ("Connection", K::Connection),
        ("Content-Encoding", K::ContentEncoding),
        ("Content-Length", K::ContentLength),
        ("Content-Type", K::ContentType),
        ("Date", K::Date),
        ("Expect", K::Expect),
        ("Host", K::Host),
        ("Keep-Alive", K::KeepAlive),
        ("Proxy-Authenticate", K::ProxyAuthenticate),
        ("Proxy-Authorization", K::ProxyAuthorization),
        ("Proxy-Connection", K::ProxyConnection),
        ("Retry-After", K::RetryAfter),
        ("X-SMG-Error-Code", K::SmgErrorCode),
        ("x-smg-explain", K::SmgExplain),
        ("X-SMG-Route", K::SmgRoute),
        ("X-SMG-Routed-Worker-Id", K::SmgRoutedWorkerId),
        ("X-SMG-Routing-Key", K::SmgRoutingKey),
        ("X-SMG-Routing-Tokens", K::SmgRoutingTokens),
        ("X-SMG-Target-Worker", K::SmgTargetWorker),
        ("TE", K::Te),
        ("Traceparent", K::Traceparent),
        ("Trailer", K::Trailer),
        ("Transfer-Encoding", K::TransferEncoding),
        ("Upgrade", K::Upgrade),
        ("X-Api-Key", K::XApiKey),
        ("X-Forwarded-For", K::XForwardedFor),
        ("X-Request-Id", K::XRequestId),
    ];
    for (name, known) in names {
        assert_eq!(Known::of(name.as_bytes()), known, "{name}");
        assert_eq!(Known::of(name.to_ascii_lowercase().as_bytes()), known, "{name}");
        assert_eq!(Known::of(name.to_ascii_uppercase().as_bytes()), known, "{name}");
        assert_eq!(Known::of(format!("{name}s").as_bytes()), Known::Other, "{name}s");
        assert_eq!(Known::of(&name.as_bytes()[1..]), Known::Other, "{name}");
    }
    assert_eq!(Known::of(b""), Known::Other);
}

#[test]
fn messages_hold_one_clause_and_no_newline() {
    let errors = [RequestError::RequestLine, RequestError::HeadTooLong, RequestError::Expectation];
    for error in errors {
        assert_eq!(error.to_string(), error.message());
        assert!(!error.message().contains(['\r', '\n', '"']));
    }
}
