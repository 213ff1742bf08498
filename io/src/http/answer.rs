//! The gateway's own answers: one JSON shape, one code per cause.

use smg_core::http1::{SimpleResponse, write_simple_response};

use crate::http::cors::Cors;

/// Every cause for which the gateway answers with an error of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    BadRequest,
    JsonParseError,
    MissingModel,
    RequestTooLarge,
    HeadTooLarge,
    RequestTimeout,
    ExpectationFailed,
    UnsupportedEncoding,
    NotImplemented,
    Unauthorized,
    UnknownUrl,
    MethodNotAllowed,
    ModelNotFound,
    NoAvailableWorkers,
    WorkerOverloadProtectionShed,
    UpstreamConnect,
    UpstreamReset,
    UpstreamProtocol,
    UpstreamTimeout,
    WorkerRequest,
    WorkerNotFound,
    WorkerAlreadyExists,
    WorkerBeingRemoved,
    WorkerLimit,
    ControlBusy,
    ConnectionLimit,
    AdmissionQueueFull,
    AdmissionQueueTimeout,
    BodyReadTimeout,
    BodyMemoryExhausted,
    InternalError,
}

impl ErrorCode {
    /// Every code, in the order of the tables.
    pub const ALL: [Self; 31] = [
        Self::BadRequest,
        Self::JsonParseError,
        Self::MissingModel,
        Self::RequestTooLarge,
        Self::HeadTooLarge,
        Self::RequestTimeout,
        Self::ExpectationFailed,
        Self::UnsupportedEncoding,
        Self::NotImplemented,
        Self::Unauthorized,
        Self::UnknownUrl,
        Self::MethodNotAllowed,
        Self::ModelNotFound,
        Self::NoAvailableWorkers,
        Self::WorkerOverloadProtectionShed,
        Self::UpstreamConnect,
        Self::UpstreamReset,
        Self::UpstreamProtocol,
        Self::UpstreamTimeout,
        Self::WorkerRequest,
        Self::WorkerNotFound,
        Self::WorkerAlreadyExists,
        Self::WorkerBeingRemoved,
        Self::WorkerLimit,
        Self::ControlBusy,
        Self::ConnectionLimit,
        Self::AdmissionQueueFull,
        Self::AdmissionQueueTimeout,
        Self::BodyReadTimeout,
        Self::BodyMemoryExhausted,
        Self::InternalError,
    ];

    /// Status, `code` and `type` of the error.
    pub fn parts(self) -> (u16, &'static str, &'static str) {
        const CLIENT: &str = "invalid_request_error";
        const SERVER: &str = "server_error";
        match self {
            Self::BadRequest => (400, "bad_request", CLIENT),
            Self::JsonParseError => (400, "json_parse_error", CLIENT),
            Self::MissingModel => (400, "missing_model", CLIENT),
            Self::RequestTooLarge => (413, "request_too_large", CLIENT),
            Self::HeadTooLarge => (431, "request_header_fields_too_large", CLIENT),
            Self::RequestTimeout => (408, "request_timeout", CLIENT),
            Self::ExpectationFailed => (417, "expectation_failed", CLIENT),
            Self::UnsupportedEncoding => (415, "unsupported_content_encoding", CLIENT),
            Self::NotImplemented => (501, "not_implemented", CLIENT),
            Self::Unauthorized => (401, "invalid_api_key", "authentication_error"),
            Self::UnknownUrl => (404, "unknown_url", CLIENT),
            Self::MethodNotAllowed => (405, "method_not_allowed", CLIENT),
            Self::ModelNotFound => (404, "model_not_found", CLIENT),
            Self::NoAvailableWorkers => (503, "no_available_workers", SERVER),
            Self::WorkerOverloadProtectionShed => (503, "worker_overload_protection_shed", SERVER),
            Self::UpstreamConnect => (502, "upstream_connect_error", SERVER),
            Self::UpstreamReset => (502, "upstream_connection_closed", SERVER),
            Self::UpstreamProtocol => (502, "upstream_protocol_error", SERVER),
            Self::UpstreamTimeout => (504, "upstream_timeout", SERVER),
            // The admin routes' codes are in capitals, as their clients know them.
            Self::WorkerRequest => (400, "BAD_REQUEST", CLIENT),
            Self::WorkerNotFound => (404, "WORKER_NOT_FOUND", CLIENT),
            Self::WorkerAlreadyExists => (409, "WORKER_ALREADY_EXISTS", CLIENT),
            Self::WorkerBeingRemoved => (409, "WORKER_BEING_REMOVED", CLIENT),
            Self::WorkerLimit => (503, "WORKER_LIMIT_REACHED", SERVER),
            Self::ControlBusy => (503, "INTERNAL_SERVER_ERROR", SERVER),
            Self::ConnectionLimit => (503, "connection_limit_reached", SERVER),
            Self::AdmissionQueueFull => (429, "admission_queue_full", "rate_limit_error"),
            Self::AdmissionQueueTimeout => (503, "admission_queue_timeout", SERVER),
            Self::BodyReadTimeout => (503, "body_read_timeout", SERVER),
            Self::BodyMemoryExhausted => (503, "body_memory_exhausted", SERVER),
            Self::InternalError => (500, "internal_error", SERVER),
        }
    }

