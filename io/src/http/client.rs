//! The client's side of a connection: bytes received, whether it is still there, and its deadline.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use monoio::time::{Sleep, sleep};

use crate::body_memory::{BodyMemory, Buffer, Exhausted, FREE_OF_STREAM, Hold};
use crate::http::transport::Reader;
use crate::http::watchdog::Watchdog;

/// First buffer of a connection in bytes; most request heads and short bodies fit.
const FIRST_BUFFER: usize = 4 * 1024;
/// Buffer that watches a client which is being sent a stream, in bytes.
const LITTLE_BUFFER: usize = 512;
/// Largest buffer kept ready for the next request of a connection that sends large ones.
const LARGEST_READY_BUFFER: usize = 32 * 1024;
/// Bytes a client may send ahead while its request is under way; beyond, reading stops.
const PIPELINE_LIMIT: usize = 64 * 1024;

/// Between two looks at whether such a client is still there.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// Why waiting on behalf of a client ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// The client closed its side or the connection broke.
    ClientGone,
    /// The deadline passed.
    Deadline,
}

/// The receiving half of a client connection and what watches it.
pub struct ClientSide {
    reader: Reader,
    /// Received and not consumed. A read armed by [`ClientSide::fill`] owns it and appends to it; one
    /// armed to watch the client has a buffer of its own when there are bytes in this one.
    buf: Vec<u8>,
    /// For the part of a large body in `buf`.
    hold: Hold,
    /// With other streams of one connection.
    is_shared: bool,
    gone: bool,
    /// Until the next look at a client that is not read.
    pause: Option<Pin<Box<Sleep>>>,
    ready_buffer: usize,
    watchdog: Watchdog,
}

impl ClientSide {
    /// A fresh connection whose first request head must arrive within `first_head`.
    pub fn new(reader: Reader, first_head: Duration) -> Self {
        Self {
            reader,
            buf: Vec::new(),
            hold: Hold::default(),
            is_shared: false,
            gone: false,
            pause: None,
            ready_buffer: FIRST_BUFFER,
            watchdog: Watchdog::new(first_head),
        }
    }

    /// It is one of several that may be open over one connection.
    pub fn share(&mut self) {
        self.is_shared = true;
        self.hold = Hold::above(FREE_OF_STREAM);
    }

    /// Of a request whose body begins at `start`, the bytes from here on are counted: with the head, if
    /// there may be many of them over one connection.
    pub fn counted_from(&self, start: usize) -> usize {
        if self.is_shared { 0 } else { start }
    }

    /// A refusal comes next. What else the client sends over a stream is not to wait in memory until it has
    /// taken that.
    pub fn stop_stream(&mut self) {
        if self.is_shared {
            self.reader.stop_piped();
        }
    }

    /// Bytes received and not consumed.
    pub fn received(&mut self) -> &mut Vec<u8> {
        &mut self.buf
    }

    /// Notes that `bytes` that are counted have been received.
    ///
    /// # Errors
    /// When there is no room for them; they are still there.
    pub fn cover(&mut self, memory: &Arc<BodyMemory>, bytes: usize) -> Result<(), Exhausted> {
        self.hold.cover(memory, bytes)
    }

    /// At most so many bytes take nothing of the budget.
    pub fn free(&self) -> usize {
        self.hold.free()
    }

    /// Takes the first `end` bytes, which are a whole request, and lets go of those after it.
    pub fn take_request(&mut self, end: usize) -> (Buffer, Vec<u8>) {
        let mut bytes = std::mem::take(&mut self.buf);
        let ahead = if bytes.len() > end { bytes.split_off(end) } else { Vec::new() };
        (Buffer::new(bytes, self.hold.take()), ahead)
    }

    /// Frees what was received, and will not be used. While a read is armed the buffer is with that.
    pub fn forget_received(&mut self) {
        if !self.reader.armed() {
            self.buf = Vec::new();
            drop(self.hold.take());
        }
    }

    /// The transport, for somebody else to read to its end. A read may be armed.
    pub fn reader(&mut self) -> &mut Reader {
        &mut self.reader
    }

