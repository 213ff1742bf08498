//! The chunked coding: [`ChunkedDecoder`] against a reader of whole bodies that follows RFC 9112
//! §7.1 line by line.

use smg_core::http1::{
    ChunkedDecoder, LAST_CHUNK, MAX_CHUNK_EXTENSION_BYTES, MAX_CHUNK_SIZE_DIGITS,
    MAX_MESSAGE_EXTENSION_BYTES, MAX_TRAILER_BYTES, chunk_prefix,
};

use crate::cuts;
use crate::grammar::{is_text, is_token};

/// `data` is a body and whatever comes behind it.
pub fn run(data: &[u8]) {
    let expected = read(data);
    for pieces in cuts::of(data) {
        assert_eq!(decode(&pieces), expected, "in pieces of {:?}", lengths(&pieces));
    }
    assert_in_one_buffer(data, &expected);
    if expected.end != End::Malformed {
        assert_encodes_back(&expected.payload);
    }
}

/// What a body comes to.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The payload, up to the end or the fault.
    pub payload: Vec<u8>,
    pub end: End,
}

#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The body is whole, and so many bytes long.
    Whole(usize),
    /// More bytes are needed; so many of them are announced payload.
    Missing {
        announced: u64,
    },
    Malformed,
}

fn decode(pieces: &[&[u8]]) -> Outcome {
    let mut decoder = ChunkedDecoder::new();
    let (mut payload, mut seen) = (Vec::new(), 0);
    for piece in pieces {
        let mut buf = piece.to_vec();
        match decoder.decode(&mut buf) {
            Ok(decoded) => {
                assert!(decoded.done == decoder.is_done());
                assert!(decoded.payload <= decoded.consumed && decoded.consumed <= buf.len());
                assert_eq!(buf[decoded.consumed..], piece[decoded.consumed..], "bytes behind");
                payload.extend_from_slice(&buf[..decoded.payload]);
                seen += decoded.consumed;
                if decoded.done {
                    return Outcome { payload, end: End::Whole(seen) };
                }
                assert_eq!(decoded.consumed, buf.len());
            }
            Err(error) => {
                payload.extend_from_slice(&buf[..error.payload]);
                let again = decoder.decode(&mut b"0\r\n\r\n".to_vec()).expect_err("it stays so");
                assert_eq!((again.kind, again.payload), (error.kind, 0));
                return Outcome { payload, end: End::Malformed };
            }
        }
    }
    Outcome { payload, end: End::Missing { announced: decoder.announced() } }
}

/// As a connection decodes: new bytes are received behind the payload so far.
fn assert_in_one_buffer(data: &[u8], expected: &Outcome) {
    let (mut decoder, mut buf, mut decoded) = (ChunkedDecoder::new(), Vec::new(), 0);
    for piece in data.chunks(7) {
        buf.extend_from_slice(piece);
        let Ok(progress) = decoder.decode(&mut buf[decoded..]) else {
            assert_eq!(expected.end, End::Malformed);
            return;
        };
        decoded += progress.payload;
        buf.truncate(decoded);
        if progress.done {
            break;
        }
    }
    assert_eq!(buf, expected.payload);
}

/// What is written in chunks reads back, with nothing behind it.
fn assert_encodes_back(payload: &[u8]) {
    let mut wire = Vec::new();
    for piece in payload.chunks(19) {
        let (prefix, start) = chunk_prefix(piece.len());
        wire.extend_from_slice(&prefix[start..]);
        wire.extend_from_slice(piece);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(LAST_CHUNK);
    let expected = Outcome { payload: payload.to_vec(), end: End::Whole(wire.len()) };
    assert_eq!(read(&wire), expected);
    assert_eq!(decode(&[&wire]), expected);
}

fn lengths(pieces: &[&[u8]]) -> Vec<usize> {
    pieces.iter().map(|piece| piece.len()).collect()
}

/// The reference: reads a body from its beginning, looking at whole lines.
///
/// ```text
/// chunked-body = *chunk last-chunk trailer-section CRLF
/// chunk        = chunk-size [ chunk-ext ] CRLF chunk-data CRLF
/// ```
///
/// It differs from the RFC where a proxy should:
/// - Lines end in CRLF alone. §2.2 lets a recipient take a bare LF, and readers then disagree.
/// - Sizes have at most 16 digits, and extensions and trailers are bounded.
/// - Extensions are any text: §7.1.1 has unknown ones ignored, and text cannot hold a line end,
///   whatever it quotes.
pub fn read(data: &[u8]) -> Outcome {
    let mut reader = Reader { rest: data, payload: Vec::new(), extensions: 0 };
    let end = match reader.body() {
        Ok(()) => End::Whole(data.len() - reader.rest.len()),
        Err(Stop::Missing(announced)) => End::Missing { announced },
        Err(Stop::Malformed) => End::Malformed,
    };
    Outcome { payload: reader.payload, end }
}

enum Stop {
    Missing(u64),
    Malformed,
}

struct Reader<'a> {
    rest: &'a [u8],
    payload: Vec<u8>,
    extensions: usize,
}

