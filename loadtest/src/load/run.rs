//! Independent requests in a closed or an open loop.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use super::bodies::{Bodies, RequestOptions, RequestPool};
use super::report::{Report, describe_load};
use super::schedule::{Schedule, Spacing};
use super::session::{Observer, Session, Source};
use super::target::Target;
use super::tickets::Tickets;
use crate::clock::now_ns;
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
    /// Requests are numbered from here on, so that those of several runs differ.
    pub first_number: u64,
    pub request: RequestOptions,
    pub seed: u64,
}

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
    pool.number_from(options.first_number);
    let body_bytes = pool.mean_body_bytes();
    let pool = Rc::new(pool);
    let RunOptions { target, timeout, warmup, duration, .. } = options;
    let session =
        Session::new(vec![target.clone()], options.request.stream, *timeout, *warmup, *duration);
    let tickets = match options.load {
        Load::Closed { connections } => {
            let budget = Rc::new(Cell::new(options.max_requests.unwrap_or(u64::MAX)));
            for _ in 0..connections {
                session.spawn(closed_loop(session.clone(), pool.clone(), budget.clone()));
            }
            None
        }
        Load::Open { rate_per_s, spacing, max_connections } => {
            let window = (session.start(), session.end());
            let limit = options.max_requests;
            let schedule = Schedule::new(spacing, rate_per_s, window, limit, options.seed);
            Some(start_open_loop(&session, &pool, schedule, max_connections))
        }
    };
    session.supervise(tickets.as_deref(), observer).await;
    let bodies = match &options.bodies {
        Bodies::Generated(shape) => format!("{shape:?}").to_lowercase(),
        Bodies::Lines(path) => path.display().to_string(),
    };
    Ok(Report {
        target: format!("http://{}{}", options.target.authority, options.request.path),
        load: describe_load(&options.load),
        bodies,
        body_bytes,
        ..Report::new(&session)
    })
}

async fn closed_loop(session: Rc<Session>, pool: Rc<RequestPool>, budget: Rc<Cell<u64>>) {
    let mut connection = None;
    while !session.is_over() && budget.get() > 0 {
        budget.set(budget.get() - 1);
        session.request(now_ns(), Source::Pool(&pool), &mut connection, false).await;
    }
}

fn start_open_loop(
    session: &Rc<Session>,
    pool: &Rc<RequestPool>,
    schedule: Schedule,
    max_connections: usize,
) -> Rc<Tickets> {
    let tickets = Rc::new(Tickets::new(schedule));
    let (worker_session, pool, paced) = (session.clone(), pool.clone(), tickets.clone());
    session.spawn(async move {
        let mut started = 0;
        let more_workers = || {
            if started >= max_connections {
                return false;
            }
            started += 1;
            let work = open_loop(worker_session.clone(), pool.clone(), paced.clone());
            worker_session.spawn(work);
            true
        };
        if let Err(error) = paced.pace(more_workers).await {
            eprintln!("the open loop stops: its timer failed: {error}");
            paced.close();
        }
    });
    tickets
}

async fn open_loop(session: Rc<Session>, pool: Rc<RequestPool>, tickets: Rc<Tickets>) {
    let mut connection = None;
    while let Some(intended) = tickets.next().await {
        session.request(intended, Source::Pool(&pool), &mut connection, false).await;
    }
}
