//! The receiving side of an engine's connection.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use monoio::buf::IoBufMut;
use monoio::io::{AsyncReadRent, OwnedReadHalf};
use monoio::net::TcpStream;

const READ_BYTES: usize = 16 * 1024;
/// While an answer is under way no more than this is read ahead from a pipelining client.
const READ_AHEAD_BYTES: usize = 64 * 1024;

type Half = OwnedReadHalf<TcpStream>;
type ReadOperation = Pin<Box<dyn Future<Output = (io::Result<usize>, Vec<u8>, Half)>>>;

/// Received bytes, and a read that can stay pending while the connection does something else.
///
/// A pending read owns its buffer and the half, because dropping it could lose bytes.
pub(super) struct Reader {
    /// Bytes received and not consumed yet.
    pub buf: Vec<u8>,
    half: Option<Half>,
    pending: Option<ReadOperation>,
}

impl Reader {
    pub fn new(half: Half) -> Self {
        Self { buf: Vec::with_capacity(READ_BYTES), half: Some(half), pending: None }
    }

    /// Waits for more bytes in [`Reader::buf`]. False: the peer is gone.
    pub async fn fill(&mut self) -> bool {
        if self.pending.is_some() {
            return poll_fn(|cx| self.poll_fill(cx)).await;
        }
        let Some(half) = self.half.as_mut() else { return false };
        let mut buf = std::mem::take(&mut self.buf);
        if buf.capacity() - buf.len() < READ_BYTES / 2 {
            buf.reserve(READ_BYTES.max(buf.len()));
        }
        let (from, to) = (buf.len(), buf.capacity());
        let (result, slice) = half.read(buf.slice_mut(from..to)).await;
        self.buf = slice.into_inner();
        matches!(result, Ok(read) if read > 0)
    }

    /// Takes `count` bytes off the stream without keeping them. False: the peer is gone.
    pub async fn skip(&mut self, mut count: u64) -> bool {
        loop {
            let buffered = (self.buf.len() as u64).min(count);
            self.buf.drain(..buffered as usize);
            count -= buffered;
            if count == 0 {
                return true;
            }
            // The buffer is empty now; a long body is worth a large one.
            let wanted = count.min(256 * 1024) as usize;
            self.buf.reserve(wanted);
            if !self.fill().await {
                return false;
            }
        }
    }

    /// Ready when the peer has left; bytes that arrive meanwhile are kept. With more than a bound
    /// read ahead nothing more is read, and the peer's leaving goes unnoticed.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.buf.len() < READ_AHEAD_BYTES {
            match self.poll_fill(cx) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        Poll::Pending
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let pending = match self.pending.as_mut() {
            Some(pending) => pending,
            None => {
                let Some(mut half) = self.half.take() else { return Poll::Ready(false) };
                self.pending.insert(Box::pin(async move {
                    let (result, buf) = half.read(Vec::with_capacity(READ_BYTES)).await;
                    (result, buf, half)
                }))
            }
        };
        let Poll::Ready((result, received, half)) = pending.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        self.pending = None;
        self.half = Some(half);
        self.buf.extend_from_slice(&received);
        Poll::Ready(matches!(result, Ok(read) if read > 0))
    }
}
