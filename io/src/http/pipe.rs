//! A connection in memory: two bounded byte channels between tasks of one shard.
//!
//! What stands between a socket and the relay (TLS, HTTP/2) has a socket or a stream on one side and
//! one of these on the other, so that the relay reads and writes as it always does. A channel holds
//! at most [`CAPACITY`] bytes and no memory while it is empty.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Most bytes on the way in one direction.
pub const CAPACITY: usize = 64 * 1024;

/// One side of a connection in memory.
pub struct End {
    /// What the other side sends.
    pub receiver: Receiver,
    /// What the other side receives.
    pub sender: Sender,
}

/// A connection in memory: its two sides.
pub fn duplex() -> (End, End) {
    let (there, from_here) = channel();
    let (back, from_there) = channel();
    (End { receiver: from_there, sender: there }, End { receiver: from_here, sender: back })
}

/// One direction.
pub fn channel() -> (Sender, Receiver) {
    let channel = Rc::new(RefCell::new(Channel::default()));
    (Sender { channel: channel.clone() }, Receiver { channel })
}

/// The sending side of one direction. Dropping it is an orderly end, in a panic it is a cut.
pub struct Sender {
    channel: Rc<RefCell<Channel>>,
}

/// The receiving side of one direction. Dropping it tells the sender that nobody listens.
pub struct Receiver {
    channel: Rc<RefCell<Channel>>,
}

#[derive(Default)]
struct Channel {
    bytes: Vec<u8>,
    /// Of `bytes`, those received already.
    received: usize,
    end: Option<Ending>,
    receiver_gone: bool,
    /// The receiver asked for more since the last byte was sent: it is done with what it got.
    receiver_asks: bool,
    receiving: Option<Waker>,
    sending: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Everything was sent.
    Whole,
    /// Something is missing.
    Cut,
}

impl Channel {
    fn waiting(&self) -> usize {
        self.bytes.len() - self.received
    }

    fn end(&mut self, ending: Ending) -> Option<Waker> {
        if self.end.is_none() {
            self.end = Some(ending);
        }
        self.receiving.take()
    }
}

impl Sender {
    /// Sends as much of `bytes`, which are not empty, as there is room for.
    ///
    /// # Errors
    /// `BrokenPipe` once the receiver is gone or this side has ended.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut channel = self.channel.borrow_mut();
        if channel.receiver_gone || channel.end.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = CAPACITY - channel.waiting();
        if room == 0 {
            channel.sending = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let sent = room.min(bytes.len());
        if channel.received > 0 {
            let received = std::mem::take(&mut channel.received);
            channel.bytes.drain(..received);
        }
        channel.bytes.extend_from_slice(&bytes[..sent]);
        channel.receiver_asks = false;
        let waker = channel.receiving.take();
        drop(channel);
        wake(waker);
        Poll::Ready(Ok(sent))
    }

    /// Ready once the receiver has everything and came back for more: whatever it did with it is done.
    ///
    /// # Errors
    /// `BrokenPipe` when the receiver went away before that.
    pub fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut channel = self.channel.borrow_mut();
        if channel.waiting() == 0 && channel.receiver_asks {
            return Poll::Ready(Ok(()));
        }
        if channel.receiver_gone {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        channel.sending = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ready once the receiver is gone.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut channel = self.channel.borrow_mut();
        if channel.receiver_gone {
            return Poll::Ready(());
        }
        channel.sending = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Sends all of `bytes`, as the receiver makes room for it.
    ///
    /// # Errors
    /// `BrokenPipe` once the receiver is gone.
    pub async fn send_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            sent += std::future::poll_fn(|cx| self.poll_send(cx, &bytes[sent..])).await?;
        }
        Ok(())
    }

    /// Nothing more will be sent; what was still arrives.
    pub fn finish(&mut self) {
        let waker = self.channel.borrow_mut().end(Ending::Whole);
        wake(waker);
    }

    /// The same, and the receiver learns that something is missing.
    pub fn cut(&mut self) {
        let waker = self.channel.borrow_mut().end(Ending::Cut);
        wake(waker);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if std::thread::panicking() { self.cut() } else { self.finish() }
    }
}