impl<'a> Reader<'a> {
    fn body(&mut self) -> Result<(), Stop> {
        loop {
            let size = self.size_line()?;
            if size == 0 {
                return self.trailers();
            }
            let here = usize::try_from(size).unwrap_or(usize::MAX).min(self.rest.len());
            self.payload.extend_from_slice(&self.rest[..here]);
            self.rest = &self.rest[here..];
            if (here as u64) < size {
                return Err(Stop::Missing(size - here as u64));
            }
            match self.rest {
                [b'\r', b'\n', rest @ ..] => self.rest = rest,
                [] | [b'\r'] => return Err(Stop::Missing(0)),
                _ => return Err(Stop::Malformed),
            }
        }
    }

    /// `1*HEXDIG [ *BWS ";" *text ] CRLF`
    fn size_line(&mut self) -> Result<u64, Stop> {
        let (line, whole) = self.line();
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let extension = &line[digits..];
        let spaces = extension.iter().take_while(|&&byte| byte == b' ' || byte == b'\t').count();
        let text = match &extension[spaces..] {
            [b';', text @ ..] => text,
            // White space leads to an extension, which may be still to come.
            [] if spaces == 0 || !whole => &[],
            _ => return Err(Stop::Malformed),
        };
        let started = whole || !line.is_empty();
        if (digits == 0 && started)
            || digits > usize::from(MAX_CHUNK_SIZE_DIGITS)
            || !text.iter().all(|&byte| is_text(byte))
            || extension.len() > MAX_CHUNK_EXTENSION_BYTES as usize
            || self.extensions + extension.len() > MAX_MESSAGE_EXTENSION_BYTES as usize
        {
            return Err(Stop::Malformed);
        }
        self.end_line(line.len())?;
        self.extensions += extension.len();
        let digits = str::from_utf8(&line[..digits]).expect("ASCII");
        Ok(u64::from_str_radix(digits, 16).expect("16 digits at most"))
    }

    /// `*( token ":" *text CRLF ) CRLF`
    fn trailers(&mut self) -> Result<(), Stop> {
        let section = self.rest.len();
        loop {
            let (line, whole) = self.line();
            let ended = whole && line.is_empty();
            let name = line.iter().take_while(|&&byte| is_token(&[byte])).count();
            let valid = match &line[name..] {
                [b':', value @ ..] => name > 0 && value.iter().all(|&byte| is_text(byte)),
                [] => !whole || ended,
                _ => false,
            };
            if !valid {
                return Err(Stop::Malformed);
            }
            // The last LF is not counted, nor anything behind it.
            let carriage_return = usize::from(whole);
            let before = section - self.rest.len();
            if before + line.len() + carriage_return > MAX_TRAILER_BYTES as usize {
                return Err(Stop::Malformed);
            }
            self.end_line(line.len())?;
            if ended {
                return Ok(());
            }
            // As the decoder counts, this LF is in.
            if section - self.rest.len() > MAX_TRAILER_BYTES as usize {
                return Err(Stop::Malformed);
            }
        }
    }

    /// The bytes up to a CR, and whether there is one.
    fn line(&self) -> (&'a [u8], bool) {
        match self.rest.iter().position(|&byte| byte == b'\r') {
            Some(end) => (&self.rest[..end], true),
            None => (self.rest, false),
        }
    }

    /// Goes behind a line of this length and its CRLF.
    fn end_line(&mut self, length: usize) -> Result<(), Stop> {
        match &self.rest[length..] {
            [b'\r', b'\n', rest @ ..] => self.rest = rest,
            [] | [b'\r'] => return Err(Stop::Missing(0)),
            _ => return Err(Stop::Malformed),
        }
        Ok(())
    }
}
