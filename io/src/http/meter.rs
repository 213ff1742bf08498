//! What is measured of an answer while it is relayed: when its events come, and how many tokens it
//! took. It reads what has been received and delays nothing.

use std::rc::Rc;
use std::time::Instant;

use smg_core::prompt::Endpoint;
use smg_core::usage::{Tail, Usage};

use crate::metrics::{ModelLabel, StreamCells};
use crate::runtime::clock;
use crate::shard::Shard;

/// Measures one answer with a good status.
pub struct Meter {
    shard: Rc<Shard>,
    model: ModelLabel,
    endpoint: Endpoint,
    /// When the request's first byte was read.
    asked: Instant,
    events: Option<Events>,
    tail: Tail,
}

/// The events of a stream so far, a read's worth counting as one.
#[derive(Default)]
struct Events {
    first: Option<Instant>,
    /// On the coarse clock: a precise one would be read for every token.
    last_ms: u64,
    count: u64,
}

impl Meter {
    /// For an answer to a request that was first read at `asked`; `events` is a stream of them.
    pub fn new(
        shard: Rc<Shard>,
        model: ModelLabel,
        endpoint: Endpoint,
        asked: Instant,
        events: bool,
    ) -> Self {
        let events = events.then(Events::default);
        Self { shard, model, endpoint, asked, events, tail: Tail::default() }
    }

    /// Takes the next piece of the body; `done` is its last.
    pub fn take(&mut self, piece: &[u8], done: bool) {
        if !piece.is_empty() {
            self.note_event();
        }
        if !done {
            self.tail.push(piece);
        } else if self.tail.is_empty() {
            self.finish(Usage::last_in(piece));
        } else {
            self.tail.push(piece);
            self.finish(self.tail.usage());
        }
    }

    fn note_event(&mut self) {
        let Some(events) = &mut self.events else { return };
        let cells = self.shard.cells().stream(self.model, self.endpoint);
        let now_ms = clock::now_ms();
        if events.first.is_none() {
            let now = Instant::now();
            events.first = Some(now);
            cells.observe_first(now.duration_since(self.asked).as_secs_f64());
        } else {
            cells.observe_gap(now_ms.saturating_sub(events.last_ms));
        }
        events.last_ms = now_ms;
        events.count += 1;
    }

    fn finish(&self, usage: Usage) {
        let cells = self.shard.cells();
        cells.model(self.model).count_tokens(self.endpoint, usage);
        let Some(Events { first: Some(first), count, .. }) = self.events else { return };
        let cells: &StreamCells = cells.stream(self.model, self.endpoint);
        let now = Instant::now();
        cells.observe_whole(now.duration_since(self.asked).as_secs_f64());
        // The first token ends no gap.
        let gaps = usage.output.unwrap_or(count).saturating_sub(1);
        if gaps > 0 {
            cells.observe_per_token(now.duration_since(first).as_secs_f64() / gaps as f64);
        }
    }
}
