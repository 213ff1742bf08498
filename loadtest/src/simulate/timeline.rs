//! When each engine has something to tell: a heap with one entry per engine whose time can change.

use std::ops::Range;

use crate::engine::Nanos;

/// Times by engine; an engine without one is idle.
#[derive(Debug)]
pub struct Timeline {
    /// Times and engines in heap order: each comes before its children. [`Nanos::MAX`] is idle.
    heap: Vec<(Nanos, u32)>,
    /// Where each engine is in the heap.
    place: Vec<u32>,
}

/// Children of one place: four are next to each other in memory.
const CHILDREN: usize = 4;

impl Timeline {
    /// All engines idle.
    pub fn new(engines: usize) -> Self {
        let engines = 0..engines as u32;
        Self {
            heap: engines.clone().map(|engine| (Nanos::MAX, engine)).collect(),
            place: engines.collect(),
        }
    }

    /// The earliest time and its engine, the lowest one of several.
    pub fn first(&self) -> Option<(Nanos, usize)> {
        let &(time, engine) = self.heap.first()?;
        (time < Nanos::MAX).then_some((time, engine as usize))
    }

    /// The second one in time.
    pub fn second(&self) -> Option<usize> {
        self.least_child(0).map(|child| self.heap[child].1 as usize)
    }

    /// Engines that may be the second one soon.
    pub fn then(&self) -> impl Iterator<Item = usize> {
        let below = self.least_child(0).map_or(0..0, |child| self.children(child));
        self.children(0).chain(below).map(|at| self.heap[at].1 as usize)
    }

    fn children(&self, at: usize) -> Range<usize> {
        let first = CHILDREN * at + 1;
        first.min(self.heap.len())..(first + CHILDREN).min(self.heap.len())
    }

    fn least_child(&self, at: usize) -> Option<usize> {
        self.children(at).min_by_key(|&child| self.heap[child])
    }

    /// Changes an engine's time.
    pub fn set(&mut self, engine: usize, time: Option<Nanos>) {
        let entry = (time.unwrap_or(Nanos::MAX), engine as u32);
        let at = self.place[engine] as usize;
        let before = std::mem::replace(&mut self.heap[at], entry);
        if entry < before {
            self.rise(at);
        } else if entry > before {
            self.sink(at);
        }
    }

    fn rise(&mut self, mut at: usize) {
        let entry = self.heap[at];
        while at > 0 && entry < self.heap[(at - 1) / CHILDREN] {
            self.put(at, self.heap[(at - 1) / CHILDREN]);
            at = (at - 1) / CHILDREN;
        }
        self.put(at, entry);
    }

    fn sink(&mut self, mut at: usize) {
        let entry = self.heap[at];
        loop {
            let least = self.least_child(at);
            let Some(child) = least.filter(|&child| self.heap[child] < entry) else { break };
            self.put(at, self.heap[child]);
            at = child;
        }
        self.put(at, entry);
    }

    fn put(&mut self, at: usize, entry: (Nanos, u32)) {
        self.heap[at] = entry;
        self.place[entry.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use smg_core::rng::Rng;

    use super::*;

    #[test]
    fn the_first_is_that_of_a_plain_scan() {
        let mut rng = Rng::new(1);
        let (mut timeline, mut plain) = (Timeline::new(13), [None; 13]);
        assert_eq!(timeline.first(), None);
        for _ in 0..5_000 {
            let engine = rng.below(13);
            let time = (rng.below(4) > 0).then(|| rng.below(30) as Nanos);
            timeline.set(engine, time);
            plain[engine] = time;
            let scan = plain.iter().enumerate().filter_map(|(at, time)| Some(((*time)?, at)));
            assert_eq!(timeline.first(), scan.min());
        }
    }
}
