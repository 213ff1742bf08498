//! A worker's connection: heads against the [`grammar`], and what is relayed to a client against
//! hyper.

use smg_core::http1::{
    BodyLength, CHUNK_HEADROOM, ClientFraming, Header, ResponseError, ResponseHead,
    ResponseRewrite, parse_response, write_response_head,
};
use smg_io::http::body::Body;
use smg_io::http::response_head::HeadParser;

use crate::grammar::{self, Field, Reading};
use crate::peer::{self, SeenResponse};
use crate::request::{assert_marked, endings, fields};
use crate::{chunked, cuts};

/// `data` is what a worker sends over one connection before it closes it.
pub fn run(data: &[u8]) {
    for to_head in [false, true] {
        assert_agree(data, to_head);
    }
    let expected = final_head(data);
    for pieces in cuts::of(data) {
        let found = Arrived::of(&pieces);
        match (&found, &expected) {
            (Some(Ok(arrived)), Reading::Whole((head, skipped))) => {
                assert_eq!(arrived.buf[..], data[*skipped..][..arrived.buf.len()]);
                assert_eq!(arrived.read(), *head);
                for http10_client in [false, true] {
                    arrived.relay(head, &data[*skipped..], http10_client);
                }
            }
            (Some(Err(_)), Reading::Refused(_) | Reading::Partial) | (None, Reading::Partial) => {}
            // It would take more bytes to be told.
            (None, Reading::Refused("interims")) => {}
            _ => panic!("{:?} is not {expected:?}", found.map(|found| found.map(|a| a.head))),
        }
    }
}

fn assert_agree(data: &[u8], to_head: bool) {
    let mut headers = Vec::new();
    let outcome = parse_response(data, to_head, &mut headers);
    let expected = grammar::response(data, to_head);
    match (&outcome, &expected) {
        (Ok(Some(head)), Reading::Whole(expected)) => {
            assert_eq!(owned(data, head, &headers), *expected);
            assert_eq!(head.is_interim(), expected.status < 200);
            assert_marked(data, &headers);
        }
        (Ok(None), Reading::Partial) | (Err(_), Reading::Refused(_)) => {}
        (Err(error), Reading::Partial) => assert_refused_whatever_follows(data, *error),
        _ => panic!("{outcome:?} is not {expected:?}"),
    }
}

fn assert_refused_whatever_follows(data: &[u8], error: ResponseError) {
    assert!(!error.message().is_empty());
    for ending in endings(b"HTTP/1.1 200 OK\r\nHost: a\r\n\r\n") {
        let whole = [data, ending].concat();
        let shown = String::from_utf8_lossy(ending);
        let read = grammar::response(&whole, false);
        assert!(!matches!(read, Reading::Whole(_)), "{error:?} before {shown:?}");
    }
}

fn owned(data: &[u8], head: &ResponseHead, headers: &[Header]) -> grammar::Response {
    grammar::Response {
        len: head.len,
        status: head.status,
        reason: head.reason.of(data).to_vec(),
        http10: head.http10,
        fields: fields(data, headers),
        body: head.body,
        keep_alive: head.keep_alive,
        event_stream: head.event_stream,
    }
}

/// The first head that is not interim, and the bytes in front of it.
fn final_head(data: &[u8]) -> Reading<(grammar::Response, usize)> {
    let mut skipped = 0;
    for _ in 0..=32 {
        match grammar::response(&data[skipped..], false) {
            Reading::Whole(head) if head.status < 200 => skipped += head.len,
            Reading::Whole(head) => return Reading::Whole((head, skipped)),
            Reading::Partial => return Reading::Partial,
            Reading::Refused(why) => return Reading::Refused(why),
        }
    }
    Reading::Refused("interims")
}

/// An answer whose head was read in pieces.
struct Arrived<'a> {
    /// From the start of the head to the end of the piece that ended it.
    buf: Vec<u8>,
    head: ResponseHead,
    headers: Vec<Header>,
    rest: &'a [&'a [u8]],
}

