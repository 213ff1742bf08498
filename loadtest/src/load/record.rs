//! What is counted and timed during a run.

use hdrhistogram::Histogram;
use memchr::memmem;
use serde::Serialize;
use smg_core::http1::{Header, ResponseHead};

use super::client::Sink;
use crate::engine::Nanos;
use crate::proof::Check;

/// How a request can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// No connection.
    Connect,
    /// Closed or reset before the first byte of the answer.
    Closed,
    /// Closed or reset within the answer.
    Truncated,
    /// No whole answer in time.
    Timeout,
    /// Not HTTP.
    Malformed,
    /// Status 429.
    TooManyRequests,
    /// Another 4xx.
    Client,
    /// Status 503.
    Unavailable,
    /// Another 5xx, or a status no inference request should get.
    Server,
    /// A stream that carries an error event or ends without `[DONE]`, or no stream where one was
    /// asked for.
    Stream,
    /// The request or the answer was altered on its way.
    Altered,
}

impl ErrorClass {
    pub const ALL: [Self; 11] = [
        Self::Connect,
        Self::Closed,
        Self::Truncated,
        Self::Timeout,
        Self::Malformed,
        Self::TooManyRequests,
        Self::Client,
        Self::Unavailable,
        Self::Server,
        Self::Stream,
        Self::Altered,
    ];

    /// What the failure is called in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Closed => "closed",
            Self::Truncated => "truncated",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed",
            Self::TooManyRequests => "status_429",
            Self::Client => "status_4xx",
            Self::Unavailable => "status_503",
            Self::Server => "status_5xx",
            Self::Stream => "stream",
            Self::Altered => "altered",
        }
    }

    /// The class of a status; `None` for 200.
    pub fn of_status(status: u16) -> Option<Self> {
        match status {
            200 => None,
            429 => Some(Self::TooManyRequests),
            400..=499 => Some(Self::Client),
            503 => Some(Self::Unavailable),
            _ => Some(Self::Server),
        }
    }
}

/// A histogram of times from 1 ns to an hour, three significant digits.
pub fn histogram() -> Histogram<u64> {
    // The bounds and the precision are within what the type allows.
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3)
        .unwrap_or_else(|_| unreachable!("constant bounds are valid"))
}

/// Totals and distributions of one run. Only what belongs to the measured window is recorded.
pub struct Recorder {
    window: (Nanos, Nanos),
    /// Requests with their intended start in the window, from that start to the last byte.
    pub latency: Histogram<u64>,
    /// The same, to the first byte of the body.
    pub first_byte: Histogram<u64>,
    /// From the intended start of a request to when its last byte was written.
    pub sent_late: Histogram<u64>,
    /// From an engine's timestamp in an event to its arrival.
    pub event_delay: Histogram<u64>,
    /// Between reads that brought events of one stream.
    pub event_gap: Histogram<u64>,
    pub errors: [u64; ErrorClass::ALL.len()],
    /// Successful requests with their intended start in the window.
    pub succeeded: u64,
    /// Successful requests whose last byte arrived in the window, and events that did.
    pub completed_in_window: u64,
    pub events_in_window: u64,
    pub wire_bytes: u64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    /// Connections opened, and requests sent again because a reused connection was dead.
    pub connects: u64,
    pub resent: u64,
    /// Successful requests with a proof that nothing was altered, and without one though it was asked
    /// for.
    pub proved: u64,
    pub unproved: u64,
    pub altered: u64,
}

impl Recorder {
    /// Records what falls between these times.
    pub fn new(window: (Nanos, Nanos)) -> Self {
        Self {
            window,
            latency: histogram(),
            first_byte: histogram(),
            sent_late: histogram(),
            event_delay: histogram(),
            event_gap: histogram(),
            errors: [0; ErrorClass::ALL.len()],
            succeeded: 0,
            completed_in_window: 0,
            events_in_window: 0,
            wire_bytes: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
            connects: 0,
            resent: 0,
            proved: 0,
            unproved: 0,
            altered: 0,
        }
    }

    pub fn window(&self) -> (Nanos, Nanos) {
        self.window
    }

    /// Ends the window earlier than planned.
    pub fn close_window(&mut self, at: Nanos) {
        self.window.1 = self.window.1.min(at);
    }

    pub fn in_window(&self, at: Nanos) -> bool {
        (self.window.0..self.window.1).contains(&at)
    }

