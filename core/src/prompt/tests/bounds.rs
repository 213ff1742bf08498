//! Of a prompt only a part counts, and only that part is held.

use super::super::{COPIED_UP_TO_BYTES, MAX_NAME_BYTES, MAX_TEXT_BYTES, MAX_TOKENS, namespace};
use super::{Endpoint, Extractor, Owned, PromptError, extract};
use Endpoint::{Chat, Completions, Generate, Messages, Responses, Transcriptions};

/// As the text would be without a bound, cut to it.
#[track_caller]
fn assert_cut(endpoint: Endpoint, body: &str, whole: &str) {
    let expected = &whole[..whole.floor_char_boundary(MAX_TEXT_BYTES)];
    let found = extract(endpoint, body).unwrap();
    // Not `assert_eq`, which would print them.
    assert!(found.text == expected, "{} of {} bytes", found.text.len(), expected.len());
}

#[test]
fn no_body_that_is_copied_holds_more_than_counts() {
    const { assert!(COPIED_UP_TO_BYTES <= MAX_TEXT_BYTES) };
}

#[test]
fn a_text_is_cut_at_a_character_whatever_its_spelling() {
    for (written, read) in
        [("a", "a"), ("é", "é"), ("你", "你"), ("😀", "😀"), ("\\n", "\n"), ("\\u4f60", "你")]
    {
        let spare = 3;
        let count = MAX_TEXT_BYTES / read.len() + spare;
        let text = written.repeat(count);
        assert_cut(Completions, &format!(r#"{{"prompt":"{text}"}}"#), &read.repeat(count));
    }
    // A pair of escapes is one character, of which no half is left over.
    let lead = "x".repeat(MAX_TEXT_BYTES - 1);
    for (tail, read) in [(r"\ud83d\ude00", "😀"), (r"\ud83d", "\u{fffd}"), ("é", "é"), ("", "")]
    {
        let body = format!(r#"{{"prompt":"{lead}{tail}yz"}}"#);
        assert_cut(Completions, &body, &format!("{lead}{read}yz"));
        // Only the one-byte tail fits; behind what does not fit nothing counts.
        let fits = usize::from(read.is_empty());
        assert_eq!(extract(Completions, &body).unwrap().text.len(), lead.len() + fits);
    }
}

#[test]
fn pieces_are_counted_together_with_what_joins_them() {
    let (a, b) = ("a".repeat(MAX_TEXT_BYTES / 2), "é".repeat(MAX_TEXT_BYTES / 4));
    let whole = format!("{a} {b} end");
    let said = |text: &str| format!(r#"{{"role":"user","content":"{text}"}}"#);
    let messages = format!(r#"{{"messages":[{},{},{}]}}"#, said(&a), said(&b), said("end"));
    assert_cut(Chat, &messages, &whole);
    assert_cut(Messages, &messages, &whole);
    assert_cut(Responses, &messages.replacen("messages", "input", 1), &whole);
    let part = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
    let parts =
        format!(r#"{{"messages":[{{"content":[{},{}]}},{}]}}"#, part(&a), part(&b), said("end"));
    assert_cut(Chat, &parts, &whole);
    assert_cut(Completions, &format!(r#"{{"prompt":["{a}","{b}","end"]}}"#), &whole);
    // The last character there is room for is the space.
    let a = "a".repeat(MAX_TEXT_BYTES - 1);
    assert_cut(Generate, &format!(r#"{{"text":["{a}","b"]}}"#), &format!("{a} b"));
    let a = "a".repeat(MAX_TEXT_BYTES);
    assert_cut(Generate, &format!(r#"{{"text":["{a}","b"]}}"#), &a);
    assert_cut(Generate, &format!(r#"{{"text":["{a}"]}}"#), &a);
}

#[test]
fn what_does_not_count_takes_no_room() {
    let long = "x".repeat(MAX_TEXT_BYTES);
    let body = format!(
        r#"{{"messages":[{{"role":"user","reasoning_content":"{long}","content":"{long}",
            "content":[{{"type":"image","text":"{long}"}},{{"type":"text","text":"a"}}]}},
            {{"role":"assistant","content":"b","reasoning_content":"c"}}]}}"#
    );
    assert_cut(Chat, &body, "a b c");
}

#[test]
fn fields_behind_a_huge_text_are_found_and_what_follows_it_is_checked() {
    let long = "x".repeat(2 * MAX_TEXT_BYTES);
    let tail = r#""role":"user"},{"role":"user","content":"more"}],"model":"m","stream":true,"rid":"r","cache_salt":"s""#;
    let body = format!(r#"{{"messages":[{{"content":"{long}",{tail}}}"#);
    let prompt = extract(Chat, &body).unwrap();
    assert_eq!(prompt.text.len(), MAX_TEXT_BYTES);
    assert_eq!((prompt.model.as_deref(), prompt.rid.as_deref()), (Some("m"), Some("r")));
    assert!(prompt.stream);
    assert_eq!(prompt.namespace, namespace(Some("s"), None, None));
    for (good, bad, expected) in [
        ("more", r"mo\xe", "an escape character"),
        ("more", r"mo\u12g4", "four hex digits"),
        ("more", "mo\n", "an escape instead of a control character"),
        ("true", "tru", "a value"),
        ("}],", "}]]", "a comma or a closing brace"),
    ] {
        let at = body.rfind(good).unwrap();
        let broken = format!("{}{bad}{}", &body[..at], &body[at + good.len()..]);
        let error = extract(Chat, broken).unwrap_err();
        let PromptError::NotJson { at: found, expected: said } = error else { panic!("{error:?}") };
        assert_eq!(said, expected);
        assert!((at..at + 5).contains(&found), "{found} of {at}");
    }
    let mut binary = body.into_bytes();
    let at = binary.len() - 3;
    binary[at] = 0xff;
    assert_eq!(extract(Chat, binary), Err(PromptError::NotUtf8 { at }));
}

#[test]
fn the_first_tokens_count_and_no_others_are_looked_at() {
    let ids = |count: usize, last: &str| format!("[{}{last}]", "7,".repeat(count));
    for (list, expected) in [
        (ids(MAX_TOKENS, "8"), MAX_TOKENS),
        (ids(MAX_TOKENS, "\"no token\""), MAX_TOKENS),
        (ids(MAX_TOKENS - 1, "8"), MAX_TOKENS),
        (ids(MAX_TOKENS - 1, "0.5"), 0),
        (format!("[{},[1]]", ids(MAX_TOKENS, "8")), MAX_TOKENS),
    ] {
        let body = format!(r#"{{"input_ids":{list},"text":"t","model":"m"}}"#);
        let prompt = extract(Generate, body).unwrap();
        assert_eq!(prompt.tokens.len(), expected);
        assert_eq!(prompt.text, if expected == 0 { "t" } else { "" });
        assert_eq!(prompt.model.as_deref(), Some("m"));
    }
}

#[test]
fn numbers_are_tokens_in_a_large_body_as_in_a_small_one() {
    let numbers = ["0", "-0", "7", "4294967295", "-1", "-2147483648"];
    let none = ["4294967296", "-2147483649", "1.0", "1e2", "0e0", "99999999999999999999", "true"];
    for (number, is_token) in
        numbers.iter().map(|n| (n, true)).chain(none.iter().map(|n| (n, false)))
    {
        let body = format!(r#"{{"input_ids":[1,{number} ],"text":"t"}}"#);
        let small = extract(Generate, &body).unwrap();
        assert_eq!(small.tokens.len(), if is_token { 2 } else { 0 }, "{number}");
        assert_eq!(extract(Generate, body.replacen('{', r#"{"x":1e999,"#, 1)).unwrap(), small);
    }
}

#[test]
fn a_large_body_is_not_held_a_second_time() {
    let long = "x".repeat(16 << 20);
    let texts = vec![format!("\"{}\"", "y".repeat(1000)); 16 << 10].join(",");
    for body in [
        format!(r#"{{"messages":[{{"content":"{long}"}}]}}"#),
        format!(r#"{{"messages":[{{"content":[{texts}]}}]}}"#),
        format!(r#"{{"messages":[{{"{long}":1,"content":"t"}}],"{long}":2}}"#),
        format!(r#"{{"model":"{long}","rid":"{long}\n","cache_salt":"\t{long}"}}"#),
        format!(r#"{{"messages":[{{"role":"{long}","content":"t"}}]}}"#),
    ] {
        let mut extractor = Extractor::new();
        let prompt = extractor.extract(Chat, body.as_bytes()).map(Owned::from).unwrap();
        assert!(prompt.text.len() <= MAX_TEXT_BYTES);
        for name in [prompt.model, prompt.rid].into_iter().flatten() {
            assert_eq!(name.len(), MAX_NAME_BYTES);
        }
        assert_eq!(extractor.scratch.capacity(), 0);
        assert_eq!(extractor.tape.0.capacity(), 0);
        let found = &extractor.found;
        assert!(found.text.capacity() <= MAX_TEXT_BYTES);
        assert!(found.model.text.capacity().max(found.rid.text.capacity()) <= 2 * MAX_NAME_BYTES);
        let owned =
            extractor
                .extract_owned(Chat, body.as_bytes(), super::super::Want::Everything, &|| false);
        assert!(owned.unwrap().bytes() <= MAX_TEXT_BYTES + 4096);
    }
}

#[test]
fn a_large_cache_salt_counts_whole() {
    let long = "s\u{e9}".repeat(COPIED_UP_TO_BYTES);
    let plain = extract(Chat, format!(r#"{{"cache_salt":"{long}"}}"#)).unwrap().namespace;
    assert_eq!(plain, namespace(Some(&long), None, None));
    let escaped = extract(Chat, format!(r#"{{"cache_salt":"{long}\t"}}"#)).unwrap().namespace;
    assert_eq!(escaped, namespace(Some(&format!("{long}\t")), None, None));
}

#[test]
fn the_prompt_of_a_form_is_cut_as_well() {
    let long = "é".repeat(MAX_TEXT_BYTES / 2 + 2);
    let body =
        format!("--X\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n{long}\r\n--X--");
    assert_cut(Transcriptions, &body, &long);
}