impl Receiver {
    /// Hands what is waiting to `take`, which says how much of it was used. 0 is the orderly end.
    ///
    /// # Errors
    /// `ConnectionReset` when the sender was cut short; what `take` fails with.
    pub fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let mut channel = self.channel.borrow_mut();
        if channel.waiting() == 0 {
            return match channel.end {
                Some(Ending::Whole) => Poll::Ready(Ok(0)),
                Some(Ending::Cut) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                None => {
                    channel.receiving = Some(cx.waker().clone());
                    channel.receiver_asks = true;
                    let waker = channel.sending.take();
                    drop(channel);
                    wake(waker);
                    Poll::Pending
                }
            };
        }
        let taken = take(&channel.bytes[channel.received..])?;
        channel.received += taken;
        if channel.waiting() == 0 {
            channel.bytes = Vec::new();
            channel.received = 0;
        }
        let waker = channel.sending.take();
        drop(channel);
        wake(waker);
        Poll::Ready(Ok(taken))
    }

    /// Appends what is waiting to `buf`, as far as its capacity goes; the number of bytes, 0 at the
    /// orderly end.
    ///
    /// # Errors
    /// `ConnectionReset` when the sender was cut short.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        self.poll_receive(cx, |waiting| {
            let taken = waiting.len().min(buf.capacity() - buf.len());
            buf.extend_from_slice(&waiting[..taken]);
            Ok(taken)
        })
    }

    /// Ready once the sender has ended, be there bytes left to receive or not.
    pub fn poll_sender_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut channel = self.channel.borrow_mut();
        if channel.end.is_some() {
            return Poll::Ready(());
        }
        channel.receiving = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the sender has ended, be there bytes left to receive or not.
    pub fn sender_has_ended(&self) -> bool {
        self.channel.borrow().end.is_some()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut channel = self.channel.borrow_mut();
        channel.receiver_gone = true;
        channel.bytes = Vec::new();
        channel.received = 0;
        let waker = channel.sending.take();
        drop(channel);
        wake(waker);
    }
}

/// Outside of any borrow: a waker may run what is behind it.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    fn kind<T: std::fmt::Debug>(outcome: Poll<io::Result<T>>) -> io::ErrorKind {
        match outcome {
            Poll::Ready(Err(error)) => error.kind(),
            other => panic!("{other:?}"),
        }
    }

    fn received(receiver: &mut Receiver, room: usize) -> Option<Vec<u8>> {
        let mut buf = Vec::with_capacity(room);
        match receiver.poll_read(&mut cx(), &mut buf) {
            Poll::Ready(outcome) => {
                assert_eq!(outcome.unwrap(), buf.len());
                Some(buf)
            }
            Poll::Pending => None,
        }
    }

    #[test]
    fn bytes_arrive_in_order_and_no_more_than_fit_are_on_the_way() {
        let (mut sender, mut receiver) = channel();
        let bytes: Vec<u8> = (0..2 * CAPACITY).map(|n| n as u8).collect();
        assert!(matches!(sender.poll_send(&mut cx(), &bytes), Poll::Ready(Ok(CAPACITY))));
        assert!(sender.poll_send(&mut cx(), b"x").is_pending());
        assert_eq!(received(&mut receiver, 100).unwrap(), bytes[..100]);
        assert!(matches!(sender.poll_send(&mut cx(), &bytes[CAPACITY..]), Poll::Ready(Ok(100))));
        assert_eq!(received(&mut receiver, 2 * CAPACITY).unwrap(), bytes[100..CAPACITY + 100]);
        assert_eq!(receiver.channel.borrow().bytes.capacity(), 0, "empty costs nothing");
        assert!(received(&mut receiver, 1).is_none());
    }

    #[test]
    fn what_was_sent_counts_as_taken_when_the_receiver_comes_back() {
        let (mut sender, mut receiver) = channel();
        assert!(matches!(sender.poll_send(&mut cx(), b"ab"), Poll::Ready(Ok(2))));
        assert!(sender.poll_taken(&mut cx()).is_pending());
        assert_eq!(received(&mut receiver, 8).unwrap(), b"ab");
        assert!(sender.poll_taken(&mut cx()).is_pending(), "it may still be at work on it");
        assert!(received(&mut receiver, 8).is_none());
        assert!(matches!(sender.poll_taken(&mut cx()), Poll::Ready(Ok(()))));
    }

    #[test]
    fn both_endings_come_after_the_bytes() {
        for cut in [false, true] {
            let (mut sender, mut receiver) = channel();
            assert!(matches!(sender.poll_send(&mut cx(), b"ab"), Poll::Ready(Ok(2))));
            if cut {
                sender.cut()
            } else {
                drop(sender)
            }
            assert!(receiver.sender_has_ended());
            assert_eq!(received(&mut receiver, 8).unwrap(), b"ab");
            let end = receiver.poll_read(&mut cx(), &mut Vec::with_capacity(1));
            if cut {
                assert_eq!(kind(end), io::ErrorKind::ConnectionReset);
            } else {
                assert!(matches!(end, Poll::Ready(Ok(0))));
            }
        }
    }

    #[test]
    fn a_sender_learns_that_nobody_listens() {
        let (mut sender, receiver) = channel();
        assert!(matches!(sender.poll_send(&mut cx(), b"ab"), Poll::Ready(Ok(2))));
        assert!(sender.poll_gone(&mut cx()).is_pending());
        drop(receiver);
        assert!(sender.poll_gone(&mut cx()).is_ready());
        assert_eq!(kind(sender.poll_send(&mut cx(), b"c")), io::ErrorKind::BrokenPipe);
        assert_eq!(kind(sender.poll_taken(&mut cx())), io::ErrorKind::BrokenPipe);
    }
}
