//! Hands the due times of an open loop to idle workers.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::schedule::Schedule;
use crate::clock::now_ns;
use crate::engine::Nanos;
use crate::timer::PreciseTimer;
use crate::waiting::Waiting;

/// The schedule and who waits on it. A worker that becomes free takes the next ticket that is due;
/// if none is, it waits in line for the pacer.
pub struct Tickets {
    schedule: RefCell<Schedule>,
    idle: RefCell<VecDeque<Rc<Idle>>>,
    /// While it waits.
    pacer: RefCell<Option<Waker>>,
    /// It waits for a worker: tickets are due and none is free.
    backlogged: Cell<bool>,
    closed: Cell<bool>,
    /// Due when it was closed, and never taken.
    unsent: Cell<u64>,
}

#[derive(Default)]
struct Idle {
    ticket: Cell<Option<Nanos>>,
    waker: RefCell<Option<Waker>>,
}

impl Tickets {
    pub fn new(schedule: Schedule) -> Self {
        Self {
            schedule: RefCell::new(schedule),
            idle: RefCell::default(),
            pacer: RefCell::default(),
            backlogged: Cell::new(false),
            closed: Cell::new(false),
            unsent: Cell::new(0),
        }
    }

    /// The next intended start, once it is due; `None` when there will be no more.
    pub async fn next(&self) -> Option<Nanos> {
        if self.closed.get() {
            return None;
        }
        if let Some(due) = self.take_due() {
            return Some(due);
        }
        let idle = Rc::new(Idle::default());
        self.idle.borrow_mut().push_back(idle.clone());
        if self.backlogged.get() {
            self.wake_pacer();
        }
        poll_fn(|cx| {
            if let Some(ticket) = idle.ticket.get() {
                return Poll::Ready(Some(ticket));
            }
            if self.closed.get() {
                return Poll::Ready(None);
            }
            *idle.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Runs the schedule to its end, then closes: after its last ticket if their number is limited,
    /// else when its time is over. `more_workers` is asked for another worker when a ticket is due and
    /// none is free; it answers whether it started one.
    pub async fn pace(
        &self,
        waiting: Waiting,
        mut more_workers: impl FnMut() -> bool,
    ) -> io::Result<()> {
        let timer = PreciseTimer::new(waiting)?;
        while !self.closed.get() {
            let Some(at) = self.schedule.borrow().next_event() else { break };
            if at > now_ns() {
                self.wait_until(&timer, at).await?;
            } else if self.schedule.borrow().peek().is_none() {
                break;
            } else if let Some(worker) = self.idle.borrow_mut().pop_front() {
                worker.ticket.set(self.schedule.borrow_mut().take());
                if let Some(waker) = worker.waker.take() {
                    waker.wake();
                }
            } else if more_workers() {
                // The new worker takes the ticket itself when it runs.
                monoio::spawn(async {}).await;
            } else {
                self.wait_for_idle().await;
            }
        }
        self.close();
        Ok(())
    }

    /// How many were due when the schedule ended, and found nobody free.
    pub fn unsent(&self) -> u64 {
        self.unsent.get()
    }

    /// Ends the schedule now: workers in line are sent home.
    pub fn close(&self) {
        if !self.closed.replace(true) {
            let overdue = std::iter::from_fn(|| self.take_due());
            self.unsent.set(overdue.count() as u64);
        }
        for worker in self.idle.borrow_mut().drain(..) {
            if let Some(waker) = worker.waker.take() {
                waker.wake();
            }
        }
        self.wake_pacer();
    }

    fn wake_pacer(&self) {
        if let Some(pacer) = self.pacer.take() {
            pacer.wake();
        }
    }

    /// Waits for the time, or until it is closed.
    async fn wait_until(&self, timer: &PreciseTimer, at: Nanos) -> io::Result<()> {
        let mut time = pin!(timer.wait_until(at));
        poll_fn(|cx| {
            if self.closed.get() {
                return Poll::Ready(Ok(()));
            }
            *self.pacer.borrow_mut() = Some(cx.waker().clone());
            time.as_mut().poll(cx)
        })
        .await
    }

    fn take_due(&self) -> Option<Nanos> {
        let mut schedule = self.schedule.borrow_mut();
        schedule.peek().filter(|at| *at <= now_ns())?;
        schedule.take()
    }

    async fn wait_for_idle(&self) {
        self.backlogged.set(true);
        poll_fn(|cx| {
            if self.closed.get() || !self.idle.borrow().is_empty() {
                return Poll::Ready(());
            }
            // A free worker may also have emptied the schedule without going idle.
            if self.schedule.borrow().peek().is_none_or(|at| at > now_ns()) {
                return Poll::Ready(());
            }
            *self.pacer.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        self.backlogged.set(false);
    }
}
