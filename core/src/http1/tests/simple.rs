//! The gateway's own answers, as they are on the wire.

use super::super::{CONTINUE, SimpleResponse, reason, write_simple_response};
use super::response;

const NOT_FOUND: SimpleResponse<'static> = SimpleResponse {
    status: 404,
    content_type: "application/json",
    extra_headers: &[("X-SMG-Error-Code", b"not_found"), ("x-request-id", b"id-1")],
    body: b"{}",
    connection_close: false,
    http10_client: false,
    head_only: false,
};

fn written(response: &SimpleResponse<'_>) -> String {
    let mut out = Vec::new();
    write_simple_response(&mut out, response);
    String::from_utf8(out).expect("ASCII in, ASCII out")
}

#[test]
fn an_answer_carries_its_length_and_headers() {
    let head = "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\n\
        X-SMG-Error-Code: not_found\r\nx-request-id: id-1\r\ncontent-length: 2\r\n";
    assert_eq!(written(&NOT_FOUND), format!("{head}\r\n{{}}"));
    let close = SimpleResponse { connection_close: true, ..NOT_FOUND };
    assert_eq!(written(&close), format!("{head}connection: close\r\n\r\n{{}}"));
    let head_only = SimpleResponse { head_only: true, ..NOT_FOUND };
    assert_eq!(written(&head_only), format!("{head}\r\n"));
    let old = SimpleResponse { http10_client: true, ..NOT_FOUND };
    assert_eq!(written(&old), format!("{head}connection: keep-alive\r\n\r\n{{}}"));
}

#[test]
fn bodiless_statuses_have_no_framing() {
    for status in [204, 304] {
        let answer = SimpleResponse { status, content_type: "", extra_headers: &[], ..NOT_FOUND };
        let line = format!("HTTP/1.1 {status} {}\r\n\r\n", reason(status));
        assert_eq!(written(&answer), line);
    }
}

#[test]
fn answers_and_interim_answers_parse() {
    for status in 200..600 {
        let bytes = written(&SimpleResponse { status, ..NOT_FOUND });
        let (head, _) = response(bytes.as_bytes());
        assert_eq!(head.status, status);
        assert_eq!(head.reason.of(bytes.as_bytes()), reason(status).as_bytes());
    }
    let (head, _) = response(CONTINUE);
    assert_eq!((head.status, head.len), (100, CONTINUE.len()));
}
