//! One simulated engine against the wall clock: a task ends its steps when they are due and wakes
//! the connections that wait for tokens.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::stats::EngineStats;
use crate::clock::now_ns;
use crate::engine::{Engine, Progress, RequestId, Sequence, SubmitError};

/// The engine and those who wait for it. Never borrowed across an await.
pub(super) struct Host {
    engine: RefCell<Engine>,
    waiters: RefCell<HashMap<RequestId, Rc<Waiter>>>,
    stats: Arc<EngineStats>,
    /// The step task, when it sleeps because the engine is idle.
    idle_task: RefCell<Option<Waker>>,
    scratch: RefCell<Vec<Progress>>,
}

/// What a connection knows of its request.
#[derive(Default)]
struct Waiter {
    generated: Cell<u32>,
    cached_tokens: Cell<u32>,
    finished: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Host {
    pub fn new(engine: Engine, stats: Arc<EngineStats>) -> Rc<Self> {
        stats.publish(&engine.counters(), &engine.load());
        Rc::new(Self {
            engine: RefCell::new(engine),
            waiters: RefCell::default(),
            stats,
            idle_task: RefCell::default(),
            scratch: RefCell::default(),
        })
    }

    /// Reads the engine brought up to now.
    pub fn read<T>(&self, read: impl FnOnce(&Engine) -> T) -> T {
        self.catch_up();
        read(&self.engine.borrow())
    }

    pub fn reset_cache(&self) {
        self.engine.borrow_mut().reset_cache();
    }

    /// Hands the request to the engine. Dropping the ticket cancels it.
    pub fn submit(self: &Rc<Self>, sequence: Sequence) -> Result<Ticket, SubmitError> {
        self.catch_up();
        let submitted = self.engine.borrow_mut().submit(now_ns(), sequence);
        self.publish();
        let request = submitted?;
        let waiter = Rc::new(Waiter::default());
        self.waiters.borrow_mut().insert(request, waiter.clone());
        if let Some(task) = self.idle_task.take() {
            task.wake();
        }
        Ok(Ticket { host: self.clone(), request, waiter })
    }

    /// Ends steps for ever. Spawn once per engine.
    pub async fn run_steps(self: Rc<Self>) {
        loop {
            let due = poll_fn(|cx| match self.engine.borrow().next_step_end() {
                Some(due) => Poll::Ready(due),
                None => {
                    *self.idle_task.borrow_mut() = Some(cx.waker().clone());
                    Poll::Pending
                }
            })
            .await;
            // The runtime's timers count in milliseconds and round up. Steps keep their exact
            // times in the engine; only their delivery is late by that much.
            let delay = Duration::from_nanos(due.saturating_sub(now_ns()));
            monoio::time::sleep_until((Instant::now() + delay).into()).await;
            self.catch_up();
        }
    }

    /// Ends the steps that are over and tells those concerned.
    fn catch_up(&self) {
        let mut progress = self.scratch.borrow_mut();
        self.engine.borrow_mut().advance(now_ns(), &mut progress);
        if progress.is_empty() {
            return;
        }
        let waiters = self.waiters.borrow();
        for step in progress.drain(..) {
            let Some(waiter) = waiters.get(&step.request) else { continue };
            waiter.generated.set(step.generated);
            waiter.cached_tokens.set(step.cached_tokens);
            waiter.finished.set(step.finished);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
        drop(waiters);
        self.publish();
    }

    fn publish(&self) {
        let engine = self.engine.borrow();
        self.stats.publish(&engine.counters(), &engine.load());
    }
}

/// A request in the engine.
pub(super) struct Ticket {
    host: Rc<Host>,
    request: RequestId,
    waiter: Rc<Waiter>,
}

/// Tokens of a [`Ticket`] that are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ready {
    pub generated: u32,
    pub cached_tokens: u32,
    pub finished: bool,
}

impl Ticket {
    /// Ready once more than `seen` tokens are generated.
    pub fn poll_tokens(&self, seen: u32, cx: &mut Context<'_>) -> Poll<Ready> {
        let generated = self.waiter.generated.get();
        if generated > seen {
            return Poll::Ready(Ready {
                generated,
                cached_tokens: self.waiter.cached_tokens.get(),
                finished: self.waiter.finished.get(),
            });
        }
        *self.waiter.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.host.waiters.borrow_mut().remove(&self.request);
        if !self.waiter.finished.get() {
            self.host.engine.borrow_mut().cancel(self.request);
            self.host.publish();
        }
    }
}
