//! Reads from a request what it routes on: model, stream flag, prompt text or token IDs, cache
//! partition and `rid`.
//!
//! A JSON body is copied into a scratch buffer, parsed there with `simd-json` (which rewrites its
//! input) into a reused tape, and only the routing fields are walked; no document tree is built. Of a
//! large body nothing is copied but what routes: it is checked, and the fields are walked where they are.
//! A body is refused only when it is not a JSON object in UTF-8: a field that routing does not need,
//! or one with a value of an unexpected type, never makes a request fail here.
//!
//! What routes is bounded ([`MAX_TEXT_BYTES`], [`MAX_TOKENS`], [`MAX_NAME_BYTES`]), and only that much of a
//! request is held beside its body.
//!
//! Contract: `routing.md` §2 and §8; the text of each endpoint is in `text.rs`.

mod check;
mod endpoint;
mod error;
mod field;
mod multipart;
mod namespace;
mod owned;
mod raw;
mod routing_tokens;
mod tape;
mod text;
mod view;

#[cfg(test)]
mod tests;

pub use endpoint::Endpoint;
pub use error::PromptError;
pub use namespace::{Namespace, namespace};
pub use owned::OwnedPrompt;
pub use routing_tokens::{MAX_ROUTING_TOKENS, MAX_ROUTING_TOKENS_BYTES, parse_routing_tokens};

use field::{Field, Fields};
use simd_json::{Buffers, INPUT_PADDING, Tape};
use tape::Nodes;
use view::{Text, View};

/// What one request routes on. Borrows the [`Extractor`] that read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prompt<'a> {
    /// The `model` field; `None` when it is absent, empty or not a string.
    pub model: Option<&'a str>,
    /// A `model` is given, but not as a string with something in it: it can name no model.
    pub model_is_unusable: bool,
    /// True exactly for `"stream": true`.
    pub stream: bool,
    /// The routing text, its first [`MAX_TEXT_BYTES`]; empty when there is none or when `tokens` routes.
    pub text: &'a str,
    /// `/generate` `input_ids`, of a batch its first sequence, of that the first [`MAX_TOKENS`]; empty
    /// when there are none. Negative IDs are kept as the `u32` with the bits of the `i32`.
    pub tokens: &'a [u32],
    /// The cache partition; `None` when the request names none.
    pub namespace: Option<Namespace>,
    /// The `rid` field if it is a string. Of this and of `model` the first [`MAX_NAME_BYTES`] count.
    pub rid: Option<&'a str>,
}

/// Scratch buffers of one shard, reused for every request: nothing is allocated once they have
/// grown to the usual body. A buffer that an unusual body left larger than [`MAX_KEPT_BYTES`] is
/// given back.
pub struct Extractor {
    scratch: Vec<u8>,
    buffers: Buffers,
    tape: Tape<'static>,
    found: Found,
}

/// Nesting beyond this many open arrays and objects is refused as [`PromptError::TooDeep`]. The
/// JSON parsers of the engines stop at about the same depth.
pub const MAX_DEPTH: usize = 1024;

/// A buffer larger than this is freed after the request that needed it (those that the [`Prompt`]
/// borrows, when the next one begins), so that one huge request does not pin memory.
pub const MAX_KEPT_BYTES: usize = 1 << 20;

/// Bytes of a prompt's text that count for placement, to a whole character: what follows is neither read
/// nor kept. Two prompts that share so much find far more in one engine's cache than they could lose by
/// what differs behind it; and the matched part and the length it is compared with are both of this part.
pub const MAX_TEXT_BYTES: usize = 4 << 20;

/// The same for token IDs.
pub const MAX_TOKENS: usize = 1 << 20;

/// Bytes that count of a model's name and of a `rid`, which nobody makes so long.
pub const MAX_NAME_BYTES: usize = 64 << 10;

/// Bodies above this size are not copied to be parsed. The parser reserves up to 24 bytes of tape per
/// byte of body, so this bounds it to about 24 MiB. No body up to it holds more text than
/// counts.
const COPIED_UP_TO_BYTES: usize = 1 << 20;

