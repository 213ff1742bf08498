//! One client connection: requests out, answers in, with the times of what arrives.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::{Rc, Weak};

use monoio::buf::IoBufMut;
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpStream;
use smg_core::http1::{BodyLength, ChunkedDecoder, Header, ResponseHead, parse_response};

use super::record::ErrorClass;
use crate::clock::now_ns;
use crate::engine::Nanos;

/// Room for reads; a longer answer is read in several.
const READ_BYTES: usize = 16 * 1024;

/// Sees an answer's body as it arrives.
pub trait Sink {
    /// The head has arrived: itself, its headers, and the bytes that they are in.
    fn on_head(&mut self, head: &ResponseHead, headers: &[Header], buf: &[u8]);
    /// Body bytes, decoded, that one read at `at` brought.
    fn on_data(&mut self, data: &[u8], at: Nanos);
}

/// An answer that arrived whole.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    pub status: u16,
    /// Bytes of the head and of the body as framed on the wire.
    pub wire_bytes: u64,
    /// The connection can carry another request.
    pub keep_alive: bool,
}

/// Why no whole answer arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub class: ErrorClass,
    /// Nothing of the answer had arrived: on a reused connection the server had most likely
    /// closed it before it saw the request.
    pub before_first_byte: bool,
}

/// An open connection.
pub struct Connection {
    stream: TcpStream,
    buf: Vec<u8>,
    headers: Vec<Header>,
    deadline: Rc<Deadline>,
    /// Requests sent on it so far.
    pub uses: u64,
}

impl Connection {
    /// Connects; `watchdog` ends exchanges that take too long.
    pub async fn open(address: SocketAddr, watchdog: &Watchdog) -> io::Result<Self> {
        let stream = TcpStream::connect_addr(address).await?;
        stream.set_nodelay(true)?;
        let deadline = watchdog.watch(stream.as_raw_fd());
        let buf = Vec::with_capacity(READ_BYTES);
        Ok(Self { stream, buf, headers: Vec::new(), deadline, uses: 0 })
    }

    /// Writes a request that has until `deadline` to be answered, and returns its bytes. A failed
    /// write is no verdict: the server may have answered early.
    pub async fn send(&mut self, request: Vec<u8>, deadline: Nanos) -> (bool, Vec<u8>) {
        self.uses += 1;
        self.deadline.at.set(deadline);
        let (result, request) = self.stream.write_all(request).await;
        (result.is_ok(), request)
    }

    /// Reads one answer. After an error the connection is of no use.
    pub async fn receive(&mut self, sink: &mut impl Sink) -> Result<Received, Failure> {
        let result = self.receive_answer(sink).await;
        self.deadline.at.set(Nanos::MAX);
        result.map_err(|failure| match self.deadline.expired.get() {
            true => Failure { class: ErrorClass::Timeout, before_first_byte: false },
            false => failure,
        })
    }

    async fn receive_answer(&mut self, sink: &mut impl Sink) -> Result<Received, Failure> {
        self.buf.clear();
        let mut wire_bytes = 0;
        let (head, at) = loop {
            if !self.read().await {
                let before_first_byte = self.buf.is_empty() && wire_bytes == 0;
                let class =
                    if before_first_byte { ErrorClass::Closed } else { ErrorClass::Truncated };
                return Err(Failure { class, before_first_byte });
            }
            let at = now_ns();
            if let Some(head) = self.final_head(&mut wire_bytes)? {
                break (head, at);
            }
        };
        sink.on_head(&head, &self.headers, &self.buf);
        wire_bytes += head.len as u64;
        let body = self.receive_body(&head, at, sink).await?;
        Ok(Received {
            status: head.status,
            wire_bytes: wire_bytes + body,
            keep_alive: head.keep_alive && head.body != BodyLength::UntilClose,
        })
    }

