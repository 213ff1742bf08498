//! Heads from HTTP/2 to HTTP/1.1 and back. What HTTP/1.1 could read in another way than HTTP/2 does not
//! get through (RFC 9113 §8.2, §8.3, §10.3).

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use smg_core::http1::{Header, ResponseHead, is_field_value, is_token, parse_decimal};

/// A request that must not be passed on: which rule it breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// How a request's body follows its head in HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upload {
    /// As it is, so many bytes.
    Plain(u64),
    /// In chunks.
    Chunked,
}

/// The head of HTTP/1.1 that says what `parts` say. `ended`: no body follows.
///
/// # Errors
/// A request that is malformed.
pub fn request(parts: &Parts, ended: bool) -> Result<(Vec<u8>, Upload), Malformed> {
    let mut out = Vec::with_capacity(512);
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    let target = match parts.uri.path_and_query() {
        Some(target) => target.as_str().as_bytes(),
        // CONNECT, which is refused where requests are understood.
        None => authority.unwrap_or_default(),
    };
    if target.is_empty() || target.iter().any(|&byte| byte <= b' ' || byte == 0x7f) {
        return Err(Malformed("path"));
    }
    if !matches!(target, [b'/', ..] | b"*") && parts.method != http::Method::CONNECT {
        return Err(Malformed("path is not in origin form"));
    }
    if !is_token(parts.method.as_str().as_bytes()) {
        return Err(Malformed("method"));
    }
    out.extend_from_slice(parts.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(authority) = authority {
        push(&mut out, b"host", authority)?;
    }
    fields(&mut out, &parts.headers, authority)?;
    let upload = match parts.headers.get(header::CONTENT_LENGTH) {
        // What is no length is refused where requests are understood.
        Some(length) => Upload::Plain(parse_decimal(length.as_bytes()).unwrap_or(0)),
        None if ended => Upload::Plain(0),
        None => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Upload::Chunked
        }
    };
    out.extend_from_slice(b"\r\n");
    Ok((out, upload))
}

fn fields(
    out: &mut Vec<u8>,
    headers: &HeaderMap,
    authority: Option<&[u8]>,
) -> Result<(), Malformed> {
    let mut cookie_done = false;
    for (name, value) in headers {
        match name.as_str() {
            "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade" => {
                return Err(Malformed("field of a connection"));
            }
            "te" if value != "trailers" => return Err(Malformed("te")),
            "te" => {}
            "host" if authority.is_some_and(|authority| value != authority) => {
                return Err(Malformed("host differs from :authority"));
            }
            "host" if authority.is_some() => {}
            // Crumbs of one field (RFC 9113 §8.2.3).
            "cookie" if cookie_done => {}
            "cookie" => {
                cookie_done = true;
                let crumbs = headers.get_all(name).iter().map(HeaderValue::as_bytes);
                push(out, b"cookie", &crumbs.collect::<Vec<_>>().join(&b"; "[..]))?;
            }
            name => push(out, name.as_bytes(), value.as_bytes())?,
        }
    }
    Ok(())
}

fn push(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
    if !is_token(name) || name.iter().any(u8::is_ascii_uppercase) {
        return Err(Malformed("field name"));
    }
    let padded = |end: Option<&u8>| matches!(end, Some(b' ' | b'\t'));
    if !is_field_value(value) || padded(value.first()) || padded(value.last()) {
        return Err(Malformed("field value"));
    }
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// The head of HTTP/2 that says what a head of HTTP/1.1 says, but for what concerns its connection.
/// `None` when HTTP/2 cannot say it.
pub fn response(buf: &[u8], head: &ResponseHead, headers: &[Header]) -> Option<Response<()>> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(head.status).ok()?;
    let fields = response.headers_mut();
    fields.reserve(headers.len());
    for line in headers.iter().filter(|line| !line.hop_by_hop) {
        let name = HeaderName::from_bytes(line.name.of(buf)).ok()?;
        let value = HeaderValue::from_bytes(line.value.of(buf)).ok()?;
        fields.append(name, value);
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use http::Request;
    use smg_core::http1::{BodyLength, parse_request, parse_response};

    use super::*;

    fn written(request: http::request::Builder, ended: bool) -> Result<String, Malformed> {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        super::request(&parts, ended).map(|(head, _)| String::from_utf8(head).unwrap())
    }

    fn post() -> http::request::Builder {
        Request::post("https://gw.test/v1/completions?a=b")
    }

    #[test]
    fn a_head_says_the_same_in_http_1() {
        let head = written(
            post()
                .header("content-type", "application/json")
                .header("cookie", "a=1")
                .header("x-tag", "one")
                .header("x-tag", "two")
                .header("cookie", "b=2")
                .header("te", "trailers"),
            false,
        );
        assert_eq!(
            head.unwrap(),
            "POST /v1/completions?a=b HTTP/1.1\r\nhost: gw.test\r\ncontent-type: application/json\r\n\
             cookie: a=1; b=2\r\nx-tag: one\r\nx-tag: two\r\ntransfer-encoding: chunked\r\n\r\n"
        );
    }

    #[test]
    fn a_body_is_framed_once() {
        let body = |request: http::request::Builder, ended| {
            let head = written(request, ended).unwrap();
            parse_request(head.as_bytes(), &mut Vec::new()).unwrap().unwrap().body
        };
        assert_eq!(body(post(), true), BodyLength::None);
        assert_eq!(body(post(), false), BodyLength::Chunked);
        assert_eq!(body(post().header("content-length", "7"), false), BodyLength::Fixed(7));
    }

    #[test]
    fn two_lengths_are_refused_where_requests_are_understood() {
        let request = post().header("content-length", "7").header("content-length", "7");
        let head = written(request, false).unwrap();
        assert!(parse_request(head.as_bytes(), &mut Vec::new()).is_err());
    }

    #[test]
    fn what_belongs_to_a_connection_is_malformed() {
        for (name, value) in [
            ("connection", "close"),
            ("keep-alive", "1"),
            ("proxy-connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "gzip"),
            ("te", "trailers, gzip"),
            ("host", "elsewhere.test"),
            ("x-padded", " value"),
            ("x-padded", "value\t"),
        ] {
            assert!(written(post().header(name, value), true).is_err(), "{name}: {value}");
        }
    }

    #[test]
    fn targets_are_in_origin_form() {
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = Some("*".parse().unwrap());
        let options = Request::options(http::Uri::from_parts(parts).unwrap()).header("host", "a");
        assert!(written(options, true).unwrap().starts_with("OPTIONS * HTTP/1.1\r\nhost: a\r\n"));
        let connect = Request::connect("a.test:443");
        assert!(written(connect, true).unwrap().starts_with("CONNECT a.test:443 HTTP/1.1\r\n"));
    }

    #[test]
    fn an_answer_leaves_its_connection_behind() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-A: 1\r\nx-a: 2\r\n\
            transfer-encoding: chunked\r\nconnection: close\r\n\r\n";
        let mut headers = Vec::new();
        let parsed = parse_response(head, false, &mut headers).unwrap().unwrap();
        let response = response(head, &parsed, &headers).unwrap();
        let fields: Vec<_> = response.headers().iter().map(|(n, v)| (n.as_str(), v)).collect();
        assert_eq!(
            fields,
            [
                ("content-type", &"text/event-stream".parse().unwrap()),
                ("x-a", &"1".parse().unwrap()),
                ("x-a", &"2".parse().unwrap())
            ]
        );
    }
}
