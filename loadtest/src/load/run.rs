//! Runs a load and measures it.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use super::bodies::{Bodies, RequestOptions, RequestPool};
use super::client::{Connection, Failure, Received, Watchdog};
use super::record::{AnswerMeter, ErrorClass, Recorder};
use super::report::Report;
use super::schedule::{Schedule, Spacing};
use super::target::Target;
use super::tickets::Tickets;
use crate::clock::now_ns;
use crate::engine::Nanos;
use crate::runtime;

/// What decides when a request is sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// This many connections, each sending its next request when the last one is answered.
    Closed { connections: usize },
    /// Requests start at a rate of their own; a slow server does not slow them. Connections are
    /// opened as needed up to a limit, beyond which requests wait (and their wait is counted).
    Open { rate_per_s: f64, spacing: Spacing, max_connections: usize },
}

/// One run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    pub target: Target,
    pub load: Load,
    /// Not measured.
    pub warmup: Duration,
    /// Measured.
    pub duration: Duration,
    /// Stop after this many requests, warm-up included.
    pub max_requests: Option<u64>,
    /// A request not answered within this time has failed.
    pub timeout: Duration,
    pub bodies: Bodies,
    pub request: RequestOptions,
    pub seed: u64,
}

/// Told what happens during a run, on the run's own thread.
pub trait Observer {
    /// The warm-up is over.
    fn measuring(&mut self) {}
    /// The measured window is over; requests may still be under way.
    fn measured(&mut self) {}
    /// About once a second.
    fn tick(&mut self, _progress: &Progress) {}
    /// Asked often; true ends the run as if its time were over.
    fn should_stop(&self) -> bool {
        false
    }
}

/// No observer.
impl Observer for () {}

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Since the start, warm-up included.
    pub elapsed: Duration,
    pub warming_up: bool,
    /// Requests answered and failed since the last tick.
    pub completed: u64,
    pub failed: u64,
    pub in_flight: u64,
}

/// How often deadlines and the observer's wish to stop are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_millis(25);

/// Runs the load on this thread to its end, inside a runtime of its own.
pub fn run(options: &RunOptions, observer: &mut impl Observer) -> io::Result<Report> {
    runtime::block_on(|_| run_async(options, observer))?
}

/// Runs the load on the current runtime.
pub async fn run_async(options: &RunOptions, observer: &mut impl Observer) -> io::Result<Report> {
    let connections = match options.load {
        Load::Closed { connections } => connections,
        Load::Open { max_connections, .. } => max_connections,
    };
    let pool = RequestPool::new(&options.bodies, &options.request, connections, options.seed)?;
    let start = now_ns();
    let measure_from = start + nanos(options.warmup);
    let end = measure_from.saturating_add(nanos(options.duration));
    let run = Rc::new(Run {
        target: options.target.clone(),
        timeout: nanos(options.timeout),
        pool,
        recorder: RefCell::new(Recorder::new((measure_from, end))),
        watchdog: Watchdog::default(),
        end: Cell::new(end),
        budget: Cell::new(options.max_requests.unwrap_or(u64::MAX)),
        workers: Cell::new(0),
        in_flight: Cell::new(0),
        completed: Cell::new(0),
        failed: Cell::new(0),
    });
    let tickets = match options.load {
        Load::Closed { connections } => {
            for _ in 0..connections {
                run.clone().spawn_worker(closed_loop);
            }
            None
        }
        Load::Open { rate_per_s, spacing, max_connections } => {
            let window = (start, end);
            let limit = options.max_requests;
            let schedule = Schedule::new(spacing, rate_per_s, window, limit, options.seed);
            Some(start_open_loop(&run, schedule, max_connections))
        }
    };
    supervise(&run, tickets.as_deref(), start, observer).await;
    let run_time = now_ns() - start;
    let recorder = run.recorder.borrow();
    Ok(Report::new(options, &recorder, run.pool.mean_body_bytes(), run_time))
}

/// What the workers share.
struct Run {
    target: Target,
    timeout: Nanos,
    pool: RequestPool,
    recorder: RefCell<Recorder>,
    watchdog: Watchdog,
    /// No request is started from here on.
    end: Cell<Nanos>,
    /// Requests that may still be started.
    budget: Cell<u64>,
    workers: Cell<usize>,
    in_flight: Cell<u64>,
    /// Since the last tick.
    completed: Cell<u64>,
    failed: Cell<u64>,
}

/// Watches the run from its start until the last request has ended or timed out.
async fn supervise(
    run: &Run,
    tickets: Option<&Tickets>,
    start: Nanos,
    observer: &mut impl Observer,
) {
    let (measure_from, _) = run.recorder.borrow().window();
    let (mut measuring, mut measured) = (false, false);
    let mut next_tick = start + 1_000_000_000;
    loop {
        let now = now_ns();
        if !measuring && now >= measure_from {
            measuring = true;
            observer.measuring();
        }
        let idle = run.workers.get() == 0;
        if !measured && (now >= run.end.get() || idle || observer.should_stop()) {
            measured = true;
            run.recorder.borrow_mut().close_window(now);
            run.end.set(now.min(run.end.get()));
            observer.measured();
            if let Some(tickets) = tickets {
                tickets.close();
            }
        }
        if idle {
            return;
        }
        if now >= next_tick {
            next_tick = now + 1_000_000_000;
            observer.tick(&Progress {
                elapsed: Duration::from_nanos(now - start),
                warming_up: now < measure_from,
                completed: run.completed.take(),
                failed: run.failed.take(),
                in_flight: run.in_flight.get(),
            });
        }
        run.watchdog.sweep(now);
        let mut pause = SWEEP_INTERVAL;
        for boundary in [measure_from, run.end.get()] {
            if boundary > now {
                pause = pause.min(Duration::from_nanos(boundary - now));
            }
        }
        monoio::time::sleep(pause).await;
    }
}

