//! Memory of request bodies over all connections: one budget, in bytes. It is taken as bytes arrive, or
//! are decoded, and given back when the buffer they are in is freed. What was only announced takes
//! nothing of it.
//!
//! Small buffers are not counted: `--max-connections` bounds those. Of a stream, of which an HTTP/2
//! connection may have 128, far fewer bytes are not counted, and its head is.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::http::answer::{ErrorAnswer, ErrorCode};

/// Buffers with no more of a body than this many bytes are not counted,
pub const COUNTED_ABOVE: usize = 64 << 10;
/// and of a stream, head and body together, no more than this.
pub const FREE_OF_STREAM: usize = 4 << 10;

/// When a request that found no room may come again.
const RETRY_AFTER_SECS: u64 = 1;

/// The budget.
#[derive(Debug)]
pub struct BodyMemory {
    limit: usize,
    held: AtomicUsize,
    /// ... of them by shares.
    shares: AtomicUsize,
    /// The most that was held since it was last asked for.
    peak: AtomicUsize,
}

/// There is no room for more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    /// The budget in bytes.
    limit: usize,
}

impl BodyMemory {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            held: AtomicUsize::new(0),
            shares: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        })
    }

    /// The budget in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes held.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The most that was held since it was last asked for, or is.
    pub fn take_peak(&self) -> usize {
        let held = self.held();
        self.peak.swap(held, Ordering::Relaxed).max(held)
    }

    /// Takes `bytes` for a request that has `own` already. One that is alone always gets them: nobody
    /// would give back what it waited for.
    fn take(&self, bytes: usize, own: usize) -> Result<(), Exhausted> {
        let alone = own + self.shares.load(Ordering::Relaxed);
        let more =
            |held: usize| held.checked_add(bytes).filter(|&sum| sum <= self.limit || held == alone);
        match self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(before) => {
                let held = before + bytes;
                // Rarely: what is above it is not passed again until it is asked for.
                if held > self.peak.load(Ordering::Relaxed) {
                    self.peak.fetch_max(held, Ordering::Relaxed);
                }
                Ok(())
            }
            Err(_) => Err(Exhausted { limit: self.limit }),
        }
    }
}

/// A part of the budget that is no body's: who has one may still be alone with its body.
#[derive(Debug)]
pub struct Share {
    memory: Arc<BodyMemory>,
    bytes: usize,
}

