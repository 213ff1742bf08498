//! The text and the token IDs of each endpoint (`smg-cache-aware.md` §9.3).
//!
//! | endpoint | text |
//! |---|---|
//! | chat | each message's content, after an assistant's its `reasoning_content`; empty pieces skipped |
//! | completions | `prompt`: a string or strings |
//! | messages | `system`, then each message's text blocks; empty pieces skipped |
//! | generate | `text`: a string or strings |
//! | responses | `input`: a string, or the text parts of its items, empty ones included |
//! | embeddings, classify | `input`: a string or strings |
//! | rerank | `query` |
//!
//! Pieces are joined by one space. Roles, names, tools, tool calls and images carry no text.

use super::Endpoint;
use super::field::{Field, Fields};
use super::tape::View;

/// Appends the request's text to `text`, which is empty.
pub(super) fn collect(endpoint: Endpoint, fields: &Fields<'_>, text: &mut String) {
    let mut pieces = Pieces { text, has_any: false };
    match endpoint {
        Endpoint::Chat => chat(fields, &mut pieces),
        Endpoint::Messages => messages(fields, &mut pieces),
        Endpoint::Responses => responses(fields, &mut pieces),
        Endpoint::Completions => pieces.strings(fields.get(Field::Prompt)),
        Endpoint::Generate => pieces.strings(fields.get(Field::Text)),
        Endpoint::Embeddings | Endpoint::Classify => pieces.strings(fields.get(Field::Input)),
        Endpoint::Rerank | Endpoint::RerankV1 => {
            pieces.push(fields.str(Field::Query).unwrap_or_default());
        }
        Endpoint::Transcriptions => {}
    }
}

/// Fills `tokens` with the `input_ids`, or with the first sequence of a batch. Left empty if there
/// are none or one of them is not a token ID: then the request routes on its text.
pub(super) fn input_ids(fields: &Fields<'_>, tokens: &mut Vec<u32>) {
    let Some(ids) = fields.get(Field::InputIds).and_then(View::elements) else { return };
    let first = ids.clone().next().and_then(View::elements);
    for id in first.unwrap_or(ids) {
        match id.token() {
            Some(token) => tokens.push(token),
            None => return tokens.clear(),
        }
    }
}

fn chat(fields: &Fields<'_>, pieces: &mut Pieces<'_>) {
    for message in fields.get(Field::Messages).and_then(View::elements).into_iter().flatten() {
        let (mut content, mut reasoning, mut is_assistant) = (None, None, false);
        for (key, value) in message.members() {
            match key {
                "content" => content = Some(value),
                "reasoning_content" => reasoning = value.str(),
                "role" => is_assistant = value.str() == Some("assistant"),
                _ => {}
            }
        }
        pieces.content(content, &["text"]);
        if let (true, Some(reasoning)) = (is_assistant, reasoning) {
            pieces.push_non_empty(reasoning);
        }
    }
}

fn messages(fields: &Fields<'_>, pieces: &mut Pieces<'_>) {
    pieces.content(fields.get(Field::System), &["text"]);
    for message in fields.get(Field::Messages).and_then(View::elements).into_iter().flatten() {
        pieces.content(member(message, "content"), &["text"]);
    }
}

fn responses(fields: &Fields<'_>, pieces: &mut Pieces<'_>) {
    let Some(input) = fields.get(Field::Input) else { return };
    if let Some(text) = input.str() {
        return pieces.push(text);
    }
    for item in input.elements().into_iter().flatten() {
        let Some(content) = member(item, "content") else { continue };
        if let Some(text) = content.str() {
            pieces.push(text);
        }
        for part in content.elements().into_iter().flatten() {
            if let Some(text) = part_text(part, &["input_text", "output_text", "reasoning_text"]) {
                pieces.push(text);
            }
        }
    }
}

/// The value of `object`'s last member of this name.
fn member<'t>(object: View<'t>, name: &str) -> Option<View<'t>> {
    object.members().filter(|&(key, _)| key == name).last().map(|(_, value)| value)
}

/// The text of a content part: a bare string (which vLLM takes as a text part), or the `text` of an
/// object whose `type` is one of `kinds`.
fn part_text<'t>(part: View<'t>, kinds: &[&str]) -> Option<&'t str> {
    if let Some(text) = part.str() {
        return Some(text);
    }
    let (mut kind, mut text) = (None, None);
    for (key, value) in part.members() {
        match key {
            "type" => kind = value.str(),
            "text" => text = value.str(),
            _ => {}
        }
    }
    text.filter(|_| kind.is_some_and(|kind| kinds.contains(&kind)))
}

/// Pieces joined by one space.
struct Pieces<'a> {
    text: &'a mut String,
    has_any: bool,
}

impl Pieces<'_> {
    fn push(&mut self, piece: &str) {
        if self.has_any {
            self.text.push(' ');
        }
        self.has_any = true;
        self.text.push_str(piece);
    }

    fn push_non_empty(&mut self, piece: &str) {
        if !piece.is_empty() {
            self.push(piece);
        }
    }

    /// A string, or the strings of an array; its other elements are ignored.
    fn strings(&mut self, value: Option<View<'_>>) {
        let Some(value) = value else { return };
        if let Some(text) = value.str() {
            return self.push(text);
        }
        for text in value.elements().into_iter().flatten().filter_map(View::str) {
            self.push(text);
        }
    }

    /// A message's content: a string, or the text parts of an array; empty ones are skipped.
    fn content(&mut self, content: Option<View<'_>>, kinds: &[&str]) {
        let Some(content) = content else { return };
        if let Some(text) = content.str() {
            self.push_non_empty(text);
        }
        for part in content.elements().into_iter().flatten() {
            if let Some(text) = part_text(part, kinds) {
                self.push_non_empty(text);
            }
        }
    }
}
