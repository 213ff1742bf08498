//! Both readers of a body say the same of every document, whole or broken: what it routes on depends on
//! no size.

use super::super::{BYTE_ORDER_MARK, COPIED_UP_TO_BYTES, Found, Want, check};
use super::{Endpoint, Owned, PromptError, extract};

/// As the reader of large bodies reads it.
fn walked(endpoint: Endpoint, body: &[u8]) -> Result<Owned, PromptError> {
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    if body.is_empty() {
        return Err(PromptError::Empty);
    }
    let mut found = Found::default();
    found.collect(endpoint, &check::fields_of(body, &|| false)?, Want::Everything);
    Ok(Owned::from(found.prompt()))
}

#[track_caller]
fn assert_alike(endpoint: Endpoint, body: &[u8]) -> bool {
    let slow = walked(endpoint, body);
    assert_eq!(extract(endpoint, body), slow, "{endpoint:?} {}", body.escape_ascii());
    slow.is_ok()
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(word ^ word >> 31) * end as u128) >> 64) as usize
    }

    fn one_of<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    fn space(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.one_of(&[&b""[..], b"", b"", b"", b" ", b"\n\t", b"\r\n  "]));
    }

    fn string(&mut self, out: &mut Vec<u8>) {
        const PIECES: &[&str] = &[
            "a",
            "text",
            " ",
            "é",
            "你",
            "😀",
            "\u{7f}",
            "\u{2028}",
            r"\n",
            r"\\",
            r#"\""#,
            r"\/",
            r"\b\f\r\t",
            r"\u0000",
            r"\u0041",
            r"\u00e9",
            r"\u4F60",
            r"\ud83d\ude00",
            r"\uDBFF\uDFFF",
            r"\ud83d",
            r"\ude00",
            r"\ud83d\ud83d\ude00",
            r"\ud83d\u0041",
            r"\ude00\ud83d",
            r"\uffff",
            "a run of text that is longer than one register of the parser has bytes, to be sure",
        ];
        out.push(b'"');
        for _ in 0..self.below(4) {
            let rare = self.below(40) > 0;
            let piece = self.one_of(PIECES);
            // Lone surrogates only now and then: they take the fast reader out of it.
            let is_whole = rare && (piece.starts_with(r"\ud83d") || piece.starts_with(r"\ude00"));
            out.extend_from_slice(if is_whole { b"b" } else { piece.as_bytes() });
        }
        out.push(b'"');
    }

    fn key(&mut self, out: &mut Vec<u8>) {
        const KEYS: &[&str] = &[
            "model",
            "stream",
            "rid",
            "cache_salt",
            "extra_key",
            "lora_path",
            "lora_id",
            "messages",
            "system",
            "prompt",
            "text",
            "input_ids",
            "input",
            "query",
            "content",
            "type",
            "role",
            "reasoning_content",
            "",
            "x",
            r"con\u0074ent",
            r"\u0074ext",
            r"te\u0078t",
            r"mess\u0061ges",
            r"model\u0000",
            r"m\u006fdel",
            "content ",
            r"\ud83d\ude00",
        ];
        let key = self.one_of(KEYS);
        out.extend_from_slice(format!("\"{key}\"").as_bytes());
    }

    fn scalar(&mut self, out: &mut Vec<u8>) {
        const SCALARS: &[&str] = &[
            "true",
            "false",
            "null",
            "0",
            "-0",
            "1",
            "-1",
            "7",
            "4294967295",
            "4294967296",
            "-2147483648",
            "-2147483649",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "18446744073709551615",
            "1.0",
            "-0.0",
            "0.5",
            "1e0",
            "1E+2",
            "10e-1",
            "2.5e3",
            "1e-400",
            "4.9e-324",
            "1.7976931348623157e308",
            "123456789.123456789",
            r#""text""#,
            r#""assistant""#,
            r#""input_text""#,
            r#""output_text""#,
            r#""reasoning_text""#,
            r#""t\u0065xt""#,
            r#""assist\u0061nt""#,
        ];
        const RARE: &[&str] = &[
            "1e999",
            "-1e999",
            "18446744073709551616",
            "-9223372036854775809",
            "100000000000000000000000000",
            "1.7976931348623159e308",
            "01",
            "-",
            "1.",
            ".5",
            "+1",
            "1e",
            "1e+",
            "-01",
            "00",
            "0x1",
            "NaN",
            "Infinity",
            "tru",
            "nul",
            "True",
            "truex",
            "--1",
            "1..2",
            "0e",
            "0.e1",
            "- 1",
            "1 2",
            "",
            "'a'",
            "\u{feff}",
        ];
        match self.below(100) {
            0 => out.extend_from_slice(self.one_of(RARE).as_bytes()),
            1..40 => self.string(out),
            _ => out.extend_from_slice(self.one_of(SCALARS).as_bytes()),
        }
    }

    fn value(&mut self, depth: usize, out: &mut Vec<u8>) {
        self.space(out);
        match if depth == 0 { 9 } else { self.below(10) } {
            0..3 => self.list(b'[', b']', out, |dice, out| dice.value(depth - 1, out)),
            3..6 => self.object(depth - 1, out),
            _ => self.scalar(out),
        }
        self.space(out);
    }

    fn object(&mut self, depth: usize, out: &mut Vec<u8>) {
        self.list(b'{', b'}', out, |dice, out| {
            dice.space(out);
            dice.key(out);
            dice.space(out);
            out.push(b':');
            dice.value(depth, out);
        });
    }

    fn list(
        &mut self,
        open: u8,
        close: u8,
        out: &mut Vec<u8>,
        mut each: impl FnMut(&mut Self, &mut Vec<u8>),
    ) {
        out.push(open);
        for index in 0..self.below(5) {
            if index > 0 {
                out.push(b',');
            }
            each(self, out);
        }
        self.space(out);
        out.push(close);
    }

    /// Messages with content of each kind, since chance rarely makes one.
    fn messages(&mut self, out: &mut Vec<u8>) {
        let name = self.one_of(&["messages", "input", r"m\u0065ssages"]);
        out.extend_from_slice(format!("\"{name}\":").as_bytes());
        self.list(b'[', b']', out, |dice, out| {
            dice.list(b'{', b'}', out, |dice, out| {
                let name =
                    dice.one_of(&["content", "role", "reasoning_content", r"\u0063ontent", "x"]);
                out.extend_from_slice(format!("\"{name}\":").as_bytes());
                if dice.below(2) == 0 {
                    return dice.value(2, out);
                }
                dice.list(b'[', b']', out, |dice, out| dice.value(2, out));
            });
        });
    }

    fn body(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.below(30) == 0 {
            out.extend_from_slice(BYTE_ORDER_MARK);
        }
        self.space(&mut out);
        if self.below(20) == 0 {
            self.value(3, &mut out);
        } else {
            self.list(b'{', b'}', &mut out, |dice, out| {
                if dice.below(3) == 0 {
                    return dice.messages(out);
                }
                dice.key(out);
                out.push(b':');
                dice.value(4, out);
            });
        }
        self.space(&mut out);
        out
    }

    /// One byte more, less or other.
    fn spoil(&mut self, body: &mut Vec<u8>) {
        const BYTES: &[u8] =
            b"{}[]\",:\\u0e-.+ \n\t\0\x1f\x7f\x80\xc0\xc3\xed\xa0\xf4\xff/truefalsnd\x0b\x0c";
        let (at, byte) = (self.below(body.len() + 1), BYTES[self.below(BYTES.len())]);
        match self.below(4) {
            0 => body.insert(at, byte),
            1 if at < body.len() => body[at] = byte,
            2 if at < body.len() => drop(body.remove(at)),
            _ => body.truncate(at),
        }
    }
}

