//! A connection of the relay as the `h2` crate wants it: polled reads and writes.

use std::cell::RefCell;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use monoio::time::{Sleep, sleep};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::Frames;
use crate::http::transport::{Reader, Writer};

/// Bytes of a read while little comes.
const FIRST_READ: usize = 4 * 1024;
/// ... and after one that was filled.
const LARGEST_READ: usize = 32 * 1024;
/// Frames gathered for one write, in bytes.
const GATHERED: usize = 64 * 1024;
/// For the peer to end its side once this one has.
const LINGER: Duration = Duration::from_secs(1);
/// ... and what it may still send meanwhile, in bytes: all that was allowed to be on its way.
const LINGER_BYTES: usize = 16 << 20;
/// Buffers up to this size are kept between writes.
const KEPT_BUFFER: usize = 4 * 1024;

type Writing = Pin<Box<dyn Future<Output = (io::Result<()>, Vec<u8>, Writer)>>>;

/// Both halves of a connection. Writes are gathered until a flush, which puts all of them into one
/// write of the connection.
pub struct Transport {
    reader: Reader,
    /// Read and not handed on, from `handed` on.
    received: Vec<u8>,
    handed: usize,
    read_size: usize,
    /// Of what was handed on.
    frames: Rc<RefCell<Frames>>,
    state: State,
    gathered: Vec<u8>,
    /// Bytes read and dropped since this side has ended.
    discarded: usize,
}

enum State {
    Idle(Writer),
    Writing(Writing),
    /// Ending its direction.
    Finishing(Pin<Box<dyn Future<Output = ()>>>),
    /// Waiting for the peer to end its own, until then.
    Lingering(Pin<Box<Sleep>>),
    /// Broken or over, or only while a state is replaced.
    Ended,
}

impl Transport {
    /// `received` was read before.
    pub fn new((reader, writer): (Reader, Writer), received: Vec<u8>) -> Self {
        Self {
            reader,
            received,
            handed: 0,
            read_size: FIRST_READ,
            frames: Rc::default(),
            state: State::Idle(writer),
            gathered: Vec::new(),
            discarded: 0,
        }
    }

    /// The frames that the peer sends.
    pub fn frames(&self) -> Rc<RefCell<Frames>> {
        self.frames.clone()
    }

    /// Ready when no write is under way.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Idle(_) => Poll::Ready(Ok(())),
            State::Finishing(_) | State::Lingering(_) | State::Ended => {
                Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
            }
            State::Writing(writing) => {
                let (outcome, mut buf, writer) = ready!(writing.as_mut().poll(cx));
                self.state = match outcome {
                    Ok(()) => State::Idle(writer),
                    Err(_) => State::Ended,
                };
                if self.gathered.is_empty() && buf.capacity() <= KEPT_BUFFER {
                    buf.clear();
                    self.gathered = buf;
                }
                Poll::Ready(outcome)
            }
        }
    }

    /// Reads and drops until the peer ends its side, or has sent more than is worth it.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.discarded < LINGER_BYTES {
            if !self.reader.armed() {
                self.reader.arm(Vec::with_capacity(LARGEST_READ));
            }
            match ready!(self.reader.poll(cx)).0 {
                Ok(received @ 1..) => self.discarded += received,
                Ok(0) | Err(_) => break,
            }
        }
        Poll::Ready(())
    }

    /// Writes what was gathered, once nothing else is being written.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_written(cx))?;
            if self.gathered.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let State::Idle(mut writer) = std::mem::replace(&mut self.state, State::Ended) else {
                continue;
            };
            let buf = std::mem::take(&mut self.gathered);
            self.state = State::Writing(Box::pin(async move {
                let (outcome, buf) = writer.write_all(buf, 0).await;
                (outcome, buf, writer)
            }));
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.handed == self.received.len() {
            if !self.reader.armed() {
                self.handed = 0;
                let mut fresh = std::mem::take(&mut self.received);
                fresh.clear();
                if fresh.capacity() != self.read_size {
                    fresh = Vec::with_capacity(self.read_size);
                }
                self.reader.arm(fresh);
            }
            let (outcome, received) = ready!(self.reader.poll(cx));
            self.read_size =
                if received.len() < received.capacity() { FIRST_READ } else { LARGEST_READ };
            self.received = received;
            match outcome {
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let waiting = &self.received[self.handed..];
        let taken = waiting.len().min(buf.remaining());
        buf.put_slice(&waiting[..taken]);
        self.frames.borrow_mut().take(&waiting[..taken]);
        self.handed += taken;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.gathered.len() >= GATHERED {
            ready!(self.poll_written(cx))?;
            // Begins the write of it; what is gathered next goes into another buffer.
            if let Poll::Ready(Err(error)) = self.poll_send(cx) {
                return Poll::Ready(Err(error));
            }
        } else if matches!(self.state, State::Ended) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let before = self.gathered.len();
        for slice in slices {
            let room = GATHERED.saturating_sub(self.gathered.len());
            self.gathered.extend_from_slice(&slice[..room.min(slice.len())]);
        }
        Poll::Ready(Ok(self.gathered.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(cx)
    }

    /// Ready once the peer has ended its side too, or has had time to. To close before it has would
    /// reset the connection, and what it has not read yet would be lost with it.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.state {
                State::Idle(_) | State::Writing(_) => {
                    ready!(self.poll_send(cx))?;
                    let idle = std::mem::replace(&mut self.state, State::Ended);
                    if let State::Idle(mut writer) = idle {
                        self.state = State::Finishing(Box::pin(async move {
                            writer.finish().await;
                        }));
                    }
                }
                State::Finishing(finishing) => {
                    ready!(finishing.as_mut().poll(cx));
                    self.state = State::Lingering(Box::pin(sleep(LINGER)));
                }
                State::Lingering(until) => {
                    if until.as_mut().poll(cx).is_pending() {
                        ready!(self.poll_discard(cx));
                    }
                    self.state = State::Ended;
                }
                State::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}