impl Share {
    /// `bytes` of the budget, until it is dropped.
    ///
    /// # Errors
    /// When there is no room for them.
    pub fn take(memory: &Arc<BodyMemory>, bytes: usize) -> Result<Self, Exhausted> {
        if bytes > 0 {
            // Nobody who has as much of it is alone.
            memory.take(bytes, usize::MAX / 2)?;
            memory.shares.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(Self { memory: memory.clone(), bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // Most are of nothing: those touch no line that shards share.
        if self.bytes > 0 {
            self.memory.shares.fetch_sub(self.bytes, Ordering::Relaxed);
            self.memory.held.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

impl Exhausted {
    /// What the client is told.
    pub fn answer(self) -> ErrorAnswer {
        ErrorAnswer::new(
            ErrorCode::BodyMemoryExhausted,
            format!(
                "the bodies of requests under way take all the memory there is for them ({} bytes, \
                 --max-body-memory); retry after the time given",
                self.limit
            ),
        )
        .retry_after(RETRY_AFTER_SECS)
    }
}

/// What one buffer has of the budget; dropping it gives that back.
#[derive(Debug)]
pub struct Hold {
    memory: Option<Arc<BodyMemory>>,
    bytes: usize,
    /// No more than this is not counted.
    free: usize,
}

impl Default for Hold {
    fn default() -> Self {
        Self::above(COUNTED_ABOVE)
    }
}

impl Hold {
    /// One that counts above so many bytes.
    pub fn above(free: usize) -> Self {
        Self { memory: None, bytes: 0, free }
    }

    /// As many bytes are not counted.
    pub fn free(&self) -> usize {
        self.free
    }

    /// Leaves one behind that holds nothing and counts as this one does.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::above(self.free))
    }

    /// Sees to it that `bytes` are held, if they are worth counting; never fewer than before.
    ///
    /// # Errors
    /// When there is no room for what is missing. What was held still is.
    pub fn cover(&mut self, memory: &Arc<BodyMemory>, bytes: usize) -> Result<(), Exhausted> {
        self.cover_beside(memory, bytes, 0)
    }

    /// The same for a request of which `others` are held already, by other buffers.
    ///
    /// # Errors
    /// As [`Hold::cover`].
    pub fn cover_beside(
        &mut self,
        memory: &Arc<BodyMemory>,
        bytes: usize,
        others: usize,
    ) -> Result<(), Exhausted> {
        if bytes <= self.bytes.max(self.free) {
            return Ok(());
        }
        memory.take(bytes - self.bytes, others + self.bytes)?;
        self.bytes = bytes;
        if self.memory.is_none() {
            self.memory = Some(memory.clone());
        }
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.held.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// Bytes that never change, and what they hold of the budget. Freed in that order.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    hold: Hold,
}

impl Buffer {
    /// `bytes`, for which `hold` is held.
    pub fn new(bytes: Vec<u8>, hold: Hold) -> Self {
        Self { bytes, hold }
    }

    /// Bytes of memory it takes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Bytes of the budget it holds.
    pub fn held(&self) -> usize {
        self.hold.bytes
    }

    /// The same bytes once more.
    ///
    /// # Errors
    /// When there is no room for them.
    pub fn copy(&self, memory: &Arc<BodyMemory>) -> Result<Self, Exhausted> {
        let mut hold = Hold::default();
        hold.cover_beside(memory, self.bytes.len(), self.held())?;
        Ok(Self::new(self.bytes.clone(), hold))
    }
}

impl From<Vec<u8>> for Buffer {
    /// Bytes that are not counted.
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes, Hold::default())
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: usize = COUNTED_ABOVE + 1;

    #[test]
    fn what_is_held_is_given_back_once() {
        let memory = BodyMemory::new(10 * SOME);
        let mut first = Hold::default();
        assert_eq!(first.cover(&memory, SOME), Ok(()));
        assert_eq!(first.cover(&memory, SOME), Ok(()));
        assert_eq!(first.cover(&memory, 2), Ok(()), "never fewer");
        assert_eq!(memory.held(), SOME);
        assert_eq!(first.cover(&memory, 3 * SOME), Ok(()));
        let buffer = Buffer::new(vec![0; 3 * SOME], first);
        let copy = buffer.copy(&memory).unwrap();
        assert_eq!(memory.held(), 6 * SOME);
        drop(buffer);
        std::thread::spawn(move || drop(copy)).join().unwrap();
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn small_buffers_are_not_counted() {
        let memory = BodyMemory::new(0);
        let mut hold = Hold::default();
        assert_eq!(hold.cover(&memory, COUNTED_ABOVE), Ok(()));
        assert_eq!(memory.held(), 0);
        let _other = Buffer::new(Vec::new(), held(&memory, SOME));
        assert_eq!(hold.cover(&memory, SOME), Err(Exhausted { limit: 0 }));
    }

    #[test]
    fn of_a_stream_less_goes_uncounted() {
        let memory = BodyMemory::new(SOME);
        let mut hold = Hold::above(FREE_OF_STREAM);
        assert_eq!(hold.cover(&memory, FREE_OF_STREAM), Ok(()));
        assert_eq!(memory.held(), 0);
        let counted = FREE_OF_STREAM + 1;
        assert_eq!(hold.cover(&memory, counted), Ok(()));
        let first = hold.take();
        assert_eq!((memory.held(), hold.bytes), (counted, 0));
        assert_eq!(hold.cover(&memory, counted), Ok(()), "the next request counts alike");
        drop(first);
        assert_eq!(memory.held(), counted);
    }

    fn held(memory: &Arc<BodyMemory>, bytes: usize) -> Hold {
        let mut hold = Hold::default();
        assert_eq!(hold.cover(memory, bytes), Ok(()));
        hold
    }

    #[test]
    fn a_request_that_is_alone_always_has_room() {
        let memory = BodyMemory::new(2 * SOME);
        let body = Buffer::new(vec![0; 2 * SOME], held(&memory, 2 * SOME));
        let mut prompt = Hold::default();
        assert!(prompt.cover(&memory, SOME).is_err(), "that of another has none");
        assert_eq!(prompt.cover_beside(&memory, SOME, body.held()), Ok(()));
        assert_eq!(memory.held(), 3 * SOME);
        assert!(body.copy(&memory).is_err(), "it says nothing of the prompt");
        assert!(Hold::default().cover(&memory, SOME).is_err());
        drop(prompt);
        let copy = body.copy(&memory).unwrap();
        assert_eq!((copy.held(), memory.held()), (2 * SOME, 4 * SOME));
        drop((body, copy));
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn the_budget_is_used_to_its_last_byte_and_no_further() {
        let memory = BodyMemory::new(2 * SOME);
        let (mut first, mut second) = (Hold::default(), Hold::default());
        assert_eq!(first.cover(&memory, SOME), Ok(()));
        assert_eq!(second.cover(&memory, SOME + 1), Err(Exhausted { limit: 2 * SOME }));
        assert_eq!(second.cover(&memory, SOME), Ok(()));
        assert!(first.cover(&memory, SOME + 1).is_err());
        assert!(first.cover(&memory, usize::MAX).is_err());
        assert_eq!(memory.held(), 2 * SOME, "who finds no room keeps what he has");
        drop(second);
        assert_eq!(first.cover(&memory, 2 * SOME), Ok(()));
    }

    #[test]
    fn the_answer_names_the_flag_and_says_when_to_come_again() {
        let answer = Exhausted { limit: 77 }.answer();
        assert_eq!((answer.code.status(), answer.retry_after_secs), (503, Some(1)));
        assert!(answer.message.contains("77 bytes, --max-body-memory"), "{}", answer.message);
    }
}
