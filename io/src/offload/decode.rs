//! Undoing the codings of a body, strictly: data that is broken, cut off or followed by something else
//! is an error, and no more than a limit is ever decoded or held.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use super::decoders::{Brotli, Zlib, Zstd};
use crate::body_memory::{BodyMemory, Buffer, Exhausted, Hold};
use crate::http::coding::Coding;

/// Why a body has no decoded form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// It, or something between two codings, is larger than the limit.
    TooLarge,
    /// Not the format of this coding, or not all of it, or more than it.
    Broken(Coding),
    /// There is no room for more of it.
    NoRoom(Exhausted),
    /// Nobody waits for it any more.
    Cancelled,
}

/// What decoding keeps to.
pub struct Bounds<'a> {
    /// Most bytes of the result, and of what is between two codings.
    pub limit: usize,
    /// Has room for the result, or not.
    pub memory: &'a Arc<BodyMemory>,
    /// What the request holds of it already.
    pub beside: usize,
    /// Whether nobody waits any more; asked now and then.
    pub cancelled: &'a dyn Fn() -> bool,
}

/// Bytes of input between two looks at whether anybody still waits, and the first buffer of the output.
const STEP: usize = 64 << 10;
/// Bytes that are decoded between two looks at whether there is room for them.
const COUNTED_STEP: usize = 1 << 20;

/// Undoes `codings`, given in the order they were applied.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode(codings: &[Coding], body: &[u8], bounds: &Bounds<'_>) -> Result<Buffer, DecodeError> {
    let &Bounds { limit, cancelled, .. } = bounds;
    let fault = Cell::new(None);
    let source = Source { bytes: body, until_look: 0, cancelled, fault: &fault };
    let mut reader: Box<dyn BufRead + '_> = Box::new(source);
    for &coding in codings.iter().rev() {
        let decoder: Box<dyn Read + '_> = match coding {
            Coding::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(reader)),
            Coding::Deflate => Box::new(Zlib::new(reader)),
            Coding::Brotli => Box::new(Brotli::new(reader)),
            Coding::Zstd => Box::new(Zstd::new(reader)),
        };
        let stage = Stage { decoder, coding, left: limit, fault: &fault };
        reader = Box::new(BufReader::with_capacity(STEP, stage));
    }
    collect(reader, bounds).map_err(|error| match error {
        Unread::NoRoom(full) => DecodeError::NoRoom(full),
        Unread::Failed => {
            let first = codings.last().copied().unwrap_or(Coding::Gzip);
            fault.get().unwrap_or(DecodeError::Broken(first))
        }
    })
}

/// Why a reader was not read to its end.
enum Unread {
    /// It says nothing of use; see [`Stage::fail`].
    Failed,
    NoRoom(Exhausted),
}

/// Everything a reader gives, which is at most `limit` bytes. The buffer doubles, but not beyond the
/// limit.
fn collect(mut reader: impl Read, bounds: &Bounds<'_>) -> Result<Buffer, Unread> {
    let &Bounds { limit, memory, beside, .. } = bounds;
    let (mut out, mut hold) = (Vec::new(), Hold::default());
    loop {
        if out.len() == out.capacity() {
            // One byte more than the limit: the stage before says that it is too much.
            let size = (out.capacity() * 2).clamp(STEP, STEP.max(limit.saturating_add(1)));
            out.reserve_exact(size.saturating_sub(out.len()).max(1));
        }
        let wanted = (out.capacity() - out.len()).min(COUNTED_STEP);
        let received = reader.by_ref().take(wanted as u64).read_to_end(&mut out);
        let received = received.map_err(|_| Unread::Failed)?;
        hold.cover_beside(memory, out.len(), beside).map_err(Unread::NoRoom)?;
        if received < wanted {
            return Ok(Buffer::new(out, hold));
        }
    }
}

/// The body, a step at a time.
struct Source<'a> {
    bytes: &'a [u8],
    until_look: usize,
    cancelled: &'a dyn Fn() -> bool,
    fault: &'a Cell<Option<DecodeError>>,
}

impl BufRead for Source<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.until_look == 0 {
            if (self.cancelled)() {
                self.fault.set(Some(DecodeError::Cancelled));
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            self.until_look = STEP;
        }
        Ok(&self.bytes[..self.bytes.len().min(self.until_look)])
    }

    fn consume(&mut self, amount: usize) {
        self.bytes = &self.bytes[amount..];
        self.until_look -= amount;
    }
}

impl Read for Source<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let received = self.fill_buf()?.read(out)?;
        self.consume(received);
        Ok(received)
    }
}

/// One decoder: counts what comes out of it, and notes the first thing that goes wrong. Decoders wrap
/// the errors of what they read from, so that it could not be told from what comes out at the end.
struct Stage<'a> {
    decoder: Box<dyn Read + 'a>,
    coding: Coding,
    left: usize,
    fault: &'a Cell<Option<DecodeError>>,
}

impl Stage<'_> {
    fn fail(&self, why: DecodeError) -> io::Error {
        self.fault.set(self.fault.get().or(Some(why)));
        io::ErrorKind::InvalidData.into()
    }
}

impl Read for Stage<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let received = match self.decoder.read(out) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(_) => return Err(self.fail(DecodeError::Broken(self.coding))),
        };
        match self.left.checked_sub(received) {
            Some(left) => self.left = left,
            None => return Err(self.fail(DecodeError::TooLarge)),
        }
        Ok(received)
    }
}

#[cfg(test)]
mod tests;
