//! The life of one client connection: requests one after the other, each answered before the next is
//! looked at.

use std::rc::Rc;
use std::time::{Duration, Instant};

use smg_core::http1::{Header, Method, RequestHead, path_and_query, split_query};

use crate::admin;
use crate::http::access::{self, Outcome};
use crate::http::admission::{self, Entry, Permit};
use crate::http::answer::{self, ErrorAnswer, ErrorCode, Framing};
use crate::http::auth;
use crate::http::client::{ClientSide, Interrupt};
use crate::http::coding::{self, Coding};
use crate::http::cors::Cors;
use crate::http::exchange::Credentials;
use crate::http::read::{self, Stop};
use crate::http::refusal;
use crate::http::relay::Ending;
use crate::http::request::Request;
use crate::http::request_id;
use crate::http::route::{Route, method_index};
use crate::http::transport::{Reader, Writer};
use crate::http2;
use crate::shard::{ConnectionState, Shard};

/// A client that takes nothing of a short answer for this long is given up.
const ANSWER_STALL: Duration = Duration::from_secs(60);

/// A client connection.
pub struct Connection {
    pub(super) shard: Rc<Shard>,
    pub(super) client: ClientSide,
    pub(super) writer: Writer,
    pub(super) client_addr: Box<[u8]>,
    state: Rc<ConnectionState>,
    headers: Vec<Header>,
    /// How the request under way is going.
    pub(super) outcome: Outcome,
}

/// What becomes of the connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next request.
    Request,
    /// Nothing: close.
    Close,
}