impl Extractor {
    /// Empty buffers; they grow with the first requests.
    pub fn new() -> Self {
        Self {
            scratch: Vec::new(),
            buffers: Buffers::with_max_depth(0, MAX_DEPTH),
            tape: Tape(Vec::new()),
            found: Found::default(),
        }
    }

    /// Everything the request routes on.
    ///
    /// # Errors
    ///
    /// [`PromptError`] when a JSON endpoint's body is not a JSON object; its text is safe to show
    /// to the client. A multipart body is never refused.
    pub fn extract(&mut self, endpoint: Endpoint, body: &[u8]) -> Result<Prompt<'_>, PromptError> {
        self.read(endpoint, body, Want::Everything, &|| false)
    }

    /// As [`Extractor::extract`] but without `text` and `tokens`, for policies that have no index
    /// and for requests that route on the tokens of a header.
    ///
    /// # Errors
    ///
    /// As [`Extractor::extract`].
    pub fn extract_head(
        &mut self,
        endpoint: Endpoint,
        body: &[u8],
    ) -> Result<Prompt<'_>, PromptError> {
        self.read(endpoint, body, Want::Head, &|| false)
    }

    fn read(
        &mut self,
        endpoint: Endpoint,
        body: &[u8],
        want: Want,
        abandoned: &dyn Fn() -> bool,
    ) -> Result<Prompt<'_>, PromptError> {
        self.found.clear();
        if endpoint == Endpoint::Transcriptions {
            self.found.read_form(body, want);
        } else {
            let outcome = self.read_json(endpoint, body, want, abandoned);
            self.trim();
            outcome?;
        }
        Ok(self.found.prompt())
    }

    fn read_json(
        &mut self,
        endpoint: Endpoint,
        body: &[u8],
        want: Want,
        abandoned: &dyn Fn() -> bool,
    ) -> Result<(), PromptError> {
        let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
        if body.is_empty() {
            return Err(PromptError::Empty);
        }
        if body.len() <= COPIED_UP_TO_BYTES {
            self.load(body);
            if let Some(outcome) = self.parse(endpoint, want) {
                return outcome;
            }
        }
        // Either a large body, or one the SIMD parser refuses: invalid, or valid with a number or
        // an escape it cannot represent. The checks tell them apart.
        let fields = check::fields_of(body, abandoned)?;
        self.found.reserve(body.len(), want);
        self.found.collect(endpoint, &fields, want);
        Ok(())
    }

    fn load(&mut self, body: &[u8]) {
        self.scratch.clear();
        self.scratch.reserve(body.len() + INPUT_PADDING);
        self.scratch.extend_from_slice(body);
    }

    /// Parses the scratch buffer and collects from it; `None` when the parser refuses it.
    fn parse(&mut self, endpoint: Endpoint, want: Want) -> Option<Result<(), PromptError>> {
        let Self { scratch, buffers, tape: kept_tape, found } = self;
        let len = scratch.len();
        scratch.resize(len + INPUT_PADDING, b' ');
        let mut tape = std::mem::replace(kept_tape, Tape(Vec::new())).reset();
        let parsed = simd_json::fill_tape_padded(scratch, len, buffers, &mut tape);
        let outcome = parsed.ok().map(|()| {
            let body = Nodes::root(&tape.0);
            if !body.is_object() {
                return Err(PromptError::NotAnObject);
            }
            found.reserve(len, want);
            found.collect(endpoint, &Fields::of(body), want);
            Ok(())
        });
        *kept_tape = tape.reset();
        outcome
    }

    fn trim(&mut self) {
        let was_large = self.scratch.capacity() > MAX_KEPT_BYTES
            || self.buffers.structural_indexes().len() > MAX_KEPT_BYTES / size_of::<u32>();
        trim_vec(&mut self.scratch);
        trim_vec(&mut self.tape.0);
        if was_large {
            self.buffers = Buffers::with_max_depth(0, MAX_DEPTH);
        }
    }
}

