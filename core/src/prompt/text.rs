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

use super::field::{Field, Fields};
use super::view::{Text, View};
use super::{Endpoint, MAX_TEXT_BYTES, MAX_TOKENS};

/// Appends the request's text, up to [`MAX_TEXT_BYTES`], to `text`, which is empty.
pub(super) fn collect<V: View>(endpoint: Endpoint, fields: &Fields<V>, text: &mut String) {
    let mut pieces = Pieces::new(text);
    match endpoint {
        Endpoint::Chat => chat(fields, &mut pieces),
        Endpoint::Messages => messages(fields, &mut pieces),
        Endpoint::Responses => responses(fields, &mut pieces),
        Endpoint::Completions => pieces.strings(fields.get(Field::Prompt)),
        Endpoint::Generate => pieces.strings(fields.get(Field::Text)),
        Endpoint::Embeddings | Endpoint::Classify => pieces.strings(fields.get(Field::Input)),
        Endpoint::Rerank | Endpoint::RerankV1 => {
            if let Some(query) = fields.text(Field::Query) {
                pieces.push(query);
            }
        }
        Endpoint::Transcriptions => {}
    }
}

/// Fills `tokens` with the first [`MAX_TOKENS`] of the `input_ids`, or of the first sequence of a batch.
/// Left empty if there are none or one of them is not a token ID: then the request routes on its text.
pub(super) fn input_ids<V: View>(fields: &Fields<V>, tokens: &mut Vec<u32>) {
    let Some(ids) = fields.get(Field::InputIds).and_then(View::elements) else { return };
    let first = ids.clone().next().and_then(View::elements);
    for id in first.unwrap_or(ids).take(MAX_TOKENS) {
        match id.token() {
            Some(token) => tokens.push(token),
            None => return tokens.clear(),
        }
    }
}

fn chat<V: View>(fields: &Fields<V>, pieces: &mut Pieces<'_>) {
    for message in fields.get(Field::Messages).and_then(View::elements).into_iter().flatten() {
        if pieces.are_full {
            return;
        }
        let (mut content, mut reasoning, mut is_assistant) = (None, None, false);
        for (key, value) in message.members() {
            match &*key {
                "content" => content = Some(value),
                "reasoning_content" => reasoning = value.text(),
                "role" => is_assistant = value.name().as_deref() == Some("assistant"),
                _ => {}
            }
        }
        pieces.content(content, &["text"]);
        if let (true, Some(reasoning)) = (is_assistant, reasoning) {
            pieces.push_non_empty(reasoning);
        }
    }
}

fn messages<V: View>(fields: &Fields<V>, pieces: &mut Pieces<'_>) {
    pieces.content(fields.get(Field::System), &["text"]);
    for message in fields.get(Field::Messages).and_then(View::elements).into_iter().flatten() {
        if pieces.are_full {
            return;
        }
        pieces.content(member(message, "content"), &["text"]);
    }
}

fn responses<V: View>(fields: &Fields<V>, pieces: &mut Pieces<'_>) {
    let Some(input) = fields.get(Field::Input) else { return };
    if let Some(text) = input.text() {
        return pieces.push(text);
    }
    for item in input.elements().into_iter().flatten() {
        let Some(content) = member(item, "content") else { continue };
        if let Some(text) = content.text() {
            pieces.push(text);
        }
        for part in content.elements().into_iter().flatten() {
            if pieces.are_full {
                return;
            }
            if let Some(text) = part_text(part, &["input_text", "output_text", "reasoning_text"]) {
                pieces.push(text);
            }
        }
    }
}

/// The value of `object`'s last member of this name.
fn member<V: View>(object: V, name: &str) -> Option<V> {
    object.members().filter(|(key, _)| &**key == name).last().map(|(_, value)| value)
}

/// The text of a content part: a bare string (which vLLM takes as a text part), or the `text` of an
/// object whose `type` is one of `kinds`.
fn part_text<V: View>(part: V, kinds: &[&str]) -> Option<V::Text> {
    if let Some(text) = part.text() {
        return Some(text);
    }
    let (mut kind, mut text) = (None, None);
    for (key, value) in part.members() {
        match &*key {
            "type" => kind = value.name(),
            "text" => text = value.text(),
            _ => {}
        }
    }
    text.filter(|_| kind.is_some_and(|kind| kinds.contains(&&*kind)))
}

/// What counts of a text that is in one part.
pub(super) fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

/// Pieces joined by one space, up to [`MAX_TEXT_BYTES`].
struct Pieces<'a> {
    text: &'a mut String,
    has_any: bool,
    /// No more counts.
    are_full: bool,
}

impl<'a> Pieces<'a> {
    fn new(text: &'a mut String) -> Self {
        Self { text, has_any: false, are_full: false }
    }

    fn push(&mut self, piece: impl Text) {
        if std::mem::replace(&mut self.has_any, true) {
            self.append(" ");
        }
        piece.for_each(|part| self.append(part));
    }

    fn push_non_empty(&mut self, piece: impl Text) {
        if !piece.is_empty() {
            self.push(piece);
        }
    }

    /// Whether there may be room for more.
    #[inline]
    fn append(&mut self, part: &str) -> bool {
        if self.are_full {
            return false;
        }
        let room = MAX_TEXT_BYTES - self.text.len();
        self.are_full = part.len() > room;
        self.text.push_str(if self.are_full {
            &part[..part.floor_char_boundary(room)]
        } else {
            part
        });
        !self.are_full
    }

    /// A string, or the strings of an array; its other elements are ignored.
    fn strings<V: View>(&mut self, value: Option<V>) {
        let Some(value) = value else { return };
        if let Some(text) = value.text() {
            return self.push(text);
        }
        for text in value.elements().into_iter().flatten().filter_map(View::text) {
            if self.are_full {
                return;
            }
            self.push(text);
        }
    }

    /// A message's content: a string, or the text parts of an array; empty ones are skipped.
    fn content<V: View>(&mut self, content: Option<V>, kinds: &[&str]) {
        let Some(content) = content else { return };
        if let Some(text) = content.text() {
            self.push_non_empty(text);
        }
        for part in content.elements().into_iter().flatten() {
            if self.are_full {
                return;
            }
            if let Some(text) = part_text(part, kinds) {
                self.push_non_empty(text);
            }
        }
    }
}
