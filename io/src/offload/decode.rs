//! Undoing the codings of a body, strictly: data that is broken, cut off or followed by something else
//! is an error, and no more than a limit is ever decoded or held.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};

use super::decoders::{Brotli, Zlib, Zstd};
use crate::http::coding::Coding;

/// Why a body has no decoded form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// It, or something between two codings, is larger than the limit.
    TooLarge,
    /// Not the format of this coding, or not all of it, or more than it.
    Broken(Coding),
    /// Nobody waits for it any more.
    Cancelled,
}

/// Bytes of input between two looks at whether anybody still waits, and the first buffer of the output.
const STEP: usize = 64 << 10;

/// Undoes `codings`, given in the order they were applied. The result is at most `limit` bytes, and so
/// is what is between two codings. `cancelled` is asked now and then.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode(
    codings: &[Coding],
    body: &[u8],
    limit: usize,
    cancelled: &dyn Fn() -> bool,
) -> Result<Vec<u8>, DecodeError> {
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
    collect(reader, limit).map_err(|_| {
        let first = codings.last().copied().unwrap_or(Coding::Gzip);
        fault.get().unwrap_or(DecodeError::Broken(first))
    })
}

/// Everything a reader gives, which is at most `limit` bytes. The buffer doubles, but not beyond the
/// limit.
fn collect(mut reader: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        if out.len() == out.capacity() {
            // One byte more than the limit: the stage before says that it is too much.
            let size = (out.capacity() * 2).clamp(STEP, STEP.max(limit.saturating_add(1)));
            out.reserve_exact(size.saturating_sub(out.len()).max(1));
        }
        let spare = out.capacity() - out.len();
        let received = reader.by_ref().take(spare as u64).read_to_end(&mut out)?;
        if received < spare {
            return Ok(out);
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
