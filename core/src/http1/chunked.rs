//! The chunked transfer coding (RFC 9112 §7.1): decoded in place, resumable at any byte.

use std::fmt;

use super::syntax::{is_field_value_byte, is_token_byte};

/// Longest chunk size accepted: 16 hexadecimal digits fill a `u64`.
pub const MAX_CHUNK_SIZE_DIGITS: u8 = 16;

/// Most extension bytes on one chunk's size line.
pub const MAX_CHUNK_EXTENSION_BYTES: u32 = 4 * 1024;

/// Most extension bytes in all of a message: a flood of one-byte chunks with long extensions
/// would otherwise cost thousands of bytes read per byte of payload.
pub const MAX_MESSAGE_EXTENSION_BYTES: u32 = 64 * 1024;

/// Most bytes of trailers, which are read and dropped.
pub const MAX_TRAILER_BYTES: u32 = 16 * 1024;

/// Room to keep free in front of a payload for [`chunk_prefix`].
pub const CHUNK_HEADROOM: usize = 2 * size_of::<usize>() + 2;

/// Ends a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Incremental decoder of one message's chunked body. Extensions are skipped, trailers are
/// checked and dropped: they never become headers. Lines end in CRLF only.
#[derive(Clone, Debug)]
pub struct ChunkedDecoder {
    state: State,
    /// The size being read, or what is left of the current chunk's payload.
    remaining: u64,
    size_digits: u8,
    chunk_extension_bytes: u32,
    message_extension_bytes: u32,
    trailer_bytes: u32,
}

/// What one call of [`ChunkedDecoder::decode`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the buffer that belong to this body. All of it unless `done`.
    pub consumed: usize,
    /// Payload bytes, now at the front of the buffer.
    pub payload: usize,
    /// The body is complete. What follows `consumed` is the next message.
    pub done: bool,
}

/// A malformed body. The same error is returned by every later call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkError {
    pub kind: ChunkErrorKind,
    /// Payload bytes found before the fault, now at the front of the buffer.
    pub payload: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkErrorKind {
    Size,
    SizeOverflow,
    Extension,
    ExtensionTooLong,
    /// The payload is not followed by CRLF.
    DataEnd,
    Trailer,
    TrailerTooLong,
}

impl ChunkErrorKind {
    /// One clause that may be shown to the client.
    pub fn message(self) -> &'static str {
        match self {
            Self::Size => "malformed chunk size",
            Self::SizeOverflow => "chunk size is too large",
            Self::Extension => "malformed chunk extension",
            Self::ExtensionTooLong => "chunk extensions are too long",
            Self::DataEnd => "chunk data is not followed by CRLF",
            Self::Trailer => "malformed trailer",
            Self::TrailerTooLong => "trailers are longer than 16 KiB",
        }
    }
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.message())
    }
}

