//! How many inference requests run at a time and how many may begin per second, over all shards, and
//! the queue of the others.
//!
//! A request asks for a permit once its body is here, so that one who sends slowly takes nobody's turn;
//! only when all places are taken is it turned away before that.
//!
//! Permits are one shared count. Requests wait on their own shard with a number of arrival that is
//! drawn over all shards; each shard shows the number of its first. Whoever gives a permit back wakes
//! the shard with the lowest, and only the lowest may take a permit: first come, first served. A
//! newcomer queues while anybody waits. Both sides announce themselves before they look at the other
//! (sequentially consistent), so no permit is slept over.
//!
//! With a rate, running also takes a token of one bucket, which is not given back: it fills with time.
//! The first who waits sleeps until there is one. A bucket holds as many tokens as requests may run at
//! a time, or a second's worth where that has no limit.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;
use monoio::time::{Sleep, sleep};
use smg_core::rate::TokenBucket;

use crate::config::AdmissionConfig;
use crate::messages::Message;
use crate::shard::Shard;

/// `Retry-After` of a refused request in seconds.
pub const RETRY_AFTER_SECS: u64 = 2;

/// What timers are precise to.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The counts all shards share.
pub struct Admission {
    /// Requests at a time; with a rate alone, more than there can be.
    limit: Option<usize>,
    rate: Option<CachePadded<TokenBucket>>,
    /// When the bucket's clock began.
    started: Instant,
    queue_size: usize,
    running: CachePadded<AtomicUsize>,
    waiting: CachePadded<AtomicUsize>,
    arrivals: CachePadded<AtomicU64>,
    /// Per shard the number of its first waiter, [`NOBODY`] without one.
    firsts: Box<[CachePadded<AtomicU64>]>,
}

/// No waiter.
const NOBODY: u64 = u64::MAX;

impl Admission {
    /// No request runs yet.
    pub fn new(config: &AdmissionConfig, shards: usize) -> Self {
        let limit = config.max_concurrent_requests;
        let rate = config.requests_per_sec.map(|per_sec| {
            let burst = limit.map_or(u64::from(per_sec), |limit| limit as u64);
            CachePadded::new(TokenBucket::new(per_sec, burst))
        });
        Self {
            limit: limit.or(rate.as_ref().map(|_| usize::MAX)),
            rate,
            started: Instant::now(),
            queue_size: config.queue_size,
            running: CachePadded::default(),
            waiting: CachePadded::default(),
            arrivals: CachePadded::default(),
            firsts: (0..shards).map(|_| CachePadded::new(AtomicU64::new(NOBODY))).collect(),
        }
    }

    /// Whether there is a limit at all.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Whether one that came now would be turned away. It may be otherwise the next moment.
    pub fn is_full(&self) -> bool {
        let waiting = self.waiting();
        let must_wait = waiting > 0 || self.limit.is_some_and(|limit| self.running() >= limit);
        must_wait && waiting >= self.queue_size
    }

    /// Requests that hold a permit.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Requests that wait for one.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn take(&self) -> Take {
        let Some(limit) = self.limit else { return Take::Taken };
        let take = |running| (running < limit).then_some(running + 1);
        if self.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err() {
            return Take::Busy;
        }
        let Some(rate) = &self.rate else { return Take::Taken };
        // Ten years at the least until the cast matters.
        match rate.take(self.started.elapsed().as_nanos() as u64) {
            Ok(()) => Take::Taken,
            Err(wait_ns) => {
                self.running.fetch_sub(1, Ordering::SeqCst);
                Take::NotYet(Duration::from_nanos(wait_ns))
            }
        }
    }

    /// A place in the queue: its number of arrival, `None` when the queue is full.
    fn enter_queue(&self) -> Option<u64> {
        let enter = |waiting| (waiting < self.queue_size).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, enter).ok()?;
        Some(self.arrivals.fetch_add(1, Ordering::SeqCst))
    }

    fn leave_queue(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn show_first(&self, shard: usize, first: Option<u64>) {
        self.firsts[shard].store(first.unwrap_or(NOBODY), Ordering::SeqCst);
    }

    /// The shard of the first waiter of all, and its number.
    fn first(&self) -> Option<(usize, u64)> {
        let firsts = self.firsts.iter().map(|first| first.load(Ordering::SeqCst)).enumerate();
        firsts.min_by_key(|&(_, number)| number).filter(|&(_, number)| number != NOBODY)
    }
}

/// Outcome of trying to get a permit.
#[derive(Debug, PartialEq, Eq)]
enum Take {
    Taken,
    /// As many run as may.
    Busy,
    /// There may be a token after this time.
    NotYet(Duration),
}

/// What a request meets at the door.
pub enum Entry {
    /// It may run.
    Free(Permit),
    /// It has a place in the queue; the future yields its permit.
    Queued(Place),
    /// The queue is full.
    Full,
}

/// Asks for a permit.
pub fn enter(shard: &Rc<Shard>) -> Entry {
    let admission = &shard.shared.admission;
    if admission.waiting() == 0 || !admission.is_limited() {
        match admission.take() {
            Take::Taken => return Entry::Free(Permit { shard: shard.clone() }),
            // Somebody may have come to wait while this request held a permit for a moment.
            Take::NotYet(_) => pass_on(shard),
            Take::Busy => {}
        }
    }
    let Some(number) = admission.enter_queue() else { return Entry::Full };
    let waiter = Rc::new(Waiter { number, waker: std::cell::Cell::new(None) });
    shard.queue.borrow_mut().0.push_back(waiter.clone());
    show_first(shard);
    Entry::Queued(Place { shard: shard.clone(), waiter, until_token: None, done: false })
}