impl Default for Extractor {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Extractor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extractor")
            .field("scratch_bytes", &self.scratch.capacity())
            .field("tape_nodes", &self.tape.0.capacity())
            .finish_non_exhaustive()
    }
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How much of a request is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// All but `text` and `tokens`.
    Head,
    /// All of it.
    Everything,
}

/// What the last request routes on, owned so that the parser's buffers are free again.
#[derive(Default)]
struct Found {
    model: Slot,
    model_is_unusable: bool,
    rid: Slot,
    stream: bool,
    namespace: Option<Namespace>,
    text: String,
    tokens: Vec<u32>,
}

impl Found {
    fn clear(&mut self) {
        self.stream = false;
        self.model_is_unusable = false;
        self.namespace = None;
        for text in [&mut self.text, &mut self.model.text, &mut self.rid.text] {
            text.clear();
            if text.capacity() > MAX_KEPT_BYTES {
                *text = String::new();
            }
        }
        self.model.is_set = false;
        self.rid.is_set = false;
        self.tokens.clear();
        trim_vec(&mut self.tokens);
    }

    /// Makes room for the text of a large body: address space for all there can be, since to grow by
    /// doubling would take a second copy.
    fn reserve(&mut self, body_len: usize, want: Want) {
        if body_len > MAX_KEPT_BYTES && want == Want::Everything {
            self.text.reserve_exact(body_len.min(MAX_TEXT_BYTES));
        }
    }

    fn collect<V: View>(&mut self, endpoint: Endpoint, fields: &Fields<V>, want: Want) {
        self.model.set(fields.text(Field::Model).filter(|model| !model.is_empty()));
        let given = fields.get(Field::Model).is_some_and(|model| !model.is_null());
        self.model_is_unusable = given && self.model.get().is_none();
        self.rid.set(fields.text(Field::Rid));
        self.stream = fields.get(Field::Stream).is_some_and(View::is_true);
        self.namespace = namespace::of_request(endpoint, fields);
        if want == Want::Head {
            return;
        }
        if endpoint == Endpoint::Generate {
            text::input_ids(fields, &mut self.tokens);
        }
        if self.tokens.is_empty() {
            text::collect(endpoint, fields, &mut self.text);
        }
    }

    fn read_form(&mut self, body: &[u8], want: Want) {
        multipart::for_each_field(body, |name, value| match name {
            b"model" => self.model.set(Some(value).filter(|model| !model.is_empty())),
            b"stream" => self.stream = value == "true",
            b"prompt" if want == Want::Everything => {
                self.text.clear();
                self.text.push_str(text::bounded(value));
            }
            _ => {}
        });
    }

    fn prompt(&self) -> Prompt<'_> {
        Prompt {
            model: self.model.get(),
            model_is_unusable: self.model_is_unusable,
            stream: self.stream,
            text: &self.text,
            tokens: &self.tokens,
            namespace: self.namespace,
            rid: self.rid.get(),
        }
    }
}

/// An `Option<String>` that keeps its allocation while it is `None`.
#[derive(Default)]
struct Slot {
    is_set: bool,
    text: String,
}

impl Slot {
    /// Its first [`MAX_NAME_BYTES`], to a whole character.
    fn set(&mut self, value: Option<impl Text>) {
        self.is_set = value.is_some();
        self.text.clear();
        if let Some(value) = value {
            value.for_each(|part| {
                let room = MAX_NAME_BYTES - self.text.len();
                self.text.push_str(&part[..part.floor_char_boundary(room)]);
                part.len() <= room
            });
        }
    }

    fn get(&self) -> Option<&str> {
        self.is_set.then_some(&self.text)
    }
}

/// Empties a vector that grew beyond [`MAX_KEPT_BYTES`].
fn trim_vec<T>(kept: &mut Vec<T>) {
    if kept.capacity() * size_of::<T>() > MAX_KEPT_BYTES {
        *kept = Vec::new();
    }
}
