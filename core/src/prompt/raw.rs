//! Views of a body as it came: nothing is copied, and nothing is looked at that is not asked for.
//!
//! The body has been through [`super::check`], which leaves no other JSON than what RFC 8259 has. Were it
//! something else, values would come out wrong or missing; nothing here fails.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

use super::view::{Text, View};

/// One JSON value: the rest of the body from its first byte on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'b>(&'b str);

/// A string between its quotes, escapes included.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawText<'b>(&'b str);

/// A name with escapes that is longer than this between its quotes is none that is asked for.
const MAX_ESCAPED_NAME_BYTES: usize = 256;

impl<'b> Raw<'b> {
    /// The value that begins at `at`.
    pub(super) fn at(body: &'b str, at: usize) -> Self {
        Self(from(body, at))
    }

    fn first(self) -> Option<u8> {
        self.0.as_bytes().first().copied()
    }
}

impl<'b> View for Raw<'b> {
    type Text = RawText<'b>;
    type Name = Cow<'b, str>;
    type Elements = Elements<'b>;
    type Members = Members<'b>;

    fn text(self) -> Option<RawText<'b>> {
        let len = match self.first()? {
            b'"' => string_len(self.0.as_bytes()),
            _ => return None,
        };
        self.0.get(1..len.saturating_sub(1)).map(RawText)
    }

    fn name(self) -> Option<Cow<'b, str>> {
        self.text().map(RawText::name)
    }

    fn is_true(self) -> bool {
        self.first() == Some(b't')
    }

    fn is_null(self) -> bool {
        self.first() == Some(b'n')
    }

    fn elements(self) -> Option<Elements<'b>> {
        (self.first() == Some(b'[')).then(|| Elements(Rest::inside(self.0)))
    }

    fn members(self) -> Members<'b> {
        Members(if self.first() == Some(b'{') { Rest::inside(self.0) } else { Rest::default() })
    }

    fn token(self) -> Option<u32> {
        let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let len = self.0.bytes().take_while(|byte| is_part(byte)).count();
        // A fraction or an exponent makes it no integer, whatever its value.
        let id: i64 = self.0.get(..len)?.parse().ok()?;
        u32::try_from(id).ok().or_else(|| i32::try_from(id).ok().map(i32::cast_unsigned))
    }
}

impl<'b> RawText<'b> {
    /// Of a key: the text between the quotes.
    pub(super) fn between_quotes(text: &'b str) -> Self {
        Self(text)
    }

    pub(super) fn name(self) -> Cow<'b, str> {
        if memchr(b'\\', self.0.as_bytes()).is_none() {
            return Cow::Borrowed(self.0);
        }
        if self.0.len() > MAX_ESCAPED_NAME_BYTES {
            return Cow::Borrowed("");
        }
        let mut name = String::new();
        self.for_each(|part| {
            name.push_str(part);
            true
        });
        Cow::Owned(name)
    }
}

impl Text for RawText<'_> {
    fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    fn for_each(self, mut each: impl FnMut(&str) -> bool) {
        let mut rest = self.0;
        while !rest.is_empty() {
            let plain_len = memchr(b'\\', rest.as_bytes()).unwrap_or(rest.len());
            let plain = rest.get(..plain_len).unwrap_or_default();
            if !plain.is_empty() && !each(plain) {
                return;
            }
            rest = from(rest, plain_len);
            if !rest.is_empty() {
                let (character, len) = unescaped(rest);
                if !each(character.encode_utf8(&mut [0; 4])) {
                    return;
                }
                rest = from(rest, len);
            }
        }
    }
}

/// The character that the escape at the front of `text` stands for, and the bytes of the escape; both
/// escapes of a surrogate pair are one. A lone surrogate stands for U+FFFD.
fn unescaped(text: &str) -> (char, usize) {
    let bytes = text.as_bytes();
    let plain = match bytes.get(1) {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode_unescaped(bytes),
        Some(&byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
        _ => char::REPLACEMENT_CHARACTER,
    };
    (plain, 2)
}

fn unicode_unescaped(bytes: &[u8]) -> (char, usize) {
    let unit = hex4(bytes, 2).unwrap_or_default();
    let character = match (unit, low_surrogate(bytes, 6)) {
        (0xd800..0xdc00, Some(low)) => {
            let code = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
            return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 12);
        }
        _ => char::from_u32(unit),
    };
    (character.unwrap_or(char::REPLACEMENT_CHARACTER), 6)
}

