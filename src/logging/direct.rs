//! Lines that are out before the thread that logs them goes on: for debug lines, which say what a
//! request is about to do and are read next to what it then did.
//!
//! A line goes around the queue while nothing waits there and standard output has room, so that
//! writing it cannot block. Otherwise it waits in the queue, in order, like any line.

use std::io::{self, Write};
use std::os::fd::RawFd;
#[allow(clippy::disallowed_types, reason = "as for `Waiting`")]
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smg_io::runtime::descriptors::ready_for;
use tracing_appender::non_blocking::NonBlocking;
use tracing_subscriber::fmt::MakeWriter;

/// A pipe that is ready takes so many bytes at once.
const MAX_LINE_BYTES: usize = libc::PIPE_BUF;

/// How many lines wait in the queue. Its lock is held while a line is written or queued: lines keep
/// their order.
#[allow(
    clippy::disallowed_types,
    reason = "every thread writes to one descriptor, and the lock is held for a write that cannot block"
)]
#[derive(Clone, Default)]
pub struct Waiting(Arc<Mutex<u64>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, u64> {
        // A number is right whatever its holder was doing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writing thread has written so many of them.
    pub fn written(&self, lines: u64) {
        let mut waiting = self.lock();
        *waiting = waiting.saturating_sub(lines);
    }
}

/// Writes a line to `out`, or to `queue` if that could block.
#[derive(Clone)]
pub struct Direct {
    pub out: RawFd,
    pub queue: NonBlocking,
    pub waiting: Waiting,
}

impl Write for Direct {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.waiting.lock();
        let at_once = if *waiting == 0 { write_at_once(self.out, line) } else { 0 };
        if at_once < line.len() {
            let dropped = self.queue.error_counter();
            let before = dropped.dropped_lines();
            self.queue.write_all(&line[at_once..])?;
            // A full queue drops it.
            *waiting += u64::from(dropped.dropped_lines() == before);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many bytes of `line` were written without blocking.
fn write_at_once(out: RawFd, line: &[u8]) -> usize {
    if line.len() > MAX_LINE_BYTES || ready_for(out, libc::POLLOUT) != libc::POLLOUT {
        return 0;
    }
    // SAFETY: the pointer and length are those of a slice that lives through the call.
    let written = unsafe { libc::write(out, line.as_ptr().cast(), line.len()) };
    // On an error the writing thread meets it too.
    usize::try_from(written).unwrap_or(0)
}

impl<'a> MakeWriter<'a> for Direct {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read, pipe};
    use std::os::fd::AsRawFd;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};

    use super::*;

    /// What the writing thread got; it takes the next line when it is let.
    struct Queue {
        taken: Receiver<Vec<u8>>,
        let_go: Sender<()>,
        _thread: WorkerGuard,
    }

    impl Queue {
        fn next(&self) -> Vec<u8> {
            self.let_go.send(()).unwrap();
            self.taken.recv().unwrap()
        }
    }

    struct Taking(Sender<Vec<u8>>, Receiver<()>);

    impl Write for Taking {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.1.recv().map_err(io::Error::other)?;
            self.0.send(line.to_vec()).map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn direct() -> (Direct, PipeReader, PipeWriter, Queue) {
        let (reader, writer) = pipe().unwrap();
        let ((sender, taken), (let_go, gate)) = (channel(), channel());
        let (queue, thread) = NonBlockingBuilder::default()
            .lossy(true)
            .buffered_lines_limit(2)
            .finish(Taking(sender, gate));
        let direct = Direct { out: writer.as_raw_fd(), queue, waiting: Waiting::default() };
        (direct, reader, writer, Queue { taken, let_go, _thread: thread })
    }

    /// All that is in the pipe.
    fn drain(reader: &mut PipeReader) -> Vec<u8> {
        let mut seen = Vec::new();
        let mut buf = [0; 4096];
        while ready_for(reader.as_raw_fd(), libc::POLLIN) == libc::POLLIN {
            let n = reader.read(&mut buf).unwrap();
            seen.extend_from_slice(&buf[..n]);
        }
        seen
    }

    #[test]
    fn a_line_is_out_when_the_call_returns() {
        let (mut direct, mut reader, _writer, _queue) = direct();
        direct.write_all(b"one\n").unwrap();
        direct.write_all(b"two\n").unwrap();
        assert_eq!(drain(&mut reader), b"one\ntwo\n");
    }

    #[test]
    fn a_full_pipe_blocks_nobody_and_lines_keep_their_order() {
        let (mut direct, mut reader, _writer, queue) = direct();
        let line = [b'x'; MAX_LINE_BYTES];
        let mut out = 0;
        while *direct.waiting.lock() == 0 {
            direct.write_all(&line).unwrap();
            out += 1;
        }
        assert_eq!(drain(&mut reader).len(), (out - 1) * line.len());
        // There is room again, but the line before it is not out.
        direct.write_all(b"after\n").unwrap();
        assert_eq!(drain(&mut reader), b"");
        assert_eq!(queue.next(), line);
        assert_eq!(queue.next(), b"after\n");
        direct.waiting.written(2);
        direct.write_all(b"direct\n").unwrap();
        assert_eq!(drain(&mut reader), b"direct\n");
    }

    #[test]
    fn dropped_lines_do_not_count_as_waiting() {
        let (mut direct, mut reader, _writer, queue) = direct();
        let long = [b'x'; MAX_LINE_BYTES + 1];
        for _ in 0..5 {
            direct.write_all(&long).unwrap();
        }
        // Two or, if the writing thread already has one, three were taken.
        let waiting = *direct.waiting.lock();
        assert_eq!(waiting + direct.queue.error_counter().dropped_lines() as u64, 5);
        for _ in 0..waiting {
            assert_eq!(queue.next(), long);
        }
        direct.waiting.written(waiting);
        direct.write_all(b"next\n").unwrap();
        assert_eq!(drain(&mut reader), b"next\n");
    }

    #[test]
    fn nobody_reads_any_more() {
        let (mut direct, reader, _writer, queue) = direct();
        drop(reader);
        direct.write_all(b"lost\n").unwrap();
        assert_eq!(queue.next(), b"lost\n");
    }
}
