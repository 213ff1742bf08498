//! Streams of events as they are metered and cut: token counts against parsed JSON, and the ends of
//! events against a reader of the whole stream.

use serde_json::Value;
use smg_core::http1::{BodyLength, CHUNK_HEADROOM, ClientFraming};
use smg_core::usage::{TAIL_BYTES, Tail, Usage};
use smg_io::http::body::Body;

use crate::cuts;

/// `data` is a stream of events, whole or not.
pub fn run(data: &[u8]) {
    let whole = Usage::last_in(data);
    if let Some(expected) = counts(data) {
        assert_eq!(whole, expected);
    }
    for pieces in cuts::of(data) {
        assert_counts_survive(&pieces, data, whole);
        assert_error_event_stands_alone(&pieces, data);
    }
}

/// The counts of JSON objects, one in each event; `None` if it is anything else.
fn counts(data: &[u8]) -> Option<Usage> {
    // Names are looked for as they are usually spelt.
    if data.windows(2).any(|two| two == b"\\u") {
        return None;
    }
    let mut usage = Usage::default();
    if let Ok(object) = serde_json::from_slice::<Value>(data) {
        return collect(&object, &mut usage).then_some(usage);
    }
    let events = events(data);
    for event in &events {
        if event.data != "[DONE]" {
            let object = serde_json::from_str(&event.data).ok()?;
            if event.lines != 1 || !collect(&object, &mut usage) {
                return None;
            }
        }
    }
    // Only what events consist of: no comments, no other fields, no event without its end.
    let written: usize = events.iter().map(|event| "data: ".len() + event.data.len() + 2).sum();
    (written == data.len()).then_some(usage)
}

/// Notes the counts of a value in their order; false if names or numbers are no engine's.
fn collect(value: &Value, usage: &mut Usage) -> bool {
    match value {
        Value::Array(elements) => elements.iter().all(|element| collect(element, usage)),
        // The map has its own order: only one count of a kind can be told.
        Value::Object(members) => members.iter().all(|(name, value)| {
            let count = match name.as_str() {
                "prompt_tokens" | "input_tokens" => &mut usage.input,
                "completion_tokens" | "output_tokens" => &mut usage.output,
                // Could be spelt with an escape, or end in a quote and one of the names.
                name if name.contains("_tokens") && name.contains('"') => return false,
                _ => return collect(value, usage),
            };
            match value.as_u64() {
                Some(number) if count.is_none_or(|known| known == number) => *count = Some(number),
                Some(_) => return false,
                None => return collect(value, usage),
            }
            true
        }),
        _ => true,
    }
}

/// In pieces the end is seen as it is: what the last [`TAIL_BYTES`] say, or somewhat more.
fn assert_counts_survive(pieces: &[&[u8]], data: &[u8], whole: Usage) {
    let mut tail = Tail::default();
    for piece in pieces {
        tail.push(piece);
    }
    assert_eq!(tail.is_empty(), data.is_empty());
    let found = tail.usage();
    if data.len() <= TAIL_BYTES {
        assert_eq!(found, whole);
        return;
    }
    let last = Usage::last_in(&data[data.len() - TAIL_BYTES..]);
    assert!(last.input.is_none() || found.input == last.input);
    assert!(last.output.is_none() || found.output == last.output);
    assert!(found.input.is_none() || whole.input.is_some());
    assert!(found.output.is_none() || whole.output.is_some());
}

/// When a worker dies after `pieces`, the client gets everything, and then the error as one event.
fn assert_error_event_stands_alone(pieces: &[&[u8]], data: &[u8]) {
    const ERROR: &[u8] = b"event: error\ndata: {}\n\n";
    // More is announced than comes.
    let length = BodyLength::Fixed(data.len() as u64 + 1);
    let mut body = Body::new(length, ClientFraming::AsContentLength(data.len() as u64 + 1));
    let mut relayed = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        if at == 0 {
            assert!(body.first(piece, &mut relayed).is_ok());
        } else {
            let mut buf = [&[0; CHUNK_HEADROOM], *piece].concat();
            let start = body.next(&mut buf).expect("any bytes will do");
            relayed.extend_from_slice(&buf[start..]);
        }
    }
    assert!(relayed == data && !body.done);
    assert!(body.end_of_stream(&mut Vec::new()).is_err());

    let mut expected = events(&[data, b"\n\n"].concat());
    expected.push(Event { name: "error".into(), data: "{}".into(), lines: 1 });
    if !body.at_event_end {
        relayed.extend_from_slice(b"\n\n");
    }
    relayed.extend_from_slice(ERROR);
    assert_eq!(events(&relayed), expected);
}

#[derive(Debug, PartialEq, Eq)]
struct Event {
    name: String,
    data: String,
    /// Lines that the data was spread over.
    lines: usize,
}

/// The reference: a stream as the HTML standard has it (§9.2.6), comments and ids passed over. An
/// event without its empty line is none.
fn events(stream: &[u8]) -> Vec<Event> {
    let text = String::from_utf8_lossy(stream);
    let text =
        text.strip_prefix('\u{feff}').unwrap_or(&text).replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    let (mut name, mut data) = ("", Vec::new());
    let mut lines: Vec<&str> = text.split('\n').collect();
    // What no line end follows.
    lines.pop();
    for line in lines {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match (line, field) {
            ("", _) => {
                if !data.is_empty() {
                    let lines = data.len();
                    events.push(Event { name: name.to_owned(), data: data.join("\n"), lines });
                }
                (name, data) = ("", Vec::new());
            }
            (_, "event") => name = value,
            (_, "data") => data.push(value),
            _ => {}
        }
    }
    events
}