/// Bodies of one kind after another; all of them as they are and spoiled.
#[test]
fn bodies_of_chance_are_read_alike_by_both() {
    let rounds = 4_000;
    let mut dice = Dice(1);
    let mut accepted = 0;
    for _ in 0..rounds {
        let endpoint = Endpoint::ALL[dice.below(9)];
        let mut body = dice.body();
        accepted += usize::from(assert_alike(endpoint, &body));
        for _ in 0..3 {
            dice.spoil(&mut body);
            assert_alike(endpoint, &body);
        }
    }
    assert!(accepted > rounds / 2, "{accepted}");
}

/// Cut at each byte.
#[test]
fn a_body_cut_anywhere_is_refused_alike() {
    let body =
        br#" {"model":"m\u00e9\ud83d\ude00","x":[1.5e-3,-0,{"a":null},[true,false]],"messages":
        [{"content":[{"type":"text","text":"\"\\\n"},"b"],"role":"assistant"}],"text":"\u4f60"} "#;
    for end in 0..body.len() - 1 {
        assert!(!assert_alike(Endpoint::Chat, &body[..end]), "{end}");
    }
    assert!(assert_alike(Endpoint::Chat, body));
}

#[test]
fn padding_beyond_what_is_copied_changes_nothing() {
    let mut dice = Dice(2);
    let mut bodies = (0..).map(|_| dice.body()).filter(|body| !body.is_empty());
    for endpoint in &Endpoint::ALL[..9] {
        for body in bodies.by_ref().take(3) {
            let padded = [&body[..], &vec![b' '; COPIED_UP_TO_BYTES]].concat();
            assert_eq!(extract(*endpoint, &padded), extract(*endpoint, &body));
        }
    }
}