impl<'a> Arrived<'a> {
    fn of(pieces: &'a [&'a [u8]]) -> Option<Result<Self, &'static str>> {
        let (mut parser, mut buf) = (HeadParser::default(), Vec::new());
        for (at, piece) in pieces.iter().enumerate() {
            buf.extend_from_slice(piece);
            match parser.parse(&mut buf) {
                Ok(Some(head)) => {
                    let headers = std::mem::take(&mut parser.headers);
                    return Some(Ok(Self { buf, head, headers, rest: &pieces[at + 1..] }));
                }
                Ok(None) => {}
                Err(message) => return Some(Err(message)),
            }
        }
        None
    }

    fn read(&self) -> grammar::Response {
        owned(&self.buf, &self.head, &self.headers)
    }

    /// Relays it as a shard does; hyper must see what `read` says of `wire`.
    fn relay(&self, read: &grammar::Response, wire: &[u8], http10_client: bool) {
        let framing = ClientFraming::for_body(self.head.body, http10_client);
        let rewrite = ResponseRewrite {
            request_id: b"id-1",
            routed_worker: Some(b"http://worker:8000"),
            framing,
            connection_close: false,
            cors: None,
            http10_client,
        };
        let mut out = Vec::new();
        write_response_head(&mut out, &self.buf, &self.head, &self.headers, &rewrite);
        let expected = returned_fields(read, &rewrite);
        let Reading::Whole(written) = grammar::response(&out, false) else {
            assert!(out.len() > 65_536 || expected.len() > 256, "not an answer any more");
            return;
        };
        assert_eq!((written.len, written.status), (out.len(), read.status));
        assert_eq!((&written.reason, &written.fields), (&read.reason, &expected));

        let whole = self.relay_body(framing, &mut out);
        let body = body_of(read, wire);
        assert_eq!(whole, body.whole);
        if framing == ClientFraming::CloseDelimited && !whole {
            // The connection is reset, which no reader of bytes alone can see.
            return;
        }
        let expected = SeenResponse {
            status: read.status,
            fields: peer::sorted(expected),
            body: body.payload,
            whole,
        };
        assert_eq!(peer::response(&out, false), Some(expected));
    }

    /// Whether the body had its end.
    fn relay_body(&self, framing: ClientFraming, out: &mut Vec<u8>) -> bool {
        let mut body = Body::new(self.head.body, framing);
        if body.first(&self.buf[self.head.len..], out).is_err() {
            return false;
        }
        for piece in self.rest {
            if body.done {
                return true;
            }
            let mut buf = vec![0; CHUNK_HEADROOM];
            buf.extend_from_slice(piece);
            let framed = body.next(&mut buf);
            let (Ok(start) | Err(start)) = framed;
            out.extend_from_slice(&buf[start..]);
            if framed.is_err() {
                return false;
            }
        }
        body.done || body.end_of_stream(out).is_ok()
    }
}

struct Expected {
    payload: Vec<u8>,
    whole: bool,
}

fn body_of(head: &grammar::Response, wire: &[u8]) -> Expected {
    let rest = &wire[head.len..];
    match head.body {
        BodyLength::None => Expected { payload: Vec::new(), whole: true },
        BodyLength::Fixed(length) => {
            let here = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
            Expected { payload: rest[..here].to_vec(), whole: here as u64 == length }
        }
        BodyLength::Chunked => {
            let read = chunked::read(rest);
            let whole = matches!(read.end, chunked::End::Whole(_));
            Expected { payload: read.payload, whole }
        }
        BodyLength::UntilClose => Expected { payload: rest.to_vec(), whole: true },
    }
}

/// The fields for the client in their order (gateway.md §2).
fn returned_fields(read: &grammar::Response, rewrite: &ResponseRewrite<'_>) -> Vec<Field> {
    let line = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
    let mut returned = grammar::end_to_end(&read.fields);
    returned.retain(|(name, _)| {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let length_of_absent = rewrite.framing == ClientFraming::NoBody && read.status != 204;
        let ours = ["x-request-id", "x-smg-error-code", "x-smg-routed-worker-id"];
        !ours.iter().any(|name| is(name)) && (length_of_absent || !is("content-length"))
    });
    returned.push(line("x-request-id", rewrite.request_id));
    returned.extend(rewrite.routed_worker.map(|worker| line("x-smg-routed-worker-id", worker)));
    match rewrite.framing {
        ClientFraming::AsContentLength(length) => {
            returned.push(line("content-length", length.to_string().as_bytes()));
        }
        ClientFraming::Chunked => returned.push(line("transfer-encoding", b"chunked")),
        ClientFraming::CloseDelimited | ClientFraming::NoBody => {}
    }
    if rewrite.framing == ClientFraming::CloseDelimited {
        returned.push(line("connection", b"close"));
    } else if rewrite.http10_client {
        returned.push(line("connection", b"keep-alive"));
    }
    returned
}
