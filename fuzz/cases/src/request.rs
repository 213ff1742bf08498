//! A client's connection: heads against the [`grammar`], bodies against the chunked reference, and
//! what goes to a worker against hyper.

use smg_core::http1::{
    Authorization, BodyLength, ChunkedDecoder, HeadCursor, Header, RequestError, RequestHead,
    RequestRewrite, parse_request, path_and_query, write_request_head,
};

use crate::grammar::{self, Field, Reading};
use crate::peer::{self, SeenRequest};
use crate::{chunked, cuts};

/// `data` is what a client sends over one connection.
pub fn run(data: &[u8]) {
    let expected = grammar::request(data);
    let (outcome, headers) = parse(data);
    assert_agree(data, &outcome, &headers, &expected);
    for pieces in cuts::of(data) {
        assert_same_in_pieces(&pieces, data, &outcome, &headers);
    }
    let (Ok(Some(head)), Reading::Whole(read)) = (outcome, expected) else { return };
    let Some((body, end)) = body(data, &head) else { return };
    assert_hyper_reads_the_same(&data[..end], &read, &body);
    for rewrite in rewrites(&body) {
        assert_forwarded(data, &head, &headers, &read, &body, &rewrite);
    }
}

type Outcome = Result<Option<RequestHead>, RequestError>;

fn parse(data: &[u8]) -> (Outcome, Vec<Header>) {
    let mut headers = Vec::new();
    let outcome = parse_request(data, &mut headers);
    (outcome, headers)
}

fn assert_agree(
    data: &[u8],
    outcome: &Outcome,
    headers: &[Header],
    expected: &Reading<grammar::Request>,
) {
    match (outcome, expected) {
        (Ok(Some(head)), Reading::Whole(expected)) => {
            let found = grammar::Request {
                len: head.len,
                method: head.method.name(data).to_vec(),
                target: head.target.of(data).to_vec(),
                http10: head.http10,
                fields: fields(data, headers),
                body: head.body,
                keep_alive: head.keep_alive,
                expect_continue: head.expect_continue,
            };
            assert_eq!(found, *expected);
            assert_marked(data, headers);
        }
        (Ok(None), Reading::Partial) | (Err(_), Reading::Refused(_)) => {}
        (Err(error), Reading::Partial) => {
            for ending in endings(b" / HTTP/1.1\r\nHost: a\r\n\r\n") {
                let whole = [data, ending].concat();
                let read = grammar::request(&whole);
                let shown = String::from_utf8_lossy(ending);
                assert!(!matches!(read, Reading::Whole(_)), "{error:?} before {shown:?}");
            }
        }
        _ => panic!("{outcome:?} is not {expected:?}"),
    }
    if let Err(error) = outcome {
        assert!(matches!(error.status(), 400 | 417 | 431 | 501));
        assert!(!error.message().is_empty());
    }
}

/// Every way to go on that ends as `message` does.
pub fn endings(message: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..message.len()).map(|at| &message[at..])
}

/// The header lines are contiguous, and those for this hop are marked.
pub fn assert_marked(data: &[u8], headers: &[Header]) {
    for pair in headers.windows(2) {
        assert_eq!(pair[0].line().end, pair[1].line().start);
    }
    let goes_on: Vec<Header> =
        headers.iter().filter(|header| !header.hop_by_hop).copied().collect();
    assert_eq!(fields(data, &goes_on), grammar::end_to_end(&fields(data, headers)));
}

/// Names and values.
pub fn fields(data: &[u8], headers: &[Header]) -> Vec<Field> {
    let field = |header: &Header| (header.name.of(data).to_vec(), header.value.of(data).to_vec());
    headers.iter().map(field).collect()
}

/// As a connection parses: when the cursor says so, until there is a result.
fn assert_same_in_pieces(pieces: &[&[u8]], data: &[u8], outcome: &Outcome, headers: &[Header]) {
    let (mut cursor, mut received) = (HeadCursor::default(), 0);
    for piece in pieces {
        received += piece.len();
        if !cursor.ready(&data[..received]) {
            continue;
        }
        match parse(&data[..received]) {
            (Ok(None), _) => {}
            (Ok(found), found_headers) => {
                assert_eq!((Ok(found), &found_headers[..]), (*outcome, headers));
                return;
            }
            (Err(_), _) => {
                assert!(outcome.is_err(), "refused at {received} bytes only");
                return;
            }
        }
    }
    // A head without an end may be refused later.
    let waits = matches!(grammar::request(data), Reading::Partial);
    assert!(waits, "not read in pieces: {outcome:?}");
}

/// The decoded body and where the next request begins; `None` if it is not whole.
fn body(data: &[u8], head: &RequestHead) -> Option<(Vec<u8>, usize)> {
    let rest = &data[head.len..];
    match head.body {
        BodyLength::None => Some((Vec::new(), head.len)),
        BodyLength::Fixed(length) => {
            let body = rest.get(..usize::try_from(length).ok()?)?;
            Some((body.to_vec(), head.len + body.len()))
        }
        BodyLength::Chunked => {
            let mut buf = rest.to_vec();
            let decoded = ChunkedDecoder::new().decode(&mut buf).ok()?;
            let read = chunked::read(rest);
            buf.truncate(decoded.payload);
            assert_eq!(buf, read.payload);
            decoded.done.then_some((buf, head.len + decoded.consumed))
        }
        BodyLength::UntilClose => panic!("a request that ends with its connection"),
    }
}

