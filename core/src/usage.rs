//! How many tokens an answer took, as the engine says at its end.
//!
//! Engines put a usage object at the end of an answer or into the last events of a stream:
//! `"usage":{"prompt_tokens":7,"completion_tokens":3}` (OpenAI), `"input_tokens"` and
//! `"output_tokens"` (Anthropic, responses), `"meta_info":{"prompt_tokens":…}` (SGLang). Only those
//! names are looked for. Text that a model writes cannot look like them: its quotes are escaped.

use crate::http1::parse_decimal;

/// Bytes of the end of an answer that are looked at.
pub const TAIL_BYTES: usize = 1024;

/// Larger counts are none: no engine takes or makes as many tokens for one answer.
pub const MAX_TOKENS: u64 = 1 << 32;

/// Token counts, where the engine gave them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub input: Option<u64>,
    /// Tokens generated.
    pub output: Option<u64>,
}

impl Usage {
    /// The last counts in a piece of JSON or of a stream of events.
    pub fn last_in(bytes: &[u8]) -> Self {
        let mut usage = Self::default();
        for at in memchr::memmem::find_iter(bytes, SUFFIX) {
            let (before, after) = (&bytes[..at], &bytes[at + SUFFIX.len()..]);
            let count = match () {
                () if ends_with_any(before, [b"\"prompt", b"\"input"]) => &mut usage.input,
                () if ends_with_any(before, [b"\"completion", b"\"output"]) => &mut usage.output,
                () => continue,
            };
            *count = number(after).or(*count);
        }
        usage
    }
}

/// The end of an answer that arrives in pieces.
#[derive(Debug, Default)]
pub struct Tail(Vec<u8>);

impl Tail {
    /// Takes the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        if piece.len() >= TAIL_BYTES {
            // What is kept must have been adjacent, or a count could be put together of two.
            self.0.clear();
        }
        let piece = &piece[piece.len().saturating_sub(TAIL_BYTES)..];
        if self.0.len() + piece.len() > 2 * TAIL_BYTES {
            // At least half goes, so that few bytes move per byte that comes.
            self.0.drain(..self.0.len() - (TAIL_BYTES - piece.len()));
        }
        if self.0.capacity() == 0 {
            self.0.reserve_exact(2 * TAIL_BYTES);
        }
        self.0.extend_from_slice(piece);
    }

    /// Nothing was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The counts in its last [`TAIL_BYTES`], or somewhat before.
    pub fn usage(&self) -> Usage {
        Usage::last_in(&self.0)
    }
}

const SUFFIX: &[u8] = b"_tokens\"";

fn ends_with_any(bytes: &[u8], ends: [&[u8]; 2]) -> bool {
    ends.iter().any(|end| bytes.ends_with(end))
}

/// The number after a key, up to [`MAX_TOKENS`]: white space, a colon, white space, digits.
fn number(bytes: &[u8]) -> Option<u64> {
    let value = bytes.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let end = value.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(value.len());
    // Tokens are counted: what goes on as a fraction or an exponent is no count.
    let is_whole = !matches!(value.get(end), Some(b'.' | b'e' | b'E'));
    parse_decimal(&value[..end]).filter(|&count| is_whole && count <= MAX_TOKENS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usage(text: &str) -> (Option<u64>, Option<u64>) {
        let Usage { input, output } = Usage::last_in(text.as_bytes());
        (input, output)
    }

    #[test]
    fn each_engines_way_to_say_it() {
        for text in [
            r#"{"usage":{"prompt_tokens":7,"total_tokens":10,"completion_tokens":3}}"#,
            r#"{"usage": {"input_tokens" : 7, "output_tokens": 3, "cache_read_input_tokens": 5}}"#,
            r#"{"meta_info":{"prompt_tokens":7,"completion_tokens":3,"cached_tokens":4}}"#,
            "data: {\"usage\":{\"completion_tokens\":1}}\n\n\
             data: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n",
        ] {
            assert_eq!(usage(text), (Some(7), Some(3)), "{text}");
        }
        assert_eq!(usage(r#"{"usage":{"prompt_tokens":5,"total_tokens":5}}"#), (Some(5), None));
        assert_eq!(usage(r#"{"output_tokens":4294967296}"#), (None, Some(MAX_TOKENS)));
    }

    #[test]
    fn what_is_no_count() {
        for text in [
            "",
            "_tokens\"",
            r#"{"usage":null}"#,
            r#"{"prompt_tokens":null}"#,
            r#"{"prompt_tokens":-1}"#,
            r#"{"prompt_tokens":5.5,"completion_tokens":1e3}"#,
            r#"{"max_completion_tokens":5}"#,
            r#"{"prompt_tokens_details":{"cached_tokens":1}}"#,
            r#"{"prompt_tokens":99999999999999999999}"#,
            r#"{"prompt_tokens":9223372036854775808,"completion_tokens":4294967297}"#,
            // Written by a model.
            r#"{"content":"{\"prompt_tokens\": 9, \"completion_tokens\":9}"}"#,
        ] {
            assert_eq!(usage(text), (None, None), "{text}");
        }
    }

    #[test]
    fn what_was_not_adjacent_is_not_read_together() {
        let mut tail = Tail::default();
        tail.push(b"{\"prompt_tokens\":1");
        tail.push(format!("0,{}", "2".repeat(TAIL_BYTES)).as_bytes());
        assert_eq!(tail.usage(), Usage::default());
    }

    proptest! {
        #[test]
        fn the_end_is_seen_however_it_is_cut(
            before in 0usize..5000,
            cuts in prop::collection::vec(1usize..1500, 1..20),
        ) {
            let end = r#"{"usage":{"prompt_tokens":12,"completion_tokens":345}}"#;
            let text = format!("{}{end}", "x".repeat(before));
            let mut tail = Tail::default();
            let (mut rest, mut cuts) = (text.as_bytes(), cuts.into_iter().cycle());
            while !rest.is_empty() {
                let (piece, more) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                tail.push(piece);
                rest = more;
            }
            prop_assert_eq!(tail.usage(), Usage { input: Some(12), output: Some(345) });
            prop_assert!(tail.0.len() <= 2 * TAIL_BYTES && tail.0.capacity() <= 2 * TAIL_BYTES);
            prop_assert!(text.as_bytes().ends_with(&tail.0));
        }
    }
}
