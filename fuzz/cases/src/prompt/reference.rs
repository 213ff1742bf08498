//! Bodies as `serde_json` reads them, and what routes in the values.

use serde_json::{Value, json};
use smg_core::prompt::{
    Endpoint, MAX_DEPTH, MAX_NAME_BYTES, MAX_TEXT_BYTES, MAX_TOKENS, namespace,
};

use super::Routed;

/// What a body is.
#[derive(Debug)]
pub enum Document {
    NotJson,
    /// JSON so far as one can tell, with too many open brackets.
    TooDeep,
    NoObject,
    Object(Value),
    /// An object that is deeper than `serde_json` builds values for.
    Unread,
}

impl Document {
    pub fn read(body: &[u8]) -> Self {
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        if std::str::from_utf8(body).is_err() {
            return Self::NotJson;
        }
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
        if !is_json {
            return Self::NotJson;
        }
        if depth(body) > MAX_DEPTH {
            return Self::TooDeep;
        }
        if !body.trim_ascii_start().starts_with(b"{") {
            return Self::NoObject;
        }
        match serde_json::from_str(&representable(body)) {
            Ok(value) => Self::Object(value),
            Err(_) if depth(body) >= SERDE_DEPTH => Self::Unread,
            Err(error) => panic!("serde_json: {error} in {}", body.escape_ascii()),
        }
    }
}

/// Levels of nesting from which `serde_json` refuses.
const SERDE_DEPTH: usize = 128;

/// The most brackets that are open at a time.
pub fn depth(json: &[u8]) -> usize {
    let (mut open, mut most, mut in_string, mut escaped) = (0usize, 0, false, false);
    for &byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => open += 1,
            b']' | b'}' if !in_string => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

/// The same JSON with what RFC 8259 allows and `serde_json` has no value for as what it routes as:
/// lone surrogates as U+FFFD, numbers beyond `f64` as one that is no token, and `-0` as the integer
/// that Python reads.
fn representable(json: &[u8]) -> String {
    let mut rest = std::str::from_utf8(json).expect("checked");
    let mut out = String::new();
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '"' => string(rest, &mut out),
            '-' | '0'..='9' => number(rest, &mut out),
            _ => {
                out.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    out
}

fn number(json: &str, out: &mut String) -> usize {
    let is_part = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    let end = json.find(|c| !is_part(c)).unwrap_or(json.len());
    match &json[..end] {
        "-0" => out.push('0'),
        text if text.parse::<f64>().is_ok_and(f64::is_finite) => out.push_str(text),
        _ => out.push_str("0.5"),
    }
    end
}

fn string(json: &str, out: &mut String) -> usize {
    let unit = |at: usize| {
        let escape = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u32::from_str_radix(escape, 16).ok()
    };
    out.push('"');
    let mut at = 1;
    loop {
        let rest = &json[at..];
        let length = match (rest.as_bytes()[0], unit(at), unit(at + 6)) {
            (b'"', ..) => {
                out.push('"');
                return at + 1;
            }
            (_, Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 12,
            (_, Some(0xd800..0xe000), _) => {
                out.push_str("\\ufffd");
                at += 6;
                continue;
            }
            (b'\\', ..) => 2,
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
        out.push_str(&rest[..length]);
        at += length;
    }
}

/// What an object routes on, by the table of the contract.
pub fn routed(endpoint: Endpoint, body: &Value) -> Routed {
    let set = |key: &str| body[key].as_str().filter(|text| !text.is_empty());
    let lora = match endpoint {
        Endpoint::Generate => set("lora_path").or(set("lora_id")),
        _ => set("lora_path"),
    };
    let has_namespace = matches!(
        endpoint,
        Endpoint::Chat | Endpoint::Completions | Endpoint::Messages | Endpoint::Generate
    );
    let tokens =
        if endpoint == Endpoint::Generate { tokens(&body["input_ids"]) } else { Vec::new() };
    let model = set("model").map(name);
    Routed {
        model_is_unusable: model.is_none() && !body["model"].is_null(),
        model,
        stream: body["stream"] == json!(true),
        text: match tokens[..] {
            [] => {
                let mut text = text(endpoint, body);
                text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
                text
            }
            _ => String::new(),
        },
        tokens,
        namespace: if has_namespace {
            namespace(set("cache_salt"), set("extra_key"), lora)
        } else {
            None
        },
        rid: body["rid"].as_str().map(name),
    }
}

/// As much of a name as counts.
fn name(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_NAME_BYTES)].to_owned()
}

/// As many of the `input_ids`, or of the first sequence of a batch, as count; empty unless all of those
/// are 32-bit integers.
fn tokens(ids: &Value) -> Vec<u32> {
    let ids = elements(ids);
    let ids = match ids.first() {
        Some(Value::Array(first)) => first,
        _ => ids,
    };
    let token = |id: &Value| {
        let id = id.as_i64()?;
        u32::try_from(id).or_else(|_| i32::try_from(id).map(i32::cast_unsigned)).ok()
    };
    ids.iter().take(MAX_TOKENS).map(token).collect::<Option<_>>().unwrap_or_default()
}

fn text(endpoint: Endpoint, body: &Value) -> String {
    match endpoint {
        Endpoint::Chat => join_full(elements(&body["messages"]).iter().flat_map(|message| {
            let of_assistant = message["role"] == "assistant";
            let reasoning = message["reasoning_content"].as_str().filter(|_| of_assistant);
            [content(&message["content"]), reasoning.unwrap_or_default().to_owned()]
        })),
        Endpoint::Messages => {
            let messages = elements(&body["messages"]).iter();
            let contents = messages.map(|message| content(&message["content"]));
            join_full(std::iter::once(content(&body["system"])).chain(contents))
        }
        Endpoint::Responses => match &body["input"] {
            Value::String(text) => text.clone(),
            input => {
                let kinds = ["input_text", "output_text", "reasoning_text"];
                let pieces = elements(input).iter().flat_map(|item| match &item["content"] {
                    Value::String(text) => vec![text.clone()],
                    content => parts(content, &kinds),
                });
                pieces.collect::<Vec<_>>().join(" ")
            }
        },
        Endpoint::Completions => strings(&body["prompt"]),
        Endpoint::Generate => strings(&body["text"]),
        Endpoint::Embeddings | Endpoint::Classify => strings(&body["input"]),
        Endpoint::Rerank | Endpoint::RerankV1 => body["query"].as_str().unwrap_or_default().into(),
        Endpoint::Transcriptions => unreachable!("its body is a form"),
    }
}

fn content(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        content => join_full(parts(content, &["text"]).into_iter()),
    }
}

fn parts(parts: &Value, kinds: &[&str]) -> Vec<String> {
    let text = |part: &Value| match part {
        Value::String(text) => Some(text.clone()),
        part if kinds.contains(&part["type"].as_str()?) => part["text"].as_str().map(str::to_owned),
        _ => None,
    };
    elements(parts).iter().filter_map(text).collect()
}

fn strings(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => elements(value).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
    }
}

fn join_full(pieces: impl Iterator<Item = String>) -> String {
    pieces.filter(|piece| !piece.is_empty()).collect::<Vec<_>>().join(" ")
}

fn elements(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
