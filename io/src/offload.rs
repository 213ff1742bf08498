//! Work on request bodies that would hold a shard for too long: a small pool of threads undoes the
//! codings of compressed bodies and reads prompts out of them.
//!
//! A body is lent, not copied: the buffer moves to the pool and comes back with the prompt. What is
//! decoded never leaves the pool, and is held there once. It counts in the budget of all bodies, and so
//! do large prompts until they are decided on. Beside that a thread has the window of a decoder (up to
//! 16 MiB), and of a body up to 1 MiB the copy that is parsed and the parser's tape (up to 24 MiB).

use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use smg_core::prompt::{Endpoint, Extractor, OwnedPrompt, Prompt, PromptError, Want};
use tracing::{error, warn};

use crate::body_memory::{BodyMemory, Buffer, Exhausted, Hold};
use crate::http::coding::Coding;
use crate::runtime::{cpus, slice};

pub use decode::DecodeError;

mod decode;
mod decoders;

/// Bodies that wait for a thread in the queue; the requests of further ones wait for a place in it.
const QUEUE: usize = 64;
/// Memory for bodies from this size on is given back to the system at once, which takes some
/// milliseconds,
const TRIMMED_FROM: usize = 8 << 20;
/// and from this size on by a thread that has nothing else to do.
const TRIMMED_FROM_IF_IDLE: usize = 256 << 10;

/// One body to be read.
pub struct Work {
    /// Where the request goes, which says where its prompt is.
    pub endpoint: Endpoint,
    /// How much is read.
    pub want: Want,
    /// Codings to undo, in the order they were applied.
    pub codings: Vec<Coding>,
    /// The request.
    pub buf: Buffer,
    /// The body in it.
    pub body: Range<usize>,
    /// Most bytes of the decoded body.
    pub limit: usize,
    /// The budget of what is decoded, and of the prompt.
    pub memory: Arc<BodyMemory>,
}

/// What became of it.
pub struct Done {
    /// The request, as it was.
    pub buf: Buffer,
    /// What it routes on.
    pub prompt: Result<LentPrompt, BodyError>,
}

/// A prompt that was read by the pool, and what it holds of the budget.
pub struct LentPrompt {
    prompt: OwnedPrompt,
    _hold: Hold,
}

impl LentPrompt {
    /// `others` is what its request holds already.
    fn new(
        prompt: OwnedPrompt,
        memory: &Arc<BodyMemory>,
        others: usize,
    ) -> Result<Self, BodyError> {
        let mut hold = Hold::default();
        hold.cover_beside(memory, prompt.bytes(), others).map_err(BodyError::NoRoom)?;
        Ok(Self { prompt, _hold: hold })
    }

    /// What it says.
    pub fn prompt(&self) -> Prompt<'_> {
        self.prompt.prompt()
    }
}

/// Why a body has no prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// It cannot be decoded.
    Decode(DecodeError),
    /// It cannot be read.
    Prompt(PromptError),
    /// It can, and there is no room for it.
    NoRoom(Exhausted),
}

struct Job {
    /// Empty when nobody waits any more and the work has been taken back.
    work: Lent,
    /// Closed when nobody waits any more.
    reply: async_channel::Sender<Done>,
}

/// One piece of work, which either side can take.
type Lent = Arc<ArrayQueue<Work>>;

/// Takes work that was not begun back when nobody waits any more: its memory does not wait for a thread.
struct TakeBack(Lent);

impl Drop for TakeBack {
    fn drop(&mut self) {
        drop(self.0.pop());
    }
}

/// The pool's queue.
pub struct Pool {
    jobs: async_channel::Sender<Job>,
    queue: async_channel::Receiver<Job>,
}

impl Default for Pool {
    fn default() -> Self {
        let (jobs, queue) = async_channel::bounded(QUEUE);
        Self { jobs, queue }
    }
}

/// How many threads, for so many shards: a body that takes a second leaves others a thread, and all of
/// them together take no more than a quarter of the CPUs of a large machine.
pub fn threads_for(shards: usize) -> usize {
    (shards / 4).clamp(2, 8)
}