/// What the gateway took for one whole request is that one for hyper too, unless it is none.
fn assert_hyper_reads_the_same(wire: &[u8], read: &grammar::Request, body: &[u8]) {
    let seen = peer::requests(wire);
    assert!(seen.len() < 2, "hyper sees {seen:?}");
    let Some(seen) = seen.first() else { return };
    let expected = SeenRequest {
        method: read.method.clone(),
        target: seen.target.clone(),
        fields: peer::sorted(read.fields.clone()),
        body: Some(body.to_vec()),
    };
    assert!(*seen == expected || seen.body.is_none(), "{seen:?} is not {expected:?}");
}

fn rewrites(body: &[u8]) -> [RequestRewrite<'static>; 3] {
    let length = Some(body.len() as u64);
    [
        RequestRewrite {
            host: b"worker:8000",
            path_prefix: b"",
            authorization: Authorization::Keep,
            drop_x_api_key: false,
            request_id: Some(b"id-1"),
            client_addr: Some(b"10.0.0.1"),
            content_length: length,
        },
        RequestRewrite {
            host: b"[::1]:8000",
            path_prefix: b"/base/path",
            authorization: Authorization::Replace(b"Bearer worker"),
            drop_x_api_key: true,
            request_id: Some(b"id-2"),
            client_addr: Some(b"::1"),
            content_length: length,
        },
        RequestRewrite {
            host: b"worker",
            path_prefix: b"",
            authorization: Authorization::Drop,
            drop_x_api_key: false,
            request_id: None,
            client_addr: None,
            content_length: length,
        },
    ]
}

/// The head for a worker says what it should, and hyper reads it with the body as that one request.
pub fn assert_forwarded(
    data: &[u8],
    head: &RequestHead,
    headers: &[Header],
    read: &grammar::Request,
    body: &[u8],
    rewrite: &RequestRewrite<'_>,
) {
    let mut wire = Vec::new();
    write_request_head(&mut wire, data, head, headers, rewrite);
    let (target, is_plain) = forwarded_target(&read.target, rewrite.path_prefix);
    let expected = forwarded_fields(&read.fields, rewrite);
    let Reading::Whole(written) = grammar::request(&wire) else {
        // What was added may have made it too long.
        assert!(wire.len() > 65_536 || expected.len() > 256, "not a request any more");
        return;
    };
    assert_eq!((written.len, written.http10), (wire.len(), false));
    assert_eq!((&written.method, &written.target), (&read.method, &target));
    assert_eq!(written.fields, expected);
    assert_eq!(path_and_query(&written.target), target);
    wire.extend_from_slice(body);
    let seen = peer::requests(&wire);
    if seen.is_empty() && !is_plain {
        return;
    }
    let target = String::from_utf8(target).expect("ASCII");
    let method = written.method;
    let fields = peer::sorted(expected);
    assert_eq!(seen, [SeenRequest { method, target, fields, body: Some(body.to_vec()) }]);
}

/// The target for a worker, and whether it is of characters that RFC 3986 has in paths and queries.
fn forwarded_target(target: &[u8], prefix: &[u8]) -> (Vec<u8>, bool) {
    let is_plain = |&b: &u8| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&b);
    if target == b"*" {
        return (target.to_vec(), true);
    }
    let path = match target {
        [b'/', ..] => target.to_vec(),
        _ => {
            let authority = target.windows(3).position(|three| three == b"://").expect("a scheme");
            let rest = &target[authority + 3..];
            let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
            let slash: &[u8] = if rest[end..].starts_with(b"/") { b"" } else { b"/" };
            [slash, &rest[end..]].concat()
        }
    };
    let whole = [prefix, &path].concat();
    let is_plain = whole.iter().all(is_plain);
    (whole, is_plain)
}

/// The fields for a worker in their order (gateway.md §2).
fn forwarded_fields(fields: &[Field], rewrite: &RequestRewrite<'_>) -> Vec<Field> {
    let line = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
    let is = |field: &Field, name: &str| field.0.eq_ignore_ascii_case(name.as_bytes());
    let mut kept = grammar::end_to_end(fields);
    kept.retain(|field| {
        let ours = ["host", "content-length", "x-smg-routing-tokens", "x-smg-explain"];
        let key = is(field, "x-api-key") && rewrite.drop_x_api_key;
        let credentials =
            is(field, "authorization") && rewrite.authorization != Authorization::Keep;
        !ours.iter().any(|name| is(field, name)) && !key && !credentials
    });
    let mut forwarded = vec![line("Host", rewrite.host)];
    forwarded.append(&mut kept);
    if let Authorization::Replace(value) = rewrite.authorization {
        forwarded.push(line("Authorization", value));
    }
    let has_id = forwarded.iter().any(|field| is(field, "x-request-id"));
    if let (Some(id), false) = (rewrite.request_id, has_id) {
        forwarded.push(line("x-request-id", id));
    }
    if let Some(addr) = rewrite.client_addr {
        let list = forwarded.iter_mut().rev().find(|field| is(field, "x-forwarded-for"));
        match list {
            Some((_, list)) if list.is_empty() => *list = addr.to_vec(),
            Some((_, list)) => *list = [list, &b", "[..], addr].concat(),
            None => forwarded.push(line("x-forwarded-for", addr)),
        }
    }
    if let Some(length) = rewrite.content_length {
        forwarded.push(line("content-length", length.to_string().as_bytes()));
    }
    forwarded
}
