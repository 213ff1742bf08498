//! A connection that speaks HTTP/2: its streams, its idle time, its end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tracing::debug;

use super::frames::Frames;
use super::share::{Piece, Shares};
use super::transport::Transport;
use super::{Start, stream};
use crate::http::access::{self, Outcome};
use crate::http::answer::ErrorCode;
use crate::http::read::KEEP_ALIVE;
use crate::http::relay::Ending;
use crate::http::route::Route;
use crate::http::watchdog::Watchdog;
use crate::runtime::clock;
use crate::shard::{ConnectionState, EndedBy, Shard};

/// Streams a client may have open at a time.
const MAX_STREAMS: u32 = 128;
/// Streams that are being served at a time, with those the client has given up; beyond, no further
/// ones are taken.
const MAX_SERVED: usize = 2 * MAX_STREAMS as usize;
/// Bytes of a request's body that may arrive before they are read.
const STREAM_WINDOW: u32 = 128 << 10;
/// ... over all streams. They are read as they come, but for those of requests that were refused and whose
/// client does not take the answer: a client may have so many of these before it waits for itself.
const CONNECTION_WINDOW: u32 = 16 * STREAM_WINDOW;
/// Fields of a head in bytes, each with the 32 that HTTP/2 adds (RFC 9113 §6.5.2). Heads over the limit
/// of HTTP/1.1 that fit in here are answered like those.
const MAX_HEADER_LIST: u32 = 96 << 10;
/// Bytes of an answer that wait for their turn on the connection; within what its stream's share is for.
const SEND_BUFFER: usize = 16 << 10;
/// Streams a client may give up at once ...
const GIVEN_UP_BURST: u32 = 400;
/// ... and per second for long; beyond, the connection ends.
const GIVEN_UP_PER_SEC: u64 = 40;
/// For an idle client to take leave when it is told to.
const FAREWELL: Duration = Duration::from_secs(2);
/// For the end of the last answer to be taken.
const LAST_ANSWER: Duration = Duration::from_secs(60);
/// While streams are open the connection lasts as long as they do.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Serves one connection until either side ends it.
pub async fn serve(shard: Rc<Shard>, start: Start) {
    let Start { transport, received, client_addr, state } = start;
    state.idle.set(true);
    state.ended_by(EndedBy::Asking);
    let limit = Duration::from_secs(shard.shared.config.limits.header_read_timeout_secs);
    let transport = Transport::new(transport, received);
    let frames = transport.frames();
    let handshake = builder().handshake::<_, Piece>(transport);
    let connection = match monoio::time::timeout(limit, handshake).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            return debug!(target: "smg::http", %error, "no HTTP/2 connection");
        }
        Err(_) => return debug!(target: "smg::http", "no HTTP/2 connection in time"),
    };
    let session = Session {
        served: Rc::new(Served::default()),
        shares: Shares::default(),
        watchdog: Watchdog::new(limit),
        head: HeadLimit {
            limit,
            frames,
            unfinished: None,
            was_late: false,
            watchdog: Watchdog::new(FOR_EVER),
        },
        busy: false,
        leaving: false,
        counted: None,
        shard,
        client_addr,
        state,
        connection,
    };
    session.run().await;
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(MAX_STREAMS)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEADER_LIST)
        .max_send_buffer_size(SEND_BUFFER);
    builder
}

struct Session {
    shard: Rc<Shard>,
    connection: Connection<Transport, Piece>,
    client_addr: Box<[u8]>,
    state: Rc<ConnectionState>,
    served: Rc<Served>,
    shares: Shares,
    watchdog: Watchdog,
    head: HeadLimit,
    /// Streams are being served.
    busy: bool,
    /// The client has been told that the connection ends.
    leaving: bool,
    counted: Option<Counted>,
}

enum Event {
    Stream(Box<(Request<RecvStream>, SendResponse<Piece>)>),
    AskedToLeave,
    Deadline,
    /// No stream can begin before it is complete; those that have begun may end.
    HeadIsLate,
    Ended,
}