impl std::error::Error for ChunkError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    /// White space after the size: only an extension may follow.
    BeforeExtension,
    Extension,
    SizeLineFeed,
    Data,
    DataCarriageReturn,
    DataLineFeed,
    TrailerLine,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    EndLineFeed,
    Done,
    Failed(ChunkErrorKind),
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ChunkedDecoder {
    pub fn new() -> Self {
        Self {
            state: State::Size,
            remaining: 0,
            size_digits: 0,
            chunk_extension_bytes: 0,
            message_extension_bytes: 0,
            trailer_bytes: 0,
        }
    }

    /// Whether the end of the body was seen.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Payload bytes that the current chunk has announced and that did not come yet. Lets a
    /// caller refuse a body over its limit when it is announced.
    pub fn announced(&self) -> u64 {
        match self.state {
            State::Data => self.remaining,
            _ => 0,
        }
    }

    /// Decodes `buf` in place: the payload found is moved to its front. Bytes after
    /// [`Decoded::consumed`] stay where they are. Large payloads cost one `memmove`.
    pub fn decode(&mut self, buf: &mut [u8]) -> Result<Decoded, ChunkError> {
        let mut consumed = 0;
        let mut payload = 0;
        while consumed < buf.len() && self.state != State::Done {
            if self.state == State::Data {
                let available = buf.len() - consumed;
                let take = usize::try_from(self.remaining).map_or(available, |n| n.min(available));
                if payload != consumed {
                    buf.copy_within(consumed..consumed + take, payload);
                }
                payload += take;
                consumed += take;
                self.remaining -= take as u64;
                if self.remaining == 0 {
                    self.state = State::DataCarriageReturn;
                }
                continue;
            }
            match self.step(buf[consumed]) {
                Ok(state) => self.state = state,
                Err(kind) => {
                    self.state = State::Failed(kind);
                    return Err(ChunkError { kind, payload });
                }
            }
            consumed += 1;
        }
        if let State::Failed(kind) = self.state {
            return Err(ChunkError { kind, payload });
        }
        Ok(Decoded { consumed, payload, done: self.is_done() })
    }

    /// Takes one byte of framing.
    fn step(&mut self, byte: u8) -> Result<State, ChunkErrorKind> {
        match self.state {
            State::Size => self.size(byte),
            State::BeforeExtension => match byte {
                b' ' | b'\t' => self.extension(State::BeforeExtension),
                b';' => self.extension(State::Extension),
                _ => Err(ChunkErrorKind::Size),
            },
            State::Extension => match byte {
                b'\r' => Ok(State::SizeLineFeed),
                _ if is_field_value_byte(byte) => self.extension(State::Extension),
                _ => Err(ChunkErrorKind::Extension),
            },
            State::SizeLineFeed => match byte {
                b'\n' => Ok(self.end_of_size_line()),
                _ => Err(ChunkErrorKind::Size),
            },
            State::DataCarriageReturn => match byte {
                b'\r' => Ok(State::DataLineFeed),
                _ => Err(ChunkErrorKind::DataEnd),
            },
            State::DataLineFeed => match byte {
                b'\n' => {
                    self.size_digits = 0;
                    self.chunk_extension_bytes = 0;
                    Ok(State::Size)
                }
                _ => Err(ChunkErrorKind::DataEnd),
            },
            State::TrailerLine
            | State::TrailerName
            | State::TrailerValue
            | State::TrailerLineFeed
            | State::EndLineFeed => self.trailer(byte),
            State::Failed(kind) => Err(kind),
            // `decode` handles these two itself.
            State::Data | State::Done => Ok(self.state),
        }
    }

    fn size(&mut self, byte: u8) -> Result<State, ChunkErrorKind> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ if self.size_digits == 0 => return Err(ChunkErrorKind::Size),
            b'\r' => return Ok(State::SizeLineFeed),
            b';' => return self.extension(State::Extension),
            b' ' | b'\t' => return self.extension(State::BeforeExtension),
            _ => return Err(ChunkErrorKind::Size),
        };
        if self.size_digits == MAX_CHUNK_SIZE_DIGITS {
            return Err(ChunkErrorKind::SizeOverflow);
        }
        self.size_digits += 1;
        // `remaining` is 0 here before the first digit: the last chunk was used up.
        self.remaining = (self.remaining << 4) | u64::from(digit);
        Ok(State::Size)
    }

    fn end_of_size_line(&self) -> State {
        if self.remaining == 0 { State::TrailerLine } else { State::Data }
    }

    fn extension(&mut self, next: State) -> Result<State, ChunkErrorKind> {
        self.chunk_extension_bytes += 1;
        self.message_extension_bytes += 1;
        if self.chunk_extension_bytes > MAX_CHUNK_EXTENSION_BYTES
            || self.message_extension_bytes > MAX_MESSAGE_EXTENSION_BYTES
        {
            return Err(ChunkErrorKind::ExtensionTooLong);
        }
        Ok(next)
    }

    fn trailer(&mut self, byte: u8) -> Result<State, ChunkErrorKind> {
        if self.state != State::EndLineFeed {
            self.trailer_bytes += 1;
            if self.trailer_bytes > MAX_TRAILER_BYTES {
                return Err(ChunkErrorKind::TrailerTooLong);
            }
        }
        match (self.state, byte) {
            (State::TrailerLine, b'\r') => Ok(State::EndLineFeed),
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerLine | State::TrailerName, _) if is_token_byte(byte) => {
                Ok(State::TrailerName)
            }
            (State::TrailerValue, b'\r') => Ok(State::TrailerLineFeed),
            (State::TrailerValue, _) if is_field_value_byte(byte) => Ok(State::TrailerValue),
            (State::TrailerLineFeed, b'\n') => Ok(State::TrailerLine),
            (State::EndLineFeed, b'\n') => Ok(State::Done),
            _ => Err(ChunkErrorKind::Trailer),
        }
    }
}

/// The size line of a chunk of `len` bytes, which must not be 0 (that would end the body). It
/// is the array's end from the returned offset on, so that a caller who keeps
/// [`CHUNK_HEADROOM`] bytes free in front of a payload can put it there, and a CRLF behind.
pub fn chunk_prefix(len: usize) -> ([u8; CHUNK_HEADROOM], usize) {
    let mut prefix = [0u8; CHUNK_HEADROOM];
    prefix[CHUNK_HEADROOM - 2..].copy_from_slice(b"\r\n");
    let mut start = CHUNK_HEADROOM - 2;
    let mut rest = len;
    loop {
        start -= 1;
        prefix[start] = b"0123456789abcdef"[rest & 0xf];
        rest >>= 4;
        if rest == 0 {
            return (prefix, start);
        }
    }
}
