//! A second reader of message heads: RFC 9112 §2–§6 and RFC 9110 §5 line by line, on whole heads
//! only, with nothing shared with the gateway's parser.
//!
//! Where the RFCs leave a choice it is the gateway's, and these are refused that they would allow:
//! - A bare LF as a line end (RFC 9112 §2.2): readers disagree about it, which hides requests.
//! - Repeated `Content-Length`, even of one value (RFC 9112 §6.3 item 5): two readers may use
//!   different ones when a hop between them changes one.
//! - `Transfer-Encoding` beside `Content-Length` in requests (§6.3 item 3), for the same reason;
//!   in an answer the chunks count and the connection ends with it.
//! - Codings other than one `chunked` (§6.1): the gateway does not undo them.
//! - `CONNECT` and authority form (§3.2.3): there are no tunnels.
//! - Heads beyond 64 KiB, 256 fields or 32 connection options; more than 4 empty lines in front.
//! - Ports of more than 5 digits.
//!
//! And these are let through that the grammar does not have:
//! - In a target any visible ASCII but `#`: clients send `|`, `{` and `"`, and workers take them.
//! - In a host `%` without two digits, and between brackets more than addresses.
//! - A status line without the space in front of an empty reason, which servers leave out.

use smg_core::http1::BodyLength;

/// A header line: the name as it was spelt, the value without the white space around it.
pub type Field = (Vec<u8>, Vec<u8>);

/// What bytes come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading<T> {
    /// A whole head.
    Whole(T),
    /// The head has no end yet.
    Partial,
    /// Whole or too long, and this is wrong with it.
    Refused(&'static str),
}

/// A request's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub len: usize,
    pub method: Vec<u8>,
    pub target: Vec<u8>,
    pub http10: bool,
    pub fields: Vec<Field>,
    pub body: BodyLength,
    pub keep_alive: bool,
    pub expect_continue: bool,
}

/// An answer's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub len: usize,
    pub status: u16,
    pub reason: Vec<u8>,
    pub http10: bool,
    pub fields: Vec<Field>,
    pub body: BodyLength,
    pub keep_alive: bool,
    pub event_stream: bool,
}

type Refusal = &'static str;

/// Reads the request at the start of `bytes`.
pub fn request(bytes: &[u8]) -> Reading<Request> {
    let mut start = 0;
    while start < 8 && bytes[start..].starts_with(b"\r\n") {
        start += 2;
    }
    read(bytes, start, request_of)
}

/// Reads the answer at the start of `bytes`; `to_head`: to a HEAD request.
pub fn response(bytes: &[u8], to_head: bool) -> Reading<Response> {
    read(bytes, 0, |lines, len| response_of(lines, len, to_head))
}

fn read<T>(
    bytes: &[u8],
    start: usize,
    parse: impl Fn(&[&[u8]], usize) -> Result<T, Refusal>,
) -> Reading<T> {
    const LONGEST: usize = 65_536;
    let Some(end) = head_end(bytes, start) else {
        return if bytes.len() >= LONGEST { Reading::Refused("length") } else { Reading::Partial };
    };
    if end > LONGEST {
        return Reading::Refused("length");
    }
    match lines(&bytes[start..end]).and_then(|lines| parse(&lines, end)) {
        Ok(head) => Reading::Whole(head),
        Err(why) => Reading::Refused(why),
    }
}

/// Behind the first empty line, whatever ends it.
fn head_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut line_start = start;
    for (at, &byte) in bytes.iter().enumerate().skip(start) {
        if byte == b'\n' {
            if matches!(&bytes[line_start..at], [] | [b'\r']) {
                return Some(at + 1);
            }
            line_start = at + 1;
        }
    }
    None
}

/// The lines of a head without their CRLFs and without the empty one.
fn lines(head: &[u8]) -> Result<Vec<&[u8]>, Refusal> {
    let mut lines = Vec::new();
    for line in head.split_inclusive(|&byte| byte == b'\n') {
        lines.push(line.strip_suffix(b"\r\n").ok_or("bare LF")?);
    }
    lines.pop();
    Ok(lines)
}

