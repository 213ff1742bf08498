//! Bodies that must be accepted whatever the fields routing does not need, and bodies that must be
//! refused with a useful message.

use super::super::{COPIED_UP_TO_BYTES, MAX_DEPTH};
use super::{Endpoint, PromptError, extract, text};
use Endpoint::{Chat, Generate};

/// A chat body with one more member, which must not matter.
fn chat_with(member: &str) -> String {
    format!(r#"{{{member},"model":"m1","messages":[{{"role":"user","content":"hi"}}]}}"#)
}

fn assert_reads_as_usual(body: impl AsRef<[u8]>) {
    let prompt = extract(Chat, &body).unwrap();
    let shown = String::from_utf8_lossy(body.as_ref()).chars().take(80).collect::<String>();
    assert_eq!((prompt.model.as_deref(), prompt.text.as_str()), (Some("m1"), "hi"), "{shown}");
}

fn error(body: impl AsRef<[u8]>) -> PromptError {
    extract(Chat, body).unwrap_err()
}

#[test]
fn numbers_of_any_size_and_spelling() {
    for number in [
        "9223372036854775807",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
        "123456789012345678901234567890",
        "1.0",
        "1e-1",
        "0.50",
        "-0.0",
        "-0",
        "1E+2",
        "1e999",
        "-1e999",
        "1e-999",
        "0e99999999999",
        "1e99999999999999999999999",
        "123456789012345678901234567890.123456789e12345",
    ] {
        assert_reads_as_usual(chat_with(&format!(r#""x":{number}"#)));
        assert_reads_as_usual(chat_with(&format!(r#""x":[{number},{{"y":{number}}}]"#)));
    }
}

#[test]
fn unknown_null_and_repeated_fields() {
    for member in [
        r#""zz":{"b":1,"a":[true,null]},"a-b":"c","vllm_xargs":{"k":"v"}"#,
        r#""stop":null,"temperature":null,"":null"#,
        r#""x":1,"x":2,"top_p":0.5,"top_p":0.5"#,
        r#""messages":"earlier","model":7"#,
        r#""logit_bias":{"50256":-100,"1":0.25}"#,
        r#""x":"\u0000\ud83d\ude00 \/ \u0041 \b\f\n\r\t\" \\ ""#,
        r#""prompt":null,"prompt_embeds":"AAAA","x":[[],{},"",[{}],[[[]]]]"#,
    ] {
        assert_reads_as_usual(chat_with(member));
    }
}

#[test]
fn escaped_key_names() {
    let body = r#"{"\u006dodel":"m1","mess\u0061ges":[{"r\u006fle":"user","\u0063ontent":"hi"}]}"#;
    assert_reads_as_usual(body);
    assert_reads_as_usual(body.replacen('{', r#"{"x":1e999,"#, 1));
}

#[test]
fn whitespace_and_a_byte_order_mark() {
    let body = " \n{\t\"model\" :\r\n \"m1\" , \"messages\" : [ { \"role\" : \"user\" , \
        \"content\" : \"hi\" } ] }\n \n";
    assert_reads_as_usual(body);
    assert_reads_as_usual(body.replacen('{', "{ \"x\" : 1e999 , ", 1));
    assert_reads_as_usual(format!("\u{feff}{}", chat_with(r#""x":1"#)));
}

#[test]
fn text_is_unescaped_and_raw_utf8_kept() {
    let raw = "é你😀\u{2028}\u{2029}\u{feff}\u{7f}";
    assert_eq!(text(Generate, format!(r#"{{"text":"{raw}"}}"#)), raw);
    let escaped = r#"{"text":"\u00e9\u4f60\ud83d\ude00 \/ \u0041 \b\f\n\r\t\" \\ \u0000"}"#;
    let plain = "é你😀 / A \u{8}\u{c}\n\r\t\" \\ \0";
    assert_eq!(text(Generate, escaped), plain);
    assert_eq!(text(Generate, escaped.replacen('{', r#"{"x":1e999,"#, 1)), plain);
}

#[test]
fn lone_surrogates_read_as_the_replacement_character() {
    for (escapes, expected) in [
        (r"\ud800", "\u{fffd}"),
        (r"a\udfffb", "a\u{fffd}b"),
        (r"\ud83d\ude00\ud83d", "😀\u{fffd}"),
        (r"\ud83d\ud83d\ude00", "\u{fffd}😀"),
        (r"\uDC00\uD800", "\u{fffd}\u{fffd}"),
        (r"\ud800\n", "\u{fffd}\n"),
        (r"\ud800\u0041", "\u{fffd}A"),
        (r"\\ud800\ud800", "\\ud800\u{fffd}"),
    ] {
        assert_eq!(text(Generate, format!(r#"{{"text":"{escapes}"}}"#)), expected, "{escapes}");
        assert_reads_as_usual(chat_with(&format!(r#""x":"{escapes}","{escapes}":1"#)));
    }
}

#[test]
fn nesting_up_to_the_limit_and_no_deeper() {
    // The body's own brace is one level.
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    for number in ["1", "1e999"] {
        let with = |levels| chat_with(&format!(r#""n":{number},"x":{}"#, nested(levels)));
        assert_reads_as_usual(with(MAX_DEPTH - 1));
        for levels in [MAX_DEPTH, MAX_DEPTH + 1, 100_000] {
            assert!(matches!(error(with(levels)), PromptError::TooDeep { .. }), "{levels}");
        }
    }
    assert_eq!(error("[".repeat(100_000)), PromptError::TooDeep { at: MAX_DEPTH });
    let objects = r#"{"a":"#.repeat(100_000);
    assert_eq!(error(objects), PromptError::TooDeep { at: 5 * MAX_DEPTH });
}

#[test]
fn bodies_that_are_not_copied_read_the_same() {
    let filler = "w ".repeat(COPIED_UP_TO_BYTES / 2);
    let image = format!(r#"{{"type":"image_url","image_url":{{"url":"data:,{filler}"}}}}"#);
    let part = r#"{"type":"text","text":"hi"}"#;
    let body = format!(
        r#"{{"messages":[{{"content":[{image},{part}]}}],"x":"{filler}","x":[1e999],"model":"m1"}}"#
    );
    assert_reads_as_usual(body);
    let long = format!(r#"{{"text":"{filler}"}}"#);
    assert_eq!(text(Generate, long), filler);
}

#[test]
fn texts_of_any_length_count_under_any_spelling_of_their_names() {
    let long = |letter: &str| letter.repeat(1000);
    let (a, b, c, d) = (long("a"), long("b"), long("c"), long("d"));
    let body = format!(
        r#"{{"x":1e999,"messages":[{{"conten\u0074":"{a}","role":"assistant","reasoning_content":"{b}"}},{{"content":["{c}",{{"text":"{d}","type":"text","name":"{d}"}}]}}]}}"#
    );
    assert_eq!(text(Chat, body), format!("{a} {b} {c} {d}"));
    assert_eq!(
        text(Generate, format!(r#"{{"x":1e999,"text":["{a}","{b}"]}}"#)),
        format!("{a} {b}")
    );
}

#[test]
fn values_without_number_and_fields_repeated_without_end_are_read_as_any() {
    let zeros = vec!["0"; 1 << 19].join(",");
    let repeated = vec![format!(r#""text":[{zeros},"a","b"]"#); 4].join(",");
    let body = format!(r#"{{"text":"earlier","model":"m",{repeated},"rid":"r"}}"#);
    let prompt = extract(Generate, body).unwrap();
    assert_eq!((prompt.model.as_deref(), prompt.rid.as_deref()), (Some("m"), Some("r")));
    assert_eq!(prompt.text, "a b");
}

#[test]
fn what_is_not_json_is_located() {
    for (body, at, expected) in [
        ("{", 1, "a key in double quotes"),
        ("{\"a\"}", 4, "a colon after the key"),
        ("{\"a\":}", 5, "a value"),
        ("{\"a\":1,}", 7, "a key in double quotes"),
        ("{\"a\":1 \"b\":2}", 7, "a comma or a closing brace"),
        ("{\"a\":[1 2]}", 8, "a comma or a closing bracket"),
        ("{\"a\":{\"b\":1]}", 11, "a comma or a closing brace"),
        ("{\"a\":[1,]}", 8, "a value"),
        ("{\"a\":\"x}", 8, "a closing double quote"),
        ("{\"a\":\"x\ny\"}", 7, "an escape instead of a control character"),
        ("{\"a\":\"\\x\"}", 7, "an escape character"),
        ("{\"a\":\"\\u12g4\"}", 7, "four hex digits"),
        ("{\"a\":01}", 6, "a comma or a closing brace"),
        ("{\"a\":-}", 6, "a digit"),
        ("{\"a\":1.}", 7, "a digit"),
        ("{\"a\":1e+}", 8, "a digit"),
        ("{\"a\":.5}", 5, "a value"),
        ("{\"a\":+1}", 5, "a value"),
        ("{\"a\":tru}", 5, "a value"),
        ("{\"a\":truex}", 9, "a comma or a closing brace"),
        ("{\"a\":NaN}", 5, "a value"),
        ("{\"a\":Infinity}", 5, "a value"),
        ("{\"a\":'b'}", 5, "a value"),
        ("{'a':1}", 1, "a key in double quotes"),
        ("{a:1}", 1, "a key in double quotes"),
        ("{\"a\":1} {}", 8, "the end of the body"),
        ("{\"a\":1}x", 7, "the end of the body"),
        ("{\"a\":1,/**/\"b\":2}", 7, "a key in double quotes"),
        ("   ", 3, "a value"),
        ("model=m&prompt=p", 0, "a value"),
        ("--X\r\n", 1, "a digit"),
        ("[1,2", 4, "a comma or a closing bracket"),
        ("{\"a\":1}\0", 7, "the end of the body"),
    ] {
        assert_eq!(error(body), PromptError::NotJson { at, expected }, "{body:?}");
    }
}

#[test]
fn json_that_is_no_object() {
    for body in ["[]", "[{\"model\":\"m\"}]", "\"model\"", "5", "null", "true", " 1e999 ", "-0"] {
        assert_eq!(error(body), PromptError::NotAnObject, "{body}");
    }
}

#[test]
fn bytes_that_are_no_utf8() {
    assert_eq!(error(b"{\"a\":\"\xff\"}"), PromptError::NotUtf8 { at: 6 });
    assert_eq!(error(b"{\"a\":\"\xc3\"}"), PromptError::NotUtf8 { at: 6 });
    assert_eq!(error(b"{\"a\":\"\xed\xa0\x80\"}"), PromptError::NotUtf8 { at: 6 });
    assert_eq!(error("{\"a\":1}".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>()), {
        PromptError::NotJson { at: 1, expected: "a key in double quotes" }
    });
}

#[test]
fn an_empty_body() {
    assert_eq!(error(""), PromptError::Empty);
    assert_eq!(error("\u{feff}"), PromptError::Empty);
}

#[test]
fn messages_are_one_line_and_quote_nothing() {
    for body in [&b""[..], b"{\"secret\":x}", b"{\"secret\":\"\xff\"}", b"[]"] {
        let message = error(body).to_string();
        assert!(message.starts_with("the request body"), "{message}");
        assert!(!message.contains('\n') && !message.contains("secret"), "{message}");
    }
    assert_eq!(
        error("{\"a\":x}").to_string(),
        "the request body is not valid JSON: expected a value at byte 5"
    );
}

#[test]
fn an_error_leaves_nothing_behind() {
    let mut extractor = super::Extractor::new();
    let good = br#"{"model":"m","text":"t","rid":"r","stream":true,"cache_salt":"s"}"#;
    assert!(extractor.extract(Generate, good).is_ok());
    assert!(extractor.extract(Generate, b"{").is_err());
    let empty = extractor.extract(Generate, b"{}").map(super::Owned::from);
    assert_eq!(empty, Ok(super::Owned::default()));
}