impl Connection {
    /// Takes over the transport of a client; `client_addr` is its IP address as text.
    pub fn new(
        shard: Rc<Shard>,
        (reader, writer): (Reader, Writer),
        client_addr: Box<[u8]>,
        state: Rc<ConnectionState>,
    ) -> Self {
        let first_head = Duration::from_secs(shard.shared.config.limits.header_read_timeout_secs);
        Self {
            shard,
            client: ClientSide::new(reader, first_head),
            writer,
            client_addr,
            state,
            headers: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    /// For one of the streams that may be open over one connection of the client.
    pub fn sharing(mut self) -> Self {
        self.client.share();
        self
    }

    /// Serves requests until either side ends the connection, or the client turns out to speak HTTP/2.
    pub async fn run(mut self) -> Option<Box<http2::Start>> {
        let mut first = true;
        loop {
            self.state.idle.set(true);
            if self.shard.closing() && !first {
                return None;
            }
            let shared = self.shard.shared.clone();
            let mut begun = None;
            let read = read::head(
                &mut self.client,
                &shared.config,
                &mut self.headers,
                first,
                &self.state,
                &mut begun,
            )
            .await;
            if matches!(read, Err(Stop::Http2)) {
                let (reader, received) = self.client.into_parts();
                let transport = (reader, self.writer);
                let start = http2::Start::new(transport, received, self.client_addr, self.state);
                return Some(Box::new(start));
            }
            self.state.begin_request();
            first = false;
            self.state.fresh.set(false);
            let begun = begun.unwrap_or_else(Instant::now);
            self.outcome = Outcome::default();
            let next = match read {
                // On the heap while it lasts, so that an idle connection is small; made where it stays, for
                // it takes kilobytes.
                Ok(head) => {
                    let place = Box::new_uninit();
                    Box::into_pin(Box::write(place, self.request(head, begun))).await
                }
                Err(Stop::Close | Stop::Http2) => Next::Close,
                Err(Stop::Refuse(error)) => {
                    let cors = Cors::of(shared.config.cors_allowed_origins.as_ref(), b"", &[]);
                    Box::pin(self.refuse_unread(Route::Unknown, false, &error, b"", &cors)).await;
                    access::log(None, b"", begun, &self.outcome);
                    Next::Close
                }
            };
            if next == Next::Close {
                return None;
            }
        }
    }

    /// Answers a request, and leaves a line about it in the access log, however it ends.
    async fn request(&mut self, head: RequestHead, started: Instant) -> Next {
        let received = self.client.received();
        let route = Route::of(split_query(path_and_query(head.target.of(received))).0);
        let method = head.method;
        let _active = Active::begin(&self.shard, route, method);
        let id = request_id::choose(
            received,
            &self.headers,
            &self.shard.shared.config.request_id_headers,
            route,
            &mut self.shard.rng.borrow_mut(),
        );
        let next = self.read_and_answer(head, started, route, id.clone()).await;
        access::log(Some((method, route)), &id, started, &self.outcome);
        next
    }

    /// Reads the rest of a request and answers it.
    async fn read_and_answer(
        &mut self,
        head: RequestHead,
        started: Instant,
        route: Route,
        id: Rc<[u8]>,
    ) -> Next {
        let received = self.client.received();
        let head_only = head.method == Method::Head;
        let config = &self.shard.shared.config;
        let cors = Cors::of(config.cors_allowed_origins.as_ref(), received, &self.headers);
        let framing = Framing {
            request_id: &id,
            cors: &cors,
            close: !head.keep_alive || self.shard.closing(),
            head_only,
            http10_client: head.http10,
        };
        if head.body.is_empty()
            && let Some(said) = cors.preflight(route, head.method, received, &self.headers)
        {
            let mut out = Vec::with_capacity(512);
            let framing = Framing { cors: &Cors::Off, ..framing };
            answer::write(&mut out, 204, "", &said, b"", framing);
            let ahead = received.split_off(head.len);
            self.client.begin_next(ahead, head.len);
            self.answered(route, 204, None, 0);
            return self.send(out, framing.close).await;
        }
        let checked = check(&self.shard, route, head.method, received, &self.headers);
        let (credentials, codings) = match checked {
            Ok(checked) => checked,
            Err(error) => {
                let anthropic = route.is_anthropic();
                if head.body.is_empty() && head.keep_alive {
                    let ahead = received.split_off(head.len);
                    self.client.begin_next(ahead, head.len);
                    return self.send_error(route, &error, anthropic, framing).await;
                }
                Box::pin(self.refuse_unread(route, head_only, &error, &id, &cors)).await;
                return Next::Close;
            }
        };
        if matches!(route, Route::Inference(_)) && self.shard.shared.admission.is_full() {
            // Before its body takes memory, and the client the trouble to send it.
            let error = self.turned_away(0);
            Box::pin(self.refuse_unread(route, head_only, &error, &id, &cors)).await;
            return Next::Close;
        }
        let shared = self.shard.shared.clone();
        let limit = route.largest_body(&config.limits);
        let body = read::body(&mut self.client, &mut self.writer, &shared, &head, limit);
        let whole = match body.await {
            Ok(whole) => whole,
            Err(Stop::Close | Stop::Http2) => return Next::Close,
            Err(Stop::Refuse(error)) => {
                Box::pin(self.refuse_unread(route, head_only, &error, &id, &cors)).await;
                return Next::Close;
            }
        };
        self.client.begin_next(whole.ahead, whole.buf.len());
        self.outcome.request_bytes = whole.body.len();
        let mut request = Request {
            buf: Rc::new(whole.buf),
            head,
            headers: std::mem::take(&mut self.headers),
            body_len: whole.body.len(),
            body: whole.body,
            route,
            id,
            codings,
            cors,
            started,
        };
        let next = match route {
            // With its body here: one that comes slowly keeps nobody from running.
            Route::Inference(endpoint) => match self.admit().await {
                Ok(_permit) => self.infer(endpoint, &mut request, credentials).await,
                Err(Stop::Refuse(error)) => self.fail(&request, &error).await,
                Err(Stop::Close | Stop::Http2) => Next::Close,
            },
            Route::Own(own) => Box::pin(admin::serve(self, own, &request)).await,
            // `check` refuses unknown routes.
            Route::Unknown => Next::Close,
        };
        self.headers = request.headers;
        next
    }

    /// Waits for the right to run.
    async fn admit(&mut self) -> Result<Permit, Stop> {
        let place = match admission::enter(&self.shard) {
            Entry::Free(permit) => {
                if self.shard.shared.admission.is_limited() {
                    self.shard.cells().admission[0].inc();
                }
                return Ok(permit);
            }
            Entry::Full => return Err(Stop::Refuse(self.turned_away(0))),
            Entry::Queued(place) => place,
        };
        let patience = self.shard.shared.config.admission.queue_timeout_secs;
        self.client.set_deadline(Duration::from_secs(patience));
        match self.client.watch(place).await {
            Ok(permit) => {
                self.shard.cells().admission[0].inc();
                Ok(permit)
            }
            Err(Interrupt::ClientGone) => Err(Stop::Close),
            Err(Interrupt::Deadline) => Err(Stop::Refuse(self.turned_away(1))),
        }
    }

    /// Counts and says that a request may not run: the queue was full (0), or it waited too long (1).
    fn turned_away(&self, reason: usize) -> ErrorAnswer {
        let cells = self.shard.cells();
        cells.admission[1].inc();
        cells.admission_rejected[reason].inc();
        let (code, message) = match reason {
            0 => (
                ErrorCode::AdmissionQueueFull,
                "too many requests are running and waiting; retry after the time given",
            ),
            _ => (
                ErrorCode::AdmissionQueueTimeout,
                "its turn did not come in time; retry after the time given",
            ),
        };
        ErrorAnswer::new(code, message).retry_after(admission::RETRY_AFTER_SECS)
    }

    /// The shard this connection is on.
    pub(crate) fn shard(&self) -> &Rc<Shard> {
        &self.shard
    }

    /// Whether the connection ends after an answer to `request`.
    pub(super) fn closes(&self, request: &Request) -> bool {
        !request.head.keep_alive || self.shard.closing()
    }

    /// Answers `request` with an error of the gateway.
    pub(crate) async fn fail(&mut self, request: &Request, error: &ErrorAnswer) -> Next {
        let framing = self.framing(request);
        self.observe_duration(request);
        self.send_error(request.route, error, request.anthropic(), framing).await
    }

    /// Answers `request` with a body of the gateway's own.
    pub(crate) async fn reply(
        &mut self,
        request: &Request,
        status: u16,
        content_type: &str,
        extra: &[(&str, &[u8])],
        body: &[u8],
    ) -> Next {
        self.answered(request.route, status, None, body.len());
        self.write_answer(request, status, content_type, extra, body).await
    }

    /// Answers `request` with an error of the gateway in a shape of its route's own.
    pub(crate) async fn fail_with(
        &mut self,
        request: &Request,
        code: ErrorCode,
        content_type: &str,
        extra: &[(&str, &[u8])],
        body: &[u8],
    ) -> Next {
        self.answered(request.route, code.status(), Some(code), body.len());
        let extra = [extra, &[("x-smg-error-code", code.code().as_bytes())]].concat();
        self.write_answer(request, code.status(), content_type, &extra, body).await
    }

    async fn write_answer(
        &mut self,
        request: &Request,
        status: u16,
        content_type: &str,
        extra: &[(&str, &[u8])],
        body: &[u8],
    ) -> Next {
        let framing = self.framing(request);
        let mut out = Vec::with_capacity(body.len() + 256);
        answer::write(&mut out, status, content_type, extra, body, framing);
        self.observe_duration(request);
        self.send(out, framing.close).await
    }

    /// The time to the head of an answer.
    pub(super) fn observe_duration(&self, request: &Request) {
        let seconds = request.started.elapsed().as_secs_f64();
        self.shard.cells().duration(request.route, method_index(request.head.method), seconds);
    }

    fn framing<'a>(&self, request: &'a Request) -> Framing<'a> {
        Framing {
            request_id: &request.id,
            cors: &request.cors,
            close: self.closes(request),
            head_only: request.head.method == Method::Head,
            http10_client: request.head.http10,
        }
    }