fn request_of(lines: &[&[u8]], len: usize) -> Result<Request, Refusal> {
    let (line, fields) = lines.split_first().ok_or("no request line")?;
    let parts: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [method, target, version] = parts[..] else { return Err("request line") };
    let http10 = version_of(version)?;
    require(is_token(method) && method != b"CONNECT", "method")?;
    require(is_target(target, method == b"OPTIONS"), "target")?;
    let fields = fields_of(fields)?;
    let framing = Framing::of(&fields)?;
    let body = match (framing.transfer_encoding, framing.content_length) {
        (Some(_), Some(_)) => return Err("two framings"),
        (Some(_), None) if http10 => return Err("Transfer-Encoding in HTTP/1.0"),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => BodyLength::Chunked,
        (Some(_), None) => return Err("transfer coding"),
        (None, Some(length)) => BodyLength::Fixed(length),
        (None, None) => BodyLength::None,
    };
    let hosts = values(&fields, "host");
    require(hosts.len() == 1 || (http10 && hosts.is_empty()), "hosts")?;
    require(hosts.iter().all(|host| is_host(host)), "host")?;
    let expectations = if http10 { Vec::new() } else { values(&fields, "expect") };
    let known = |value: &&[u8]| value.eq_ignore_ascii_case(b"100-continue");
    require(expectations.iter().all(known), "expectation")?;
    let has_body = !matches!(body, BodyLength::None | BodyLength::Fixed(0));
    Ok(Request {
        len,
        method: method.to_vec(),
        target: target.to_vec(),
        http10,
        body,
        keep_alive: stays_open(&fields, http10)?,
        expect_continue: has_body && !expectations.is_empty(),
        fields,
    })
}

fn response_of(lines: &[&[u8]], len: usize, to_head: bool) -> Result<Response, Refusal> {
    let (line, fields) = lines.split_first().ok_or("no status line")?;
    let (version, rest) = line.split_at_checked(9).ok_or("status line")?;
    let http10 = version_of(version.strip_suffix(b" ").ok_or("status line")?)?;
    let (status, rest) = rest.split_at_checked(3).ok_or("status")?;
    require(status.iter().all(u8::is_ascii_digit), "status")?;
    let status = status.iter().fold(0, |n, digit| n * 10 + u16::from(digit - b'0'));
    require((100..=599).contains(&status) && status != 101, "status")?;
    let reason = match rest {
        [] => rest,
        [b' ', reason @ ..] => reason,
        _ => return Err("status"),
    };
    require(reason.iter().all(|&byte| is_text(byte)), "reason")?;
    let fields = fields_of(fields)?;
    let framing = Framing::of(&fields)?;
    if let Some(coding) = framing.transfer_encoding {
        require(!http10, "Transfer-Encoding in HTTP/1.0")?;
        require(coding.eq_ignore_ascii_case(b"chunked"), "transfer coding")?;
    }
    let bodiless = to_head || status < 200 || status == 204 || status == 304;
    let body = match (framing.transfer_encoding, framing.content_length) {
        _ if bodiless => BodyLength::None,
        (Some(_), _) => BodyLength::Chunked,
        (None, Some(length)) => BodyLength::Fixed(length),
        (None, None) => BodyLength::UntilClose,
    };
    let ambiguous = framing.transfer_encoding.is_some() && framing.content_length.is_some();
    let media_type = values(&fields, "content-type").first().map(|value| {
        let end = value.iter().position(|&byte| byte == b';').unwrap_or(value.len());
        trim(&value[..end]).eq_ignore_ascii_case(b"text/event-stream")
    });
    Ok(Response {
        len,
        status,
        reason: reason.to_vec(),
        http10,
        body,
        keep_alive: stays_open(&fields, http10)? && !ambiguous && body != BodyLength::UntilClose,
        event_stream: media_type == Some(true),
        fields,
    })
}

fn require(holds: bool, why: Refusal) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(why) }
}

/// Whether it is HTTP/1.0, and not HTTP/1.1.
fn version_of(version: &[u8]) -> Result<bool, Refusal> {
    match version {
        b"HTTP/1.0" => Ok(true),
        b"HTTP/1.1" => Ok(false),
        _ => Err("version"),
    }
}

/// `field-line = field-name ":" OWS field-value OWS`
fn fields_of(lines: &[&[u8]]) -> Result<Vec<Field>, Refusal> {
    require(lines.len() <= 256, "too many fields")?;
    let field = |line: &&[u8]| {
        let colon = line.iter().position(|&byte| byte == b':').ok_or("no colon")?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        require(is_token(name), "field name")?;
        require(value.iter().all(|&byte| is_text(byte)), "field value")?;
        Ok((name.to_vec(), trim(value).to_vec()))
    };
    lines.iter().map(field).collect()
}

struct Framing<'a> {
    content_length: Option<u64>,
    transfer_encoding: Option<&'a [u8]>,
}