    /// Takes down when a request due at `intended` was written.
    pub fn sent(&mut self, intended: Nanos, at: Nanos) {
        if self.in_window(intended) {
            self.sent_late.saturating_record(at.saturating_sub(intended));
        }
    }

    /// Counts a request that succeeded, due at `intended`, whose last byte came at `done`.
    pub fn success(&mut self, intended: Nanos, done: Nanos, answer: &AnswerMeter) {
        if self.in_window(done) {
            self.completed_in_window += 1;
            self.wire_bytes += answer.wire_bytes;
            self.prompt_tokens += answer.prompt_tokens;
            self.cached_tokens += answer.cached_tokens;
        }
        if self.in_window(intended) {
            self.succeeded += 1;
            self.latency.saturating_record(done.saturating_sub(intended));
            let first = answer.first_data_at.unwrap_or(done);
            self.first_byte.saturating_record(first.saturating_sub(intended));
        }
    }

    /// Counts a failure of a request due at `intended`.
    pub fn failure(&mut self, intended: Nanos, class: ErrorClass) {
        if self.in_window(intended) {
            self.errors[class as usize] += 1;
        }
    }

    pub fn failed(&self) -> u64 {
        self.errors.iter().sum()
    }
}

/// Measures one answer as it arrives.
pub struct AnswerMeter<'a> {
    recorder: &'a std::cell::RefCell<Recorder>,
    /// When the request was written, if it was.
    pub sent_at: Option<Nanos>,
    first_data_at: Option<Nanos>,
    last_data_at: Nanos,
    event_stream: bool,
    saw_error_event: bool,
    /// How the line under way begins.
    line: Vec<u8>,
    /// From the last object with counts of tokens on.
    usage: Vec<u8>,
    /// The last bytes of a stream, to see across reads.
    tail: [u8; TAIL_BYTES],
    pub wire_bytes: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    /// The body so far, if it is wanted.
    pub transcript: Option<Vec<u8>>,
    /// Of a request that asked for proof.
    pub check: Option<Check>,
}

const TAIL_BYTES: usize = 16;

impl<'a> AnswerMeter<'a> {
    /// A meter for an answer to come. Its body is kept if `keep_transcript`.
    pub fn new(recorder: &'a std::cell::RefCell<Recorder>, keep_transcript: bool) -> Self {
        Self {
            recorder,
            sent_at: None,
            first_data_at: None,
            last_data_at: 0,
            event_stream: false,
            saw_error_event: false,
            line: Vec::new(),
            usage: Vec::new(),
            tail: [0; TAIL_BYTES],
            wire_bytes: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
            transcript: keep_transcript.then(Vec::new),
            check: None,
        }
    }

    /// Whether a stream ended as it should, if the answer is one.
    pub fn is_complete(&self, expects_stream: bool) -> bool {
        match self.event_stream {
            true => !self.saw_error_event && memmem::find(&self.tail, b"[DONE]").is_some(),
            false => !expects_stream,
        }
    }

    fn on_events(&mut self, data: &[u8], at: Nanos) {
        let mut recorder = self.recorder.borrow_mut();
        let counts = recorder.in_window(at);
        let mut delays = TimestampsIn(data);
        while let Some(sent) = delays.next() {
            if counts {
                recorder.event_delay.saturating_record(at.saturating_sub(sent));
            }
        }
        if counts {
            // A proof is a comment, not an event; cut by a read it counts as one.
            let proof = self.check.is_some() && memmem::find(data, b"\n: proof ").is_some();
            let blocks = blank_lines(self.tail[TAIL_BYTES - 1], data);
            recorder.events_in_window += blocks.saturating_sub(proof.into());
            if self.last_data_at != 0 {
                recorder.event_gap.saturating_record(at - self.last_data_at);
            }
        }
        self.last_data_at = at;
        self.look_for_errors(data);
        let keep = data.len().min(TAIL_BYTES);
        self.tail.copy_within(keep.., 0);
        self.tail[TAIL_BYTES - keep..].copy_from_slice(&data[data.len() - keep..]);
    }
}

