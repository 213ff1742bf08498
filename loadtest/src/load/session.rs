//! The part every kind of load shares: connections, the exchange of one request, its place in the
//! measured window, and the watch over the whole.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use super::bodies::{Request, RequestPool};
use super::client::{Connection, Failure, Received, Watchdog};
use super::made::Maker;
use super::record::{AnswerMeter, ErrorClass, Recorder};
use super::target::Target;
use super::tickets::Tickets;
use crate::clock::now_ns;
use crate::engine::Nanos;
use crate::proof::{Check, Verdict};
use crate::waiting::Waiting;

/// Told what happens during a run, on the run's own thread.
pub trait Observer {
    /// The warm-up is over.
    fn measuring(&mut self) {}
    /// The measured window is over; requests may still be under way.
    fn measured(&mut self) {}
    /// About once a second.
    fn tick(&mut self, _progress: &Progress<'_>) {}
    /// The last request has ended; nothing more will be recorded.
    fn ended(&mut self, _recorder: &Recorder) {}
    /// Asked often; true ends the run as if its time were over.
    fn should_stop(&self) -> bool {
        false
    }
}

/// No observer.
impl Observer for () {}

/// How far a run is.
pub struct Progress<'a> {
    /// Since the start, warm-up included.
    pub elapsed: Duration,
    pub warming_up: bool,
    /// The measured time is over; the last answers are waited for.
    pub over: bool,
    /// Requests answered and failed since the last tick.
    pub completed: u64,
    pub failed: u64,
    pub in_flight: u64,
    /// What the measured window holds so far.
    pub recorder: &'a Recorder,
}

/// How often deadlines and the observer's wish to stop are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_millis(25);

/// What kinds of load have in common.
pub(super) struct SessionOptions {
    /// New connections go to each in turn. There is at least one.
    pub targets: Vec<Target>,
    /// An answer that is no stream is a failure.
    pub expects_stream: bool,
    /// Answers are asked for proof, and those that were altered are failures.
    pub proves: bool,
    pub timeout: Duration,
    pub warmup: Duration,
    pub duration: Duration,
    pub waiting: Waiting,
}

/// What the workers of one run share.
pub(super) struct Session {
    options: SessionOptions,
    next_target: Cell<usize>,
    recorder: RefCell<Recorder>,
    watchdog: Watchdog,
    start: Nanos,
    /// No request is started from here on.
    end: Cell<Nanos>,
    workers: Cell<usize>,
    in_flight: Cell<u64>,
    /// Since the last tick.
    completed: Cell<u64>,
    failed: Cell<u64>,
    longest_stall: Cell<Nanos>,
}

