//! TLS over a stream of the seam, for questions to workers: one side talks, then the other.

use std::io::{self, Read, Write};

use rustls::Connection as Session;

use super::seam::Stream;
use crate::tls::refused;

/// Bytes of an encrypted read.
const READ_BUFFER: usize = 17 << 10;

/// A stream with TLS on it. The handshake takes place with the first write.
pub struct Secure<S> {
    stream: S,
    session: Session,
    /// Received and not decrypted yet, from `decrypted` on.
    received: Vec<u8>,
    decrypted: usize,
}

impl<S: Stream> Secure<S> {
    /// Puts `session` on `stream`.
    pub fn new(stream: S, session: Session) -> Self {
        Self { stream, session, received: Vec::new(), decrypted: 0 }
    }

    async fn flush(&mut self) -> io::Result<()> {
        let mut wire = Vec::new();
        while self.session.wants_write() {
            self.session.write_tls(&mut wire)?;
        }
        if wire.is_empty() { Ok(()) } else { self.stream.write_all(wire).await }
    }

    /// Takes in more of what the worker sent.
    async fn receive(&mut self) -> io::Result<()> {
        if self.decrypted == self.received.len() {
            let mut buf = std::mem::take(&mut self.received);
            buf.clear();
            buf.reserve(READ_BUFFER);
            let (outcome, buf) = self.stream.read(buf).await;
            (self.received, self.decrypted) = (buf, 0);
            outcome?;
        }
        let mut rest = &self.received[self.decrypted..];
        let taken = self.session.read_tls(&mut rest)?;
        self.decrypted += taken;
        if let Err(error) = self.session.process_new_packets() {
            // The worker learns the cause if it still listens.
            let _ = self.flush().await;
            return Err(refused(error));
        }
        if taken == 0 && self.session.is_handshaking() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

impl<S: Stream> Stream for Secure<S> {
    async fn read(&mut self, mut buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let start = buf.len();
        buf.resize(buf.capacity().max(start + 1), 0);
        let outcome = loop {
            match self.session.reader().read(&mut buf[start..]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => break outcome,
            }
            if let Err(error) = self.flush().await {
                break Err(error);
            }
            if let Err(error) = self.receive().await {
                break Err(error);
            }
        };
        buf.truncate(start + *outcome.as_ref().unwrap_or(&0));
        (outcome, buf)
    }

    async fn write_all(&mut self, data: Vec<u8>) -> io::Result<()> {
        self.flush().await?;
        while self.session.is_handshaking() {
            self.receive().await?;
            self.flush().await?;
        }
        let mut rest = &data[..];
        while !rest.is_empty() {
            let written = self.session.writer().write(rest)?;
            rest = &rest[written..];
            self.flush().await?;
        }
        Ok(())
    }
}