impl AnswerMeter<'_> {
    /// Looks at how each line begins: text cannot begin one.
    fn look_for_errors(&mut self, data: &[u8]) {
        let mut rest = data;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let missing = LINE_START.saturating_sub(self.line.len()).min(end);
            self.line.extend_from_slice(&rest[..missing]);
            if end < rest.len() {
                self.saw_error_event |= says_error(&self.line);
                self.line.clear();
            }
            rest = &rest[(end + 1).min(rest.len())..];
        }
    }

    /// Reads the counts of tokens, which a read may cut.
    fn look_for_usage(&mut self, data: &[u8]) {
        // OpenAI's and SGLang's names for the object with the counts.
        let named = memmem::find(data, b"\"usage\":");
        let (from, begins) = match named.or_else(|| memmem::find(data, b"\"meta_info\":")) {
            Some(at) => (at, true),
            None if self.usage.is_empty() => return,
            None => (0, false),
        };
        if begins {
            self.usage.clear();
        }
        let room = USAGE_BYTES.saturating_sub(self.usage.len());
        let piece = &data[from..];
        self.usage.extend_from_slice(&piece[..piece.len().min(room)]);
        let number = |key| number_after(&self.usage, key);
        self.prompt_tokens = number(b"\"prompt_tokens\":").unwrap_or(self.prompt_tokens);
        self.cached_tokens = number(b"\"cached_tokens\":").unwrap_or(self.cached_tokens);
    }
}

/// So much of a line tells an error.
const LINE_START: usize = 24;
/// An object with counts of tokens is no longer than this.
const USAGE_BYTES: usize = 1024;

/// Whether a line of a stream begins an error: an event of that name, or vLLM's data with an `error`.
fn says_error(line: &[u8]) -> bool {
    let field = |name: &[u8]| line.strip_prefix(name).map(<[u8]>::trim_ascii_start);
    if let Some(event) = field(b"event:") {
        return event.starts_with(b"error");
    }
    let object = field(b"data:").and_then(|data| data.strip_prefix(b"{\"error\":"));
    object.is_some_and(|value| matches!(value.trim_ascii_start().first(), Some(b'{' | b'"')))
}

impl Sink for AnswerMeter<'_> {
    fn on_head(&mut self, head: &ResponseHead, headers: &[Header], buf: &[u8]) {
        self.event_stream = head.event_stream;
        if let Some(check) = &mut self.check {
            check.on_head(headers, buf);
        }
    }

    fn on_data(&mut self, data: &[u8], at: Nanos) {
        if data.is_empty() {
            return;
        }
        self.first_data_at.get_or_insert(at);
        if self.event_stream {
            self.on_events(data, at);
        }
        if let Some(transcript) = &mut self.transcript {
            transcript.extend_from_slice(data);
        }
        if let Some(check) = &mut self.check {
            check.on_data(data);
        }
        self.look_for_usage(data);
    }
}

/// Iterates over the `sent_ns` fields of a piece of a stream. One cut by the piece's end is lost.
struct TimestampsIn<'a>(&'a [u8]);

impl TimestampsIn<'_> {
    fn next(&mut self) -> Option<Nanos> {
        let at = memmem::find(self.0, SENT_NS)?;
        self.0 = &self.0[at + SENT_NS.len()..];
        leading_number(self.0)
    }
}

const SENT_NS: &[u8] = b"\"sent_ns\":";

fn number_after(data: &[u8], key: &[u8]) -> Option<u64> {
    let at = memmem::find(data, key)?;
    leading_number(&data[at + key.len()..])
}

