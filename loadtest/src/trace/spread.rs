//! Timestamps coarser than the traffic they stand for: requests of one tick, spread over it.

use smg_core::rng::Rng;

use crate::engine::Nanos;

/// What to do with requests that have the same timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spread {
    /// Evenly over the time to the next tick.
    #[default]
    Even,
    /// At random times within it, by seed.
    Random,
    /// Left as they are: all at one instant.
    None,
}

impl Spread {
    /// Spreads ascending `times`. A tick lasts until the next one, but no longer than the median of
    /// all ticks: a pause in the traffic is no coarse timestamp. The first request of an evenly
    /// spread tick stays where it is.
    pub fn apply(self, times: &mut [Nanos], seed: u64) {
        if self == Self::None {
            return;
        }
        let median = median_gap(times);
        let mut rng = Rng::new(seed);
        let mut from = 0;
        while from < times.len() {
            let tick = times[from];
            let count = times[from..].iter().take_while(|&&time| time == tick).count();
            let next = times.get(from + count).copied();
            let length = next.map_or(median, |next| (next - tick).min(median));
            let requests = &mut times[from..from + count];
            for (index, time) in requests.iter_mut().enumerate() {
                *time += match self {
                    Self::Even | Self::None => length * index as u64 / count as u64,
                    Self::Random => (rng.unit() * length as f64) as Nanos,
                };
            }
            requests.sort_unstable();
            from += count;
        }
    }
}

fn median_gap(times: &[Nanos]) -> Nanos {
    let mut gaps: Vec<Nanos> =
        times.windows(2).map(|pair| pair[1] - pair[0]).filter(|&gap| gap > 0).collect();
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: [Nanos; 8] = [0, 0, 0, 300, 600, 600, 5_000, 5_000];

    #[test]
    fn even_spreading_fills_each_tick_and_no_pause() {
        let mut times = TIMES;
        Spread::Even.apply(&mut times, 1);
        // Gaps of 300, 300 and 4,400: a tick is 300 long.
        assert_eq!(times, [0, 100, 200, 300, 600, 750, 5_000, 5_150]);
    }

    #[test]
    fn random_spreading_stays_within_the_tick_and_is_the_seeds() {
        let spread = |seed| {
            let mut times = TIMES;
            Spread::Random.apply(&mut times, seed);
            times
        };
        let times = spread(1);
        assert!(times.is_sorted());
        assert!(times[..3].iter().all(|&time| time < 300), "{times:?}");
        assert!(times[4..6].iter().all(|&time| (600..900).contains(&time)), "{times:?}");
        assert_eq!(times, spread(1));
        assert_ne!(times, spread(2));
    }

    #[test]
    fn none_changes_nothing_and_one_tick_has_no_length() {
        let mut times = TIMES;
        Spread::None.apply(&mut times, 1);
        assert_eq!(times, TIMES);
        let mut same = [7, 7];
        Spread::Even.apply(&mut same, 1);
        assert_eq!(same, [7, 7]);
    }
}
