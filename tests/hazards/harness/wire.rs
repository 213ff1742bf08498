//! HTTP/1.1 as both ends of the tests read it: simple, strict enough, and apart from the code under
//! test.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::secure::Stream;
use super::{PATIENCE, TICK};

/// A connection and what has been received over it.
pub struct Wire {
    pub stream: Stream,
    received: Vec<u8>,
    /// The connection ended without the word with which TLS ends.
    cut: bool,
}

/// A request or response head.
#[derive(Debug, Clone)]
pub struct Head {
    /// Request line or status line.
    pub first_line: String,
    /// Names as they came, and values.
    pub headers: Vec<(String, String)>,
}

/// A message body.
#[derive(Debug, Clone, Default)]
pub struct Body {
    pub bytes: Vec<u8>,
    /// It ended as its head announced, not with the connection.
    pub complete: bool,
}

impl Head {
    /// The one value of a header; a repeated header fails the test.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is repeated: {self:?}");
        value
    }

    /// Status of a response.
    pub fn status(&self) -> u16 {
        let code = self.first_line.split(' ').nth(1).and_then(|code| code.parse().ok());
        code.unwrap_or_else(|| panic!("not a status line: {}", self.first_line))
    }

    pub fn is_chunked(&self) -> bool {
        self.header("transfer-encoding")
            .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
    }

    fn content_length(&self) -> Option<usize> {
        self.header("content-length").and_then(|length| length.parse().ok())
    }
}

impl Wire {
    pub fn new(stream: TcpStream) -> Self {
        Self::over(Stream::Plain(stream))
    }

    pub fn over(stream: Stream) -> Self {
        let socket = stream.socket();
        // A socket that has been reset already refuses; the next read says so.
        let _ = socket.set_read_timeout(Some(TICK));
        let _ = socket.set_write_timeout(Some(PATIENCE));
        let _ = socket.set_nodelay(true);
        Self { stream, received: Vec::new(), cut: false }
    }

    /// Whether the connection has ended without the word with which TLS ends.
    pub fn was_cut(&self) -> bool {
        self.cut
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            match with_patience(|| self.stream.write(&bytes[sent..]))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => sent += count,
            }
        }
        with_patience(|| self.stream.flush())
    }

    /// Receives more; false at the end of the connection, however it ended.
    ///
    /// # Errors
    /// Nothing came for as long as tests wait.
    fn receive(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 64 << 10];
        let mut silent = Duration::ZERO;
        loop {
            match self.stream.read(&mut bytes) {
                Ok(count) => {
                    self.received.extend_from_slice(&bytes[..count]);
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    silent += TICK;
                    if silent >= PATIENCE {
                        return Err(error);
                    }
                }
                // A process that was stopped and continued.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.cut = true;
                    return Ok(false);
                }
            }
        }
    }

    /// The next head; `None` when the connection ends before one begins.
    pub fn head(&mut self) -> io::Result<Option<Head>> {
        let end = loop {
            if let Some(at) = find(&self.received, b"\r\n\r\n") {
                break at;
            }
            if !self.receive()? {
                return if self.received.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        };
        let text = String::from_utf8_lossy(&self.received[..end]).into_owned();
        self.received.drain(..end + 4);
        let mut lines = text.split("\r\n");
        let first_line = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        Ok(Some(Head { first_line, headers }))
    }

    /// The body of a message: chunked, of a given length, or (`until_close`) whatever comes.
    pub fn body(&mut self, head: &Head, until_close: bool) -> io::Result<Body> {
        let mut body = Body::default();
        if head.is_chunked() {
            while let Some(chunk) = self.chunk()? {
                body.complete = chunk.is_empty();
                body.bytes.extend_from_slice(&chunk);
                if body.complete {
                    break;
                }
            }
        } else if let Some(length) = head.content_length() {
            body.bytes = self.up_to(length)?;
            body.complete = body.bytes.len() == length;
        } else if until_close {
            while self.receive()? {}
            body = Body { bytes: std::mem::take(&mut self.received), complete: true };
        } else {
            body.complete = true;
        }
        Ok(body)
    }

    /// The payload of the next chunk, empty for the last one; `None` when the connection ends first.
    pub fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(line) = self.line()? else { return Ok(None) };
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16)
            .map_err(|_| io::Error::other(format!("not a chunk size: {line:?}")))?;
        if size == 0 {
            // Trailers, up to the empty line.
            while self.line()?.is_some_and(|line| !line.is_empty()) {}
            return Ok(Some(Vec::new()));
        }
        let mut chunk = self.up_to(size + 2)?;
        if chunk.len() < size + 2 {
            return Ok(None);
        }
        assert!(chunk.ends_with(b"\r\n"), "a chunk is not followed by CRLF");
        chunk.truncate(size);
        Ok(Some(chunk))
    }

    /// Whether the connection ends without another byte.
    pub fn is_at_end(&mut self) -> io::Result<bool> {
        Ok(self.received.is_empty() && !self.receive()?)
    }

    /// Receives and drops everything until the connection ends; the number of bytes.
    pub fn drain(&mut self) -> io::Result<usize> {
        let mut dropped = 0;
        loop {
            dropped += std::mem::take(&mut self.received).len();
            if !self.receive()? {
                return Ok(dropped);
            }
        }
    }

    /// Makes the end of the connection a reset instead of an orderly close.
    pub fn reset_on_close(&self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        // SAFETY: the option's value lives through the call and has the size given.
        let outcome = unsafe {
            libc::setsockopt(
                self.stream.socket().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                std::ptr::from_ref(&linger).cast(),
                size_of::<libc::linger>() as libc::socklen_t,
            )
        };
        assert_eq!(outcome, 0, "SO_LINGER: {}", io::Error::last_os_error());
    }

    fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(at) = find(&self.received, b"\r\n") {
                let line = String::from_utf8_lossy(&self.received[..at]).into_owned();
                self.received.drain(..at + 2);
                return Ok(Some(line));
            }
            if !self.receive()? {
                return Ok(None);
            }
        }
    }

    /// `length` bytes, or fewer when the connection ends.
    fn up_to(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.received.len() < length && self.receive()? {}
        let rest = self.received.split_off(length.min(self.received.len()));
        Ok(std::mem::replace(&mut self.received, rest))
    }
}

/// What is sent first waits for a handshake, which reads, and reads are given up after a tick.
fn with_patience<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < PATIENCE => {}
            outcome => return outcome,
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
