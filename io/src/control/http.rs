//! A small HTTP/1.1 client for the gateway's own questions to workers: one connection per question,
//! bounded in time and size.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use smg_core::http1::{BodyLength, ChunkedDecoder};

use super::seam::{Runtime, Stream, timeout};
use super::secure::Secure;
use crate::config::WorkerUrl;
use crate::http::response_head::HeadParser;
use crate::tls::WorkerTls;

/// Largest answer that is passed on, or read line by line, in bytes.
pub const MAX_PAGE: usize = 8 << 20;
/// Largest answer that is made a tree of values of, in bytes: such a tree may take 50 times as much.
pub const MAX_DOCUMENT: usize = 1 << 20;
/// Buffer of one read in bytes.
const READ_BUFFER: usize = 16 << 10;

/// What a worker answered.
#[derive(Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Whole body.
    pub body: Vec<u8>,
}

/// A question to one worker.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// `GET` or `POST`.
    pub method: &'a str,
    /// Where the worker listens.
    pub addr: SocketAddr,
    /// Its URL, for `Host` and for TLS.
    pub url: &'a WorkerUrl,
    /// TLS, if the URL asks for it.
    pub tls: &'a WorkerTls,
    /// Path with query.
    pub path: &'a str,
    /// `Authorization`, if the worker has a key.
    pub authorization: Option<&'a [u8]>,
    /// Largest answer body taken, in bytes.
    pub most: usize,
}

impl Question<'_> {
    /// Whether an answer of `length` bytes is taken; the error says why not.
    fn admit(&self, length: usize) -> io::Result<()> {
        if length <= self.most {
            return Ok(());
        }
        let Self { method, path, most, .. } = self;
        let message = format!("the answer to {method} {path} is longer than {most} bytes");
        Err(io::Error::new(io::ErrorKind::FileTooLarge, message))
    }
}

/// Asks, and reads the whole answer within `limit`.
///
/// # Errors
/// What the socket says, `TimedOut`, `InvalidData` for something that is not HTTP, or `FileTooLarge`.
pub async fn ask<R: Runtime>(
    runtime: R,
    question: Question<'_>,
    limit: Duration,
) -> io::Result<Reply> {
    timeout(runtime, limit, exchange(runtime, question)).await
}

async fn exchange<R: Runtime>(runtime: R, question: Question<'_>) -> io::Result<Reply> {
    let stream = runtime.connect(question.addr).await?;
    match question.tls.session(question.url) {
        None => converse(stream, question).await,
        Some(session) => converse(Secure::new(stream, session?), question).await,
    }
}

async fn converse(mut stream: impl Stream, question: Question<'_>) -> io::Result<Reply> {
    stream.write_all(request(question)).await?;
    let mut buf = Vec::with_capacity(READ_BUFFER);
    let mut parser = HeadParser::default();
    let head = loop {
        if let Some(head) = parser.parse(&mut buf).map_err(invalid)? {
            break head;
        }
        // The parser refuses a head that is too long.
        if receive(&mut stream, &mut buf).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let mut body = buf.split_off(head.len);
    match head.body {
        BodyLength::None => body.clear(),
        BodyLength::Fixed(length) => {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            question.admit(length)?;
            while body.len() < length {
                if receive(&mut stream, &mut body).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            body.truncate(length);
        }
        BodyLength::Chunked => body = dechunk(&mut stream, body, question).await?,
        BodyLength::UntilClose => {
            while receive(&mut stream, &mut body).await? > 0 {
                question.admit(body.len())?;
            }
        }
    }
    Ok(Reply { status: head.status, body })
}

async fn dechunk(
    stream: &mut impl Stream,
    mut buf: Vec<u8>,
    question: Question<'_>,
) -> io::Result<Vec<u8>> {
    let (mut decoder, mut decoded) = (ChunkedDecoder::new(), 0);
    loop {
        let progress =
            decoder.decode(&mut buf[decoded..]).map_err(|error| invalid(error.kind.message()))?;
        decoded += progress.payload;
        question.admit(decoded)?;
        buf.truncate(decoded);
        if progress.done {
            return Ok(buf);
        }
        if receive(stream, &mut buf).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn receive(stream: &mut impl Stream, buf: &mut Vec<u8>) -> io::Result<usize> {
    let mut filled = std::mem::take(buf);
    filled.reserve(READ_BUFFER);
    let (outcome, filled) = stream.read(filled).await;
    *buf = filled;
    outcome
}

fn request(question: Question<'_>) -> Vec<u8> {
    let Question { method, url, path, authorization, .. } = question;
    let host = url.authority();
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: smg/{}\r\nAccept: */*\r\n\
         Connection: close\r\n",
        env!("CARGO_PKG_VERSION")
    )
    .into_bytes();
    if let Some(authorization) = authorization {
        request.extend_from_slice(b"Authorization: ");
        request.extend_from_slice(authorization);
        request.extend_from_slice(b"\r\n");
    }
    if method == "POST" {
        request.extend_from_slice(b"Content-Length: 0\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
