//! The access log: one line per request, however it ends. It names routes by their template and has
//! nothing in it that a client wrote but the request's id, so that no prompt and no key gets there.

use std::sync::Arc;
use std::time::Instant;

use smg_core::http1::Method;
use tracing::info;

use crate::fleet::Worker;
use crate::http::answer::ErrorCode;
use crate::http::relay::Ending;
use crate::http::route::{METHOD_LABELS, Route, method_index};

/// Status in the log of a request whose client left before it had an answer.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// How a request went, as far as it has.
#[derive(Default)]
pub struct Outcome {
    /// Status of the answer; 0 before there is one.
    pub status: u16,
    /// Cause of an answer that is an error of the gateway's own.
    pub error: Option<ErrorCode>,
    /// How the answer ended.
    pub ending: Option<Ending>,
    /// The last worker that was tried.
    pub worker: Option<Arc<Worker>>,
    /// Attempts at workers.
    pub attempts: u32,
    /// Bytes of the request's body; 0 if it was not read.
    pub request_bytes: usize,
    /// Bytes of the answer's body.
    pub response_bytes: u64,
}

/// Writes the line of a request. `asked` is what its head asked for, if that could be read.
pub fn log(asked: Option<(Method, Route)>, id: &[u8], started: Instant, outcome: &Outcome) {
    let (status, ending) = match outcome.status {
        0 => (CLIENT_CLOSED_REQUEST, Ending::ClientGone),
        status => (status, outcome.ending.unwrap_or(Ending::ClientGone)),
    };
    let worker = outcome.worker.as_deref();
    info!(
        target: "smg::access",
        method = asked.map(|(method, _)| METHOD_LABELS[method_index(method)]),
        path = asked.map(|(_, route)| Route::template_at(route.index())),
        status,
        error = outcome.error.map(ErrorCode::code),
        ending = ending.label(),
        worker = worker.map(|worker| worker.url.as_str()),
        model = worker.map(|worker| &*worker.model_name),
        attempts = outcome.attempts,
        request_bytes = outcome.request_bytes,
        response_bytes = outcome.response_bytes,
        latency_us = started.elapsed().as_micros() as u64,
        request_id = (!id.is_empty()).then(|| tracing::field::display(String::from_utf8_lossy(id))),
        "finished processing request"
    );
}
