//! When each engine has something to tell: a heap with one entry per engine whose time can change.

use crate::engine::Nanos;

/// Times by engine; an engine without one is idle.
#[derive(Debug)]
pub struct Timeline {
    /// Engines in heap order: each comes before its two children.
    heap: Vec<u32>,
    /// Where each engine is in the heap.
    place: Vec<u32>,
    /// [`Nanos::MAX`] without one.
    times: Vec<Nanos>,
}

impl Timeline {
    /// All engines idle.
    pub fn new(engines: usize) -> Self {
        Self {
            heap: (0..engines as u32).collect(),
            place: (0..engines as u32).collect(),
            times: vec![Nanos::MAX; engines],
        }
    }

    /// The earliest time and its engine, the lowest one of several.
    pub fn first(&self) -> Option<(Nanos, usize)> {
        let engine = *self.heap.first()? as usize;
        Some((self.times[engine], engine)).filter(|(time, _)| *time < Nanos::MAX)
    }

    /// Changes an engine's time.
    pub fn set(&mut self, engine: usize, time: Option<Nanos>) {
        let time = time.unwrap_or(Nanos::MAX);
        if self.times[engine] == time {
            return;
        }
        self.times[engine] = time;
        let at = self.rise(self.place[engine] as usize);
        self.sink(at);
    }

    fn key(&self, at: usize) -> (Nanos, u32) {
        let engine = self.heap[at];
        (self.times[engine as usize], engine)
    }

    fn rise(&mut self, mut at: usize) -> usize {
        while at > 0 && self.key(at) < self.key((at - 1) / 2) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        at
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.key(child) < self.key(least) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place[self.heap[a] as usize] = a as u32;
        self.place[self.heap[b] as usize] = b as u32;
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
