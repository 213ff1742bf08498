//! Properties that hold for any bytes and any cut of them, against naive models.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::super::{
    Authorization, BodyLength, ClientFraming, HeadCursor, Header, Known, MAX_CHUNK_SIZE_DIGITS,
    RequestRewrite, ResponseRewrite, write_request_head, write_response_head,
};
use super::chunked::decode;
use super::{parse_request, parse_response, request, response};

/// Header lines of every kind the relay knows, and names it does not know.
fn header_name() -> impl Strategy<Value = String> {
    select(vec![
        "Accept",
        "Authorization",
        "x-api-key",
        "Content-Type",
        "Content-Encoding",
        "Cookie",
        "TE",
        "Keep-Alive",
        "Trailer",
        "Upgrade",
        "Proxy-Connection",
        "Proxy-Authorization",
        "X-Hop",
        "x-forwarded-for",
        "X-Request-Id",
        "x-smg-routing-tokens",
        "x-smg-explain",
        "X-Tag",
        "x-smg-routing-key",
        "x-smg-error-code",
        "X-Smg-Route",
        "x-smg-routed-worker-id",
        "Date",
        "X",
        "proxy-authenticate",
        "Set-Cookie",
    ])
    .prop_flat_map(|name| {
        vec(any::<bool>(), name.len()).prop_map(move |upper| {
            let chars = name.chars().zip(upper);
            chars.map(|(c, up)| if up { c.to_ascii_uppercase() } else { c }).collect()
        })
    })
}

fn header_value() -> impl Strategy<Value = Vec<u8>> {
    let byte =
        prop_oneof![8 => 0x21..0x7fu8, 1 => 0x80..=0xffu8, 1 => Just(b' '), 1 => Just(b'\t')];
    vec(byte, 0..20)
}

fn connection_value() -> impl Strategy<Value = Vec<u8>> {
    let option = select(vec!["keep-alive", "x-hop", "X-TAG", "host", "content-type", "", "cookie"]);
    vec(option, 0..4).prop_map(|options| options.join(" , ").into_bytes())
}

fn header_lines() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let other = (header_name(), header_value());
    let connection = (Just("Connection".to_owned()), connection_value());
    vec(prop_oneof![6 => other, 1 => connection], 0..24)
}

/// How white space stands around a value, and where Host and framing stand among the lines.
#[derive(Clone, Debug)]
struct Message {
    lines: Vec<(String, Vec<u8>)>,
    padding: &'static str,
}

