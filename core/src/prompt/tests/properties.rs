//! Extraction against a naive reading of a `serde_json::Value`, and against arbitrary bytes.

use super::super::{MAX_DEPTH, namespace};
use super::{Endpoint, Extractor, Owned, extract};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The routing text by the table's definitions, with nested joins and no shortcuts.
fn naive_text(endpoint: Endpoint, body: &Value) -> String {
    match endpoint {
        Endpoint::Chat => join_non_empty(array(&body["messages"]).iter().flat_map(|message| {
            let reasoning = match message["role"].as_str() {
                Some("assistant") => message["reasoning_content"].as_str().unwrap_or_default(),
                _ => "",
            };
            [naive_content(&message["content"]), reasoning.to_owned()]
        })),
        Endpoint::Messages => {
            let contents = array(&body["messages"]).iter().map(|m| naive_content(&m["content"]));
            join_non_empty(std::iter::once(naive_content(&body["system"])).chain(contents))
        }
        Endpoint::Responses => match &body["input"] {
            Value::String(text) => text.clone(),
            input => {
                let kinds = ["input_text", "output_text", "reasoning_text"];
                let items = array(input).iter().filter_map(|item| match &item["content"] {
                    Value::String(text) => Some(text.clone()),
                    content => {
                        let texts = naive_parts(content, &kinds);
                        (!texts.is_empty()).then(|| texts.join(" "))
                    }
                });
                items.collect::<Vec<_>>().join(" ")
            }
        },
        Endpoint::Completions => naive_strings(&body["prompt"]),
        Endpoint::Generate => naive_strings(&body["text"]),
        Endpoint::Embeddings | Endpoint::Classify => naive_strings(&body["input"]),
        Endpoint::Rerank | Endpoint::RerankV1 => body["query"].as_str().unwrap_or_default().into(),
        Endpoint::Transcriptions => String::new(),
    }
}

fn naive_content(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        parts => join_non_empty(naive_parts(parts, &["text"]).into_iter()),
    }
}

fn naive_parts(parts: &Value, kinds: &[&str]) -> Vec<String> {
    let text = |part: &Value| match part {
        Value::String(text) => Some(text.clone()),
        part if kinds.contains(&part["type"].as_str()?) => part["text"].as_str().map(Into::into),
        _ => None,
    };
    array(parts).iter().filter_map(text).collect()
}

fn naive_strings(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => array(value).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
    }
}

fn join_non_empty(pieces: impl Iterator<Item = String>) -> String {
    pieces.filter(|piece| !piece.is_empty()).collect::<Vec<_>>().join(" ")
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn naive_tokens(body: &Value) -> Vec<u32> {
    let ids = array(&body["input_ids"]);
    let ids = match ids.first() {
        Some(Value::Array(first)) => first,
        _ => ids,
    };
    let token = |id: &Value| {
        let id = id.as_i64()?;
        u32::try_from(id).ok().or_else(|| i32::try_from(id).ok().map(i32::cast_unsigned))
    };
    ids.iter().map(token).collect::<Option<Vec<_>>>().unwrap_or_default()
}

fn naive(endpoint: Endpoint, body: &Value) -> Owned {
    let str = |key: &str| body[key].as_str();
    let set = |key: &str| str(key).filter(|text| !text.is_empty());
    let lora = match endpoint {
        Endpoint::Generate => set("lora_path").or(set("lora_id")),
        _ => set("lora_path"),
    };
    let is_partitioned = ["chat", "completions", "messages", "generate"];
    let tokens = if endpoint == Endpoint::Generate { naive_tokens(body) } else { Vec::new() };
    Owned {
        model: set("model").map(Into::into),
        stream: body["stream"] == json!(true),
        text: if tokens.is_empty() { naive_text(endpoint, body) } else { String::new() },
        tokens,
        namespace: is_partitioned
            .contains(&endpoint.label())
            .then(|| namespace(str("cache_salt"), str("extra_key"), lora))
            .flatten(),
        rid: str("rid").map(Into::into),
    }
}

fn json_endpoint() -> impl Strategy<Value = Endpoint> {
    proptest::sample::select(&Endpoint::ALL[..9])
}

/// Short texts in which empty, escaped and non-ASCII ones are common.
fn short_text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-c ]{1,40}",
        "[a\"\\\\\n\u{0}\u{7f}é你😀\u{2028}]{0,8}",
        ".{0,12}"
    ]
}