    async fn send_error(
        &mut self,
        route: Route,
        error: &ErrorAnswer,
        anthropic: bool,
        framing: Framing<'_>,
    ) -> Next {
        let mut out = Vec::with_capacity(512);
        let body_len = answer::write_error(&mut out, error, anthropic, framing);
        self.answered(route, error.code.status(), Some(error.code), body_len);
        self.send(out, framing.close).await
    }

    /// Notes an answer of the gateway's own.
    fn answered(&mut self, route: Route, status: u16, error: Option<ErrorCode>, body_len: usize) {
        self.shard.cells().response(route, status, error);
        self.outcome.status = status;
        self.outcome.error = error;
        self.outcome.response_bytes = body_len as u64;
    }

    async fn send(&mut self, out: Vec<u8>, close: bool) -> Next {
        self.client.set_deadline(ANSWER_STALL);
        let sent =
            matches!(self.client.watch(self.writer.write_all(out, 0)).await, Ok((Ok(()), _)));
        self.outcome.ending.get_or_insert(if sent { Ending::Complete } else { Ending::ClientGone });
        if sent && !close { Next::Request } else { Next::Close }
    }

    /// Refuses a request whose bytes have not all been read, and ends the connection so that the
    /// client sees the answer before the end.
    async fn refuse_unread(
        &mut self,
        route: Route,
        head_only: bool,
        error: &ErrorAnswer,
        id: &[u8],
        cors: &Cors,
    ) {
        let framing =
            Framing { request_id: id, cors, close: true, head_only, http10_client: false };
        let mut out = Vec::with_capacity(512);
        let body_len = answer::write_error(&mut out, error, route.is_anthropic(), framing);
        self.answered(route, error.code.status(), Some(error.code), body_len);
        self.client.stop_stream();
        self.client.forget_received();
        let sent = refusal::send_last(self.client.reader(), &mut self.writer, out).await;
        self.outcome.ending = Some(if sent { Ending::Complete } else { Ending::ClientGone });
    }
}

