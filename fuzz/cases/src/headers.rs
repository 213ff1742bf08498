//! Values of headers, and heads made of the headers that the gateway treats specially: random bytes
//! seldom spell one, and never several that have to do with each other.

use arbitrary::{Result, Unstructured};
use smg_core::http1::{
    Authorization, Header, RequestRewrite, eq_ignore_case, is_field_value, is_token, parse_decimal,
    parse_request, push_decimal, trim_whitespace, write_request_head,
};
use smg_core::policy::sticky::{MAX_KEY_BYTES, header_key, routing_key};
use smg_core::prompt::{MAX_ROUTING_TOKENS, MAX_ROUTING_TOKENS_BYTES, parse_routing_tokens};
use smg_core::retry::parse_retry_after_ms;
use smg_core::rng::Rng;
use smg_io::config::{ApiKeys, Config, Secret};
use smg_io::http::route::Route;
use smg_io::http::{auth, request_id};

use crate::grammar::{self, Reading};
use crate::{request, response};

/// `data` is a value, and also the choices that make a request and an answer.
pub fn run(data: &[u8]) {
    assert_values(data);
    let mut head = Head { choices: Unstructured::new(data), out: Vec::new() };
    // Where the choices end the first of each is taken, so there is always a message.
    let _ = head.request();
    request::run(&head.out);
    assert_keys_stay_here(&head.out);
    assert_ids(&head.out);
    head.out.clear();
    head.choices = Unstructured::new(data);
    let _ = head.response();
    response::run(&head.out);
}

fn assert_values(value: &[u8]) {
    let text = std::str::from_utf8(value).ok();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());

    let number = text.filter(|text| digits(text)).and_then(|text| text.parse::<u64>().ok());
    assert_eq!(parse_decimal(value), number);
    if let Some(number) = number {
        let mut written = Vec::new();
        push_decimal(&mut written, number);
        assert_eq!(written, number.to_string().as_bytes());
    }

    let seconds = text.map(str::trim_ascii).filter(|text| digits(text) && text.len() <= 9);
    let ms = seconds.and_then(|text| text.parse::<u64>().ok()).map(|seconds| seconds * 1000);
    assert_eq!(parse_retry_after_ms(value), ms);

    let ids = || {
        let text = text.filter(|text| text.len() <= MAX_ROUTING_TOKENS_BYTES)?;
        let id = |part: &str| if digits(part) { part.parse::<u32>().ok() } else { None };
        let ids: Option<Vec<u32>> = text.split(',').map(id).collect();
        ids.filter(|ids| ids.len() <= MAX_ROUTING_TOKENS)
    };
    let mut tokens = vec![7];
    let is_valid = parse_routing_tokens(value, &mut tokens);
    assert_eq!(is_valid.then_some(&tokens), ids().as_ref());
    assert!(is_valid || tokens.is_empty());

    assert_eq!(is_token(value), grammar::is_token(value));
    assert_eq!(is_field_value(value), value.iter().all(|&byte| grammar::is_text(byte)));
    let trimmed = text.map(|text| text.trim_matches([' ', '\t']).as_bytes());
    assert!(trimmed.is_none_or(|trimmed| trim_whitespace(value) == trimmed));

    let usable = |key: &[u8]| {
        !key.is_empty() && key.len() <= MAX_KEY_BYTES && std::str::from_utf8(key).is_ok()
    };
    assert_eq!(header_key(value), Some(value).filter(|key| usable(key)));
    let conversation = conversation(value);
    assert_eq!(routing_key(value), Some(conversation).filter(|key| usable(key)));
}

/// `conversation_t3_r1` → `conversation`, by trying every length of the suffixes.
fn conversation(value: &[u8]) -> &[u8] {
    let without = |value: &'_ [u8], start: &str| {
        (0..value.len()).find(|&at| {
            let suffix = value[at..].strip_prefix(start.as_bytes());
            suffix.is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
        })
    };
    let retry = without(value, "_r").unwrap_or(value.len());
    let turn = without(&value[..retry], "_t").unwrap_or(retry);
    if turn == 0 { value } else { &value[..turn] }
}

/// A worker never learns the gateway's own keys, however they were given.
fn assert_keys_stay_here(bytes: &[u8]) {
    let mut headers = Vec::new();
    let Ok(Some(head)) = parse_request(bytes, &mut headers) else { return };
    let config = Config {
        api_key: Some(Secret::new("ours".into())),
        admin_api_key: Some(Secret::new("admin's".into())),
        ..Config::default()
    };
    let given = |known: &'static str| {
        let named = headers.iter().filter(move |header| is(header, bytes, known));
        named.map(|header| header.value.of(bytes))
    };
    let route = Route::of(b"/v1/chat/completions");
    let Some(credentials) = auth::check(&ApiKeys::of(&config), route, bytes, &headers) else {
        let bearer = |value: &[u8]| key_in(value) == b"ours" && value != b"ours";
        let shown = given("authorization").next().is_some_and(bearer)
            || given("x-api-key").next() == Some(b"ours");
        assert!(!shown, "refused");
        return;
    };
    let shown = given("authorization").chain(given("x-api-key"));
    assert!(shown.into_iter().any(|value| key_in(value) == b"ours"), "let in without a key");
    let rewrite = RequestRewrite {
        host: b"worker",
        path_prefix: b"",
        authorization: match credentials.authorization_is_ours {
            true => Authorization::Drop,
            false => Authorization::Keep,
        },
        drop_x_api_key: credentials.x_api_key_is_ours,
        request_id: None,
        client_addr: None,
        content_length: None,
    };
    let mut wire = Vec::new();
    write_request_head(&mut wire, bytes, &head, &headers, &rewrite);
    let Reading::Whole(forwarded) = grammar::request(&wire) else { return };
    for name in ["authorization", "x-api-key"] {
        for value in grammar::values(&forwarded.fields, name) {
            let key = key_in(value);
            assert!(key != b"ours" && key != b"admin's", "{}", wire.escape_ascii());
        }
    }
}

