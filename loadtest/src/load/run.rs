//! Independent requests in a closed or an open loop.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use super::bodies::{Bodies, RequestOptions, RequestPool, lines};
use super::made::Maker;
use super::report::{Report, describe_bodies, describe_load};
use super::schedule::{Schedule, Spacing, Step};
use super::session::{Observer, Session, SessionOptions, Source};
use super::target::Target;
use super::tickets::Tickets;
use crate::clock::now_ns;
use crate::runtime;
use crate::waiting::Waiting;

/// What decides when a request is sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Load {
    /// This many connections, each sending its next request when the last one is answered.
    Closed { connections: usize },
    /// Requests start at a rate of their own; a slow server does not slow them. Connections are
    /// opened as needed up to a limit, beyond which requests wait (and their wait is counted).
    Open { rate_per_s: f64, spacing: Spacing, max_connections: usize },
    /// The same at rates that change. The first one holds in the warm-up too, the last one to the end.
    Stepped { steps: Vec<Step>, spacing: Spacing, max_connections: usize },
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
    /// Requests are numbered from here on, so that those of several runs differ.
    pub first_number: u64,
    pub request: RequestOptions,
    /// Ask the engines for proof that bodies and answers arrive as they were sent.
    pub proves: bool,
    pub waiting: Waiting,
    pub seed: u64,
}

/// Where the requests of a run come from.
#[derive(Clone)]
enum Requests {
    Pool(Rc<RequestPool>),
    Maker(Rc<Maker>),
}

/// Runs the load on this thread to its end, inside a runtime of its own.
pub fn run(options: &RunOptions, observer: &mut impl Observer) -> io::Result<Report> {
    runtime::block_on(|_| options.waiting.during(run_async(options, observer)))??
}

async fn run_async(options: &RunOptions, observer: &mut impl Observer) -> io::Result<Report> {
    let connections = match &options.load {
        Load::Closed { connections } => *connections,
        Load::Open { max_connections, .. } | Load::Stepped { max_connections, .. } => {
            *max_connections
        }
    };
    let requests = Requests::new(options, connections)?;
    let session = Session::new(SessionOptions {
        targets: vec![options.target.clone()],
        expects_stream: options.request.stream,
        proves: options.proves,
        timeout: options.timeout,
        warmup: options.warmup,
        duration: options.duration,
        waiting: options.waiting,
    });
    let window = (session.start(), session.end());
    let limit = options.max_requests;
    let schedule = match &options.load {
        Load::Closed { .. } => None,
        Load::Open { rate_per_s, spacing, .. } => {
            Some(Schedule::new(*spacing, *rate_per_s, window, limit, options.seed))
        }
        Load::Stepped { steps, spacing, .. } => {
            let warmup = window.0 + options.warmup.as_nanos() as u64;
            Some(Schedule::stepped(*spacing, steps, warmup, window, limit, options.seed))
        }
    };
    let tickets = match schedule {
        None => {
            let budget = Rc::new(Cell::new(limit.unwrap_or(u64::MAX)));
            for _ in 0..connections {
                session.spawn(closed_loop(session.clone(), requests.clone(), budget.clone()));
            }
            None
        }
        Some(schedule) => Some(start_open_loop(&session, &requests, schedule, connections)),
    };
    session.supervise(tickets.as_deref(), observer).await;
    Ok(Report {
        target: format!("http://{}{}", options.target.authority, options.request.path),
        load: describe_load(&options.load),
        bodies: describe_bodies(&options.bodies),
        body_bytes: requests.mean_body_bytes(options.first_number),
        unsent: tickets.as_ref().map_or(0, |tickets| tickets.unsent()),
        ..Report::new(&session)
    })
}

impl Requests {
    fn new(options: &RunOptions, connections: usize) -> io::Result<Self> {
        let RunOptions { request, first_number, seed, .. } = options;
        let bodies = match &options.bodies {
            Bodies::Generated(shape) => shape.bodies(request, *seed),
            Bodies::Lines(path) => lines(path)?,
            Bodies::Made(made) => {
                let maker = Maker::new(made.clone(), request.clone(), *first_number, *seed);
                return Ok(Self::Maker(Rc::new(maker)));
            }
        };
        let pool = RequestPool::new(&bodies, request, connections);
        pool.number_from(*first_number);
        Ok(Self::Pool(Rc::new(pool)))
    }

    fn source(&self) -> Source<'_> {
        match self {
            Self::Pool(pool) => Source::Pool(pool),
            Self::Maker(maker) => Source::Maker(maker),
        }
    }

    fn mean_body_bytes(&self, first_number: u64) -> usize {
        match self {
            Self::Pool(pool) => pool.mean_body_bytes(),
            Self::Maker(maker) => maker.mean_body_bytes(maker.number() - first_number),
        }
    }
}

async fn closed_loop(session: Rc<Session>, requests: Requests, budget: Rc<Cell<u64>>) {
    let mut connection = None;
    while !session.is_over() && budget.get() > 0 {
        budget.set(budget.get() - 1);
        session.request(now_ns(), requests.source(), &mut connection, false).await;
    }
}

fn start_open_loop(
    session: &Rc<Session>,
    requests: &Requests,
    schedule: Schedule,
    max_connections: usize,
) -> Rc<Tickets> {
    let tickets = Rc::new(Tickets::new(schedule));
    let (worker_session, requests, paced) = (session.clone(), requests.clone(), tickets.clone());
    session.spawn(async move {
        let mut started = 0;
        let more_workers = || {
            if started >= max_connections {
                return false;
            }
            started += 1;
            let work = open_loop(worker_session.clone(), requests.clone(), paced.clone());
            worker_session.spawn(work);
            true
        };
        if let Err(error) = paced.pace(worker_session.waiting(), more_workers).await {
            eprintln!("the open loop stops: its timer failed: {error}");
            paced.close();
        }
    });
    tickets
}

async fn open_loop(session: Rc<Session>, requests: Requests, tickets: Rc<Tickets>) {
    let mut connection = None;
    while let Some(intended) = tickets.next().await {
        session.request(intended, requests.source(), &mut connection, false).await;
    }
}
