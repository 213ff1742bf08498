//! One connection as the relay uses it: a read that stays armed, and owned writes. Below it is a
//! socket, or one end of a [`pipe`](crate::http::pipe) to what stands between it and the socket.
//!
//! A read is never dropped while the connection lives, since bytes it received would be lost with
//! it; it is kept, polled again later, and its bytes handed over then. That is what lets the relay
//! watch a client while it waits for a worker.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use monoio::buf::{IoBuf, IoBufMut, IoVecBuf};
use monoio::io::{AsyncReadRent, AsyncWriteRent, OwnedReadHalf, OwnedWriteHalf, Splitable};
use monoio::net::TcpStream;

use crate::body_memory::Buffer;
use crate::http::pipe;
use crate::runtime::reachability::{self, Delivery};
use crate::runtime::{budget, descriptors};

type ReadOutcome = (io::Result<usize>, Vec<u8>);
type ReadHalf = OwnedReadHalf<TcpStream>;
type PendingRead = Pin<Box<dyn Future<Output = (io::Result<usize>, Vec<u8>, ReadHalf)>>>;

/// Splits a connected stream; Nagle's algorithm is off on both sides of the gateway.
pub fn split(stream: TcpStream) -> (Reader, Writer) {
    // A socket that refuses the option still works, only later.
    let _ = stream.set_nodelay(true);
    let fd = stream.as_raw_fd();
    let (read, write) = stream.into_split();
    (Reader { state: State::Idle(read), fd }, Writer(Sink::Socket { half: write, fd }))
}

/// The same for one side of a connection in memory.
pub fn split_pipe(end: pipe::End) -> (Reader, Writer) {
    let piped = Piped { receiver: end.receiver, buf: None, socket: None };
    let state = State::Piped(Box::new(piped));
    (Reader { state, fd: NO_SOCKET }, Writer(Sink::Pipe(end.sender)))
}

/// In place of the descriptor of a socket.
pub const NO_SOCKET: RawFd = -1;

/// The receiving half.
pub struct Reader {
    state: State,
    fd: RawFd,
}

enum State {
    Idle(ReadHalf),
    Reading(PendingRead),
    /// On the heap, so that connections over sockets stay small.
    Piped(Box<Piped>),
    /// Only while a state is replaced.
    Moved,
}

struct Piped {
    receiver: pipe::Receiver,
    /// There is one while a read is armed.
    buf: Option<Vec<u8>>,
    /// Behind whatever is at the other end.
    socket: Option<Rc<SocketBelow>>,
}

/// The socket at the other end of a pipe, for as long as it is open.
#[derive(Debug)]
pub struct SocketBelow(Cell<RawFd>);

impl SocketBelow {
    /// The one that `reader` reads from, until the guard is dropped: in the turn in which that closes.
    pub fn of(reader: &Reader) -> (Rc<Self>, SocketGuard) {
        let below = Rc::new(Self(Cell::new(reader.fd)));
        (below.clone(), SocketGuard(below))
    }
}

/// Dropping it says that the socket is closed: its descriptor may be another's from then on.
pub struct SocketGuard(Rc<SocketBelow>);

impl Drop for SocketGuard {
    fn drop(&mut self) {
        self.0.0.set(NO_SOCKET);
    }
}

impl Reader {
    /// Starts a read that appends to `buf`, which must have spare capacity. Only when none is armed.
    pub fn arm(&mut self, buf: Vec<u8>) {
        debug_assert!(buf.capacity() > buf.len());
        match std::mem::replace(&mut self.state, State::Moved) {
            State::Idle(mut half) => {
                let read = Box::pin(async move {
                    let (start, end) = (buf.len(), buf.capacity());
                    let (outcome, slice) = half.read(buf.slice_mut(start..end)).await;
                    (outcome, slice.into_inner(), half)
                });
                self.state = State::Reading(read);
            }
            State::Piped(mut piped) => {
                piped.buf.get_or_insert(buf);
                self.state = State::Piped(piped);
            }
            other => self.state = other,
        }
    }

    /// Nobody reads any more from the other end of a pipe, which learns of it; a socket stays as it is.
    pub fn stop_piped(&mut self) {
        if let State::Piped(piped) = &mut self.state {
            // One that has ended.
            piped.receiver = pipe::channel().1;
        }
    }

    /// Whether a read is under way.
    pub fn armed(&self) -> bool {
        match &self.state {
            State::Reading(_) => true,
            State::Piped(piped) => piped.buf.is_some(),
            State::Idle(_) | State::Moved => false,
        }
    }

