//! Runs of equal steps: what lets a coarse engine decode many tokens at once.

use super::super::Nanos;
use super::{Engine, Request};

/// Steps under way: `count` of the same duration, one after the other. More than one only while all
/// running requests decode and none of them ends before the last step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    pub start: Nanos,
    pub each: Nanos,
    pub count: u32,
}

impl Steps {
    pub fn end(&self) -> Nanos {
        self.start + self.each * u64::from(self.count)
    }
}

impl Engine {
    /// Ends the steps of a run that are over by `now`; the run goes on with the next one.
    pub(super) fn catch_up(&mut self, now: Nanos) {
        let Some(Steps { start, each, count }) = self.steps.filter(|steps| steps.count > 1) else {
            return;
        };
        // Not all of them, or `advance` would have ended the run.
        let over = (now.saturating_sub(start) / each).min(u64::from(count) - 1) as u32;
        if over > 0 {
            self.decode(over);
            let start = start + each * u64::from(over);
            self.steps = Some(Steps { start, each, count: count - over });
        }
    }

    /// Makes the step of a run that is under way its last.
    pub(super) fn cut_steps(&mut self) {
        if let Some(steps) = &mut self.steps {
            steps.count = 1;
        }
    }

    /// Ends `count` steps of a run but not its last, and begins the one after them.
    pub(super) fn decode(&mut self, count: u32) {
        if count == 0 {
            return;
        }
        self.counters.busy_ns += self.steps.map_or(0, |steps| steps.each) * u64::from(count);
        self.counters.generated_tokens += u64::from(count) * self.running.len() as u64;
        for at in 0..self.running.len() {
            let reserved = self.reserve(at, count + 1);
            debug_assert!(reserved, "the run is no longer than the pool allows");
            let request = &mut self.running[at];
            request.computed += count;
            request.generated += count;
        }
    }

    /// How many steps like the one that starts now follow without anything to tell or to decide: all
    /// decode, nobody ends, the pool suffices, nobody who waits can join.
    pub(super) fn equal_steps(&self) -> u32 {
        let is_full = self.running.len() >= self.profile.max_batch as usize;
        let blocked = self.waiting.front().filter(|_| !is_full);
        // One that was preempted may find what others decode meanwhile.
        if blocked.is_some_and(|request| request.generated > 0) {
            return 1;
        }
        // Whether there is room for one that waits does not change while the pool does not.
        let room = if blocked.is_some() { 0 } else { self.pool.free() };
        let left = |request: &Request| request.answer_tokens - request.generated;
        let mut count = self.running.iter().map(left).min().unwrap_or(1);
        while count > 1 && self.blocks_for(count) > room {
            count /= 2;
        }
        count.max(1)
    }

    /// Blocks that this many decode steps take from the pool.
    fn blocks_for(&self, steps: u32) -> u32 {
        let missing = |request: &Request| {
            let held = request.held * self.profile.block_tokens;
            match (request.computed + steps).saturating_sub(held) {
                0 => 0,
                beyond => beyond.div_ceil(self.profile.block_tokens),
            }
        };
        self.running.iter().map(missing).sum()
    }
}
