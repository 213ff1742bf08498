//! Request bodies: generated conversations with shared prefixes, or lines of a file.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Write;
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::task::{Poll, Waker};

use memchr::memmem;
use smg_core::rng::Rng;

use super::made::MadeOptions;

/// What requests contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bodies {
    Generated(Shape),
    /// One JSON body per line. A run of ten `@` in a line is replaced by a number that grows with
    /// each request.
    Lines(PathBuf),
    /// Made as they are sent.
    Made(MadeOptions),
}

/// A generated chat: a system prompt and history shared by several requests, then a tail of its
/// own, then a number no other request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// About 600 bytes: 50 system prompts with 40 questions each.
    Short,
    /// About 20 kB: 25 conversations of 16 kB with 12 continuations each.
    Chat20k,
    /// About 100 kB: 8 conversations of 80 kB with 8 continuations each.
    Chat100k,
}

/// What goes into every request beside the body's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestOptions {
    pub authority: String,
    /// Path of the request, base path included.
    pub path: String,
    pub model: String,
    pub stream: bool,
    pub max_tokens: u32,
    /// Additional header lines, each `name: value`.
    pub headers: Vec<String>,
}

/// Header lines of requests that ask for proof.
pub fn proof_header(proves: bool) -> Vec<String> {
    proves.then(|| format!("{}: 1", crate::proof::HEADER)).into_iter().collect()
}

/// Whole HTTP requests in memory, lent out for one write each. Nothing is copied per request: the
/// number that makes a request new is written over the last one.
pub struct RequestPool {
    slots: RefCell<Slots>,
    waiting: RefCell<VecDeque<Waker>>,
    mean_body_bytes: usize,
}

struct Slots {
    idle: VecDeque<Request>,
    next_number: u64,
}

/// One request, ready to be written.
pub struct Request {
    pub bytes: Vec<u8>,
    number_at: Option<usize>,
}

const NUMBER: &str = "@@@@@@@@@@";

/// Requests are copied until at least this many can be in flight, as far as the memory below goes.
const POOL_MIN_BYTES: usize = 64 * 1024 * 1024;

impl RequestPool {
    /// Prepares requests with these bodies, of which there is at least one, for up to `connections`
    /// concurrent writers.
    pub fn new(bodies: &[String], options: &RequestOptions, connections: usize) -> Self {
        let body_bytes: usize = bodies.iter().map(String::len).sum();
        let mean_body_bytes = body_bytes / bodies.len().max(1);
        let wanted = 2 * connections.max(1);
        let affordable = POOL_MIN_BYTES / mean_body_bytes.max(1);
        let count = bodies.len().max(wanted.min(affordable)).max(1);
        let idle = bodies.iter().cycle().take(count).map(|body| options.request(body)).collect();
        Self {
            slots: RefCell::new(Slots { idle, next_number: 0 }),
            waiting: RefCell::default(),
            mean_body_bytes,
        }
    }

    /// Numbers the requests from here on.
    pub fn number_from(&self, number: u64) {
        self.slots.borrow_mut().next_number = number;
    }

    pub fn mean_body_bytes(&self) -> usize {
        self.mean_body_bytes
    }

    /// Lends the next request, waiting while all are being written.
    pub async fn take(&self) -> Request {
        poll_fn(|cx| {
            let mut slots = self.slots.borrow_mut();
            let Some(mut request) = slots.idle.pop_front() else {
                self.waiting.borrow_mut().push_back(cx.waker().clone());
                return Poll::Pending;
            };
            slots.next_number += 1;
            request.set_number(slots.next_number);
            Poll::Ready(request)
        })
        .await
    }

    /// Takes a written request back.
    pub fn give_back(&self, request: Request) {
        self.slots.borrow_mut().idle.push_back(request);
        if let Some(waker) = self.waiting.borrow_mut().pop_front() {
            waker.wake();
        }
    }
}

impl Request {
    /// A request that is sent as it is.
    pub(super) fn fixed(bytes: Vec<u8>) -> Self {
        Self { bytes, number_at: None }
    }