/// Whether a request may go on to have its body read; with the codings of that body.
fn check(
    shard: &Shard,
    route: Route,
    method: Method,
    buf: &[u8],
    headers: &[Header],
) -> Result<(Credentials, Vec<Coding>), ErrorAnswer> {
    let keys = shard.shared.api_keys.load();
    let credentials = auth::check(&keys, route, buf, headers).ok_or_else(|| {
        ErrorAnswer::new(
            ErrorCode::Unauthorized,
            "the API key is missing or wrong; send it as Authorization: Bearer <key> or x-api-key",
        )
    })?;
    let allow = match route {
        Route::Inference(_) if method == Method::Post => None,
        Route::Own(own) if own.allows(method) => None,
        Route::Inference(_) | Route::Own(_) => Some(route.allow()),
        Route::Unknown => {
            return Err(ErrorAnswer::new(
                ErrorCode::UnknownUrl,
                "nothing is served at this path; see the documentation for the routes",
            ));
        }
    };
    if let Some(allow) = allow {
        let mut error =
            ErrorAnswer::new(ErrorCode::MethodNotAllowed, format!("this path answers to {allow}"));
        error.allow = Some(allow);
        return Err(error);
    }
    let codings = match route {
        Route::Inference(_) => coding::of_request(buf, headers)?,
        _ => Vec::new(),
    };
    Ok((credentials, codings))
}

/// One request in the gauge, from its head to the end of its answer.
struct Active {
    shard: Rc<Shard>,
}

impl Active {
    fn begin(shard: &Rc<Shard>, route: Route, method: Method) -> Self {
        shard.cells().requests[route.index()][method_index(method)].inc();
        shard.cells().requests_active.add(1);
        Self { shard: shard.clone() }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.shard.cells().requests_active.add(-1);
    }
}
