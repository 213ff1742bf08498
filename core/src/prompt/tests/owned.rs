//! Prompts that leave their extractor are those that stay in it.

use super::super::{BYTE_ORDER_MARK, COPIED_UP_TO_BYTES, Want};
use super::{Endpoint, Extractor, Owned, PromptError};

/// Read in each of the ways; they must not differ.
#[track_caller]
fn all_ways(endpoint: Endpoint, body: &[u8]) -> Result<Owned, PromptError> {
    // A used one, so that something left behind would show.
    let mut extractor = Extractor::new();
    let used = br#"{"model":"used","text":"before","input_ids":[7],"rid":"r","stream":true}"#;
    assert!(extractor.extract(Endpoint::Generate, used).is_ok());
    for want in [Want::Everything, Want::Head] {
        let stays = match want {
            Want::Everything => extractor.extract(endpoint, body),
            Want::Head => extractor.extract_head(endpoint, body),
        };
        let stays = stays.map(Owned::from);
        let leaves = extractor.extract_owned(endpoint, body, want, &|| false);
        assert_eq!(leaves.map(|prompt| Owned::from(prompt.prompt())), stays);
    }
    extractor.extract(endpoint, body).map(Owned::from)
}

#[test]
fn small_and_large_bodies_are_read_alike_in_every_way() {
    let long = "long ".repeat(COPIED_UP_TO_BYTES / 5);
    for text in ["short", &long] {
        let body =
            format!(r#"{{"model":"m","rid":"r","other":[1,2],"prompt":"{text}","stream":true}}"#);
        let marked = [BYTE_ORDER_MARK, body.as_bytes()].concat();
        let bodies = [&marked[..], body.as_bytes()];
        // The large one once: it takes a second where nothing is optimized.
        for body in bodies.into_iter().take(if text == long { 1 } else { 2 }) {
            let prompt = all_ways(Endpoint::Completions, body).unwrap();
            assert_eq!((&*prompt.text, prompt.stream), (text, true));
            assert_eq!((prompt.model.as_deref(), prompt.rid.as_deref()), (Some("m"), Some("r")));
            let cut = all_ways(Endpoint::Completions, &body[..body.len() - 1]);
            assert!(matches!(cut, Err(PromptError::NotJson { .. })), "{cut:?}");
        }
        let ids = format!(r#"{{"text":"{text}","input_ids":[1,2,3]}}"#);
        assert_eq!(all_ways(Endpoint::Generate, ids.as_bytes()).unwrap().tokens, [1, 2, 3]);
    }
    for body in [&b""[..], b"[]", b"{", b"{\"prompt\":\"\xff\"}"] {
        assert!(all_ways(Endpoint::Completions, body).is_err(), "{body:?}");
    }
}

#[test]
fn a_large_body_that_nobody_waits_for_is_left_within_its_next_part() {
    let numbers = "1,".repeat(COPIED_UP_TO_BYTES);
    let body = format!(r#"{{"prompt":"p","input_ids":[{numbers}1]}}"#);
    let mut extractor = Extractor::new();
    let asked = std::cell::Cell::new(0);
    let third_time = || {
        asked.set(asked.get() + 1);
        asked.get() == 3
    };
    let mut read = |body: &str| {
        let prompt = extractor.extract_owned(
            Endpoint::Completions,
            body.as_bytes(),
            Want::Head,
            &third_time,
        );
        prompt.map(|prompt| Owned::from(prompt.prompt()).stream)
    };
    assert_eq!(read(&body), Err(PromptError::Abandoned));
    assert_eq!(asked.get(), 3);
    // Who waits gets it, and the extractor is as good as new.
    assert_eq!(read(&body), Ok(false));
    assert!(asked.get() > 30, "{}", asked.get());
    asked.set(0);
    assert_eq!(read(r#"{"prompt":"p","stream":true}"#), Ok(true));
    assert_eq!(asked.get(), 0);
}
