//! A second, slower reading of a body: validates it, copies only the routing fields, and rewrites
//! what the SIMD parser cannot represent.
//!
//! It is for the bodies the fast path does not take:
//!
//! - Large ones. The parser's tape takes up to 24 bytes per byte of body; pruning bounds it by the
//!   number of values in the routing fields. Nor are images copied: long strings beside the texts.
//! - Ones the parser refuses. If the body is not JSON, this finds where. If it is, it holds an
//!   integer beyond 64 bits, a number beyond the range of `f64` or a lone surrogate escape, all of
//!   which RFC 8259 allows and Python reads: those become `0.5` (no token ID, and no other number
//!   routes) and U+FFFD.

use super::field::Field;
use super::{MAX_DEPTH, PromptError};
use memchr::memchr2;
use simd_json::INPUT_PADDING;
use std::ops::Range;

/// Replaces `kept` by an equivalent of the routing fields of `body`, never longer than that.
///
/// A field of more than [`MAX_FIELD_VALUES`] values becomes `0`: the request routes without it.
/// A string that can neither be text nor name a role or a kind becomes empty.
///
/// # Errors
///
/// [`PromptError`] if `body` is not a JSON object or nests too deep, or if routing fields are
/// repeated until they hold more than [`MAX_VALUES`] values.
pub(super) fn prune(body: &[u8], kept: &mut Vec<u8>) -> Result<(), PromptError> {
    if let Err(error) = std::str::from_utf8(body) {
        return Err(PromptError::NotUtf8 { at: error.valid_up_to() });
    }
    kept.clear();
    // Address space for all of it and the parser's padding; memory follows what is kept. Growing by
    // doubling would hold a large prompt twice.
    kept.reserve_exact(body.len() + INPUT_PADDING);
    Scanner { body, at: 0, kept, keeps: false, copied: 0 }.prune_object()
}

/// Strings, numbers, literals, arrays, objects and keys in one routing field.
const MAX_FIELD_VALUES: usize = 1 << 20;

/// Values kept in total. The parser reserves 24 bytes of tape for each value, key and separator, so
/// this bounds it to about 100 MiB.
const MAX_VALUES: usize = 2 << 20;

/// A string of an object's member that is longer than this is no role and no kind of content part.
const MAX_NAME_BYTES: usize = 256;

/// Members of messages and of content parts whose strings are text.
const TEXT_KEYS: [&[u8]; 3] = [b"content", b"text", b"reasoning_content"];

struct Scanner<'a> {
    body: &'a [u8],
    at: usize,
    kept: &'a mut Vec<u8>,
    /// Whether what is scanned belongs to a routing field.
    keeps: bool,
    /// End of what was copied of that field.
    copied: usize,
}

