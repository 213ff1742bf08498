//! Proof that bodies and streams arrive as they were sent. A client asks for it with the header
//! [`HEADER`]. An engine answers with the hash of the request's body that reached it and of the answer
//! that it sends: both in the same header, or, of a stream, the latter in a comment right before the
//! last event. What stands in between has to pass unknown headers and comments, as it should anyway.

use smg_core::http1::Header;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// `1` in a request; in an answer the hash of the request's body, and of a whole answer `-` and its own.
pub const HEADER: &str = "x-smg-loadtest-proof";

/// The event that ends a stream.
const DONE: &[u8] = b"data: [DONE]\n\n";
const COMMENT: &[u8] = b": proof ";
const DIGITS: usize = 16;
/// What stands behind the hashed part of a stream: the comment and the last event.
const STREAM_TAIL: usize = COMMENT.len() + DIGITS + 2 + DONE.len();

/// Hash of a body that is there at once.
pub fn hash(body: &[u8]) -> u64 {
    xxh3_64(body)
}

/// The value of the proof among these headers of the head in `buf`.
pub fn header<'a>(headers: &[Header], buf: &'a [u8]) -> Option<&'a [u8]> {
    let is_proof = |header: &&Header| header.name.of(buf).eq_ignore_ascii_case(HEADER.as_bytes());
    headers.iter().find(is_proof).map(|header| header.value.of(buf))
}

/// The header's value in an answer.
pub fn value(request: u64, answer: Option<u64>) -> String {
    match answer {
        Some(answer) => format!("{request:016x}-{answer:016x}"),
        None => format!("{request:016x}"),
    }
}

/// The comment before a stream's last event.
pub fn comment(stream: &Xxh3) -> String {
    format!(": proof {:016x}\n\n", stream.digest())
}

/// What came of checking an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Request and answer arrived as they were sent.
    Intact,
    /// One of them did not.
    Altered,
    /// The answer has no proof.
    Missing,
}

/// Checks one answer as it arrives.
pub struct Check {
    /// Of the request's body as it was sent.
    request: u64,
    claimed: Option<(u64, Option<u64>)>,
    hasher: Xxh3,
    /// The end of what has arrived, not hashed yet: it may be the end of a stream.
    tail: Vec<u8>,
}

impl Check {
    /// Of the answer to a request with this body.
    pub fn new(body: &[u8]) -> Self {
        Self { request: hash(body), claimed: None, hasher: Xxh3::new(), tail: Vec::new() }
    }

    /// The head has arrived.
    pub fn on_head(&mut self, headers: &[Header], buf: &[u8]) {
        self.claimed = header(headers, buf).and_then(|value| {
            let (request, answer) = value.split_at_checked(DIGITS)?;
            let answer = answer.strip_prefix(b"-").map(number);
            Some((number(request)?, answer.flatten()))
        });
    }

    /// Body bytes have arrived.
    pub fn on_data(&mut self, data: &[u8]) {
        self.tail.extend_from_slice(data);
        let settled = self.tail.len().saturating_sub(STREAM_TAIL);
        self.hasher.update(&self.tail[..settled]);
        self.tail.drain(..settled);
    }

    /// The answer is complete.
    pub fn verdict(&self) -> Verdict {
        let Some((request, answer)) = self.claimed else { return Verdict::Missing };
        let is_same = match answer {
            Some(answer) => {
                let mut whole = self.hasher.clone();
                whole.update(&self.tail);
                whole.digest() == answer
            }
            None => self.tail == [comment(&self.hasher).as_bytes(), DONE].concat(),
        };
        if request == self.request && is_same { Verdict::Intact } else { Verdict::Altered }
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use smg_core::http1::parse_response;

    use super::*;

    fn checked(request: &[u8], claim: Option<&str>, pieces: &[&[u8]]) -> Verdict {
        let claim = claim.map(|claim| format!("{HEADER}: {claim}\r\n")).unwrap_or_default();
        let head = format!("HTTP/1.1 200 OK\r\n{claim}\r\n");
        let mut headers = Vec::new();
        parse_response(head.as_bytes(), false, &mut headers).unwrap().unwrap();
        let mut check = Check::new(request);
        check.on_head(&headers, head.as_bytes());
        pieces.iter().for_each(|piece| check.on_data(piece));
        check.verdict()
    }

    #[test]
    fn a_whole_answer_is_proved_by_its_header() {
        let claim = value(hash(b"question"), Some(hash(b"an answer")));
        let verdict = |request: &[u8], pieces: &[&[u8]]| checked(request, Some(&claim), pieces);
        assert_eq!(verdict(b"question", &[b"an ", b"", b"answer"]), Verdict::Intact);
        assert_eq!(verdict(b"question", &[b"an  answer"]), Verdict::Altered);
        assert_eq!(verdict(b"Question", &[b"an answer"]), Verdict::Altered);
        assert_eq!(checked(b"question", None, &[b"an answer"]), Verdict::Missing);
        assert_eq!(checked(b"question", Some("1"), &[b"an answer"]), Verdict::Missing);
        // A value of another length may be cut anywhere, also within a character.
        assert_eq!(checked(b"question", Some("000000000000000\u{e9}"), &[]), Verdict::Missing);
    }

    #[test]
    fn a_stream_is_proved_by_its_comment_wherever_it_is_cut() {
        let events = b"data: {\"a\":1}\n\ndata: {\"b\":2}\n\n";
        let mut hasher = Xxh3::new();
        hasher.update(events);
        let stream = [events, comment(&hasher).as_bytes(), DONE].concat();
        let claim = value(hash(b"q"), None);
        for cut in 0..=stream.len() {
            let (first, second) = stream.split_at(cut);
            assert_eq!(checked(b"q", Some(&claim), &[first, second]), Verdict::Intact, "{cut}");
        }
        for at in 0..stream.len() {
            let mut altered = stream.clone();
            altered[at] ^= 1;
            assert_eq!(checked(b"q", Some(&claim), &[&altered]), Verdict::Altered, "{at}");
        }
        let cut_short = &stream[..stream.len() - 1];
        assert_eq!(checked(b"q", Some(&claim), &[cut_short]), Verdict::Altered);
        assert_eq!(checked(b"q", Some(&claim), &[DONE]), Verdict::Altered);
    }
}