/// The key of a value with or without `Bearer`.
fn key_in(value: &[u8]) -> &[u8] {
    match value.split_at_checked(7) {
        Some((scheme, key)) if eq_ignore_case(scheme, b"bearer ") => key.trim_ascii(),
        _ => value,
    }
}

/// A request's id may stand in a header, and is the client's first usable one if there is one.
fn assert_ids(bytes: &[u8]) {
    let mut headers = Vec::new();
    let Ok(Some(_)) = parse_request(bytes, &mut headers) else { return };
    let names = Config::default().request_id_headers;
    let route = Route::of(b"/generate");
    let id = request_id::choose(bytes, &headers, &names, route, &mut Rng::new(1));
    assert!(is_field_value(&id) && (1..=256).contains(&id.len()));
    let first = |name: &String| headers.iter().find(|header| is(header, bytes, name));
    let mut given = names.iter().filter_map(first).map(|header| header.value.of(bytes));
    let usable = given.find(|id| (1..=256).contains(&id.len()));
    assert!(usable.map_or(id.starts_with(b"gnt-"), |usable| usable == &*id));
}

fn is(header: &Header, bytes: &[u8], name: &str) -> bool {
    eq_ignore_case(header.name.of(bytes), name.as_bytes())
}

/// Writes a message as its choices say.
struct Head<'a> {
    choices: Unstructured<'a>,
    out: Vec<u8>,
}

const NAMES: &[&str] = &[
    "Accept",
    "Authorization",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Type",
    "Cookie",
    "Date",
    "Expect",
    "Host",
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "Proxy-Connection",
    "Retry-After",
    "Set-Cookie",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "X-A",
    "X-Api-Key",
    "X-Forwarded-For",
    "X-Request-Id",
    "request-id",
    "traceparent",
    "x-smg-error-code",
    "x-smg-explain",
    "x-smg-routed-worker-id",
    "x-smg-routing-key",
    "x-smg-routing-tokens",
    "x-smg-target-worker",
    "x-trace-id",
];

const VALUES: &[&str] = &[
    "",
    " ",
    "\t",
    ",",
    ";",
    "a",
    "ours",
    "admin's",
    "Bearer ours",
    "bearer  admin's",
    "Bearer theirs",
    "10.0.0.1",
    "100-continue",
    "chunked",
    "gzip",
    "identity",
    "close",
    "keep-alive",
    "trailers",
    "text/event-stream",
    "application/json",
    "3",
    "0",
    "007",
    "\"",
    "\u{e9}",
];

impl Head<'_> {
    fn request(&mut self) -> Result<()> {
        self.pick(&["POST", "GET", "OPTIONS", "FOO"])?;
        self.out.push(b' ');
        self.pick(&[
            "/v1/chat/completions",
            "/",
            "*",
            "http://a/b?c",
            "https://[::1]:1?q",
            "/{a}",
        ])?;
        self.pick(&[" HTTP/1.1\r\n", " HTTP/1.1\r\n", " HTTP/1.0\r\n"])?;
        self.pick(&["Host: a\r\n", "Host: a\r\n", "host:[::1]:80\r\n", "Host:\r\n", ""])?;
        self.fields()
    }

    fn response(&mut self) -> Result<()> {
        self.pick(&["HTTP/1.1 100 \r\n\r\n", "", "", "HTTP/1.1 103 x\r\nA: b\r\n\r\n"])?;
        self.pick(&["HTTP/1.1 ", "HTTP/1.1 ", "HTTP/1.0 "])?;
        self.pick(&["200 OK", "204 ", "304", "500 \u{e9}", "429 Too", "199 x", "599 "])?;
        self.out.extend_from_slice(b"\r\n");
        self.fields()
    }

    /// Header lines, the empty line, and what may be a body.
    fn fields(&mut self) -> Result<()> {
        while !self.choices.ratio(1, 10)? {
            self.pick(NAMES)?;
            self.pick(&[": ", ":", ":\t "])?;
            for _ in 0..self.choices.int_in_range(1..=4)? {
                // `Connection` lists names.
                let words = if self.choices.ratio(1, 4)? { NAMES } else { VALUES };
                self.pick(words)?;
                self.pick(&["", "", ", ", ","])?;
            }
            self.pick(&["\r\n", "\r\n", "\r\n", " \r\n", "\t\r\n"])?;
        }
        self.pick(&["Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n", "", ""])?;
        self.out.extend_from_slice(b"\r\n");
        self.pick(&["abc", "1\r\nx\r\n0\r\n\r\n", "3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n", "", "ab"])
    }

    /// One of `words`, its letters now and then in the other case.
    fn pick(&mut self, words: &[&str]) -> Result<()> {
        let word = self.choices.choose(words)?.as_bytes();
        let start = self.out.len();
        self.out.extend_from_slice(word);
        // Methods and versions mean other things then, which is tried too, but seldom.
        if word.len() > 1 && self.choices.ratio(1, 24)? {
            for byte in &mut self.out[start..] {
                *byte ^= if byte.is_ascii_alphabetic() { 0x20 } else { 0 };
            }
        }
        Ok(())
    }
}