async fn closed_loop(run: Rc<Run>) {
    let mut connection = None;
    while now_ns() < run.end.get() && run.take_budget() {
        run.request(now_ns(), &mut connection).await;
    }
}

fn start_open_loop(run: &Rc<Run>, schedule: Schedule, max_connections: usize) -> Rc<Tickets> {
    let tickets = Rc::new(Tickets::new(schedule));
    // Counted as a worker, so that the run does not end before its first request.
    run.workers.set(run.workers.get() + 1);
    let (pacer_run, pacer_tickets) = (run.clone(), tickets.clone());
    monoio::spawn(async move {
        let started = Cell::new(0);
        let more_workers = || {
            if started.get() >= max_connections {
                return false;
            }
            started.set(started.get() + 1);
            let tickets = pacer_tickets.clone();
            pacer_run.clone().spawn_worker(|run| open_loop(run, tickets));
            true
        };
        if let Err(error) = pacer_tickets.pace(more_workers).await {
            eprintln!("the open loop stops: its timer failed: {error}");
            pacer_tickets.close();
        }
        pacer_run.workers.set(pacer_run.workers.get() - 1);
    });
    tickets
}

async fn open_loop(run: Rc<Run>, tickets: Rc<Tickets>) {
    let mut connection = None;
    while let Some(intended) = tickets.next().await {
        run.request(intended, &mut connection).await;
    }
}

impl Run {
    fn spawn_worker<F>(self: Rc<Self>, work: impl FnOnce(Rc<Self>) -> F)
    where
        F: Future<Output = ()> + 'static,
    {
        self.workers.set(self.workers.get() + 1);
        let work = work(self.clone());
        monoio::spawn(async move {
            work.await;
            self.workers.set(self.workers.get() - 1);
        });
    }

    fn take_budget(&self) -> bool {
        let left = self.budget.get();
        self.budget.set(left.saturating_sub(1));
        left > 0
    }

    /// Sends one request due at `intended` and records how it went. `connection` is kept for the
    /// next one if it can be.
    async fn request(&self, intended: Nanos, connection: &mut Option<Connection>) {
        self.in_flight.set(self.in_flight.get() + 1);
        let mut meter = AnswerMeter::new(&self.recorder);
        let mut outcome = self.exchange(connection, &mut meter).await;
        if let Err(failure) = outcome
            && failure.before_first_byte
            && failure.class == ErrorClass::Closed
            && connection.as_ref().is_some_and(|connection| connection.uses > 1)
        {
            // The server closed an idle connection as the request went out: every client sends it
            // again on a new one.
            self.recorder.borrow_mut().resent += 1;
            *connection = None;
            meter = AnswerMeter::new(&self.recorder);
            outcome = self.exchange(connection, &mut meter).await;
        }
        self.in_flight.set(self.in_flight.get() - 1);
        if !outcome.is_ok_and(|received| received.keep_alive) {
            *connection = None;
        }
        let verdict = match outcome {
            Err(failure) => Some(failure.class),
            Ok(received) => match ErrorClass::of_status(received.status) {
                None if !meter.is_complete() => Some(ErrorClass::Stream),
                class => class,
            },
        };
        let done = now_ns();
        match verdict {
            None => {
                self.completed.set(self.completed.get() + 1);
                self.recorder.borrow_mut().success(intended, done, &meter);
            }
            Some(class) => {
                self.failed.set(self.failed.get() + 1);
                self.recorder.borrow_mut().failure(intended, class);
                if class == ErrorClass::Connect {
                    // Whoever refuses connections would be asked a hundred thousand times a second.
                    monoio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    async fn exchange(
        &self,
        slot: &mut Option<Connection>,
        meter: &mut AnswerMeter<'_>,
    ) -> Result<Received, Failure> {
        let refused = Failure { class: ErrorClass::Connect, before_first_byte: true };
        let connection = match slot {
            Some(connection) => connection,
            None => {
                self.recorder.borrow_mut().connects += 1;
                let opened = Connection::open(self.target.address, &self.watchdog).await;
                slot.insert(opened.map_err(|_| refused)?)
            }
        };
        let mut request = self.pool.take().await;
        let deadline = now_ns().saturating_add(self.timeout);
        (_, request.bytes) = connection.send(request.bytes, deadline).await;
        self.pool.give_back(request);
        let received = connection.receive(meter).await?;
        meter.wire_bytes = received.wire_bytes;
        Ok(received)
    }
}

fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}