/// The number at the start of `data` behind spaces, provided that its end is there too.
fn leading_number(data: &[u8]) -> Option<u64> {
    let digits = data.trim_ascii_start();
    let len = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    if len == 0 {
        return None;
    }
    digits[..len]
        .iter()
        .try_fold(0u64, |n, digit| n.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

/// Blank lines, each the end of an event, given the byte before `data`.
fn blank_lines(before: u8, data: &[u8]) -> u64 {
    let across = u64::from(before == b'\n' && data.first() == Some(&b'\n'));
    across + memmem::find_iter(data, b"\n\n").count() as u64
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn streamed<'a>(recorder: &'a RefCell<Recorder>, pieces: &[&str]) -> AnswerMeter<'a> {
        let mut meter = AnswerMeter::new(recorder, false);
        meter.event_stream = true;
        for (index, piece) in pieces.iter().enumerate() {
            meter.on_data(piece.as_bytes(), 1_000 + index as u64 * 100);
        }
        meter
    }

    #[test]
    fn events_are_counted_across_reads_and_their_delays_taken() {
        let recorder = RefCell::new(Recorder::new((0, 10_000)));
        let meter = streamed(
            &recorder,
            &[
                "data: {\"sent_ns\":    400,\"x\":1}\n\ndata: {\"sent_ns\":500}\n",
                "\ndata: [DO",
                "NE]\n\n",
            ],
        );
        assert!(meter.is_complete(true));
        assert_eq!(meter.first_data_at, Some(1_000));
        let recorder = recorder.borrow();
        assert_eq!(recorder.events_in_window, 3);
        assert_eq!(recorder.event_delay.len(), 2);
        assert_eq!((recorder.event_delay.min(), recorder.event_delay.max()), (500, 600));
        assert_eq!(recorder.event_gap.len(), 2);
    }

    #[test]
    fn a_stream_that_breaks_off_or_reports_an_error_is_incomplete() {
        let recorder = RefCell::new(Recorder::new((0, 10_000)));
        assert!(!streamed(&recorder, &["data: {}\n\n"]).is_complete(true));
        let error = ["event: error\ndata: {}\n\n", "data: [DONE]\n\n"];
        assert!(!streamed(&recorder, &error).is_complete(true));
        // vLLM's, in two reads; and texts that only mention one.
        let pieces =
            ["data: {\"id\":1}\n\nda", "ta: {\"error\": {\"code\":500}}\n\ndata: [DONE]\n\n"];
        assert!(!streamed(&recorder, &pieces).is_complete(true));
        for text in ["event: error", "data: {\\\"error\\\": {}"] {
            let said = format!("data: {{\"error\":null,\"content\":\"{text}\"}}\n\n");
            let cut = format!("{text}\"}}\n\n");
            let pieces = [said.as_str(), "data: {\"content\":\"", &cut, "data: [DONE]\n\n"];
            assert!(streamed(&recorder, &pieces).is_complete(true), "{said}");
        }
        let whole = AnswerMeter::new(&recorder, false);
        assert!(whole.is_complete(false) && !whole.is_complete(true));
    }

    #[test]
    fn usage_is_read_from_whole_answers_and_streams() {
        let recorder = RefCell::new(Recorder::new((0, 10_000)));
        let mut meter = AnswerMeter::new(&recorder, false);
        meter.on_data(
            br#"{"usage":{"prompt_tokens":25,"prompt_tokens_details":{"cached_tokens":16}}}"#,
            1_000,
        );
        assert_eq!((meter.prompt_tokens, meter.cached_tokens), (25, 16));
        recorder.borrow_mut().success(900, 1_000, &meter);
        assert_eq!(recorder.borrow().cached_tokens, 16);
    }

    #[test]
    fn usage_that_a_read_cuts_is_read() {
        let recorder = RefCell::new(Recorder::new((0, 10_000)));
        let usage = "{\"usage\": {\"prompt_tokens\": 100, \"prompt_tokens_details\": {\"cached_tokens\": 50}}}\n\n";
        for cut in 9..usage.len() {
            let (first, second) = usage.split_at(cut);
            let meter = streamed(&recorder, &["data: {\"usage\":null}\n\ndata: ", first, second]);
            assert_eq!((meter.prompt_tokens, meter.cached_tokens), (100, 50), "cut at {cut}");
        }
    }

    #[test]
    fn only_the_window_counts() {
        let recorder = RefCell::new(Recorder::new((1_000, 2_000)));
        let meter = AnswerMeter::new(&recorder, false);
        let mut recorder = recorder.borrow_mut();
        recorder.success(900, 1_500, &meter); // due in the warm-up, done in the window
        recorder.success(1_500, 2_500, &meter); // due in the window, done after it
        recorder.success(2_100, 2_500, &meter); // after the window
        recorder.failure(999, ErrorClass::Closed);
        recorder.failure(1_999, ErrorClass::Closed);
        assert_eq!(recorder.completed_in_window, 1);
        assert_eq!(recorder.succeeded, 1);
        assert_eq!(recorder.latency.len(), 1);
        assert_eq!(recorder.latency.max(), 1_000);
        assert_eq!(recorder.failed(), 1);
    }

    #[test]
    fn statuses_have_classes() {
        assert_eq!(ErrorClass::of_status(200), None);
        assert_eq!(ErrorClass::of_status(404), Some(ErrorClass::Client));
        assert_eq!(ErrorClass::of_status(429), Some(ErrorClass::TooManyRequests));
        assert_eq!(ErrorClass::of_status(502), Some(ErrorClass::Server));
        for (index, class) in ErrorClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, index);
        }
    }
}
