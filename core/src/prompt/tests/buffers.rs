//! The scratch buffers: reused as they are, and given back after an unusual body.

use super::super::MAX_KEPT_BYTES;
use super::{Endpoint, Extractor};

/// Bytes reserved by each growing buffer.
fn capacities(extractor: &Extractor) -> [usize; 5] {
    let found = &extractor.found;
    [
        extractor.scratch.capacity(),
        extractor.tape.0.capacity() * size_of::<simd_json::Node<'static>>(),
        found.text.capacity(),
        found.tokens.capacity() * size_of::<u32>(),
        found.model.text.capacity(),
    ]
}

#[test]
fn a_repeated_request_grows_nothing() {
    let mut extractor = Extractor::new();
    let body = br#"{"model":"m","text":"some text","input_ids":[[]],"rid":"r"}"#;
    assert!(extractor.extract(Endpoint::Generate, body).is_ok());
    let grown = capacities(&extractor);
    let scratch = extractor.scratch.as_ptr();
    for _ in 0..100 {
        assert!(extractor.extract(Endpoint::Generate, body).is_ok());
    }
    assert_eq!(capacities(&extractor), grown);
    assert_eq!(extractor.scratch.as_ptr(), scratch);
}

#[test]
fn an_unusual_body_pins_no_memory() {
    let mut extractor = Extractor::new();
    let long = "x".repeat(3 * MAX_KEPT_BYTES);
    let ids = vec!["1"; MAX_KEPT_BYTES / 2].join(",");
    for body in [
        format!(r#"{{"text":"{long}"}}"#),
        format!(r#"{{"model":"{long}"}}"#),
        format!(r#"{{"input_ids":[{ids}]}}"#),
        format!(r#"{{"text":"{long}""#),
    ] {
        let _ = extractor.extract(Endpoint::Generate, body.as_bytes());
        assert!(extractor.extract(Endpoint::Generate, b"{}").is_ok());
        for bytes in capacities(&extractor) {
            assert!(bytes <= MAX_KEPT_BYTES, "{bytes}");
        }
        assert!(extractor.buffers.structural_indexes().len() < 16);
    }
}
