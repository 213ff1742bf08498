//! An answer's body: read in the worker's framing, written in the client's, in place.

use smg_core::http1::{
    BodyLength, CHUNK_HEADROOM, ChunkedDecoder, ClientFraming, LAST_CHUNK, chunk_prefix,
};

use crate::http::meter::Meter;

/// Bytes behind a chunk's payload: its line end and the last chunk.
pub const CHUNK_TAIL: usize = 2 + LAST_CHUNK.len();

/// The worker broke off, or broke its framing: the body has no good end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut;

/// A body read in the worker's framing and written in the client's.
pub struct Body {
    source: Source,
    chunked_out: bool,
    /// The last byte was seen.
    pub done: bool,
    /// Bytes came after it: the connection is out of step.
    surplus: bool,
    /// The connection has ended.
    closed: bool,
    /// What was relayed so far ends with an empty line.
    pub at_event_end: bool,
    /// Last two payload bytes.
    tail: [u8; 2],
    meter: Option<Meter>,
}

enum Source {
    Fixed(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
}

impl Body {
    /// A body of which nothing has been seen.
    pub fn new(length: BodyLength, framing: ClientFraming) -> Self {
        let (source, done) = match length {
            BodyLength::None => (Source::Fixed(0), true),
            BodyLength::Fixed(length) => (Source::Fixed(length), length == 0),
            BodyLength::Chunked => (Source::Chunked(ChunkedDecoder::new()), false),
            BodyLength::UntilClose => (Source::UntilClose, false),
        };
        Self {
            source,
            chunked_out: framing == ClientFraming::Chunked,
            done,
            surplus: false,
            closed: false,
            at_event_end: true,
            tail: *b"\n\n",
            meter: None,
        }
    }

    /// The same, measured while it passes.
    pub fn metered(self, meter: Option<Meter>) -> Self {
        Self { meter, ..self }
    }

    /// Takes the bytes that came with the head and appends them, framed, to `out`.
    pub fn first(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Cut> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.done {
            self.surplus = true;
            return Ok(());
        }
        let at = out.len();
        out.resize(at + CHUNK_HEADROOM, 0);
        out.extend_from_slice(bytes);
        let taken = self.take(&mut out[at + CHUNK_HEADROOM..]);
        let (Ok(payload) | Err(payload)) = taken;
        out.truncate(at + CHUNK_HEADROOM + payload);
        if self.chunked_out && payload > 0 {
            let (prefix, start) = chunk_prefix(payload);
            let payload_at = at + CHUNK_HEADROOM;
            out.copy_within(payload_at.., at + CHUNK_HEADROOM - start);
            out.truncate(out.len() - start);
            out[at..at + CHUNK_HEADROOM - start].copy_from_slice(&prefix[start..]);
            out.extend_from_slice(b"\r\n");
        } else {
            out.copy_within(at + CHUNK_HEADROOM.., at);
            out.truncate(at + payload);
        }
        self.finish(out);
        taken.map(|_| ()).map_err(|_| Cut)
    }

    /// Takes the bytes from [`CHUNK_HEADROOM`] on and frames them in place. Where the framed bytes
    /// begin; an error is a worker that broke its framing, after what was good.
    pub fn next(&mut self, buf: &mut Vec<u8>) -> Result<usize, usize> {
        let taken = self.take(&mut buf[CHUNK_HEADROOM..]);
        let (Ok(payload) | Err(payload)) = taken;
        buf.truncate(CHUNK_HEADROOM + payload);
        let mut at = CHUNK_HEADROOM;
        if self.chunked_out && payload > 0 {
            let (prefix, start) = chunk_prefix(payload);
            buf[start..CHUNK_HEADROOM].copy_from_slice(&prefix[start..]);
            buf.extend_from_slice(b"\r\n");
            at = start;
        }
        self.finish(buf);
        taken.map(|_| at).map_err(|_| at)
    }

    fn finish(&self, out: &mut Vec<u8>) {
        if self.done && self.chunked_out {
            out.extend_from_slice(LAST_CHUNK);
        }
    }