impl<'a> Framing<'a> {
    fn of(fields: &'a [Field]) -> Result<Self, Refusal> {
        let lengths = values(fields, "content-length");
        require(lengths.len() < 2, "Content-Length repeated")?;
        let number = |digits: &&[u8]| {
            require(!digits.is_empty() && digits.iter().all(u8::is_ascii_digit), "Content-Length")?;
            str::from_utf8(digits).expect("digits").parse().map_err(|_| "Content-Length")
        };
        let codings = values(fields, "transfer-encoding");
        require(codings.len() < 2, "Transfer-Encoding repeated")?;
        Ok(Self {
            content_length: lengths.first().map(number).transpose()?,
            transfer_encoding: codings.first().copied(),
        })
    }
}

/// What `Connection` and the version say about the connection (RFC 9112 §9.3).
fn stays_open(fields: &[Field], http10: bool) -> Result<bool, Refusal> {
    let options = connection_options(fields);
    require(options.len() <= 32, "connection options")?;
    let says = |option: &[u8]| options.iter().any(|known| known == option);
    Ok(!says(b"close") && (!http10 || says(b"keep-alive")))
}

/// The elements of every `Connection` field, in lower case.
pub fn connection_options(fields: &[Field]) -> Vec<Vec<u8>> {
    let elements = values(fields, "connection").into_iter().flat_map(|list| list.split(is_comma));
    elements.map(|e| trim(e).to_ascii_lowercase()).filter(|e| !e.is_empty()).collect()
}

/// The fields that go on to the next hop (RFC 9110 §7.6.1), but that `Connection` cannot take away
/// what frames or describes the body, what tells who asks, and what the gateway vouches for.
pub fn end_to_end(fields: &[Field]) -> Vec<Field> {
    const FOR_ONE_HOP: [&str; 10] = [
        "connection",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    const NOT_TO_BE_NAMED: [&str; 8] = [
        "authorization",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "x-api-key",
        "x-forwarded-for",
        "x-request-id",
    ];
    let named = connection_options(fields);
    let goes_on = |(name, _): &&Field| {
        let name = name.to_ascii_lowercase();
        let is_in = |names: &[&str]| names.iter().any(|known| known.as_bytes() == name);
        !is_in(&FOR_ONE_HOP) && (is_in(&NOT_TO_BE_NAMED) || !named.contains(&name))
    };
    fields.iter().filter(goes_on).cloned().collect()
}

/// The values of the fields of this name, which is in lower case.
pub fn values<'a>(fields: &'a [Field], name: &str) -> Vec<&'a [u8]> {
    let named = fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
    named.map(|(_, value)| &value[..]).collect()
}

fn is_comma(byte: &u8) -> bool {
    *byte == b','
}

fn trim(bytes: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !b" \t".contains(byte);
    match (bytes.iter().position(is_text), bytes.iter().rposition(is_text)) {
        (Some(first), Some(last)) => &bytes[first..=last],
        _ => &[],
    }
}

/// `token = 1*tchar`
pub fn is_token(bytes: &[u8]) -> bool {
    let tchar = |&b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !bytes.is_empty() && bytes.iter().all(tchar)
}

/// `HTAB / SP / VCHAR / obs-text`
pub fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

fn is_target(target: &[u8], options: bool) -> bool {
    let visible = target.iter().all(|&b| b.is_ascii_graphic() && b != b'#');
    visible && (target.starts_with(b"/") || (options && target == b"*") || is_absolute(target))
}

/// `("http" / "https") "://" host [ ":" port ] [ path ] [ "?" query ]`
fn is_absolute(target: &[u8]) -> bool {
    let lower = target.to_ascii_lowercase();
    let rest = lower.strip_prefix(b"http://").or_else(|| lower.strip_prefix(b"https://"));
    rest.is_some_and(|rest| {
        let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
        end > 0 && is_host(&rest[..end])
    })
}

/// `uri-host [ ":" port ]`
fn is_host(host: &[u8]) -> bool {
    let name_char = |&b: &u8| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&b);
    let (name_is_sound, rest) = if let Some(literal) = host.strip_prefix(b"[") {
        let Some(end) = literal.iter().position(|&byte| byte == b']') else { return false };
        let (name, rest) = (&literal[..end], &literal[end + 1..]);
        (!name.is_empty() && name.iter().all(|b| *b == b':' || name_char(b)), rest)
    } else {
        let end = host.iter().position(|&byte| byte == b':').unwrap_or(host.len());
        (host[..end].iter().all(name_char), &host[end..])
    };
    name_is_sound
        && match rest {
            [] => true,
            [b':', port @ ..] => port.len() <= 5 && port.iter().all(u8::is_ascii_digit),
            _ => false,
        }
}
