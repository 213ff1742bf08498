//! A blocking HTTP request now and then: readiness probes, cache resets. Not for load.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use smg_core::http1::{BodyLength, ChunkedDecoder, parse_response};

/// An answer read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// A longer answer is cut here, which suffices for every probe.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// GETs a path within this time.
pub fn get(address: SocketAddr, path: &str, timeout: Duration) -> io::Result<Answer> {
    exchange(address, "GET", path, timeout)
}

/// POSTs an empty body within this time.
pub fn post(address: SocketAddr, path: &str, timeout: Duration) -> io::Result<Answer> {
    exchange(address, "POST", path, timeout)
}

/// Asks for a path until it answers 200 or the time is over. Returns whether it did.
pub fn wait_until_ok(address: SocketAddr, path: &str, timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        if get(address, path, Duration::from_secs(1)).is_ok_and(|answer| answer.status == 200) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        pause(Duration::from_millis(30));
    }
}

/// Blocks this thread. For threads that run no event loop.
pub fn pause(time: Duration) {
    let deadline = Instant::now() + time;
    while let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|t| !t.is_zero())
    {
        std::thread::park_timeout(left);
    }
}

fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    timeout: Duration,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )?;
    let deadline = Instant::now() + timeout;
    let mut received = Vec::new();
    let mut headers = Vec::new();
    let mut piece = [0u8; 16 * 1024];
    loop {
        let read = match stream.read(&mut piece) {
            // A ring of this thread has work for it: with a timeout, that interrupts a read.
            Err(error)
                if error.kind() == io::ErrorKind::Interrupted && Instant::now() < deadline =>
            {
                continue;
            }
            outcome => outcome?,
        };
        received.extend_from_slice(&piece[..read]);
        let head = parse_response(&received, false, &mut headers)
            .map_err(|error| io::Error::other(error.message()))?;
        if let Some(head) = head {
            let ended = read == 0 || received.len() > MAX_ANSWER_BYTES;
            let mut body = received[head.len..].to_vec();
            let complete = match head.body {
                BodyLength::None => true,
                BodyLength::Fixed(length) => body.len() as u64 >= length,
                BodyLength::UntilClose => ended,
                BodyLength::Chunked => {
                    let decoded = ChunkedDecoder::new()
                        .decode(&mut body)
                        .map_err(|error| io::Error::other(error.kind.message()))?;
                    body.truncate(decoded.payload);
                    decoded.done
                }
            };
            if complete || ended {
                return Ok(Answer { status: head.status, body });
            }
        }
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}