    /// The outcome of the armed read: bytes appended (0 at the end of the stream) and the buffer.
    /// Pending when none is armed.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ReadOutcome> {
        if budget::poll_turn(cx).is_pending() {
            return Poll::Pending;
        }
        let outcome = self.poll_at_once(cx);
        if outcome.is_ready() {
            budget::spend();
        }
        outcome
    }

    fn poll_at_once(&mut self, cx: &mut Context<'_>) -> Poll<ReadOutcome> {
        match &mut self.state {
            State::Reading(read) => match read.as_mut().poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready((outcome, buf, half)) => {
                    self.state = State::Idle(half);
                    Poll::Ready((outcome, buf))
                }
            },
            State::Piped(piped) => {
                let Piped { receiver, buf: armed, .. } = &mut **piped;
                let Some(mut buf) = armed.take() else { return Poll::Pending };
                match receiver.poll_read(cx, &mut buf) {
                    Poll::Ready(outcome) => Poll::Ready((outcome, buf)),
                    Poll::Pending => {
                        *armed = Some(buf);
                        Poll::Pending
                    }
                }
            }
            State::Idle(_) | State::Moved => Poll::Pending,
        }
    }

    /// Waits for the armed read.
    pub async fn read(&mut self) -> ReadOutcome {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// Says which socket is behind the pipe that this reads from.
    pub fn lies_over(&mut self, socket: Rc<SocketBelow>) {
        if let State::Piped(piped) = &mut self.state {
            piped.socket = Some(socket);
        }
    }

    /// What the kernel knows of what was sent over this connection; of one that is closed, that it
    /// has arrived.
    pub fn delivery(&self) -> Delivery {
        reachability::delivery(self.socket())
    }

    /// Resets the connection at once: nothing of what was sent and has not arrived will.
    pub fn reset(&mut self) {
        dissolve(self.socket());
    }

    fn socket(&self) -> RawFd {
        match &self.state {
            State::Piped(piped) => piped.socket.as_ref().map_or(NO_SOCKET, |socket| socket.0.get()),
            _ => self.fd,
        }
    }

    /// Whether the peer has closed its side or broken the connection, without reading.
    pub fn peer_has_left(&self) -> bool {
        match &self.state {
            State::Piped(piped) => piped.receiver.sender_has_ended(),
            _ => descriptors::ready_for(self.fd, libc::POLLRDHUP) != 0,
        }
    }

    /// What the armed read has to show without waiting; `None` while nothing happened.
    pub fn peek(&mut self) -> Option<ReadOutcome> {
        match self.poll_at_once(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }
}

impl Drop for Reader {
    /// An armed read holds the descriptor open; shutting the socket down ends the read and tells
    /// the peer at once. The end of a pipe tells it by being dropped.
    fn drop(&mut self) {
        if matches!(self.state, State::Reading(_)) {
            shutdown(self.fd);
        }
    }
}

/// Ends both directions of a socket; errors mean that it has already ended.
pub fn shutdown(fd: RawFd) {
    // SAFETY: a plain syscall on a descriptor the caller keeps open.
    unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
}

/// The sending half.
pub struct Writer(Sink);

enum Sink {
    Socket { half: OwnedWriteHalf<TcpStream>, fd: RawFd },
    Pipe(pipe::Sender),
}

impl Writer {
    /// Sends `buf[start..]` whole and gives the buffer back. The kernel has it then; through a pipe,
    /// whoever is at its other end is done with it.
    pub async fn write_all(&mut self, mut buf: Vec<u8>, mut start: usize) -> ReadlessOutcome {
        let half = match &mut self.0 {
            Sink::Socket { half, .. } => half,
            Sink::Pipe(sender) => return (send_through(sender, &buf[start..]).await, buf),
        };
        while start < buf.len() {
            std::future::poll_fn(budget::poll_turn).await;
            let (outcome, slice) = half.write(buf.slice(start..)).await;
            budget::spend();
            buf = slice.into_inner();
            match outcome {
                Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), buf),
                Ok(written) => start += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }

    /// Resets the connection at once, so that the peer sees that something is missing. An orderly
    /// close would begin with the end of this direction, which is how a whole body ends too.
    pub fn reset(&mut self) {
        match &mut self.0 {
            Sink::Socket { fd, .. } => dissolve(*fd),
            Sink::Pipe(sender) => sender.cut(),
        }
    }

    /// The connection ends now and what was sent is not whole. A socket is left alone: what was sent
    /// shows it by its framing. What is behind a pipe is told, as its own ending would say otherwise.
    pub fn cut(&mut self) {
        if let Sink::Pipe(sender) = &mut self.0 {
            sender.cut();
        }
    }

    /// Ends this direction; what was written still arrives.
    pub async fn finish(&mut self) {
        match &mut self.0 {
            // An error means that the connection has ended already.
            Sink::Socket { half, .. } => drop(half.shutdown().await),
            Sink::Pipe(sender) => sender.finish(),
        }
    }

    /// Sends `head` and then `body[range]`, in one system call where the socket takes it.
    pub async fn write_message(
        &mut self,
        head: Vec<u8>,
        body: Rc<Buffer>,
        range: std::ops::Range<usize>,
    ) -> ReadlessOutcome {
        let half = match &mut self.0 {
            Sink::Socket { half, .. } => half,
            Sink::Pipe(sender) => {
                let sent = match send_through(sender, &head).await {
                    Ok(()) => send_through(sender, &body[range]).await,
                    error => error,
                };
                return (sent, head);
            }
        };
        let mut message = Message::new(head, body, range);
        while message.remaining() > 0 {
            std::future::poll_fn(budget::poll_turn).await;
            let (outcome, back) = half.writev(message).await;
            budget::spend();
            message = back;
            match outcome {
                Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), message.head),
                Ok(written) => message.advance(written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (Err(error), message.head),
            }
        }
        (Ok(()), message.head)
    }
}