impl Message {
    fn bytes(&self, start: &str) -> Vec<u8> {
        let mut out = format!("{start}\r\n").into_bytes();
        for (name, value) in &self.lines {
            out.extend_from_slice(name.as_bytes());
            out.push(b':');
            out.extend_from_slice(self.padding.as_bytes());
            out.extend_from_slice(value);
            out.extend_from_slice(self.padding.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out
    }
}

fn message(required: Vec<(String, Vec<u8>)>) -> impl Strategy<Value = Message> {
    let padding = select(vec!["", " ", "\t \t"]);
    let places = vec(any::<Index>(), required.len());
    (header_lines(), places, padding).prop_map(move |(mut lines, places, padding)| {
        for (line, place) in required.iter().zip(places) {
            lines.insert(place.index(lines.len() + 1), line.clone());
        }
        Message { lines, padding }
    })
}

fn line(name: &str, value: &str) -> (String, Vec<u8>) {
    (name.to_owned(), value.as_bytes().to_vec())
}

fn request_message() -> impl Strategy<Value = Message> {
    let length = select(vec![None, Some("Content-Length"), Some("content-length")]);
    length.prop_flat_map(|length| {
        let mut required = vec![line("Host", "gw.test")];
        required.extend(length.map(|name| line(name, "007")));
        message(required)
    })
}

fn response_message() -> impl Strategy<Value = Message> {
    let framing = select(vec![
        vec![],
        vec![line("Content-Length", "12")],
        vec![line("Transfer-Encoding", "chunked")],
        vec![line("transfer-encoding", "chunked"), line("content-length", "3")],
    ]);
    framing.prop_flat_map(message)
}

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn lower(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_ascii_lowercase()
}

/// The lines that survive this hop, by the letter of RFC 9110 §7.6.1 and gateway.md §2.
fn end_to_end(message: &Message, never: &[&str]) -> Fields {
    const HOP_BY_HOP: [&str; 10] = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "expect",
    ];
    const ESSENTIAL: [&str; 8] = [
        "host",
        "content-length",
        "content-type",
        "content-encoding",
        "authorization",
        "x-api-key",
        "x-request-id",
        "x-forwarded-for",
    ];
    let mut named = Vec::new();
    for (name, value) in &message.lines {
        if lower(name.as_bytes()) == "connection" {
            named.extend(lower(value).split(',').map(|option| option.trim().to_owned()));
        }
    }
    let kept = message.lines.iter().filter(|(name, _)| {
        let name = lower(name.as_bytes());
        let by_connection = named.contains(&name) && !ESSENTIAL.contains(&name.as_str());
        !HOP_BY_HOP.contains(&name.as_str()) && !never.contains(&name.as_str()) && !by_connection
    });
    kept.map(|(name, value)| {
        let text = value.iter().position(|byte| !b" \t".contains(byte)).unwrap_or(value.len());
        let end = value.iter().rposition(|byte| !b" \t".contains(byte)).map_or(text, |i| i + 1);
        (name.as_bytes().to_vec(), value[text..end].to_vec())
    })
    .collect()
}

fn has(fields: &Fields, name: &str) -> bool {
    fields.iter().any(|(other, _)| lower(other) == name)
}

/// What a worker is to see, computed on lists of fields.
fn model_request(message: &Message, rewrite: &RequestRewrite<'_>) -> Fields {
    let mut never = vec!["host", "content-length", "x-smg-routing-tokens", "x-smg-explain"];
    if rewrite.authorization != Authorization::Keep {
        never.push("authorization");
    }
    if rewrite.drop_x_api_key {
        never.push("x-api-key");
    }
    let mut fields = vec![(b"Host".to_vec(), rewrite.host.to_vec())];
    fields.extend(end_to_end(message, &never));
    if let Authorization::Replace(value) = rewrite.authorization {
        fields.push((b"Authorization".to_vec(), value.to_vec()));
    }
    if let Some(id) = rewrite.request_id
        && !has(&fields, "x-request-id")
    {
        fields.push((b"x-request-id".to_vec(), id.to_vec()));
    }
    if let Some(addr) = rewrite.client_addr {
        let last = fields.iter_mut().rev().find(|(name, _)| lower(name) == "x-forwarded-for");
        match last {
            Some((_, list)) if list.is_empty() => *list = addr.to_vec(),
            Some((_, list)) => *list = [list, &b", "[..], addr].concat(),
            None => fields.push((b"x-forwarded-for".to_vec(), addr.to_vec())),
        }
    }
    if let Some(length) = rewrite.content_length {
        fields.push((b"content-length".to_vec(), length.to_string().into_bytes()));
    }
    fields
}

fn owned_fields(buf: &[u8], headers: &[Header]) -> Fields {
    super::fields(buf, headers).iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

proptest! {
    #[test]
    fn a_forwarded_request_is_what_the_model_says(
        message in request_message(),
        authorization in select(vec![
            Authorization::Keep, Authorization::Drop, Authorization::Replace(b"Bearer w"),
        ]),
        drop_x_api_key: bool,
        request_id in select(vec![None, Some(&b"gen-1"[..])]),
        client_addr in select(vec![None, Some(&b"::1"[..])]),
        content_length in select(vec![None, Some(0), Some(u64::MAX)]),
    ) {
        let bytes = message.bytes("POST http://gw.test/v1?a=b HTTP/1.1");
        let (head, headers) = request(&bytes);
        let rewrite = RequestRewrite {
            host: b"[::1]:8000", path_prefix: b"/base", authorization, drop_x_api_key, request_id,
            client_addr, content_length,
        };
        let mut out = Vec::new();
        write_request_head(&mut out, &bytes, &head, &headers, &rewrite);

        let (again, headers) = request(&out);
        prop_assert_eq!(again.len, out.len());
        prop_assert_eq!(again.target.of(&out), b"/base/v1?a=b");
        prop_assert_eq!(again.body, content_length.map_or(BodyLength::None, BodyLength::Fixed));
        prop_assert!(again.keep_alive && !headers.iter().any(|header| header.hop_by_hop));
        prop_assert_eq!(owned_fields(&out, &headers), model_request(&message, &rewrite));
    }

    #[test]
    fn a_returned_response_is_what_the_model_says(
        message in response_message(),
        status in select(vec![200u16, 404, 204, 304]),
        http10_client: bool,
        connection_close: bool,
    ) {
        let bytes = message.bytes(&format!("HTTP/1.1 {status} Odd \t phrase"));
        let (head, headers) = response(&bytes);
        let framing = ClientFraming::for_body(head.body, http10_client);
        let rewrite = ResponseRewrite {
            request_id: b"id-1", routed_worker: Some(b"w"), framing, cors: None, connection_close,
            http10_client,
        };
        let mut out = Vec::new();
        write_response_head(&mut out, &bytes, &head, &headers, &rewrite);

        let mut never = vec!["x-request-id", "x-smg-error-code", "x-smg-route", "x-smg-routed-worker-id"];
        if status != 304 {
            never.push("content-length");
        }
        let mut want = end_to_end(&message, &never);
        want.push((b"x-request-id".to_vec(), b"id-1".to_vec()));
        want.push((b"x-smg-routed-worker-id".to_vec(), b"w".to_vec()));
        let close = connection_close || framing == ClientFraming::CloseDelimited;
        match framing {
            ClientFraming::AsContentLength(n) => {
                want.push((b"content-length".to_vec(), n.to_string().into_bytes()));
            }
            ClientFraming::Chunked => {
                want.push((b"transfer-encoding".to_vec(), b"chunked".to_vec()));
            }
            ClientFraming::CloseDelimited | ClientFraming::NoBody => {}
        }
        if close || http10_client {
            let option: &[u8] = if close { b"close" } else { b"keep-alive" };
            want.push((b"connection".to_vec(), option.to_vec()));
        }
        let (again, headers) = response(&out);
        prop_assert_eq!(again.len, out.len());
        prop_assert_eq!((again.status, again.reason.of(&out)), (status, &b"Odd \t phrase"[..]));
        prop_assert_eq!(owned_fields(&out, &headers), want);
    }

    #[test]
    fn a_head_is_the_same_however_the_reads_cut_it(
        message in request_message(),
        tail in vec(any::<u8>(), 0..30),
        cuts in vec(any::<Index>(), 0..6),
    ) {
        let head_bytes = message.bytes("POST /generate HTTP/1.1");
        let bytes = [&head_bytes[..], &tail].concat();
        let whole = parse_request(&bytes);
        prop_assert!(matches!(&whole, Ok(Some((head, _))) if head.len == head_bytes.len()));
        for len in 0..head_bytes.len() {
            prop_assert_eq!(parse_request(&bytes[..len]), Ok(None));
        }
        // The cursor never lets a whole head lie.
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        ends.push(bytes.len());
        ends.sort_unstable();
        let mut cursor = HeadCursor::default();
        for end in ends {
            let ready = cursor.ready(&bytes[..end]);
            if end >= head_bytes.len() {
                prop_assert!(ready);
                prop_assert_eq!(parse_request(&bytes[..end]), whole);
                break;
            }
        }
    }

    #[test]
    fn a_response_head_is_the_same_however_the_reads_cut_it(
        message in response_message(),
        tail in vec(any::<u8>(), 0..30),
    ) {
        let head_bytes = message.bytes("HTTP/1.1 200 OK");
        let bytes = [&head_bytes[..], &tail].concat();
        let whole = response(&bytes);
        prop_assert_eq!(whole.0.len, head_bytes.len());
        for len in 0..head_bytes.len() {
            prop_assert_eq!(parse_response(&bytes[..len]), Ok(None));
        }
        for len in head_bytes.len()..bytes.len() {
            prop_assert_eq!(parse_response(&bytes[..len]), Ok(Some(whole.clone())));
        }
    }
}

/// Bytes that come near to being a message: pieces of heads, and anything between them.
fn near_message() -> impl Strategy<Value = Vec<u8>> {
    let piece = select(vec![
        "GET ",
        "POST /a HTTP/1.1\r\n",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0",
        "Host: a\r\n",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\r",
        ":",
        " ",
        "\t",
        "Content-Length: 3\r\n",
        "content-length:",
        "Transfer-Encoding: chunked\r\n",
        "Connection: x-a, close\r\n",
        "X-A: b\r\n",
        "x-a",
        "\0",
        "http://h/?",
        "*",
        "OPTIONS ",
        "Expect: 100-continue\r\n",
        "HTTP/1.1 204\r\n",
        "/",
        "#",
        "x-forwarded-for: 1\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n",
    ]);
    let piece = prop_oneof![
        9 => piece.prop_map(|piece| piece.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..8),
    ];
    vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_refused_or_forwarded_unambiguously(bytes in near_message()) {
        let rewrite = RequestRewrite {
            host: b"w:1", path_prefix: b"", authorization: Authorization::Keep,
            drop_x_api_key: false, request_id: Some(b"id"), client_addr: Some(b"::1"),
            content_length: Some(3),
        };
        if let Ok(Some((head, headers))) = parse_request(&bytes) {
            prop_assert!(head.len <= bytes.len() && bytes[..head.len].ends_with(b"\r\n\r\n"));
            let mut out = Vec::new();
            write_request_head(&mut out, &bytes, &head, &headers, &rewrite);
            let (again, headers) = request(&out);
            prop_assert_eq!((again.len, again.body), (out.len(), BodyLength::Fixed(3)));
            prop_assert!(headers.iter().all(|header| header.known != Known::TransferEncoding));
        }
    }

    #[test]
    fn any_response_bytes_are_refused_or_returned_unambiguously(
        bytes in near_message().prop_map(|rest| [&b"HTTP/1.1 200 OK\r\n"[..], &rest].concat()),
        to_head: bool,
    ) {
        let mut headers = Vec::new();
        if let Ok(Some(head)) = super::super::parse_response(&bytes, to_head, &mut headers) {
            prop_assert!(head.len <= bytes.len() && bytes[..head.len].ends_with(b"\r\n\r\n"));
            let framing = ClientFraming::for_body(head.body, false);
            let rewrite = ResponseRewrite {
                request_id: b"id", routed_worker: None, framing, cors: None,
                connection_close: false, http10_client: false,
            };
            let mut out = Vec::new();
            write_response_head(&mut out, &bytes, &head, &headers, &rewrite);
            let again = super::super::parse_response(&out, to_head, &mut headers);
            let again = again.expect("valid").expect("whole");
            prop_assert_eq!(again.len, out.len());
        }
    }

    #[test]
    fn what_is_refused_stays_refused_when_more_comes(bytes in near_message(), cut: Index) {
        let prefix = &bytes[..cut.index(bytes.len() + 1)];
        match parse_request(prefix) {
            Ok(Some(parsed)) => prop_assert_eq!(parse_request(&bytes), Ok(Some(parsed))),
            Err(_) => prop_assert!(parse_request(&bytes).is_err()),
            Ok(None) => {}
        }
        match parse_response(prefix) {
            Ok(Some(parsed)) => prop_assert_eq!(parse_response(&bytes), Ok(Some(parsed))),
            Err(error) => prop_assert_eq!(parse_response(&bytes), Err(error)),
            Ok(None) => {}
        }
    }
}

/// One chunked body: chunks as payload and extension, trailer lines.
fn chunked_body() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let extension = select(vec!["", ";a", " ;a=b", ";q=\"x;y\"", "\t; a = é"]);
    let payload = vec(any::<u8>(), 1..40);
    let trailers = vec(select(vec!["A: b\r\n", "Content-Length: 3\r\n", "x:\r\n"]), 0..3);
    let upper = any::<bool>();
    (vec((payload, extension, upper, 0..3usize), 0..8), trailers).prop_map(|(chunks, trailers)| {
        let (mut wire, mut body) = (Vec::new(), Vec::new());
        for (payload, extension, upper, zeros) in chunks {
            let size = payload.len();
            let size = if upper { format!("{size:X}") } else { format!("{size:x}") };
            wire.extend(format!("{}{size}{extension}\r\n", "0".repeat(zeros)).into_bytes());
            wire.extend_from_slice(&payload);
            wire.extend_from_slice(b"\r\n");
            body.extend(payload);
        }
        wire.extend_from_slice(b"0\r\n");
        wire.extend(trailers.concat().into_bytes());
        wire.extend_from_slice(b"\r\n");
        (wire, body)
    })
}

/// A decoder that sees the whole message at once and works line by line: None for malformed,
/// else the payload and the bytes behind the body if it ended.
fn model_decode(mut wire: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    fn line<'a>(wire: &mut &'a [u8]) -> Option<&'a [u8]> {
        let end = wire.windows(2).position(|pair| pair == b"\r\n")?;
        let line = &wire[..end];
        *wire = &wire[end + 2..];
        Some(line)
    }
    let text = |bytes: &[u8]| bytes.iter().all(|&b| b == b'\t' || (b >= 0x20 && b != 0x7f));
    let mut body = Vec::new();
    loop {
        // A line cut short is only looked at by the tests of malformed bodies.
        let Some(size_line) = line(&mut wire) else { return Some((body, None)) };
        let (size, extension) = match size_line.iter().position(|&b| b == b';') {
            Some(at) => {
                let (size, extension) = size_line.split_at(at);
                let end = size.iter().rposition(|b| !b" \t".contains(b)).map_or(0, |i| i + 1);
                (&size[..end], extension)
            }
            None => (size_line, &b""[..]),
        };
        let digits = size.iter().all(u8::is_ascii_hexdigit);
        if size.is_empty() || !digits || size.len() > MAX_CHUNK_SIZE_DIGITS.into() {
            return None;
        }
        if !text(extension) {
            return None;
        }
        let size = u64::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        if size == 0 {
            break;
        }
        let available = wire.len() as u64;
        let taken = size.min(available) as usize;
        body.extend_from_slice(&wire[..taken]);
        wire = &wire[taken..];
        match wire {
            [b'\r', b'\n', rest @ ..] => wire = rest,
            [] | [b'\r'] => return Some((body, None)),
            _ => return None,
        }
    }
    loop {
        let Some(trailer) = line(&mut wire) else { return Some((body, None)) };
        if trailer.is_empty() {
            return Some((body, Some(wire.to_vec())));
        }
        let colon = trailer.iter().position(|&b| b == b':')?;
        if !super::super::is_token(&trailer[..colon]) || !text(&trailer[colon + 1..]) {
            return None;
        }
    }
}

