//! A second, slower reading of a body: says whether it is a JSON object, and where its routing fields
//! are. It takes no memory, and no stack per level of nesting.
//!
//! It is for the bodies the fast path does not take:
//!
//! - Large ones. The parser needs a copy that it may rewrite, and up to 24 bytes of tape per byte of it.
//! - Ones the parser refuses. If the body is not JSON, this finds where. If it is, it holds an
//!   integer beyond 64 bits, a number beyond the range of `f64` or a lone surrogate escape, all of
//!   which RFC 8259 allows and Python reads.

use memchr::memchr2;

use super::field::{Field, Fields};
use super::raw::{Raw, RawText, hex4, low_surrogate};
use super::{MAX_DEPTH, PromptError};

/// Bytes between two questions whether the body is still wanted: a millisecond or so.
const ASKED_EVERY: usize = 64 << 10;

/// The routing fields of `body`. Asks now and then whether it is `abandoned`.
///
/// # Errors
///
/// [`PromptError`] if `body` is not a JSON object, nests too deep or is abandoned.
pub(super) fn fields_of<'a>(
    body: &'a [u8],
    abandoned: &'a dyn Fn() -> bool,
) -> Result<Fields<Raw<'a>>, PromptError> {
    let text = std::str::from_utf8(body)
        .map_err(|error| PromptError::NotUtf8 { at: error.valid_up_to() })?;
    Scanner { text, body, at: 0, asks_at: ASKED_EVERY, abandoned }.object()
}

struct Scanner<'a> {
    text: &'a str,
    /// The bytes of `text`.
    body: &'a [u8],
    at: usize,
    /// Where it asks next.
    asks_at: usize,
    abandoned: &'a dyn Fn() -> bool,
}

impl<'a> Scanner<'a> {
    fn object(mut self) -> Result<Fields<Raw<'a>>, PromptError> {
        self.skip_space();
        if self.peek() != Some(b'{') {
            self.skip_value(0)?;
            self.expect_end()?;
            return Err(PromptError::NotAnObject);
        }
        self.at += 1;
        let mut fields = Fields::default();
        self.skip_space();
        let mut is_open = !self.take(b'}');
        while is_open {
            self.member(&mut fields)?;
            self.skip_space();
            is_open = self.take(b',');
            if !is_open && !self.take(b'}') {
                return Err(self.expected("a comma or a closing brace"));
            }
            self.skip_space();
        }
        self.expect_end()?;
        Ok(fields)
    }

    fn member(&mut self, fields: &mut Fields<Raw<'a>>) -> Result<(), PromptError> {
        let start = self.at + 1;
        let end = self.skip_key()?;
        self.skip_space();
        let value = Raw::at(self.text, self.at);
        self.skip_value(1)?;
        let key = RawText::between_quotes(self.text.get(start..end).unwrap_or_default()).name();
        if let Some(field) = Field::named(key.as_bytes()) {
            fields.set(field, value);
        }
        Ok(())
    }

    /// Skips a key and its colon; returns where its closing quote is.
    fn skip_key(&mut self) -> Result<usize, PromptError> {
        if self.peek() != Some(b'"') {
            return Err(self.expected("a key in double quotes"));
        }
        self.skip_string()?;
        let end = self.at - 1;
        self.skip_space();
        if !self.take(b':') {
            return Err(self.expected("a colon after the key"));
        }
        Ok(end)
    }

    /// Skips one value inside `depth` open brackets.
    fn skip_value(&mut self, depth: usize) -> Result<(), PromptError> {
        let mut open = Brackets::new(depth);
        loop {
            self.ask()?;
            self.skip_space();
            if self.skip_scalar_or_open(&mut open)? {
                if open.is_object() {
                    self.skip_key()?;
                }
                continue;
            }
            // A value has ended: so may the brackets around it.
            loop {
                if open.is_empty() {
                    return Ok(());
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
                self.skip_key()?;
            }
        }
    }

    fn ask(&mut self) -> Result<(), PromptError> {
        if self.at < self.asks_at {
            return Ok(());
        }
        self.asks_at = self.at + ASKED_EVERY;
        if (self.abandoned)() { Err(PromptError::Abandoned) } else { Ok(()) }
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

    fn skip_number(&mut self) -> Result<(), PromptError> {
        self.take(b'-');
        if !self.take(b'0') {
            self.skip_digits()?;
        }
        if self.take(b'.') {
            self.skip_digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.skip_digits()?;
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

    /// Skips `uXXXX`, or both escapes of a surrogate pair.
    fn skip_unicode_escape(&mut self) -> Result<(), PromptError> {
        let unit = hex4(self.body, self.at + 1).ok_or_else(|| self.expected("four hex digits"))?;
        self.at += 5;
        if (0xd800..0xdc00).contains(&unit) && low_surrogate(self.body, self.at).is_some() {
            self.at += 6;
        }
        Ok(())
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