impl Pool {
    /// Starts the threads, on `cpus` if there are such. `trim` gives free memory back to the system.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(&self, threads: usize, cpus: Option<&[usize]>, trim: fn()) -> io::Result<()> {
        for index in 0..threads {
            let (queue, cpus) = (self.queue.clone(), cpus.map(<[usize]>::to_vec));
            std::thread::Builder::new().name(format!("smg-bodies-{index}")).spawn(move || {
                if let Some(cpus) = cpus
                    && let Err(error) = cpus::pin(&cpus)
                {
                    warn!(target: "smg::runtime", index, ?cpus, %error, "cannot pin a pool thread");
                }
                if let Err(error) = slice::give_way() {
                    warn!(target: "smg::runtime", index, %error, "a pool thread keeps its priority");
                }
                run(&queue, trim);
            })?;
        }
        Ok(())
    }

    /// Has a body read. Dropping the future takes the work back: it is not begun, or not finished.
    /// `None` if the thread that had it failed, which is logged.
    pub async fn read(&self, work: Work) -> Option<Done> {
        let lent = Lent::new(ArrayQueue::new(1));
        // There is room for one.
        let _ = lent.push(work);
        let _taken_back = TakeBack(lent.clone());
        let (reply, answer) = async_channel::bounded(1);
        // The queue is never closed: this holds its other end.
        self.jobs.send(Job { work: lent, reply }).await.ok()?;
        answer.recv().await.ok()
    }
}

fn run(queue: &async_channel::Receiver<Job>, trim: fn()) {
    let mut extractor = Extractor::new();
    while let Ok(Job { work, reply }) = queue.recv_blocking() {
        let Some(work) = work.pop() else { continue };
        let cancelled = || reply.is_closed();
        let done = catch_unwind(AssertUnwindSafe(|| read(&mut extractor, work, &cancelled)));
        match done {
            Ok((done, held)) => {
                // The request may have ended meanwhile.
                let _ = reply.try_send(done);
                let from = if queue.is_empty() { TRIMMED_FROM_IF_IDLE } else { TRIMMED_FROM };
                if held >= from {
                    trim();
                }
            }
            // The request is answered 500 when `reply` goes.
            Err(_) => {
                error!(target: "smg::http", "reading a request body panicked; it is answered 500");
                extractor = Extractor::new();
            }
        }
    }
}

/// Also how many bytes were held for it meanwhile.
fn read(extractor: &mut Extractor, work: Work, cancelled: &dyn Fn() -> bool) -> (Done, usize) {
    let Work { endpoint, want, codings, buf, body, limit, memory } = work;
    let bytes = buf.get(body).unwrap_or_default();
    let beside = buf.held();
    let mut extract = |bytes: &[u8], others: usize| {
        let prompt =
            extractor.extract_owned(endpoint, bytes, want, cancelled).map_err(BodyError::Prompt)?;
        LentPrompt::new(prompt, &memory, others)
    };
    let (prompt, held) = if codings.is_empty() {
        (extract(bytes, beside), bytes.len())
    } else {
        let bounds = decode::Bounds { limit, memory: &memory, beside, cancelled };
        match decode::decode(&codings, bytes, &bounds) {
            Ok(decoded) => (extract(&decoded, beside + decoded.held()), decoded.len()),
            // A decoder may have held more than the limit, in its window.
            Err(error) => (Err(BodyError::Decode(error)), usize::MAX),
        }
    };
    (Done { buf, prompt }, held)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(body: &[u8]) -> Work {
        Work {
            endpoint: Endpoint::Completions,
            want: Want::Everything,
            codings: Vec::new(),
            buf: [b"head ", body].concat().into(),
            body: 5..5 + body.len(),
            limit: 1000,
            memory: BodyMemory::new(0),
        }
    }

    #[test]
    fn the_buffer_comes_back_as_it_was() {
        let pool = Pool::default();
        pool.start(2, None, || {}).unwrap();
        for (body, text) in [(&br#"{"prompt":"p"}"#[..], Some("p")), (b"[]", None)] {
            let done = futures_lite::future::block_on(pool.read(work(body))).unwrap();
            assert_eq!(done.buf[..], [b"head ", body].concat());
            assert_eq!(
                done.prompt.ok().map(|prompt| prompt.prompt().text.to_owned()),
                text.map(str::to_owned)
            );
        }
    }

    #[test]
    fn who_finds_the_queue_full_waits_and_may_leave() {
        let pool = Pool::default();
        let body = br#"{"prompt":"p"}"#;
        let mut waiting: Vec<_> = (0..QUEUE + 2).map(|_| Box::pin(pool.read(work(body)))).collect();
        futures_lite::future::block_on(async {
            for future in &mut waiting {
                assert!(futures_lite::future::poll_once(future).await.is_none());
            }
        });
        assert_eq!(pool.queue.len(), QUEUE);
        // The last leaves its place before the queue, the first its place in it.
        let mut next_to_last = waiting.swap_remove(QUEUE);
        assert!(pool.queue.try_recv().is_ok_and(|job| job.work.len() == 1));
        drop(waiting);
        assert!(pool.queue.try_recv().is_ok_and(|job| job.work.is_empty()), "it was taken back");
        pool.start(1, None, || {}).unwrap();
        let done = futures_lite::future::block_on(&mut next_to_last).unwrap();
        assert_eq!(done.prompt.unwrap().prompt().text, "p");
    }
}
