//! Heads between HTTP/2 and HTTP/1.1: what a client's head becomes is read back by the [`grammar`] and
//! must be that one request and nothing more; an answer's head loses what concerns its connection.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Uri};
use smg_core::http1::{BodyLength, parse_response};
use smg_io::http2::head::{self, Upload};

use crate::grammar::{self, Field, Reading};
use crate::request;

/// `data` is lines: method, `:path`, `:authority`, then fields as `name:value`. It is an answer's head
/// as well.
pub fn run(data: &[u8]) {
    check_response(data);
    for is_ended in [false, true] {
        if let Some((parts, fields)) = parts(data) {
            check_request(&parts, &fields, is_ended);
        }
    }
}

/// A head as the h2 crate hands it over, which has refused what the types of `http` do not hold.
fn parts(data: &[u8]) -> Option<(Parts, Vec<Field>)> {
    let mut lines = data.split(|&byte| byte == b'\n');
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(lines.next()?).ok()?;
    let mut uri = http::uri::Parts::default();
    let (path, authority) = (lines.next()?, lines.next().unwrap_or_default());
    if !path.is_empty() {
        uri.path_and_query = Some(path.try_into().ok()?);
    }
    if !authority.is_empty() {
        uri.authority = Some(authority.try_into().ok()?);
        // Without a path it is that of CONNECT.
        uri.scheme = uri.path_and_query.as_ref().map(|_| http::uri::Scheme::HTTP);
    }
    *request.uri_mut() = Uri::from_parts(uri).ok()?;
    let mut fields = Vec::new();
    for line in lines {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(&line[colon + 1..]).ok()?;
        fields.push((name.as_str().as_bytes().to_vec(), value.as_bytes().to_vec()));
        request.headers_mut().try_append(name, value).ok()?;
    }
    Some((request.into_parts().0, fields))
}

fn check_request(parts: &Parts, fields: &[Field], is_ended: bool) {
    let expected = expected(parts, fields, is_ended);
    let (written, upload) = match (head::request(parts, is_ended), expected.as_ref()) {
        (Ok(written), Ok(_)) => written,
        (Err(malformed), Err(_)) => return assert!(!malformed.0.is_empty()),
        (found, expected) => panic!("{found:?} is not {expected:?} of {parts:?}"),
    };
    let shown = || written.escape_ascii().to_string();
    // Whatever is thought of it, it is one head with nothing behind it.
    let ends: Vec<_> = written.windows(4).filter(|end| end == b"\r\n\r\n").collect();
    assert!(ends.len() == 1 && written.ends_with(b"\r\n\r\n"), "{}", shown());
    let breaks = written.iter().filter(|&&byte| byte == b'\n' || byte == b'\r').count();
    let pairs = written.windows(2).filter(|pair| pair == b"\r\n").count();
    assert_eq!(breaks, 2 * pairs, "{}", shown());

    request::run(&written);
    let Reading::Whole(read) = grammar::request(&written) else { return };
    let (target, wanted) = expected.expect("seen above");
    assert_eq!((read.len, &read.method[..]), (written.len(), parts.method.as_str().as_bytes()));
    assert_eq!(read.target, target);
    assert!(read.keep_alive && !read.http10, "{}", shown());
    assert_eq!(by_name(read.fields), by_name(wanted), "{}", shown());
    match (upload, read.body) {
        (Upload::Plain(0), BodyLength::None) => assert!(is_ended),
        (Upload::Plain(length), BodyLength::Fixed(read)) => assert_eq!(length, read),
        (Upload::Chunked, BodyLength::Chunked) => assert!(!is_ended),
        other => panic!("{other:?} of {}", shown()),
    }
}

type Expected = Result<(Vec<u8>, Vec<Field>), &'static str>;

/// RFC 9113 §8.2 and §8.3, read once more: the target, and the fields in HTTP/1.1.
fn expected(parts: &Parts, fields: &[Field], is_ended: bool) -> Expected {
    const OF_A_CONNECTION: [&str; 5] =
        ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes().to_vec());
    let path = parts.uri.path_and_query().map(|path| path.as_str().as_bytes().to_vec());
    let is_connect = parts.method == Method::CONNECT;
    let target = path.or(authority.clone()).unwrap_or_default();
    let visible = |byte: &u8| *byte > b' ' && *byte != 0x7f;
    if target.is_empty() || !target.iter().all(visible) {
        return Err("target");
    }
    if !is_connect && target[0] != b'/' && target != b"*" {
        return Err("form of the target");
    }
    let mut wanted: Vec<Field> = Vec::new();
    wanted.extend(authority.clone().map(|authority| (b"host".to_vec(), authority)));
    for (name, value) in fields {
        let is = |known: &str| name == known.as_bytes();
        let is_padded = |byte: Option<&u8>| byte.is_some_and(|byte| b" \t".contains(byte));
        let is_dropped = is("host") && authority.is_some();
        if OF_A_CONNECTION.iter().any(|known| is(known)) || (is("te") && value != b"trailers") {
            return Err("of a connection");
        }
        if is_dropped && Some(value) != authority.as_ref() {
            return Err("two hosts");
        }
        // Crumbs are looked at once they are one.
        if is_dropped || is("te") || is("cookie") {
            continue;
        }
        if !grammar::is_token(name) || !value.iter().all(|&byte| grammar::is_text(byte)) {
            return Err("field");
        }
        if is_padded(value.first()) || is_padded(value.last()) {
            return Err("padding");
        }
        wanted.push((name.clone(), value.clone()));
    }
    let crumbs = grammar::values(fields, "cookie");
    if !crumbs.is_empty() {
        let cookie = crumbs.join(&b"; "[..]);
        let edges = [cookie.first(), cookie.last()];
        if edges.into_iter().flatten().any(|byte| b" \t".contains(byte)) {
            return Err("padding");
        }
        wanted.push((b"cookie".to_vec(), cookie));
    }
    if !is_ended && grammar::values(fields, "content-length").is_empty() {
        wanted.push((b"transfer-encoding".to_vec(), b"chunked".to_vec()));
    }
    Ok((target, wanted))
}

/// Values of one name stay in order; names have none.
fn by_name(mut fields: Vec<Field>) -> Vec<Field> {
    fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    fields
}

fn check_response(data: &[u8]) {
    let mut headers = Vec::new();
    let Ok(Some(head)) = parse_response(data, false, &mut headers) else { return };
    let Reading::Whole(read) = grammar::response(data, false) else { panic!("no answer") };
    let response = head::response(data, &head, &headers).expect("all of it can be said in HTTP/2");
    assert_eq!(response.status().as_u16(), read.status);
    let lower = |(name, value): Field| (name.to_ascii_lowercase(), value);
    let wanted = grammar::end_to_end(&read.fields).into_iter().map(lower).collect();
    assert_eq!(by_name(pairs(response.headers())), by_name(wanted));
}

fn pairs(headers: &HeaderMap) -> Vec<Field> {
    let pair = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.as_str().as_bytes().to_vec(), value.as_bytes().to_vec())
    };
    headers.iter().map(pair).collect()
}