    fn set_number(&mut self, number: u64) {
        let Some(at) = self.number_at else { return };
        let mut rest = number;
        for digit in self.bytes[at..at + NUMBER.len()].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
}

impl RequestOptions {
    /// Head and body of one request.
    pub(super) fn request(&self, body: &str) -> Request {
        let Self { authority, path, headers, .. } = self;
        let mut text = format!(
            "POST {path} HTTP/1.1\r\nhost: {authority}\r\nuser-agent: smg-loadtest\r\n\
             accept: */*\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        for header in headers {
            text.push_str(header);
            text.push_str("\r\n");
        }
        text.push_str("\r\n");
        text.push_str(body);
        let bytes = text.into_bytes();
        Request { number_at: memmem::rfind(&bytes, NUMBER.as_bytes()), bytes }
    }
}

impl Shape {
    /// Shared prefixes, continuations of each, and the target sizes of system prompt, shared
    /// history and continuation in bytes of JSON.
    fn parameters(self) -> Parameters {
        match self {
            Self::Short => Parameters { prefixes: 50, tails: 40, system: 330, shared: 0, tail: 80 },
            Self::Chat20k => {
                Parameters { prefixes: 25, tails: 12, system: 1_500, shared: 14_900, tail: 3_900 }
            }
            Self::Chat100k => {
                Parameters { prefixes: 8, tails: 8, system: 2_000, shared: 78_000, tail: 20_000 }
            }
        }
    }

    /// Every body of this shape, in an order that spreads the prefixes.
    pub(super) fn bodies(self, options: &RequestOptions, seed: u64) -> Vec<String> {
        let Parameters { prefixes, tails, system, shared, tail } = self.parameters();
        let mut rng = Rng::new(seed);
        let heads: Vec<_> = (0..prefixes)
            .map(|_| {
                let mut messages = Messages::default();
                messages.push("system", &prose(&mut rng, system));
                messages.dialogue(&mut rng, shared);
                messages
            })
            .collect();
        let mut bodies = Vec::with_capacity(prefixes * tails);
        for _ in 0..tails {
            for head in &heads {
                let mut messages = head.clone();
                let question = if tail > 1_000 {
                    messages.dialogue(&mut rng, tail - 300);
                    200
                } else {
                    tail
                };
                messages.push("user", &format!("{} {NUMBER}", prose(&mut rng, question)));
                bodies.push(chat_body(options, &messages));
            }
        }
        for last in (1..bodies.len()).rev() {
            bodies.swap(last, rng.below(last + 1));
        }
        bodies
    }
}

struct Parameters {
    prefixes: usize,
    tails: usize,
    system: usize,
    shared: usize,
    tail: usize,
}

/// The messages of a chat as JSON objects, comma separated.
#[derive(Clone, Default)]
pub(super) struct Messages(String);

impl Messages {
    pub(super) fn push(&mut self, role: &str, content: &str) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        let content = serde_json::Value::from(content);
        // Writing to a string cannot fail.
        let _ = write!(self.0, r#"{{"role":"{role}","content":{content}}}"#);
    }

