//! Decoders that end where their data ends, and say so if their input does not. (The one for gzip in
//! `flate2` does by itself.)

use std::io::{self, BufRead, Read};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::{Decompress, FlushDecompress, Status};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Largest window of a zstd frame in bytes: what the content coding allows (RFC 9659).
const MAX_ZSTD_WINDOW: u64 = 8 << 20;

fn broken() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// The end of the data: nothing may follow it.
fn at_end(input: &mut impl BufRead) -> io::Result<usize> {
    if input.fill_buf()?.is_empty() { Ok(0) } else { Err(broken()) }
}

/// `deflate`: one zlib stream.
pub struct Zlib<R> {
    input: R,
    inflate: Decompress,
    ended: bool,
}

impl<R: BufRead> Zlib<R> {
    pub fn new(input: R) -> Self {
        Self { input, inflate: Decompress::new(true), ended: false }
    }
}

impl<R: BufRead> Read for Zlib<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.ended && !out.is_empty() {
            let input = self.input.fill_buf()?;
            let is_last = input.is_empty();
            let before = (self.inflate.total_in(), self.inflate.total_out());
            let flush = if is_last { FlushDecompress::Finish } else { FlushDecompress::None };
            let status = self.inflate.decompress(input, out, flush).map_err(|_| broken())?;
            let consumed = (self.inflate.total_in() - before.0) as usize;
            let produced = (self.inflate.total_out() - before.1) as usize;
            self.input.consume(consumed);
            self.ended = status == Status::StreamEnd;
            if produced > 0 {
                return Ok(produced);
            }
            if !self.ended && consumed == 0 {
                // Cut off, or stuck with room for output.
                return Err(broken());
            }
        }
        if self.ended { at_end(&mut self.input) } else { Ok(0) }
    }
}

type BrotliMachine = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// `br`: one brotli stream, without the "large window" extension.
pub struct Brotli<R> {
    input: R,
    state: Box<BrotliMachine>,
    ended: bool,
}

impl<R: BufRead> Brotli<R> {
    pub fn new(input: R) -> Self {
        let alloc = StandardAlloc::default;
        let state = Box::new(BrotliState::new_strict(alloc(), alloc(), alloc()));
        Self { input, state, ended: false }
    }
}

impl<R: BufRead> Read for Brotli<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.ended && !out.is_empty() {
            let input = self.input.fill_buf()?;
            let is_last = input.is_empty();
            let (mut left, mut consumed) = (input.len(), 0);
            let (mut room, mut produced, mut total) = (out.len(), 0, 0);
            let outcome = BrotliDecompressStream(
                &mut left,
                &mut consumed,
                input,
                &mut room,
                &mut produced,
                out,
                &mut total,
                &mut self.state,
            );
            self.input.consume(consumed);
            match outcome {
                BrotliResult::ResultSuccess => self.ended = true,
                BrotliResult::ResultFailure => return Err(broken()),
                BrotliResult::NeedsMoreInput if is_last && produced == 0 => return Err(broken()),
                BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
            }
            if produced > 0 {
                return Ok(produced);
            }
        }
        if self.ended { at_end(&mut self.input) } else { Ok(0) }
    }
}

/// `zstd`: one frame or more, with skippable ones among them.
pub struct Zstd<R> {
    input: R,
    frames: FrameDecoder,
    in_frame: bool,
    /// Bytes that came out of the frame.
    produced: u64,
    /// A frame has begun: without one there is no data.
    begun: bool,
}

impl<R: BufRead> Zstd<R> {
    pub fn new(input: R) -> Self {
        let mut frames = FrameDecoder::new();
        frames.set_max_window_size(MAX_ZSTD_WINDOW);
        Self { input, frames, in_frame: false, produced: 0, begun: false }
    }

    fn begin_frame(&mut self) -> io::Result<()> {
        match self.frames.reset(&mut self.input) {
            Ok(()) => {
                (self.in_frame, self.begun, self.produced) = (true, true, 0);
                Ok(())
            }
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let length = u64::from(length);
                let skipped = io::copy(&mut self.input.by_ref().take(length), &mut io::sink())?;
                if skipped == length { Ok(()) } else { Err(broken()) }
            }
            Err(_) => Err(broken()),
        }
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.in_frame = false;
        let said = self.frames.get_checksum_from_data();
        let sum_differs = said.is_some() && said != self.frames.get_calculated_checksum();
        // 0 is also said of a frame that does not announce its size.
        let announced = self.frames.content_size();
        let size_differs = announced != 0 && announced != self.produced;
        if sum_differs || size_differs { Err(broken()) } else { Ok(()) }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !out.is_empty() {
            if !self.in_frame {
                if self.input.fill_buf()?.is_empty() {
                    return if self.begun { Ok(0) } else { Err(broken()) };
                }
                self.begin_frame()?;
            } else if self.frames.can_collect() > 0 {
                let produced = self.frames.read(out)?;
                self.produced += produced as u64;
                return Ok(produced);
            } else if self.frames.is_finished() {
                self.end_frame()?;
            } else {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.frames.decode_blocks(&mut self.input, one).map_err(|_| broken())?;
            }
        }
        Ok(0)
    }
}
