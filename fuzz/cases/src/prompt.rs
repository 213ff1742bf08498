//! What a body routes on: [`Extractor`] against a reading of `serde_json` values, and JSON that is
//! refused against what RFC 8259 has.

use smg_core::prompt::{Endpoint, Extractor, MAX_DEPTH, Namespace, Prompt, PromptError};

use crate::prompt::reference::Document;

mod document;
mod form;
mod reference;

/// `data` is a body, and also the choices that make one of the right shape.
pub fn run(data: &[u8]) {
    check(data);
    check(document::from_choices(data).as_bytes());
}

fn check(body: &[u8]) {
    let mut extractor = Extractor::new();
    let document = Document::read(body);
    for endpoint in Endpoint::ALL {
        soil(&mut extractor);
        let found = extractor.extract(endpoint, body).map(Routed::from);
        if endpoint == Endpoint::Transcriptions {
            assert_eq!(found, Ok(form::routed(body)), "{}", body.escape_ascii());
            continue;
        }
        match (&document, &found) {
            (Document::NotJson, Err(error)) => assert_says_why(*error, body),
            (Document::TooDeep, Err(PromptError::TooDeep { .. })) => {}
            (Document::NoObject, Err(PromptError::NotAnObject)) => {}
            (Document::Unread, Ok(_)) => {}
            (Document::Object(value), Ok(found)) => {
                let expected = reference::routed(endpoint, value);
                assert_eq!(*found, expected, "{endpoint:?} {}", body.escape_ascii());
                assert_head_is_the_same(&mut extractor, endpoint, body, &expected);
                assert_both_readers_agree(&mut extractor, endpoint, body, &expected);
            }
            _ => panic!("{document:?} gives {found:?} for {}", body.escape_ascii()),
        }
    }
}

/// Leaves something of every kind in its buffers.
fn soil(extractor: &mut Extractor) {
    let other =
        br#"{"model":"other","stream":true,"rid":"other","text":"other text","cache_salt":"o",
        "input_ids":[[7,7]],"messages":[{"role":"user","content":"other"}]}"#;
    assert!(extractor.extract(Endpoint::Generate, other).is_ok());
}

/// The error is one line for the client, and its position is in the body.
fn assert_says_why(error: PromptError, body: &[u8]) {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let message = error.to_string();
    assert!(message.starts_with("the request body") && !message.contains('\n'));
    match error {
        PromptError::NotJson { at, .. } => assert!(at <= body.len()),
        PromptError::NotUtf8 { at } => assert!(at < body.len()),
        // A document that goes wrong only behind a bracket too many.
        PromptError::TooDeep { at } => assert!(reference::depth(&body[..=at]) > MAX_DEPTH),
        PromptError::Empty => assert!(body.is_empty()),
        PromptError::NotAnObject | PromptError::Abandoned => {
            panic!("{error:?} of what is not JSON: {}", body.escape_ascii());
        }
    }
}

fn assert_head_is_the_same(
    extractor: &mut Extractor,
    endpoint: Endpoint,
    body: &[u8],
    expected: &Routed,
) {
    soil(extractor);
    let head = extractor.extract_head(endpoint, body).map(Routed::from);
    let without = Routed { text: String::new(), tokens: Vec::new(), ..expected.clone() };
    assert_eq!(head, Ok(without));
}

/// A number that the SIMD parser refuses sends the body through the other reader.
fn assert_both_readers_agree(
    extractor: &mut Extractor,
    endpoint: Endpoint,
    body: &[u8],
    expected: &Routed,
) {
    let open = body.iter().position(|&byte| byte == b'{').expect("an object");
    let rest = &body[open + 1..];
    let is_empty = rest.trim_ascii_start().starts_with(b"}");
    let number: &[u8] = if is_empty { b"{\"\":1e999" } else { b"{\"\":1e999," };
    let walked = [&body[..open], number, rest].concat();
    soil(extractor);
    let found = extractor.extract(endpoint, &walked).map(Routed::from);
    assert_eq!(found.as_ref(), Ok(expected), "{}", walked.escape_ascii());
}

/// A [`Prompt`] that outlives its extractor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routed {
    pub model: Option<String>,
    pub model_is_unusable: bool,
    pub stream: bool,
    pub text: String,
    pub tokens: Vec<u32>,
    pub namespace: Option<Namespace>,
    pub rid: Option<String>,
}

impl From<Prompt<'_>> for Routed {
    fn from(prompt: Prompt<'_>) -> Self {
        Self {
            model: prompt.model.map(str::to_owned),
            model_is_unusable: prompt.model_is_unusable,
            stream: prompt.stream,
            text: prompt.text.to_owned(),
            tokens: prompt.tokens.to_vec(),
            namespace: prompt.namespace,
            rid: prompt.rid.map(str::to_owned),
        }
    }
}