/// Cuts bytes at these places.
fn segments<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    ends.sort_unstable();
    ends.push(bytes.len());
    let starts = std::iter::once(0).chain(ends.clone());
    starts.zip(&ends).map(|(start, &end)| &bytes[start..end]).collect()
}

proptest! {
    #[test]
    fn any_chunking_decodes_to_its_payload_at_any_cut(
        (wire, body) in chunked_body(),
        tail in vec(any::<u8>(), 0..20),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        let bytes = [&wire[..], &tail].concat();
        let want = Ok((body, Some(tail)));
        prop_assert_eq!(&decode(&segments(&bytes, &cuts)), &want);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&decode(&single), &want);
    }

    #[test]
    fn a_damaged_chunked_body_fares_as_the_model_says(
        (mut wire, _) in chunked_body(),
        at: Index,
        byte in prop_oneof![any::<u8>(), select(b"\r\n0a; :\t".to_vec())],
        damage in 0..4u8,
        cuts in vec(any::<Index>(), 0..4),
    ) {
        let at = at.index(wire.len());
        match damage {
            0 => wire[at] = byte,
            1 => wire.insert(at, byte),
            2 => drop(wire.remove(at)),
            _ => wire.truncate(at),
        }
        let got = decode(&segments(&wire, &cuts));
        match (&got, model_decode(&wire)) {
            (Ok(got), Some(want)) => prop_assert_eq!(got, &want),
            (Err(_), None) => {}
            // The model waits for the end of a line that is refused at its first bad byte.
            (Err(_), Some((_, None))) => {}
            (_, want) => prop_assert!(false, "{:?} is not {:?}", got, want),
        }
    }
}
