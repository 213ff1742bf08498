//! Bounded mailboxes between pinned threads: one queue per ordered pair, an eventfd per receiver
//! that is written only when the receiver sleeps.
//!
//! The sleeping protocol (Dekker): the receiver raises `asleep`, then looks at every queue once
//! more; a sender pushes, then looks at `asleep`. Both sides put a sequentially consistent fence
//! between the two steps, so at least one of them sees the other and no message is slept over.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crossbeam::queue::ArrayQueue;
use crossbeam::utils::CachePadded;

/// Messages one sender may have waiting at one receiver. A full queue is an answer, not a wait.
pub const MAILBOX_CAPACITY: usize = 1024;

/// All mailboxes of the gateway: `threads` parties, each with a queue from each.
pub struct Mesh<M> {
    inboxes: Box<[CachePadded<Inbox<M>>]>,
}

struct Inbox<M> {
    from: Box<[ArrayQueue<M>]>,
    asleep: AtomicBool,
    bell: OwnedFd,
}

impl<M> Mesh<M> {
    /// Mailboxes for `receivers` threads, each with one queue per sender (`senders` of them; the
    /// receivers are senders `0..receivers`).
    pub fn new(receivers: usize, senders: usize) -> io::Result<Arc<Self>> {
        let inboxes = (0..receivers)
            .map(|_| {
                let from = (0..senders).map(|_| ArrayQueue::new(MAILBOX_CAPACITY)).collect();
                Ok(CachePadded::new(Inbox {
                    from,
                    asleep: AtomicBool::new(false),
                    bell: eventfd()?,
                }))
            })
            .collect::<io::Result<_>>()?;
        Ok(Arc::new(Self { inboxes }))
    }

    /// Puts `message` from thread `from` into the mailbox of `to`, waking it if it sleeps.
    ///
    /// # Errors
    /// Gives the message back when the queue is full.
    pub fn send(&self, from: usize, to: usize, message: M) -> Result<(), M> {
        let inbox = &self.inboxes[to];
        inbox.from[from].push(message)?;
        fence(Ordering::SeqCst);
        if inbox.asleep.load(Ordering::Relaxed) && inbox.asleep.swap(false, Ordering::AcqRel) {
            ring(&inbox.bell);
        }
        Ok(())
    }

    /// Takes the next message for `receiver`, visiting the senders in turn starting at `*turn`.
    pub fn take(&self, receiver: usize, turn: &mut usize) -> Option<M> {
        let from = &self.inboxes[receiver].from;
        for _ in 0..from.len() {
            let queue = &from[*turn];
            *turn = (*turn + 1) % from.len();
            if let Some(message) = queue.pop() {
                return Some(message);
            }
        }
        None
    }

    /// Whether no message waits for `receiver`.
    pub fn is_empty(&self, receiver: usize) -> bool {
        self.inboxes[receiver].from.iter().all(ArrayQueue::is_empty)
    }

    /// Announces that `receiver` goes to sleep on its bell. False when a message arrived in the
    /// meantime and it must not.
    pub fn prepare_sleep(&self, receiver: usize) -> bool {
        let inbox = &self.inboxes[receiver];
        inbox.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.is_empty(receiver) {
            return true;
        }
        inbox.asleep.store(false, Ordering::Relaxed);
        false
    }

    /// The receiver is awake again: resets the bell.
    pub fn awake(&self, receiver: usize) {
        let inbox = &self.inboxes[receiver];
        inbox.asleep.store(false, Ordering::Relaxed);
        let mut count = 0u64;
        // SAFETY: reads 8 bytes into a u64 from an eventfd this mesh owns; EAGAIN is fine.
        unsafe { libc::read(inbox.bell.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    /// The eventfd that becomes readable when `receiver` was woken.
    pub fn bell(&self, receiver: usize) -> RawFd {
        self.inboxes[receiver].bell.as_raw_fd()
    }
}

fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: plain syscall; the descriptor is owned from here on.
    unsafe {
        match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

fn ring(bell: &OwnedFd) {
    let one = 1u64;
    // SAFETY: writes 8 bytes of a u64 to an eventfd; it cannot block before 2^64 - 1 rings.
    unsafe { libc::write(bell.as_raw_fd(), (&raw const one).cast(), 8) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(bell: RawFd, timeout_ms: i32) -> bool {
        let mut poll = libc::pollfd { fd: bell, events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that lives through the call.
        unsafe { libc::poll(&mut poll, 1, timeout_ms) == 1 }
    }

    #[test]
    fn a_full_queue_gives_the_message_back() {
        let mesh = Mesh::new(1, 2).unwrap();
        for n in 0..MAILBOX_CAPACITY {
            mesh.send(1, 0, n).unwrap();
        }
        assert_eq!(mesh.send(1, 0, 7), Err(7));
        assert_eq!(mesh.send(0, 0, 8), Ok(()), "another sender has its own queue");
    }

    #[test]
    fn senders_take_turns() {
        let mesh = Mesh::new(1, 2).unwrap();
        for n in 0..2 {
            mesh.send(0, 0, ("a", n)).unwrap();
            mesh.send(1, 0, ("b", n)).unwrap();
        }
        let mut turn = 0;
        let order: Vec<_> = std::iter::from_fn(|| mesh.take(0, &mut turn)).collect();
        assert_eq!(order, [("a", 0), ("b", 0), ("a", 1), ("b", 1)]);
    }

    #[test]
    fn the_bell_rings_only_for_sleepers() {
        let mesh = Mesh::new(1, 1).unwrap();
        mesh.send(0, 0, ()).unwrap();
        assert!(!wait(mesh.bell(0), 0), "an awake receiver is not rung");
        assert!(!mesh.prepare_sleep(0), "a waiting message forbids sleep");
        mesh.take(0, &mut 0);
        assert!(mesh.prepare_sleep(0));
        mesh.send(0, 0, ()).unwrap();
        assert!(wait(mesh.bell(0), 0));
        mesh.awake(0);
        assert!(!wait(mesh.bell(0), 0));
    }

    #[test]
    fn no_message_is_slept_over() {
        const MESSAGES: usize = 50_000;
        let mesh = Mesh::new(1, 2).unwrap();
        let sender = |from: usize| {
            let mesh = mesh.clone();
            std::thread::spawn(move || {
                for n in 0..MESSAGES {
                    let mut message = n;
                    while let Err(back) = mesh.send(from, 0, message) {
                        message = back;
                        std::thread::yield_now();
                    }
                }
            })
        };
        let senders = [sender(0), sender(1)];
        let (mut received, mut turn) = (0, 0);
        while received < 2 * MESSAGES {
            if mesh.take(0, &mut turn).is_some() {
                received += 1;
            } else if mesh.prepare_sleep(0) {
                assert!(wait(mesh.bell(0), 10_000), "slept over a message after {received}");
                mesh.awake(0);
            }
        }
        for sender in senders {
            sender.join().unwrap();
        }
    }
}
