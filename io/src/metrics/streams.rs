//! What one shard measures of the streams of one model and endpoint.

use std::sync::Arc;

use crate::metrics::Histogram;

/// Bounds of the time between two pieces of a stream in seconds. It is measured with the coarse
/// clock, so that none is below its tick.
pub const GAP_BOUNDS: [f64; 11] = [0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Times of streamed answers. Only one shard writes them.
pub struct StreamCells {
    bounds: Arc<[f64]>,
    first: Histogram,
    per_token: Histogram,
    whole: Histogram,
    gaps: Histogram,
}

impl StreamCells {
    /// Histograms over duration bounds in seconds.
    pub fn new(bounds: Arc<[f64]>) -> Self {
        let times = || Histogram::new(bounds.len());
        let (first, per_token, whole) = (times(), times(), times());
        Self { first, per_token, whole, gaps: Histogram::new(GAP_BOUNDS.len()), bounds }
    }

    /// Seconds from a request's first byte to the first piece of its answer's body.
    pub fn observe_first(&self, seconds: f64) {
        self.first.observe(&self.bounds, seconds);
    }

    /// Milliseconds between two pieces.
    pub fn observe_gap(&self, ms: u64) {
        self.gaps.observe(&GAP_BOUNDS, ms as f64 / 1000.0);
    }

    /// Seconds per token after the first, on average over an answer.
    pub fn observe_per_token(&self, seconds: f64) {
        self.per_token.observe(&self.bounds, seconds);
    }

    /// Seconds from a request's first byte to its answer's last.
    pub fn observe_whole(&self, seconds: f64) {
        self.whole.observe(&self.bounds, seconds);
    }

    /// Time to the first piece.
    pub(super) fn first(&self) -> &Histogram {
        &self.first
    }

    /// Time per token.
    pub(super) fn per_token(&self) -> &Histogram {
        &self.per_token
    }

    /// Time of the whole answer.
    pub(super) fn whole(&self) -> &Histogram {
        &self.whole
    }

    /// Times between pieces.
    pub(super) fn gaps(&self) -> &Histogram {
        &self.gaps
    }
}
