//! Samples and how they are printed.

use std::hint::black_box;
use std::time::Instant;

/// Times of one arm, in nanoseconds.
#[derive(Default)]
pub struct Samples(Vec<u64>);

impl Samples {
    /// Runs `work` and keeps its time.
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.0.push(start.elapsed().as_nanos() as u64);
        result
    }

    /// Runs `work` and keeps its time on the CPU, which leaves out what other processes took. Reading
    /// that clock is a system call: for work of many microseconds.
    pub fn time_on_cpu<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = cpu_ns();
        let result = work();
        self.0.push(cpu_ns() - start);
        result
    }

    /// CPU times of `count` runs of arithmetic that should take `ns` each: how much of a tail is the
    /// machine's and not the measured work's.
    pub fn of_arithmetic(ns: f64, count: usize) -> Self {
        let work = |steps: u64| {
            (0..steps).fold(1u64, |x, step| black_box(x).wrapping_mul(0x2545_f491_4f6c_dd1d) ^ step)
        };
        let run = |steps: u64, count: usize| {
            let mut samples = Self::default();
            for _ in 0..count {
                black_box(samples.time_on_cpu(|| work(steps)));
            }
            samples
        };
        let steps = ns / run(10_000, 101).median() * 10_000.0;
        run(steps as u64, count)
    }

    /// Takes over the samples of another arm.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Sum of all samples in milliseconds.
    pub fn total_ms(&self) -> f64 {
        self.0.iter().sum::<u64>() as f64 / 1e6
    }

    /// The value below which `share` of the samples lie, less the cost of reading the clock.
    pub fn percentile(&mut self, share: f64) -> f64 {
        self.0.sort_unstable();
        let at = ((self.0.len() as f64 * share) as usize).min(self.0.len() - 1);
        (self.0[at] as f64 - clock_cost()).max(1.0)
    }

    pub fn median(&mut self) -> f64 {
        self.percentile(0.5)
    }

    pub fn p99(&mut self) -> f64 {
        self.percentile(0.99)
    }

    pub fn max(&mut self) -> f64 {
        self.percentile(1.0)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Nanoseconds between two readings of the clock with nothing in between.
fn clock_cost() -> f64 {
    use std::sync::OnceLock;
    static COST: OnceLock<f64> = OnceLock::new();
    *COST.get_or_init(|| {
        let mut costs: Vec<_> = (0..10_001).map(|_| Instant::now().elapsed()).collect();
        costs.sort_unstable();
        costs[5000].as_nanos() as f64
    })
}

/// Time this thread has spent on a CPU, in nanoseconds.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the structure it is given and keeps nothing.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Resident memory of this process in bytes.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * 4096
}