/// The unit of the `\uXXXX` at `at`, if it is the second half of a surrogate pair.
pub(super) fn low_surrogate(bytes: &[u8], at: usize) -> Option<u32> {
    let is_escape = bytes.get(at..at + 2) == Some(b"\\u");
    hex4(bytes, at + 2).filter(|unit| is_escape && (0xdc00..0xe000).contains(unit))
}

/// The number that the four hexadecimal digits at `at` are.
pub(super) fn hex4(bytes: &[u8], at: usize) -> Option<u32> {
    let digit = |&byte: &u8| char::from(byte).to_digit(16);
    bytes.get(at..at + 4)?.iter().try_fold(0, |unit, byte| digit(byte).map(|d| unit << 4 | d))
}

/// Iterates the elements of an array.
#[derive(Debug, Clone)]
pub(super) struct Elements<'b>(Rest<'b>);

impl<'b> Iterator for Elements<'b> {
    type Item = Raw<'b>;

    fn next(&mut self) -> Option<Raw<'b>> {
        self.0.find_next()?;
        Some(self.0.value())
    }
}

/// Iterates the members of an object.
#[derive(Debug, Clone)]
pub(super) struct Members<'b>(Rest<'b>);

impl<'b> Iterator for Members<'b> {
    type Item = (Cow<'b, str>, Raw<'b>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.find_next()?;
        let key = self.0.value().text()?;
        self.0.skip(key.0.len() + 2);
        self.0.skip(1); // the colon
        Some((key.name(), self.0.value()))
    }
}

/// What is left of an array or an object.
#[derive(Debug, Clone, Default)]
struct Rest<'b> {
    text: &'b str,
    /// At its front is a value that was handed out: who reads on skips it, and nobody else does.
    is_after_value: bool,
}

impl<'b> Rest<'b> {
    fn inside(brackets: &'b str) -> Self {
        Self { text: without_space(from(brackets, 1)), is_after_value: false }
    }

    /// Goes to the next element or member; `None` at the end.
    fn find_next(&mut self) -> Option<()> {
        if std::mem::take(&mut self.is_after_value) {
            self.skip(value_len(self.text.as_bytes()));
            if self.text.as_bytes().first() == Some(&b',') {
                self.skip(1);
            }
        }
        if matches!(self.text.as_bytes().first(), None | Some(b']' | b'}')) {
            self.text = "";
            return None;
        }
        Some(())
    }

    fn value(&mut self) -> Raw<'b> {
        self.is_after_value = true;
        Raw(self.text)
    }

    fn skip(&mut self, len: usize) {
        self.text = without_space(from(self.text, len));
    }
}

/// The length of the value at the front of `json`.
fn value_len(json: &[u8]) -> usize {
    let (mut at, mut open) = (0, 0usize);
    while let Some(&byte) = json.get(at) {
        match byte {
            b'"' => at += string_len(&json[at..]),
            b'[' | b'{' => {
                open += 1;
                at += 1;
            }
            b']' | b'}' if open == 0 => return at,
            b']' | b'}' => {
                open -= 1;
                at += 1;
            }
            b',' | b' ' | b'\n' | b'\r' | b'\t' if open == 0 => return at,
            // Of a number or a word, or between values.
            _ => {
                at += 1;
                continue;
            }
        }
        if open == 0 {
            return at;
        }
    }
    json.len()
}

/// The length of the string at the front of `json`, quotes included.
fn string_len(json: &[u8]) -> usize {
    let mut at = 1;
    while let Some(found) = json.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if json[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    json.len()
}

fn without_space(text: &str) -> &str {
    text.trim_start_matches([' ', '\n', '\r', '\t'])
}

/// `text` from `at` on. Whatever this is called with is the end of something ASCII.
fn from(text: &str, at: usize) -> &str {
    text.get(at..).unwrap_or_default()
}