    /// HTTP status.
    pub fn status(self) -> u16 {
        self.parts().0
    }

    /// The `code`, also in `X-SMG-Error-Code` and the `error_code` label.
    pub fn code(self) -> &'static str {
        self.parts().1
    }
}

/// An error answer before it is written.
#[derive(Debug, Clone)]
pub struct ErrorAnswer {
    /// The cause.
    pub code: ErrorCode,
    /// What happened and what to do next, safe to show to a client.
    pub message: String,
    /// `Retry-After` in seconds.
    pub retry_after_secs: Option<u64>,
    /// `Allow`, with 405.
    pub allow: Option<&'static str>,
}

impl ErrorAnswer {
    /// An answer without extra headers.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after_secs: None, allow: None }
    }

    /// The same with `Retry-After`.
    pub fn retry_after(mut self, secs: u64) -> Self {
        self.retry_after_secs = Some(secs);
        self
    }

    /// The JSON body; Anthropic's shape on `/v1/messages`.
    pub fn body(&self, anthropic: bool) -> Vec<u8> {
        let (status, code, kind) = self.code.parts();
        let value = if anthropic {
            let kind = match status {
                401 => "authentication_error",
                404 => "not_found_error",
                413 => "request_too_large",
                429 => "rate_limit_error",
                503 => "overloaded_error",
                400..=499 => "invalid_request_error",
                _ => "api_error",
            };
            serde_json::json!({"type": "error", "error": {
                "type": kind, "code": code, "message": self.message, "param": null}})
        } else {
            serde_json::json!({"error": {
                "type": kind, "code": code, "message": self.message, "param": null}})
        };
        value.to_string().into_bytes()
    }
}

/// How an answer of the gateway itself is framed.
#[derive(Debug, Clone, Copy)]
pub struct Framing<'a> {
    /// `x-request-id` to return.
    pub request_id: &'a [u8],
    /// What it tells browsers.
    pub cors: &'a Cors,
    /// The connection ends after this answer.
    pub close: bool,
    /// The request was HEAD.
    pub head_only: bool,
    /// The client speaks HTTP/1.0.
    pub http10_client: bool,
}

/// Appends an error answer to `out`; the length of its body.
pub fn write_error(
    out: &mut Vec<u8>,
    answer: &ErrorAnswer,
    anthropic: bool,
    framing: Framing<'_>,
) -> usize {
    let body = answer.body(anthropic);
    let retry_after = answer.retry_after_secs.map(|secs| secs.to_string());
    let mut extra: Vec<(&str, &[u8])> = vec![("x-smg-error-code", answer.code.code().as_bytes())];
    if let Some(secs) = &retry_after {
        extra.push(("retry-after", secs.as_bytes()));
    }
    if let Some(allow) = answer.allow {
        extra.push(("allow", allow.as_bytes()));
    }
    if answer.code == ErrorCode::Unauthorized {
        extra.push(("www-authenticate", b"Bearer"));
    }
    write(out, answer.code.status(), "application/json", &extra, &body, framing);
    body.len()
}

/// Appends an answer with any status and body to `out`.
pub fn write(
    out: &mut Vec<u8>,
    status: u16,
    content_type: &str,
    extra: &[(&str, &[u8])],
    body: &[u8],
    framing: Framing<'_>,
) {
    let mut headers: Vec<(&str, &[u8])> = extra.to_vec();
    headers.extend(framing.cors.headers());
    if !framing.request_id.is_empty() {
        headers.push(("x-request-id", framing.request_id));
    }
    write_simple_response(
        out,
        &SimpleResponse {
            status,
            content_type,
            extra_headers: &headers,
            body,
            connection_close: framing.close,
            http10_client: framing.http10_client,
            head_only: framing.head_only,
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_all_is_the_order_of_the_enum() {
        for (at, code) in ErrorCode::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, at);
        }
    }

    #[test]
    fn both_error_shapes() {
        let answer = ErrorAnswer::new(ErrorCode::ModelNotFound, "No worker serves \"x\"");
        assert_eq!(
            String::from_utf8(answer.body(false)).unwrap(),
            r#"{"error":{"code":"model_not_found","message":"No worker serves \"x\"","param":null,"type":"invalid_request_error"}}"#
        );
        let anthropic = String::from_utf8(answer.body(true)).unwrap();
        assert!(anthropic.starts_with(r#"{"error":{"code":"model_not_found""#), "{anthropic}");
        assert!(anthropic.contains(r#""type":"error""#) && anthropic.contains("not_found_error"));
    }
}