fn one_of(names: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::sample::select(names).prop_map(str::to_owned)
}

/// Any JSON value, small.
fn any_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-5i64..5).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        short_text().prop_map(Value::from),
    ];
    scalar.prop_recursive(3, 12, 4, |inner| {
        let key = prop_oneof![
            one_of(&["content", "text", "type", "role", "model", "a", ""]),
            short_text()
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((key, inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A message, item or content part, mostly of a valid shape.
fn message() -> impl Strategy<Value = Value> {
    let part = prop_oneof![
        4 => (
            one_of(&["text", "text", "input_text", "output_text", "reasoning_text", "image_url"]),
            short_text()
        )
            .prop_map(|(kind, text)| json!({"type": kind, "text": text})),
        1 => any_value(),
    ];
    let content = prop_oneof![
        3 => short_text().prop_map(Value::from),
        3 => proptest::collection::vec(part, 0..4).prop_map(Value::from),
        1 => any_value(),
    ];
    let role = one_of(&["system", "user", "assistant", "tool", "developer", "function", "x"]);
    prop_oneof![
        6 => (role, content, proptest::option::of(short_text())).prop_map(
            |(role, content, reasoning)| {
                json!({"role": role, "content": content, "reasoning_content": reasoning})
            }
        ),
        1 => any_value(),
    ]
}

/// A top-level member: a routing field with a value that is mostly of the right type, or another.
fn member() -> impl Strategy<Value = (String, Value)> {
    let strings = prop_oneof![
        short_text().prop_map(Value::from),
        proptest::collection::vec(short_text(), 0..4).prop_map(Value::from),
        any_value(),
    ];
    let ids = prop_oneof![
        4 => proptest::collection::vec(any::<u32>(), 0..20).prop_map(Value::from),
        2 => proptest::collection::vec(proptest::collection::vec(any::<i32>(), 0..4), 0..3)
            .prop_map(Value::from),
        1 => any_value(),
    ];
    let messages = prop_oneof![
        5 => proptest::collection::vec(message(), 0..5).prop_map(Value::from),
        1 => any_value(),
    ];
    let scalars =
        one_of(&["model", "rid", "cache_salt", "extra_key", "lora_path", "lora_id", "query"]);
    prop_oneof![
        4 => (scalars, prop_oneof![short_text().prop_map(Value::from), any_value()]),
        1 => (Just("stream".to_owned()), any_value()),
        4 => (one_of(&["prompt", "text", "input", "system"]), strings),
        2 => (Just("input_ids".to_owned()), ids),
        4 => (one_of(&["messages", "messages", "input"]), messages),
        2 => (short_text(), any_value()),
    ]
}

/// Writes members one after the other, repeated keys included; optionally spaced, and optionally
/// with every character of keys and strings as `\u` escapes.
fn write_body(members: &[(String, Value)], is_spaced: bool, is_escaped: bool) -> String {
    let space = if is_spaced { " \n\t\r" } else { "" };
    let written = members.iter().map(|(key, value)| {
        let key = write_value(&Value::from(key.as_str()), is_escaped);
        let value = match is_spaced && !is_escaped {
            true => format!("{value:#}"),
            false => write_value(value, is_escaped),
        };
        format!("{space}{key}{space}:{space}{value}{space}")
    });
    format!("{space}{{{}}}{space}", written.collect::<Vec<_>>().join(","))
}

fn write_value(value: &Value, is_escaped: bool) -> String {
    let write = |value: &Value| write_value(value, is_escaped);
    match value {
        Value::String(text) if is_escaped => {
            let escapes = text.encode_utf16().map(|unit| format!("\\u{unit:04X}"));
            format!("\"{}\"", escapes.collect::<String>())
        }
        Value::Array(elements) => {
            format!("[{}]", elements.iter().map(write).collect::<Vec<_>>().join(","))
        }
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(key, value)| format!("{}:{}", write(&key.as_str().into()), write(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        scalar => scalar.to_string(),
    }
}

/// RFC 8259, by a reader that skips values of any size and depth.
fn is_json_object(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    std::str::from_utf8(body).is_ok()
        && body.trim_ascii_start().starts_with(b"{")
        && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn extraction_equals_a_naive_reading(
        endpoint in json_endpoint(),
        members in proptest::collection::vec(member(), 0..8),
        (is_spaced, is_escaped) in any::<(bool, bool)>(),
    ) {
        let body = write_body(&members, is_spaced, is_escaped);
        let value: Value = serde_json::from_str(&body).unwrap();
        let expected = naive(endpoint, &value);
        prop_assert_eq!(&extract(endpoint, &body).unwrap(), &expected, "{}", body);
        // The same by the other reader, which the number provokes.
        let (open, rest) = body.split_once('{').unwrap();
        let comma = if members.is_empty() { "" } else { "," };
        let walked = format!("{open}{{\"\":1e999{comma}{rest}");
        prop_assert_eq!(&extract(endpoint, &walked).unwrap(), &expected, "{}", walked);
    }

    #[test]
    fn exactly_json_objects_are_accepted(
        endpoint in json_endpoint(),
        members in proptest::collection::vec(member(), 0..4),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), edit()), 0..4),
    ) {
        let mut body = write_body(&members, false, false).into_bytes();
        for (at, (removed, inserted)) in edits {
            let at = at.index(body.len() + 1);
            let end = (at + removed).min(body.len());
            body.splice(at..end, inserted.bytes());
        }
        let outcome = extract(endpoint, &body);
        prop_assert_eq!(outcome.is_ok(), is_json_object(&body), "{:?} {:?}", outcome,
            String::from_utf8_lossy(&body));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        endpoint in proptest::sample::select(&Endpoint::ALL[..]),
        body in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let outcome = extract(endpoint, &body);
        let is_form = endpoint == Endpoint::Transcriptions;
        prop_assert_eq!(outcome.is_ok(), is_form || is_json_object(&body));
    }

    #[test]
    fn json_like_bytes_never_panic(
        tokens in proptest::collection::vec(edit(), 0..60),
    ) {
        let body: String = tokens.into_iter().map(|(_, text)| text).collect();
        let body = format!("{{\"model\":{body}");
        prop_assert_eq!(extract(Endpoint::Chat, &body).is_ok(), is_json_object(body.as_bytes()),
            "{}", body);
    }

    #[test]
    fn form_like_bytes_never_panic(
        pieces in proptest::collection::vec(one_of(&["--", "X", "\r\n", "\r\n\r\n", "--X\r\n",
            "Content-Disposition:", "form-data; name=\"model\"", "name=", "\"", ";", "filename=a",
            "\n", "value"]), 0..40),
    ) {
        let body = format!("--X\r\n{}", pieces.concat());
        prop_assert!(extract(Endpoint::Transcriptions, body).is_ok());
    }

    #[test]
    fn an_extractor_remembers_nothing(
        bodies in proptest::collection::vec(
            (json_endpoint(), proptest::collection::vec(member(), 0..4), any::<bool>()), 1..5),
    ) {
        let mut extractor = Extractor::new();
        for (endpoint, members, is_cut) in bodies {
            let mut body = write_body(&members, false, false);
            if is_cut {
                body.pop();
            }
            let reused = extractor.extract(endpoint, body.as_bytes()).map(Owned::from);
            prop_assert_eq!(reused, extract(endpoint, &body));
        }
    }

    #[test]
    fn nesting_is_refused_by_depth_alone(levels in 1..2 * MAX_DEPTH, is_walked in any::<bool>()) {
        let open = if is_walked { "{\"n\":1e999,\"x\":" } else { "{\"x\":" };
        let body = format!("{open}{}{}}}", "[".repeat(levels), "]".repeat(levels));
        prop_assert_eq!(extract(Endpoint::Chat, body).is_ok(), levels < MAX_DEPTH);
    }
}

/// A splice: bytes to remove, and something that JSON might hold to put there.
fn edit() -> impl Strategy<Value = (usize, String)> {
    let inserted = prop_oneof![
        one_of(&[
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\\",
            "\\u",
            "\\ud800",
            "\\udc00",
            "\\u00",
            "0",
            "-",
            "1",
            ".",
            "e",
            "E+",
            "1e999",
            "-0",
            "00",
            "12345678901234567890",
            "true",
            "false",
            "null",
            "nul",
            " ",
            "\n",
            "\0",
            "\u{1f}",
            "/",
            "'",
            "é",
            "\u{feff}",
            "\"a\"",
            "\"a\":",
            "\"model\":",
            "[1,",
            "{}",
            "[]",
            "\"text\":\"\\n\"",
            "1.5",
            "NaN",
            "\"messages\":[",
        ]),
        short_text(),
    ];
    (0usize..3, inserted)
}