    /// The transport and the bytes received, for another protocol. After [`ClientSide::fill`] nothing
    /// else is on its way.
    pub fn into_parts(self) -> (Reader, Vec<u8>) {
        (self.reader, self.buf)
    }

    /// Puts back bytes that belong to the next request, and remembers how large the present one
    /// was so that the next fits one read.
    pub fn begin_next(&mut self, ahead: Vec<u8>, message_len: usize) {
        self.buf = ahead;
        self.ready_buffer =
            message_len.next_power_of_two().clamp(FIRST_BUFFER, LARGEST_READY_BUFFER);
    }

    /// Expects nothing large from the client soon: what watches it meanwhile takes little memory.
    pub fn expect_little(&mut self) {
        self.ready_buffer = LITTLE_BUFFER;
    }

    /// Moves the deadline of whatever is waited for.
    pub fn set_deadline(&mut self, after: Duration) {
        self.watchdog.set(after);
    }

    /// Receives more; the number of bytes, at least one.
    ///
    /// # Errors
    /// [`Interrupt::ClientGone`] at the end of the stream, [`Interrupt::Deadline`] when the deadline
    /// passes first.
    pub async fn fill(&mut self, at_least_spare: usize) -> Result<usize, Interrupt> {
        if self.gone {
            return Err(Interrupt::ClientGone);
        }
        if !self.reader.armed() {
            self.arm(at_least_spare);
        }
        std::future::poll_fn(|cx| {
            if let Poll::Ready((outcome, buf)) = self.reader.poll(cx) {
                self.take_in(buf);
                return Poll::Ready(self.received_or_gone(outcome));
            }
            self.watchdog.poll(cx).map(|()| Err(Interrupt::Deadline))
        })
        .await
    }

    /// Runs `work` with the client watched: it ends early when the client leaves or the deadline
    /// passes, and `work` is dropped then.
    pub async fn watch<F: Future>(&mut self, work: F) -> Result<F::Output, Interrupt> {
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            self.poll_interrupt(cx).map(Err)
        })
        .await
    }

    /// Ready when the client is gone or the deadline has passed. Bytes it sends ahead are kept.
    pub fn poll_interrupt(&mut self, cx: &mut Context<'_>) -> Poll<Interrupt> {
        while !self.gone {
            if !self.reader.armed() {
                match self.buf.len() {
                    0 => self.arm(1),
                    ahead if ahead < PIPELINE_LIMIT => {
                        self.reader.arm(Vec::with_capacity(FIRST_BUFFER));
                    }
                    _ => {
                        self.look(cx);
                        break;
                    }
                }
            }
            let Poll::Ready((outcome, buf)) = self.reader.poll(cx) else { break };
            self.take_in(buf);
            // An error is remembered in `gone`, which ends the loop.
            let _ = self.received_or_gone(outcome);
        }
        if self.gone {
            return Poll::Ready(Interrupt::ClientGone);
        }
        self.watchdog.poll(cx).map(|()| Interrupt::Deadline)
    }

    /// Looks now and then whether a client is still there from which nothing more is read.
    fn look(&mut self, cx: &mut Context<'_>) {
        loop {
            self.gone = self.reader.peer_has_left();
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(LOOK_PAUSE)));
            if self.gone || pause.as_mut().poll(cx).is_pending() {
                return;
            }
            self.pause = None;
        }
    }

    fn arm(&mut self, at_least_spare: usize) {
        let mut buf = std::mem::take(&mut self.buf);
        if buf.capacity() - buf.len() < at_least_spare.max(1) {
            let wanted = self.ready_buffer.saturating_sub(buf.len()).max(at_least_spare).max(512);
            buf.reserve_exact(wanted);
        }
        self.reader.arm(buf);
    }

    /// Adds what a read brought to what was there before it.
    fn take_in(&mut self, buf: Vec<u8>) {
        if self.buf.is_empty() {
            self.buf = buf;
        } else {
            self.buf.extend_from_slice(&buf);
        }
    }

    fn received_or_gone(&mut self, outcome: io::Result<usize>) -> Result<usize, Interrupt> {
        match outcome {
            Ok(received) if received > 0 => Ok(received),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Ok(_) | Err(_) => {
                self.gone = true;
                Err(Interrupt::ClientGone)
            }
        }
    }
}
