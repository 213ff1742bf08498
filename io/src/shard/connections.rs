//! The client connections of a shard, as the rest of it sees them.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::metrics::AGE_BOUNDS_SECS;
use crate::runtime::clock;

/// The open client connections of a shard, so that idle ones can be ended at shutdown.
#[derive(Default)]
pub struct Connections {
    entries: Vec<Option<Rc<ConnectionState>>>,
    free: Vec<usize>,
}

/// What is known about an open client connection from outside its task.
pub struct ConnectionState {
    fd: RawFd,
    ended_by: Cell<EndedBy>,
    asked: Cell<bool>,
    asking: Cell<Option<Waker>>,
    /// No request is under way.
    pub idle: Cell<bool>,
    /// It has not had its first request yet, which may be on its way.
    pub fresh: Cell<bool>,
    /// When the first byte of the request under way was read, on [`clock::now_ms`].
    pub busy_since_ms: Cell<u64>,
}

/// How a connection is made to end when the gateway stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// While it is idle, by ending its socket.
    Socket,
    /// While it is idle, by asking what stands between its socket and the relay.
    AskingWhenIdle,
    /// At any time, by asking: its protocol knows how to end in good order.
    Asking,
    /// With the connection it is a part of.
    Another,
}

impl ConnectionState {
    /// A connection that has not had a request. `fd` is its socket's.
    fn new(fd: RawFd, ended_by: EndedBy) -> Self {
        Self {
            fd,
            ended_by: Cell::new(ended_by),
            asked: Cell::new(false),
            asking: Cell::default(),
            idle: Cell::new(true),
            fresh: Cell::new(true),
            busy_since_ms: Cell::new(0),
        }
    }

    /// It is to be ended in this way from now on.
    pub fn ended_by(&self, how: EndedBy) {
        self.ended_by.set(how);
    }

    /// How it is made to end.
    pub fn is_ended_by(&self) -> EndedBy {
        self.ended_by.get()
    }

    /// Ready once the connection has been asked to end. One task alone waits for that.
    pub fn poll_asked(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.asked.get() {
            return Poll::Ready(());
        }
        self.asking.set(Some(cx.waker().clone()));
        Poll::Pending
    }

    fn end_if_idle(&self) {
        let idle = self.idle.get() && !self.fresh.get();
        match self.ended_by.get() {
            EndedBy::Socket if idle => crate::http::transport::shutdown(self.fd),
            EndedBy::AskingWhenIdle if idle => self.ask(),
            EndedBy::Asking => self.ask(),
            EndedBy::Socket | EndedBy::AskingWhenIdle | EndedBy::Another => {}
        }
    }

    fn ask(&self) {
        self.asked.set(true);
        if let Some(waker) = self.asking.take() {
            waker.wake();
        }
    }

    /// The first byte of a request is there.
    pub fn begin_request(&self) {
        if self.idle.replace(false) {
            self.busy_since_ms.set(clock::now_ms());
        }
    }
}

impl Connections {
    /// Notes a connection; the position to give back to [`Connections::remove`].
    pub fn insert(&mut self, fd: RawFd) -> (usize, Rc<ConnectionState>) {
        self.add(ConnectionState::new(fd, EndedBy::Socket))
    }

    /// The same for a stream of a connection that is noted already.
    pub fn insert_stream(&mut self) -> (usize, Rc<ConnectionState>) {
        self.add(ConnectionState::new(crate::http::transport::NO_SOCKET, EndedBy::Another))
    }

    fn add(&mut self, state: ConnectionState) -> (usize, Rc<ConnectionState>) {
        let state = Rc::new(state);
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at] = Some(state.clone());
                at
            }
            None => {
                self.entries.push(Some(state.clone()));
                self.entries.len() - 1
            }
        };
        (at, state)
    }

    /// Forgets a connection whose descriptor is about to close.
    pub fn remove(&mut self, at: usize) {
        self.entries[at] = None;
        self.free.push(at);
    }

    /// How old the requests under way are, counted between [`AGE_BOUNDS_SECS`].
    pub fn ages(&self, now_ms: u64) -> [i64; AGE_BOUNDS_SECS.len() + 1] {
        let mut ages = [0; AGE_BOUNDS_SECS.len() + 1];
        for state in self.entries.iter().flatten().filter(|state| !state.idle.get()) {
            let age_ms = now_ms.saturating_sub(state.busy_since_ms.get());
            ages[AGE_BOUNDS_SECS.partition_point(|&secs| secs * 1000 < age_ms)] += 1;
        }
        ages
    }

    /// Ends every connection that has no request under way and has had one before.
    pub fn end_idle(&self) {
        for state in self.entries.iter().flatten() {
            state.end_if_idle();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_as_old_as_the_bound_it_has_not_passed() {
        let mut connections = Connections::default();
        let now_ms = 1_000_000_000;
        for age_secs in [0, 30, 31, 86_401] {
            let (_, state) = connections.insert(-1);
            state.idle.set(false);
            state.busy_since_ms.set(now_ms - age_secs * 1000);
        }
        connections.insert(-1);
        let ages = connections.ages(now_ms);
        assert_eq!((ages[0], ages[1], ages[11], ages.iter().sum::<i64>()), (2, 1, 1, 4));
    }
}
