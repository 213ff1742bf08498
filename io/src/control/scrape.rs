//! The metrics listener, and the probe listener of `--health-check-port`: tiny HTTP servers for
//! scrapers and kubelets, away from the shards.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use smg_core::http1::{
    HeadCursor, Header, Known, Method, RequestHead, SimpleResponse, find, parse_request,
    path_and_query, split_query, write_simple_response,
};
use tracing::warn;

use super::seam::{Class, Runtime, Stream, timeout};
use crate::runtime::descriptors::{self, WARN_EVERY};
use crate::runtime::seldom::Seldom;

/// Connections served at a time; scrapers are few.
const MAX_CONNECTIONS: usize = 64;
/// A connection that sends no request for this long is closed.
const IDLE: Duration = Duration::from_secs(30);
/// After a failed accept, which is a want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An answer of one of these servers.
pub struct Page {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// Body.
    pub body: Vec<u8>,
}

/// What is asked: a path without query, and whether OpenMetrics is acceptable.
pub struct Asked<'a> {
    /// Path.
    pub path: &'a [u8],
    /// The `Accept` header names OpenMetrics.
    pub open_metrics: bool,
}

/// Serves `page` on `listener`, for ever.
pub async fn serve<R: Runtime>(
    runtime: R,
    listener: R::Listener,
    page: Rc<dyn Fn(Asked<'_>) -> Page>,
) {
    let open = Rc::new(Cell::new(0));
    let mut warnings = Seldom::new(WARN_EVERY);
    loop {
        match runtime.accept(&listener).await {
            Ok(stream) if open.get() < MAX_CONNECTIONS => {
                open.set(open.get() + 1);
                let (page, open) = (page.clone(), open.clone());
                runtime.spawn(Class::Background, async move {
                    // A scraper that goes away mid-request needs no answer.
                    let _ = connection(runtime, stream, page).await;
                    open.set(open.get() - 1);
                });
            }
            Ok(_) => {}
            Err(error) => {
                if warnings.is_due() {
                    let remedy = descriptors::remedy(&error);
                    warn!(target: "smg::control", %error, "accept failed{remedy}");
                }
                runtime.sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection<R: Runtime>(
    runtime: R,
    mut stream: R::Stream,
    page: Rc<dyn Fn(Asked<'_>) -> Page>,
) -> std::io::Result<()> {
    let (mut buf, mut headers) = (Vec::with_capacity(2048), Vec::new());
    loop {
        let mut cursor = HeadCursor::default();
        let head = loop {
            if cursor.ready(&buf) {
                match parse_request(&buf, &mut headers) {
                    Ok(Some(head)) => break head,
                    Ok(None) => {}
                    Err(error) => {
                        let page = text(error.status(), error.message());
                        return stream.write_all(render(&page, true, false, false)).await;
                    }
                }
            }
            buf.reserve(2048);
            let (received, back) = timeout(runtime, IDLE, async {
                let (outcome, buf) = stream.read(std::mem::take(&mut buf)).await;
                outcome.map(|received| (received, buf))
            })
            .await?;
            buf = back;
            if received == 0 {
                return Ok(());
            }
        };
        let answer = answer(&buf, &head, &headers, &*page);
        // A body is not expected; what follows the head cannot be told from one.
        let close = !head.keep_alive || !head.body.is_empty();
        let head_only = head.method == Method::Head;
        stream.write_all(render(&answer, close, head_only, head.http10)).await?;
        if close {
            return Ok(());
        }
        buf.drain(..head.len);
    }
}

fn answer(
    buf: &[u8],
    head: &RequestHead,
    headers: &[Header],
    page: &dyn Fn(Asked<'_>) -> Page,
) -> Page {
    let accept = find(headers, Known::Accept).map_or(&b""[..], |header| header.value.of(buf));
    let page = page(Asked {
        path: split_query(path_and_query(head.target.of(buf))).0,
        open_metrics: memchr::memmem::find(accept, b"application/openmetrics-text").is_some(),
    });
    if page.status != 404 && !matches!(head.method, Method::Get | Method::Head) {
        return text(405, "method not allowed; use GET");
    }
    page
}

/// A plain-text page.
pub fn text(status: u16, message: &str) -> Page {
    Page {
        status,
        content_type: "text/plain; charset=utf-8",
        body: format!("{message}\n").into_bytes(),
    }
}

fn render(page: &Page, close: bool, head_only: bool, http10: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.body.len() + 256);
    write_simple_response(
        &mut out,
        &SimpleResponse {
            status: page.status,
            content_type: page.content_type,
            extra_headers: &[],
            body: &page.body,
            connection_close: close,
            http10_client: http10,
            head_only,
        },
    );
    out
}