    /// Questions and answers of about 900 bytes a pair, `bytes` in all.
    fn dialogue(&mut self, rng: &mut Rng, bytes: usize) {
        let end = self.0.len() + bytes;
        while self.0.len() + 400 < end {
            self.push("user", &prose(rng, 200));
            let answer = end.saturating_sub(self.0.len()).clamp(100, 600);
            self.push("assistant", &prose(rng, answer));
        }
    }
}

/// The JSON body of a chat request. What an engine or gateway may look for stands in front.
pub(super) fn chat_body(options: &RequestOptions, messages: &Messages) -> String {
    let RequestOptions { model, stream, max_tokens, .. } = options;
    let model = serde_json::Value::from(model.as_str());
    let usage = if *stream { r#","stream_options":{"include_usage":true}"# } else { "" };
    format!(
        r#"{{"model":{model},"stream":{stream}{usage},"max_tokens":{max_tokens},"temperature":0.7,"messages":[{}]}}"#,
        messages.0
    )
}

const WORDS: [&str; 64] = [
    "the",
    "of",
    "and",
    "a",
    "to",
    "in",
    "is",
    "it",
    "that",
    "for",
    "on",
    "with",
    "as",
    "are",
    "this",
    "be",
    "by",
    "from",
    "or",
    "which",
    "model",
    "request",
    "answer",
    "question",
    "table",
    "value",
    "result",
    "system",
    "please",
    "explain",
    "compare",
    "summary",
    "report",
    "customer",
    "order",
    "invoice",
    "policy",
    "document",
    "section",
    "example",
    "function",
    "return",
    "error",
    "server",
    "client",
    "network",
    "memory",
    "cache",
    "prefix",
    "token",
    "number",
    "average",
    "because",
    "however",
    "therefore",
    "between",
    "without",
    "during",
    "several",
    "important",
    "different",
    "possible",
    "general",
    "specific",
];

/// What texts are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Script {
    /// Words of letters: a character is a byte.
    #[default]
    English,
    /// Chinese characters and punctuation, three bytes each, without spaces.
    Cjk,
}

impl Script {
    /// Text of this many characters.
    pub fn text(self, rng: &mut Rng, chars: usize) -> String {
        match self {
            Self::English => prose(rng, chars),
            Self::Cjk => (1..=chars).map(|at| cjk(rng, at)).collect(),
        }
    }
}

/// A character of a text at this place: now and then a comma or the end of a sentence.
fn cjk(rng: &mut Rng, at: usize) -> char {
    match at {
        at if at % 23 == 0 => '。',
        at if at % 9 == 0 => '\u{ff0c}',
        // 2,048 characters that are all assigned.
        _ => char::from_u32(0x4e00 + rng.below(2_048) as u32).unwrap_or('一'),
    }
}

/// English-looking text of about this many bytes: sentences, now and then a line break.
pub fn prose(rng: &mut Rng, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    let mut words = 0;
    while text.len() < bytes {
        text.push_str(WORDS[rng.below(WORDS.len())]);
        words += 1;
        text.push_str(match words {
            words if words % 97 == 0 => ".\n",
            words if words % 13 == 0 => ". ",
            _ => " ",
        });
    }
    text.truncate(bytes);
    text
}

/// The bodies in a file.
pub(super) fn lines(path: &PathBuf) -> io::Result<Vec<String>> {
    let at = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot read bodies from {}: {error}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(at)?;
    let lines: Vec<_> =
        text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    if lines.is_empty() {
        return Err(at(io::Error::other("the file has no lines")));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(stream: bool) -> RequestOptions {
        RequestOptions {
            authority: "h:1".into(),
            path: "/v1/chat/completions".into(),
            model: "m".into(),
            stream,
            max_tokens: 16,
            headers: vec!["x-a: b".into()],
        }
    }

    fn body(request: &Request) -> &[u8] {
        &request.bytes[memmem::find(&request.bytes, b"\r\n\r\n").unwrap() + 4..]
    }

    #[test]
    fn sizes_are_near_their_names_and_bodies_are_json() {
        for (shape, size, count) in [
            (Shape::Short, 600, 2_000),
            (Shape::Chat20k, 20_600, 300),
            (Shape::Chat100k, 101_000, 64),
        ] {
            let bodies = shape.bodies(&options(true), 1);
            assert_eq!(bodies.len(), count);
            for body in &bodies {
                let off = body.len() as f64 / f64::from(size) - 1.0;
                assert!(off.abs() < 0.1, "{shape:?}: {} bytes", body.len());
            }
            let json: serde_json::Value = serde_json::from_str(&bodies[0]).unwrap();
            assert_eq!(json["messages"][0]["role"], "system");
            assert_eq!(json["stream"], true);
        }
    }

    #[test]
    fn each_shared_prefix_occurs_once_per_continuation() {
        let bodies = Shape::Chat100k.bodies(&options(false), 3);
        let mut counts = std::collections::HashMap::new();
        for body in &bodies {
            *counts.entry(&body[..79_000]).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 8);
        assert!(counts.values().all(|count| *count == 8));
    }

    #[test]
    fn every_request_is_new_at_its_end_and_valid() {
        let pool = RequestPool::new(&Shape::Short.bodies(&options(false), 1), &options(false), 4);
        let mut seen = std::collections::HashSet::new();
        crate::runtime::block_on(|_| async {
            for _ in 0..5_000 {
                let request = pool.take().await;
                assert!(seen.insert(request.bytes.clone()), "a request came twice");
                pool.give_back(request);
            }
            let request = pool.take().await;
            let json: serde_json::Value = serde_json::from_slice(body(&request)).unwrap();
            let last = json["messages"].as_array().unwrap().last().unwrap().clone();
            assert!(last["content"].as_str().unwrap().ends_with(" 0000005001"));
        })
        .unwrap();
    }

    #[test]
    fn lines_of_a_file_are_sent_as_they_are_but_for_the_number() {
        let path = std::env::temp_dir().join(format!("smg-lt-{}.jsonl", std::process::id()));
        std::fs::write(&path, "{\"a\":\"@@@@@@@@@@\"}\n\n{\"b\":1}\n").unwrap();
        let pool = RequestPool::new(&lines(&path).unwrap(), &options(false), 1);
        std::fs::remove_file(&path).unwrap();
        crate::runtime::block_on(|_| async {
            let (first, second) = (pool.take().await, pool.take().await);
            assert_eq!(body(&first), br#"{"a":"0000000001"}"#);
            assert_eq!(body(&second), br#"{"b":1}"#);
        })
        .unwrap();
        let error = lines(&"/no/such/file".into()).unwrap_err();
        assert!(error.to_string().contains("/no/such/file"));
    }
}