async fn send_through(sender: &mut pipe::Sender, bytes: &[u8]) -> io::Result<()> {
    std::future::poll_fn(budget::poll_turn).await;
    budget::spend();
    sender.send_all(bytes).await?;
    std::future::poll_fn(|cx| sender.poll_taken(cx)).await
}

/// Connecting to no address dissolves the connection (tcp_disconnect, connect(2)).
fn dissolve(fd: RawFd) {
    let nowhere = libc::sockaddr { sa_family: libc::AF_UNSPEC as u16, sa_data: [0; 14] };
    // SAFETY: the caller keeps the descriptor open; the address lives through the call.
    unsafe {
        libc::connect(fd, &raw const nowhere, size_of::<libc::sockaddr>() as libc::socklen_t);
    }
}

/// Outcome of a write, with the buffer for reuse.
pub type ReadlessOutcome = (io::Result<()>, Vec<u8>);

/// Head and body as an I/O vector that owns what it points to, so that a write given up half way
/// never leaves the kernel with memory that was freed.
struct Message {
    head: Vec<u8>,
    /// Keeps the memory behind the second vector alive.
    _body: Rc<Buffer>,
    /// On the heap: the kernel reads them where they were when the write was submitted, and the
    /// message itself moves after that.
    vectors: Box<[libc::iovec; 2]>,
    first: usize,
}

impl Message {
    fn new(mut head: Vec<u8>, body: Rc<Buffer>, range: std::ops::Range<usize>) -> Self {
        let payload = &body[range];
        let vectors = Box::new([
            libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() },
            libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() },
        ]);
        Self { head, _body: body, vectors, first: 0 }
    }

    fn remaining(&self) -> usize {
        self.vectors[self.first..].iter().map(|vector| vector.iov_len).sum()
    }

    fn advance(&mut self, mut written: usize) {
        while self.first < self.vectors.len() {
            let vector = &mut self.vectors[self.first];
            if written < vector.iov_len {
                vector.iov_base = vector.iov_base.wrapping_byte_add(written);
                vector.iov_len -= written;
                return;
            }
            written -= vector.iov_len;
            vector.iov_len = 0;
            self.first += 1;
        }
    }
}

// SAFETY: the vectors are on the heap and point into heap memory owned by `head` and `_body`; all of
// it stays where it is when the value moves, and none of it is changed while the kernel may read. `Vec<iovec>`
// (the library's own implementation) would not keep that memory alive.
unsafe impl IoVecBuf for Message {
    fn read_iovec_ptr(&self) -> *const libc::iovec {
        self.vectors[self.first..].as_ptr()
    }

    fn read_iovec_len(&self) -> usize {
        self.vectors.len() - self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_advances_over_both_parts() {
        let mut message =
            Message::new(b"head".to_vec(), Rc::new(b"..body..".to_vec().into()), 2..6);
        assert_eq!(message.remaining(), 8);
        message.advance(3);
        assert_eq!((message.first, message.remaining()), (0, 5));
        message.advance(3);
        assert_eq!((message.first, message.remaining()), (1, 2));
        message.advance(2);
        assert_eq!(message.remaining(), 0);
    }
}
