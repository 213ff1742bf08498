//! Single-writer cells: the owning shard adds with a plain load and store, anyone may read.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A count that only grows. Exactly one thread adds.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`; at its largest value it stays. Not an atomic addition: only the owning thread writes.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).saturating_add(n), Ordering::Relaxed);
    }

    /// Starts over. Only the owning thread may.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down. Exactly one thread writes.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Adds `n`, which may be negative.
    pub fn add(&self, n: i64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Replaces the value.
    pub fn set(&self, n: i64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The present value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Observations in buckets with fixed upper bounds. Exactly one thread observes.
#[derive(Debug)]
pub struct Histogram {
    /// One per bound, and one more for everything above the last.
    buckets: Box<[Counter]>,
    /// Bits of the sum as an `f64`.
    sum: AtomicU64,
}

impl Histogram {
    /// A histogram with `bounds` finite buckets.
    pub fn new(bounds: usize) -> Self {
        Self {
            buckets: (0..=bounds).map(|_| Counter::default()).collect(),
            sum: AtomicU64::new(0f64.to_bits()),
        }
    }

    /// Counts `value` in the first bucket whose bound is not below it.
    pub fn observe(&self, bounds: &[f64], value: f64) {
        debug_assert_eq!(bounds.len() + 1, self.buckets.len());
        self.buckets[bounds.partition_point(|&bound| bound < value)].inc();
        let sum = f64::from_bits(self.sum.load(Ordering::Relaxed)) + value;
        self.sum.store(sum.to_bits(), Ordering::Relaxed);
    }

    /// Adds this histogram to `total`.
    pub fn add_to(&self, total: &mut HistogramTotal) {
        total.buckets.resize(self.buckets.len(), 0);
        for (into, from) in total.buckets.iter_mut().zip(&self.buckets) {
            *into += from.get();
        }
        total.sum += f64::from_bits(self.sum.load(Ordering::Relaxed));
    }
}

/// Several histograms added up.
#[derive(Debug, Default)]
pub struct HistogramTotal {
    /// Counts per bucket, not cumulative; the last is above every bound.
    pub buckets: Vec<u64>,
    /// Sum of all observations.
    pub sum: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_never_falls() {
        let counter = Counter::default();
        for _ in 0..3 {
            counter.add(1 << 63);
        }
        assert_eq!(counter.get(), u64::MAX);
    }

    #[test]
    fn a_value_on_a_bound_belongs_below_it() {
        let bounds = [0.0, 0.5, 1.0];
        let histogram = Histogram::new(bounds.len());
        for value in [0.0, 0.25, 0.5, 0.75, 2.0] {
            histogram.observe(&bounds, value);
        }
        let mut total = HistogramTotal::default();
        histogram.add_to(&mut total);
        histogram.add_to(&mut total);
        assert_eq!(total.buckets, [2, 4, 2, 2]);
        assert_eq!(total.sum, 7.0);
    }
}