    /// The head of the answer if it is complete; interim answers before it are dropped.
    fn final_head(&mut self, wire_bytes: &mut u64) -> Result<Option<ResponseHead>, Failure> {
        loop {
            let parsed = parse_response(&self.buf, false, &mut self.headers);
            match parsed.map_err(|_| MALFORMED)? {
                Some(head) if head.is_interim() => {
                    self.buf.drain(..head.len);
                    *wire_bytes += head.len as u64;
                }
                head => return Ok(head),
            }
        }
    }

    /// Reads the body, whose beginning is in the buffer behind the head. Returns its wire size.
    async fn receive_body(
        &mut self,
        head: &ResponseHead,
        mut at: Nanos,
        sink: &mut impl Sink,
    ) -> Result<u64, Failure> {
        let mut decoder = ChunkedDecoder::new();
        let mut from = head.len;
        let mut total = 0;
        loop {
            let piece = &mut self.buf[from..];
            let complete = match head.body {
                BodyLength::None => {
                    return if piece.is_empty() { Ok(0) } else { Err(MALFORMED) };
                }
                BodyLength::Fixed(length) => {
                    total += piece.len() as u64;
                    if total > length {
                        return Err(MALFORMED);
                    }
                    sink.on_data(piece, at);
                    total == length
                }
                BodyLength::UntilClose => {
                    total += piece.len() as u64;
                    sink.on_data(piece, at);
                    false
                }
                BodyLength::Chunked => {
                    let decoded = decoder.decode(piece).map_err(|_| MALFORMED)?;
                    total += decoded.consumed as u64;
                    if decoded.payload > 0 {
                        sink.on_data(&piece[..decoded.payload], at);
                    }
                    if decoded.done && decoded.consumed < piece.len() {
                        return Err(MALFORMED);
                    }
                    decoded.done
                }
            };
            if complete {
                return Ok(total);
            }
            self.buf.clear();
            from = 0;
            if !self.read().await {
                if head.body == BodyLength::UntilClose {
                    return Ok(total);
                }
                return Err(Failure { class: ErrorClass::Truncated, before_first_byte: false });
            }
            at = now_ns();
        }
    }

    /// Appends what one read brings. False: the connection has ended.
    async fn read(&mut self) -> bool {
        let mut buf = std::mem::take(&mut self.buf);
        if buf.len() == buf.capacity() {
            buf.reserve(READ_BYTES);
        }
        let (from, to) = (buf.len(), buf.capacity());
        let (result, slice) = self.stream.read(buf.slice_mut(from..to)).await;
        self.buf = slice.into_inner();
        matches!(result, Ok(read) if read > 0)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.deadline.open.set(false);
    }
}

const MALFORMED: Failure = Failure { class: ErrorClass::Malformed, before_first_byte: false };

/// Ends exchanges that take too long by shutting their sockets down, which fails the read under
/// way. One sweep over all connections now and then costs less than a timer per request.
#[derive(Default)]
pub struct Watchdog {
    watched: RefCell<Vec<Weak<Deadline>>>,
}

struct Deadline {
    fd: RawFd,
    /// The descriptor still belongs to the connection.
    open: Cell<bool>,
    at: Cell<Nanos>,
    expired: Cell<bool>,
}

impl Watchdog {
    /// Ends what is due at `now` and forgets connections that are gone.
    pub fn sweep(&self, now: Nanos) {
        self.watched.borrow_mut().retain(|watched| {
            let Some(deadline) = watched.upgrade().filter(|deadline| deadline.open.get()) else {
                return false;
            };
            if deadline.at.get() <= now && !deadline.expired.replace(true) {
                // SAFETY: plain system call on a descriptor that its connection still owns; this
                // thread alone closes it, and clears `open` before.
                unsafe { libc::shutdown(deadline.fd, libc::SHUT_RDWR) };
            }
            true
        });
    }

    fn watch(&self, fd: RawFd) -> Rc<Deadline> {
        let deadline = Rc::new(Deadline {
            fd,
            open: Cell::new(true),
            at: Cell::new(Nanos::MAX),
            expired: Cell::new(false),
        });
        self.watched.borrow_mut().push(Rc::downgrade(&deadline));
        deadline
    }
}