/// Where the bytes of a request come from.
pub(super) enum Source<'a> {
    Pool(&'a RequestPool),
    Maker(&'a Maker),
    Bytes(&'a [u8]),
}

impl Session {
    /// A session that starts now.
    pub fn new(options: SessionOptions) -> Rc<Self> {
        let start = now_ns();
        let measure_from = start.saturating_add(nanos(options.warmup));
        let end = measure_from.saturating_add(nanos(options.duration));
        Rc::new(Self {
            options,
            next_target: Cell::new(0),
            recorder: RefCell::new(Recorder::new((measure_from, end))),
            watchdog: Watchdog::default(),
            start,
            end: Cell::new(end),
            workers: Cell::new(0),
            in_flight: Cell::new(0),
            completed: Cell::new(0),
            failed: Cell::new(0),
            longest_stall: Cell::new(0),
        })
    }

    pub fn waiting(&self) -> Waiting {
        self.options.waiting
    }

    pub fn start(&self) -> Nanos {
        self.start
    }

    pub fn end(&self) -> Nanos {
        self.end.get()
    }

    /// No new request should be started.
    pub fn is_over(&self) -> bool {
        now_ns() >= self.end.get()
    }

    /// The longest time this thread did not run, beyond what it meant to sleep.
    pub fn longest_stall(&self) -> Nanos {
        self.longest_stall.get()
    }

    pub fn recorder(&self) -> std::cell::Ref<'_, Recorder> {
        self.recorder.borrow()
    }

    /// Spawns a task the session waits for.
    pub fn spawn(self: &Rc<Self>, work: impl Future<Output = ()> + 'static) {
        self.workers.set(self.workers.get() + 1);
        let session = self.clone();
        monoio::spawn(async move {
            work.await;
            session.workers.set(session.workers.get() - 1);
        });
    }

    /// Watches the run until the last request has ended or timed out.
    pub async fn supervise(&self, tickets: Option<&Tickets>, observer: &mut impl Observer) {
        let (measure_from, _) = self.recorder.borrow().window();
        let (mut measuring, mut measured) = (false, false);
        let mut next_tick = self.start + 1_000_000_000;
        loop {
            let now = now_ns();
            if !measuring && now >= measure_from {
                measuring = true;
                observer.measuring();
            }
            let idle = self.workers.get() == 0;
            if !measured && (now >= self.end.get() || idle || observer.should_stop()) {
                measured = true;
                self.recorder.borrow_mut().close_window(now);
                self.end.set(now.min(self.end.get()));
                observer.measured();
                if let Some(tickets) = tickets {
                    tickets.close();
                }
            }
            if idle {
                observer.ended(&self.recorder.borrow());
                return;
            }
            if now >= next_tick {
                // From the start each time, so that ticks stay whole seconds.
                next_tick += 1_000_000_000;
                self.tick(now, observer);
            }
            self.watchdog.sweep(now);
            let mut pause = SWEEP_INTERVAL;
            for boundary in [measure_from, self.end.get()] {
                if boundary > now {
                    pause = pause.min(Duration::from_nanos(boundary - now));
                }
            }
            monoio::time::sleep(pause).await;
            let stall = now_ns().saturating_sub(now + nanos(pause));
            self.longest_stall.set(self.longest_stall.get().max(stall));
        }
    }

    fn tick(&self, now: Nanos, observer: &mut impl Observer) {
        let recorder = self.recorder.borrow();
        observer.tick(&Progress {
            elapsed: Duration::from_nanos(now - self.start),
            warming_up: now < recorder.window().0,
            over: now > recorder.window().1.saturating_add(nanos(4 * SWEEP_INTERVAL)),
            completed: self.completed.take(),
            failed: self.failed.take(),
            in_flight: self.in_flight.get(),
            recorder: &recorder,
        });
    }

    /// Sends one request due at `intended` and records how it went. `connection` is kept for the
    /// next one if it can be. Returns the answer's meter if the request succeeded.
    pub async fn request(
        &self,
        intended: Nanos,
        source: Source<'_>,
        connection: &mut Option<Connection>,
        keep_transcript: bool,
    ) -> Option<AnswerMeter<'_>> {
        self.in_flight.set(self.in_flight.get() + 1);
        let new_meter = || AnswerMeter::new(&self.recorder, keep_transcript);
        let mut meter = new_meter();
        let mut outcome = self.exchange(&source, connection, &mut meter).await;
        if let Err(failure) = outcome
            && failure.before_first_byte
            && failure.class == ErrorClass::Closed
            && connection.as_ref().is_some_and(|connection| connection.uses > 1)
        {
            // The server closed an idle connection as the request went out: every client sends it
            // again on a new one.
            self.recorder.borrow_mut().resent += 1;
            *connection = None;
            meter = new_meter();
            outcome = self.exchange(&source, connection, &mut meter).await;
        }
        self.in_flight.set(self.in_flight.get() - 1);
        if let Some(at) = meter.sent_at {
            self.recorder.borrow_mut().sent(intended, at);
        }
        if !outcome.is_ok_and(|received| received.keep_alive) {
            *connection = None;
        }
        let verdict = match outcome {
            Err(failure) => Some(failure.class),
            Ok(received) => match ErrorClass::of_status(received.status) {
                None if !meter.is_complete(self.options.expects_stream) => Some(ErrorClass::Stream),
                None => self.judge(&meter),
                class => class,
            },
        };
        let Some(class) = verdict else {
            self.completed.set(self.completed.get() + 1);
            self.recorder.borrow_mut().success(intended, now_ns(), &meter);
            return Some(meter);
        };
        self.failed.set(self.failed.get() + 1);
        self.recorder.borrow_mut().failure(intended, class);
        if class == ErrorClass::Connect {
            // Whoever refuses connections would be asked a hundred thousand times a second.
            monoio::time::sleep(Duration::from_millis(10)).await;
        }
        None
    }

    /// What a proof says against an answer that is complete.
    fn judge(&self, meter: &AnswerMeter<'_>) -> Option<ErrorClass> {
        match meter.check.as_ref()?.verdict() {
            Verdict::Altered => {
                self.recorder.borrow_mut().altered += 1;
                return Some(ErrorClass::Altered);
            }
            Verdict::Intact => self.recorder.borrow_mut().proved += 1,
            Verdict::Missing => self.recorder.borrow_mut().unproved += 1,
        }
        None
    }

    fn next_address(&self) -> Option<SocketAddr> {
        let turn = self.next_target.get();
        self.next_target.set(turn.wrapping_add(1));
        let targets = &self.options.targets;
        Some(targets.get(turn % targets.len().max(1))?.address)
    }

    async fn exchange(
        &self,
        source: &Source<'_>,
        slot: &mut Option<Connection>,
        meter: &mut AnswerMeter<'_>,
    ) -> Result<Received, Failure> {
        let refused = Failure { class: ErrorClass::Connect, before_first_byte: true };
        let connection = match slot {
            Some(connection) => connection,
            None => {
                self.recorder.borrow_mut().connects += 1;
                let address = self.next_address().ok_or(refused)?;
                let opening = Connection::open(address, &self.watchdog);
                let opened = monoio::time::timeout(self.options.timeout, opening).await;
                let late = Failure { class: ErrorClass::Timeout, before_first_byte: false };
                slot.insert(opened.map_err(|_| late)?.map_err(|_| refused)?)
            }
        };
        let mut request = source.take(now_ns() - self.start).await;
        if self.options.proves {
            meter.check = Some(Check::new(body_of(&request.bytes)));
        }
        let deadline = now_ns().saturating_add(nanos(self.options.timeout));
        let is_sent;
        (is_sent, request.bytes) = connection.send(request.bytes, deadline).await;
        meter.sent_at = is_sent.then(now_ns);
        source.give_back(request);
        let received = connection.receive(meter).await?;
        meter.wire_bytes = received.wire_bytes;
        Ok(received)
    }
}

impl Source<'_> {
    async fn take(&self, age: Nanos) -> Request {
        match self {
            Self::Pool(pool) => pool.take().await,
            Self::Maker(maker) => maker.next(age),
            Self::Bytes(bytes) => Request::fixed(bytes.to_vec()),
        }
    }

    fn give_back(&self, request: Request) {
        if let Self::Pool(pool) = self {
            pool.give_back(request);
        }
    }
}

/// What follows the head of a request.
fn body_of(request: &[u8]) -> &[u8] {
    let end = memchr::memmem::find(request, b"\r\n\r\n").map_or(request.len(), |at| at + 4);
    &request[end..]
}

fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}