impl Session {
    async fn run(mut self) {
        if self.shard.closing() {
            self.take_leave(FAREWELL);
        }
        loop {
            match std::future::poll_fn(|cx| self.poll_event(cx)).await {
                Event::Stream(stream) => {
                    let (request, respond) = *stream;
                    self.open(request, respond);
                }
                Event::AskedToLeave => self.take_leave(FAREWELL),
                Event::Deadline if !self.leaving => self.take_leave(FAREWELL),
                Event::HeadIsLate if self.busy => {
                    debug!(target: "smg::http", "an HTTP/2 head was not complete in time");
                    self.take_leave(FAREWELL);
                }
                Event::HeadIsLate | Event::Deadline | Event::Ended => return,
            }
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if !self.leaving && self.state.poll_asked(cx).is_ready() {
            return Poll::Ready(Event::AskedToLeave);
        }
        let served = self.served.watch(cx);
        if self.busy != (served > 0) {
            self.busy = served > 0;
            self.watchdog.set(match (self.busy, self.leaving) {
                (true, _) => FOR_EVER,
                (false, false) => KEEP_ALIVE,
                // There is no telling what it is doing.
                (false, true) if self.head.was_late => FAREWELL,
                (false, true) => LAST_ANSWER,
            });
        }
        if self.served.too_many_given_up() && !self.leaving {
            debug!(target: "smg::http", "too many HTTP/2 streams were given up");
            self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            self.leaving = true;
            self.watchdog.set(FAREWELL);
        }
        let event = if served < MAX_SERVED {
            self.connection.poll_accept(cx).map(|accepted| match accepted {
                Some(Ok(stream)) => Event::Stream(Box::new(stream)),
                Some(Err(_)) | None => Event::Ended,
            })
        } else {
            self.connection.poll_closed(cx).map(|_| Event::Ended)
        };
        if event.is_ready() {
            return event;
        }
        if self.head.poll(cx).is_ready() {
            return Poll::Ready(Event::HeadIsLate);
        }
        self.watchdog.poll(cx).map(|()| Event::Deadline)
    }

    fn open(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Piece>) {
        self.counted.get_or_insert_with(|| Counted::new(&self.shard));
        let memory = &self.shard.shared.body_memory;
        let Ok(share) = self.shares.take(memory, request.headers()) else {
            // So that the client knows it may send the request again (RFC 9113 §8.7).
            respond.send_reset(Reason::REFUSED_STREAM);
            return self.refused();
        };
        let place = Served::place(&self.served);
        let (shard, client_addr) = (self.shard.clone(), self.client_addr.clone());
        drop(monoio::spawn(async move {
            let inner = shard.clone();
            shard
                .contain(async move {
                    let ended = stream::serve(inner, request, respond, client_addr, share).await;
                    if ended == stream::Ended::Abandoned {
                        place.0.given_up();
                    }
                })
                .await;
        }));
    }

    /// Counts and logs a request that was refused unread.
    fn refused(&self) {
        let error = Some(ErrorCode::BodyMemoryExhausted);
        self.shard.cells().response(Route::Unknown, 503, error);
        let ending = Some(Ending::NotSent);
        let outcome = Outcome { status: 503, error, ending, ..Outcome::default() };
        access::log(None, b"", Instant::now(), &outcome);
    }

    /// Tells the client to open no more streams; the connection ends with those that are open.
    fn take_leave(&mut self, patience: Duration) {
        self.connection.graceful_shutdown();
        self.leaving = true;
        if !self.busy {
            self.watchdog.set(patience);
        }
    }
}

/// The time a client has for a head, or a frame that is not of a body.
struct HeadLimit {
    limit: Duration,
    frames: Rc<RefCell<Frames>>,
    /// The one that `watchdog` is set for.
    unfinished: Option<u64>,
    was_late: bool,
    watchdog: Watchdog,
}

impl HeadLimit {
    /// Ready when one has taken too long, said once.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let unfinished = self.frames.borrow().unfinished();
        if unfinished != self.unfinished {
            self.unfinished = unfinished;
            self.watchdog.set(if unfinished.is_some() { self.limit } else { FOR_EVER });
        }
        let late = self.watchdog.poll(cx);
        if late.is_ready() {
            self.was_late = true;
            self.watchdog.set(FOR_EVER);
        }
        late
    }
}

/// One of the connections whose last answers may still be on their way out; the process waits for
/// them when it stops.
struct Counted(Rc<Shard>);

impl Counted {
    fn new(shard: &Rc<Shard>) -> Self {
        shard.shared.http2_connections.fetch_add(1, Ordering::Relaxed);
        Self(shard.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.shared.http2_connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The streams of a connection that are being served.
#[derive(Default)]
struct Served {
    count: Cell<usize>,
    /// Streams the client gave up, less what time has forgiven.
    given_up: Cell<u32>,
    forgiven_at_ms: Cell<u64>,
    watching: RefCell<Option<Waker>>,
}

/// One of them; dropping it gives it back.
struct Place(Rc<Served>);

impl Served {
    fn place(served: &Rc<Self>) -> Place {
        served.count.set(served.count.get() + 1);
        Place(served.clone())
    }

    /// How many there are; `cx` is woken when one ends.
    fn watch(&self, cx: &mut Context<'_>) -> usize {
        *self.watching.borrow_mut() = Some(cx.waker().clone());
        self.count.get()
    }

    fn given_up(&self) {
        let now_ms = clock::now_ms();
        let elapsed_ms = now_ms.saturating_sub(self.forgiven_at_ms.get());
        let forgiven = elapsed_ms.saturating_mul(GIVEN_UP_PER_SEC) / 1000;
        if forgiven > 0 {
            let forgiven = u32::try_from(forgiven).unwrap_or(u32::MAX);
            self.given_up.set(self.given_up.get().saturating_sub(forgiven));
            self.forgiven_at_ms.set(now_ms);
        }
        self.given_up.set(self.given_up.get() + 1);
    }

    fn too_many_given_up(&self) -> bool {
        self.given_up.get() > GIVEN_UP_BURST
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        if let Some(waker) = self.0.watching.take() {
            waker.wake();
        }
    }
}