/// Wakes the first request that waits on this shard.
pub fn wake_first(shard: &Shard) {
    let first = shard.queue.borrow().0.front().cloned();
    if let Some(waker) = first.and_then(|waiter| waiter.waker.take()) {
        waker.wake();
    }
}

fn show_first(shard: &Shard) {
    let first = shard.queue.borrow().0.front().map(|waiter| waiter.number);
    shard.shared.admission.show_first(shard.index, first);
}

/// The right to run; dropping it, on whatever path, gives it back.
pub struct Permit {
    shard: Rc<Shard>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let admission = &self.shard.shared.admission;
        if admission.is_limited() {
            admission.running.fetch_sub(1, Ordering::SeqCst);
            pass_on(&self.shard);
        }
    }
}

/// Tells somebody who waits that a permit may be free.
fn pass_on(shard: &Shard) {
    match shard.shared.admission.first() {
        Some((there, _)) if there == shard.index => wake_first(shard),
        // A full mailbox is drained by its shard, which looks at its queue after every batch.
        Some((there, _)) => drop(shard.shared.mesh.send(shard.index, there, Message::Permit)),
        None => {}
    }
}

struct Waiter {
    number: u64,
    waker: std::cell::Cell<Option<Waker>>,
}

/// The queue of one shard.
#[derive(Default)]
pub struct Queue(VecDeque<Rc<Waiter>>);

/// A place in the queue; dropping it leaves the queue.
pub struct Place {
    shard: Rc<Shard>,
    waiter: Rc<Waiter>,
    /// Set while this is the first of all and there is no token.
    until_token: Option<Pin<Box<Sleep>>>,
    done: bool,
}

impl Future for Place {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        // Announced before the look, so that a permit given back in between is not missed.
        self.waiter.waker.set(Some(cx.waker().clone()));
        loop {
            let admission = &self.shard.shared.admission;
            let first = admission.first();
            if first.is_none_or(|(_, number)| number != self.waiter.number) {
                return Poll::Pending;
            }
            match admission.take() {
                Take::Taken => break,
                Take::Busy => return Poll::Pending,
                Take::NotYet(wait) => {
                    let mut timer = Box::pin(sleep(wait.max(SHORTEST_WAIT)));
                    let due = timer.as_mut().poll(cx).is_ready();
                    self.until_token = Some(timer);
                    if !due {
                        return Poll::Pending;
                    }
                }
            }
        }
        self.leave();
        let permit = Permit { shard: self.shard.clone() };
        // More than one permit may be free.
        pass_on(&self.shard);
        Poll::Ready(permit)
    }
}

impl Place {
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.done, true) {
            let number = self.waiter.number;
            self.shard.queue.borrow_mut().0.retain(|waiter| waiter.number != number);
            show_first(&self.shard);
            self.shard.shared.admission.leave_queue();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.done {
            self.leave();
            // It may have been woken for a permit that the next one can take.
            pass_on(&self.shard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(limit: usize, queue_size: usize) -> Admission {
        let config = AdmissionConfig {
            max_concurrent_requests: Some(limit),
            queue_size,
            ..AdmissionConfig::default()
        };
        Admission::new(&config, 2)
    }

    #[test]
    fn permits_end_at_the_limit() {
        let admission = admission(2, 0);
        assert_eq!((admission.take(), admission.take()), (Take::Taken, Take::Taken));
        assert_eq!(admission.take(), Take::Busy);
        assert_eq!(admission.running(), 2);
        assert_eq!(admission.enter_queue(), None, "a queue of no places");
    }

    #[test]
    fn the_queue_is_bounded_over_all_shards() {
        let admission = admission(1, 2);
        assert_eq!((admission.enter_queue(), admission.enter_queue()), (Some(0), Some(1)));
        assert_eq!(admission.enter_queue(), None);
        assert!(admission.is_full(), "two go before it");
        admission.leave_queue();
        assert!(!admission.is_full(), "there is room to wait");
        assert_eq!(admission.waiting(), 1);
        assert_eq!(admission.enter_queue(), Some(2));
    }

    #[test]
    fn the_first_of_all_shards_is_next() {
        let admission = admission(1, 9);
        assert_eq!(admission.first(), None);
        admission.show_first(0, Some(7));
        admission.show_first(1, Some(4));
        assert_eq!(admission.first(), Some((1, 4)));
        admission.show_first(1, None);
        assert_eq!(admission.first(), Some((0, 7)));
    }

    #[test]
    fn without_a_limit_everybody_runs() {
        let admission = Admission::new(&AdmissionConfig::default(), 1);
        assert!(!admission.is_limited() && admission.take() == Take::Taken);
        assert_eq!(admission.running(), 0);
    }

    #[test]
    fn a_token_is_taken_with_the_permit_and_not_given_back() {
        let config = AdmissionConfig { requests_per_sec: Some(1), ..AdmissionConfig::default() };
        let limited = AdmissionConfig { max_concurrent_requests: Some(3), ..config };
        // A second's worth without a limit of concurrency, else as many as may run.
        for (config, burst) in [(config, 1), (limited, 3)] {
            let admission = Admission::new(&config, 1);
            assert!(admission.is_limited());
            for _ in 0..burst {
                assert_eq!(admission.take(), Take::Taken);
                admission.running.fetch_sub(1, Ordering::SeqCst);
            }
            let Take::NotYet(wait) = admission.take() else { panic!("a token too many") };
            assert!(wait <= Duration::from_secs(1), "{wait:?}");
            assert_eq!(admission.running(), 0, "a permit without a token is given back");
        }
    }
}