impl Scanner<'_> {
    /// Copies the kept members, with the braces.
    fn prune_object(mut self) -> Result<(), PromptError> {
        self.skip_space();
        if self.peek() != Some(b'{') {
            self.skip_value(0)?;
            self.expect_end()?;
            return Err(PromptError::NotAnObject);
        }
        self.at += 1;
        self.kept.push(b'{');
        let mut values = 0;
        self.skip_space();
        let mut is_open = !self.take(b'}');
        while is_open {
            self.prune_member(&mut values)?;
            self.skip_space();
            is_open = self.take(b',');
            if !is_open && !self.take(b'}') {
                return Err(self.expected("a comma or a closing brace"));
            }
            self.skip_space();
        }
        self.expect_end()?;
        self.kept.push(b'}');
        Ok(())
    }

    /// Copies a member if it is a routing field.
    fn prune_member(&mut self, values: &mut usize) -> Result<(), PromptError> {
        let before = self.kept.len();
        if before > 1 {
            self.kept.push(b',');
        }
        (self.keeps, self.copied) = (true, self.at);
        let key = self.skip_key()?;
        self.copy_up_to(self.at);
        self.keeps = Field::named(&self.body[key.clone()]).is_some() || self.is_escaped(&key);
        if !self.keeps {
            self.kept.truncate(before);
        }
        let value_at = self.kept.len();
        let field_values = self.skip_value(1)?;
        self.copy_up_to(self.at);
        if std::mem::take(&mut self.keeps) {
            let is_dropped = field_values > MAX_FIELD_VALUES;
            if is_dropped {
                self.kept.truncate(value_at);
                self.kept.push(b'0');
            }
            *values += 1 + if is_dropped { 1 } else { field_values };
            if *values > MAX_VALUES {
                return Err(PromptError::TooManyValues);
            }
        }
        Ok(())
    }

    /// Copies what was scanned since the last time, if it is kept.
    fn copy_up_to(&mut self, end: usize) {
        if self.keeps {
            self.kept.extend_from_slice(&self.body[self.copied..end]);
            self.copied = end;
        }
    }

    /// Writes something else instead of what was scanned from `start` on.
    fn replace_from(&mut self, start: usize, by: &[u8]) {
        if self.keeps {
            self.copy_up_to(start);
            self.kept.extend_from_slice(by);
            self.copied = self.at;
        }
    }

    fn is_escaped(&self, key: &Range<usize>) -> bool {
        memchr::memchr(b'\\', &self.body[key.clone()]).is_some()
    }

    /// Whether the strings of a message's or part's member of that name may be text. An escaped key
    /// may have any name.
    fn may_be_text(&self, key: &Range<usize>) -> bool {
        TEXT_KEYS.contains(&&self.body[key.clone()]) || self.is_escaped(key)
    }

    /// Skips a key and its colon; returns where the key is.
    fn skip_key(&mut self) -> Result<Range<usize>, PromptError> {
        if self.peek() != Some(b'"') {
            return Err(self.expected("a key in double quotes"));
        }
        let start = self.at + 1;
        self.skip_string()?;
        let key = start..self.at - 1;
        self.skip_space();
        if !self.take(b':') {
            return Err(self.expected("a colon after the key"));
        }
        Ok(key)
    }

    /// Skips one value inside `depth` open brackets; returns the number of values and keys in it.
    /// Takes no stack per level.
    fn skip_value(&mut self, depth: usize) -> Result<usize, PromptError> {
        let mut open = Brackets::new(depth);
        let (mut count, mut may_be_text) = (0, true);
        loop {
            self.skip_space();
            count += 1;
            let (start, kept, copied) = (self.at, self.kept.len(), self.copied);
            let is_string = self.peek() == Some(b'"');
            let is_opened = self.skip_scalar_or_open(&mut open)?;
            if is_string && !may_be_text && open.is_object() && self.at - start > MAX_NAME_BYTES {
                // Parts of it may have been copied, around a replacement.
                self.kept.truncate(kept);
                self.copied = copied;
                self.replace_from(start, b"\"\"");
            }
            if is_opened {
                if open.is_object() {
                    let key = self.skip_key()?;
                    may_be_text = self.may_be_text(&key);
                    count += 1;
                }
                continue;
            }
            // A value has ended: so may the brackets around it.
            loop {
                if open.is_empty() {
                    return Ok(count);
                }
                self.skip_space();
                if self.take(b',') {
                    break;
                }
                let (close, expected) = if open.is_object() {
                    (b'}', "a comma or a closing brace")
                } else {
                    (b']', "a comma or a closing bracket")
                };
                if !self.take(close) {
                    return Err(self.expected(expected));
                }
                open.pop();
            }
            if open.is_object() {
                self.skip_space();
                let key = self.skip_key()?;
                may_be_text = self.may_be_text(&key);
                count += 1;
            }
        }
    }

    /// Skips a scalar, an empty array or an empty object (false), or the opening bracket of another
    /// one and the space after it (true).
    fn skip_scalar_or_open(&mut self, open: &mut Brackets) -> Result<bool, PromptError> {
        match self.peek() {
            Some(bracket @ (b'{' | b'[')) => {
                if !open.push(bracket == b'{') {
                    return Err(PromptError::TooDeep { at: self.at });
                }
                self.at += 1;
                self.skip_space();
                let is_empty = self.take(bracket + 2); // '}' and ']' in ASCII
                if is_empty {
                    open.pop();
                }
                return Ok(!is_empty);
            }
            Some(b'"') => self.skip_string()?,
            Some(b'-' | b'0'..=b'9') => self.skip_number()?,
            Some(b't') => self.skip_word(b"true")?,
            Some(b'f') => self.skip_word(b"false")?,
            Some(b'n') => self.skip_word(b"null")?,
            _ => return Err(self.expected("a value")),
        }
        Ok(false)
    }

    fn skip_word(&mut self, word: &[u8]) -> Result<(), PromptError> {
        if !self.body[self.at..].starts_with(word) {
            return Err(self.expected("a value"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Skips a number. One with a fraction or an exponent, or long enough to exceed 64 bits, becomes
    /// `0.5`.
    fn skip_number(&mut self) -> Result<(), PromptError> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.skip_digits()?;
        }
        let integer_end = self.at;
        if self.take(b'.') {
            self.skip_digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.skip_digits()?;
        }
        if self.at > integer_end || self.at - start >= 19 {
            self.replace_from(start, b"0.5");
        }
        Ok(())
    }

    fn skip_digits(&mut self) -> Result<(), PromptError> {
        let digits = self.body[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Err(self.expected("a digit"));
        }
        self.at += digits;
        Ok(())
    }

    /// Skips a string; the quote it starts with is known to be there.
    fn skip_string(&mut self) -> Result<(), PromptError> {
        self.at += 1;
        loop {
            let rest = &self.body[self.at..];
            let plain_len = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
            // Not `any`: without the early exit this compiles to vector instructions.
            let has_control = rest[..plain_len].iter().fold(false, |seen, &b| seen | (b < b' '));
            if has_control {
                let control = rest[..plain_len].iter().position(|&byte| byte < b' ');
                self.at += control.unwrap_or(plain_len);
                return Err(self.expected("an escape instead of a control character"));
            }
            self.at += plain_len;
            if self.take(b'"') {
                return Ok(());
            }
            if !self.take(b'\\') {
                return Err(self.expected("a closing double quote"));
            }
            match self.peek() {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
                Some(b'u') => self.skip_unicode_escape()?,
                _ => return Err(self.expected("an escape character")),
            }
        }
    }

    /// Skips `uXXXX`, or both escapes of a surrogate pair; a lone surrogate becomes U+FFFD.
    fn skip_unicode_escape(&mut self) -> Result<(), PromptError> {
        let unit = self.hex4(self.at + 1).ok_or_else(|| self.expected("four hex digits"))?;
        self.at += 5;
        match unit {
            0xd800..0xdc00 if self.low_surrogate_follows() => self.at += 6,
            0xd800..0xe000 => self.replace_from(self.at - 4, b"fffd"),
            _ => {}
        }
        Ok(())
    }

    fn low_surrogate_follows(&self) -> bool {
        self.body[self.at..].starts_with(b"\\u")
            && matches!(self.hex4(self.at + 2), Some(0xdc00..0xe000))
    }

    fn hex4(&self, start: usize) -> Option<u32> {
        self.body
            .get(start..start + 4)?
            .iter()
            .try_fold(0, |unit, &byte| char::from(byte).to_digit(16).map(|digit| unit << 4 | digit))
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn expect_end(&mut self) -> Result<(), PromptError> {
        self.skip_space();
        if self.at < self.body.len() { Err(self.expected("the end of the body")) } else { Ok(()) }
    }

    fn expected(&self, expected: &'static str) -> PromptError {
        PromptError::NotJson { at: self.at, expected }
    }
}

/// The brackets that are open, one bit each: set for an object.
struct Brackets {
    bits: [u64; MAX_DEPTH / 64],
    outer: usize,
    depth: usize,
}

impl Brackets {
    /// None yet, inside `outer` others.
    fn new(outer: usize) -> Self {
        Self { bits: [0; MAX_DEPTH / 64], outer, depth: outer }
    }

    /// False if that would be one too many.
    fn push(&mut self, is_object: bool) -> bool {
        let Some(bits) = self.bits.get_mut(self.depth / 64) else { return false };
        let bit = 1 << (self.depth % 64);
        *bits = if is_object { *bits | bit } else { *bits & !bit };
        self.depth += 1;
        true
    }

    fn pop(&mut self) {
        self.depth -= 1;
    }

    fn is_empty(&self) -> bool {
        self.depth == self.outer
    }

    /// Whether the innermost one is an object's.
    fn is_object(&self) -> bool {
        !self.is_empty() && {
            let innermost = self.depth - 1;
            self.bits[innermost / 64] >> (innermost % 64) & 1 == 1
        }
    }
}
