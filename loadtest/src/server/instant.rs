//! Answers prepared in advance: the cheapest possible engine, for measuring what stands in front
//! of it. Nothing is simulated, and nothing of the request is read but its framing and whether it
//! asks for a stream.

use std::time::Duration;

use bytes::Bytes;
use memchr::memmem;

/// What an instant engine answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstantOptions {
    /// Size of the JSON body of a non-stream answer, in bytes (at least what the JSON needs).
    pub answer_bytes: usize,
    /// Events of a stream, `[DONE]` not counted.
    pub events: u32,
    /// Size of one event with its blank line, in bytes (at least what the JSON needs).
    pub event_bytes: usize,
    /// Time between the events of a stream; the first one is sent at once.
    pub interval: Duration,
}

impl Default for InstantOptions {
    fn default() -> Self {
        Self {
            answer_bytes: 600,
            events: 200,
            event_bytes: 250,
            interval: Duration::from_millis(5),
        }
    }
}

/// The prepared bytes.
#[derive(Debug)]
pub(super) struct Instant {
    pub options: InstantOptions,
    /// Head and body of a non-stream answer.
    pub whole: Bytes,
    pub stream_head: Bytes,
    /// One event as an HTTP chunk, and where its timestamp goes.
    event: Vec<u8>,
    timestamp_at: usize,
    /// `[DONE]` and the end of the chunked body.
    pub stream_end: Bytes,
}

/// A stream is asked for within this much of either end of the body or not at all. (Some gateways
/// write the body anew with its fields in another order.)
pub(super) const LOOK_BYTES: u64 = 512;

/// Digits of the largest timestamp; shorter ones are padded with spaces in front, so that the
/// event stays JSON of constant size.
const TIMESTAMP_DIGITS: usize = 19;

impl Instant {
    pub fn new(options: InstantOptions, model: &str) -> Self {
        let model = serde_json::Value::from(model).to_string();
        let answer = |content: &str| {
            let completion_tokens = content.len().div_ceil(4);
            format!(
                r#"{{"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1700000000,"model":{model},"choices":[{{"index":0,"message":{{"role":"assistant","content":"{content}","refusal":null}},"logprobs":null,"finish_reason":"stop"}}],"usage":{{"prompt_tokens":100,"total_tokens":{},"completion_tokens":{completion_tokens},"prompt_tokens_details":{{"cached_tokens":0}}}}}}"#,
                100 + completion_tokens
            )
        };
        let body = padded(answer, options.answer_bytes);
        let whole = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let event = padded(
            |content| {
                format!(
                    "data: {{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":{model},\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}},\"finish_reason\":null}}],\"sent_ns\":{:>TIMESTAMP_DIGITS$}}}\n\n",
                    0
                )
            },
            options.event_bytes,
        );
        let event = format!("{:x}\r\n{event}\r\n", event.len()).into_bytes();
        let timestamp_at = memmem::find(&event, b"\"sent_ns\":").map_or(0, |at| at + 10);
        Self {
            options,
            whole: whole.into(),
            stream_head: Bytes::from_static(super::connection::STREAM_HEAD),
            event,
            timestamp_at,
            stream_end: Bytes::from_static(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"),
        }
    }

    /// Whether this part of a body asks for a stream.
    pub fn asks_for_stream(part: &[u8]) -> bool {
        let Some(at) = memmem::find(part, b"\"stream\":") else { return false };
        part[at + 9..].trim_ascii_start().starts_with(b"true")
    }

    /// Appends one event stamped with this time.
    pub fn push_event(&self, out: &mut Vec<u8>, sent_ns: u64) {
        let start = out.len() + self.timestamp_at;
        out.extend_from_slice(&self.event);
        let mut rest = sent_ns;
        for digit in out[start..start + TIMESTAMP_DIGITS].iter_mut().rev() {
            *digit = if rest == 0 { b' ' } else { b'0' + (rest % 10) as u8 };
            rest /= 10;
        }
    }
}

/// Renders with as much content as makes the result `bytes` long.
fn padded(render: impl Fn(&str) -> String, bytes: usize) -> String {
    const WORDS: &str = "the cached prefix spares the engine its prefill ";
    let content = |len: usize| WORDS.chars().cycle().take(len).collect::<String>();
    let mut len = bytes.saturating_sub(render("").len());
    let mut text = render(&content(len));
    // Counts inside the text may have grown by a digit or two.
    while text.len() > bytes && len > 0 {
        len -= 1;
        text = render(&content(len));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_asked_and_the_contents_are_json() {
        let options =
            InstantOptions { answer_bytes: 600, event_bytes: 250, ..InstantOptions::default() };
        let instant = Instant::new(options, "sim");
        let body_at = memmem::find(&instant.whole, b"\r\n\r\n").unwrap() + 4;
        let body = &instant.whole[body_at..];
        assert_eq!(body.len(), 600);
        let _: serde_json::Value = serde_json::from_slice(body).unwrap();

        let mut out = Vec::new();
        instant.push_event(&mut out, 1_234_567);
        assert!(out.starts_with(b"fa\r\ndata: {"));
        let event = &out[4..out.len() - 2];
        assert_eq!(event.len(), 250);
        let json: serde_json::Value = serde_json::from_slice(&event[6..]).unwrap();
        assert_eq!(json["sent_ns"], 1_234_567);
    }

    #[test]
    fn a_stream_is_recognised_by_its_field() {
        assert!(Instant::asks_for_stream(br#"{"model":"m","stream": true,"#));
        assert!(Instant::asks_for_stream(br#"{"stream":true}"#));
        assert!(!Instant::asks_for_stream(br#"{"stream":false}"#));
        assert!(!Instant::asks_for_stream(br#"{"model":"m"}"#));
    }
}