    /// The payload in `bytes`, moved to their front.
    fn take(&mut self, bytes: &mut [u8]) -> Result<usize, usize> {
        let payload = match &mut self.source {
            Source::Fixed(left) => {
                let payload = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= payload as u64;
                self.done = *left == 0;
                self.surplus |= payload < bytes.len();
                Ok(payload)
            }
            Source::Chunked(decoder) => match decoder.decode(bytes) {
                Ok(decoded) => {
                    self.done = decoded.done;
                    self.surplus |= decoded.consumed < bytes.len();
                    Ok(decoded.payload)
                }
                Err(error) => Err(error.payload),
            },
            Source::UntilClose => Ok(bytes.len()),
        };
        let (Ok(length) | Err(length)) = payload;
        for &byte in &bytes[length.saturating_sub(2)..length] {
            self.tail = [self.tail[1], byte];
        }
        self.at_event_end = self.tail == *b"\n\n";
        if let Some(meter) = &mut self.meter {
            meter.take(&bytes[..length], self.done);
        }
        payload
    }

    /// The worker closed its side: the end of a body that has no other, else an error. What the client
    /// is to be told goes into the empty `out`.
    pub fn end_of_stream(&mut self, out: &mut Vec<u8>) -> Result<(), Cut> {
        self.closed = true;
        if !matches!(self.source, Source::UntilClose) {
            return Err(Cut);
        }
        self.done = true;
        if let Some(meter) = &mut self.meter {
            meter.take(&[], true);
        }
        self.finish(out);
        Ok(())
    }

    /// Whether another request may go over the worker's connection.
    pub fn leaves_connection_in_step(&self) -> bool {
        self.done && !self.surplus && !self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `pieces` as reads; what the client gets, and whether it ended well.
    fn relayed(length: BodyLength, framing: ClientFraming, pieces: &[&[u8]]) -> (Vec<u8>, Body) {
        let mut body = Body::new(length, framing);
        let mut out = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            if at == 0 {
                assert!(body.first(piece, &mut out).is_ok());
                continue;
            }
            let mut buf = vec![0; CHUNK_HEADROOM];
            buf.extend_from_slice(piece);
            let (Ok(start) | Err(start)) = body.next(&mut buf);
            out.extend_from_slice(&buf[start..]);
        }
        (out, body)
    }

    #[test]
    fn a_fixed_body_passes_as_it_is() {
        let framing = ClientFraming::AsContentLength(5);
        let (out, body) = relayed(BodyLength::Fixed(5), framing, &[b"he", b"llo"]);
        assert_eq!(out, b"hello");
        assert!(body.leaves_connection_in_step());
    }

    #[test]
    fn chunks_are_framed_anew_read_by_read() {
        let pieces: [&[u8]; 3] =
            [b"3;x=y\r\nabc\r\n2\r\nde\r", b"\n1\r\n", b"f\r\n0\r\nT: 1\r\n\r\n"];
        let (out, body) = relayed(BodyLength::Chunked, ClientFraming::Chunked, &pieces);
        assert_eq!(out, b"5\r\nabcde\r\n1\r\nf\r\n0\r\n\r\n");
        assert!(body.leaves_connection_in_step());
    }

    #[test]
    fn bytes_after_the_end_put_the_connection_out_of_step() {
        let framing = ClientFraming::AsContentLength(2);
        let (out, body) = relayed(BodyLength::Fixed(2), framing, &[b"okHTTP/1.1 200"]);
        assert_eq!(out, b"ok");
        assert!(body.done && !body.leaves_connection_in_step());
    }

    #[test]
    fn the_end_of_the_connection_ends_only_a_body_without_another_end() {
        let mut open = Body::new(BodyLength::UntilClose, ClientFraming::Chunked);
        let mut out = Vec::new();
        assert_eq!(open.end_of_stream(&mut out), Ok(()));
        assert_eq!(out, LAST_CHUNK);
        assert!(!open.leaves_connection_in_step());
        for length in [BodyLength::Fixed(1), BodyLength::Chunked] {
            let mut cut = Body::new(length, ClientFraming::Chunked);
            assert_eq!(cut.end_of_stream(&mut Vec::new()), Err(Cut));
        }
    }

    #[test]
    fn the_end_of_an_event_is_seen_across_reads() {
        let framing = ClientFraming::AsContentLength(9);
        let (_, body) = relayed(BodyLength::Fixed(9), framing, &[b"data: 1\n"]);
        assert!(!body.at_event_end);
        let (_, body) = relayed(BodyLength::Fixed(9), framing, &[b"data: 1\n", b"\n"]);
        assert!(body.at_event_end);
    }
}
