//! From values to places on an axis.

/// An axis from one value to another, evenly or by powers of ten.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct Scale {
    from: f64,
    to: f64,
    logarithmic: bool,
}

/// Ticks of a logarithmic axis are left out in this order when there are too many.
const LOG_STEPS: [&[f64]; 3] = [&[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];

impl Scale {
    /// An even axis from zero to at least `to`, ending with a tick.
    pub fn from_zero(to: f64, ticks: usize) -> Self {
        let to = if to.is_finite() && to > 0.0 { to } else { 1.0 };
        let step = step(to, ticks);
        // A value that is a tick but for rounding needs no further one.
        let to = step * (to / step - 1e-9).ceil();
        Self { from: 0.0, to, logarithmic: false }
    }

    /// An even axis between two values.
    pub fn linear(from: f64, to: f64) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Self { from, to, logarithmic: false }
    }

    /// An axis by powers of ten that holds these positive values; others are ignored.
    pub fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let positive = values.filter(|value| value.is_finite() && *value > 0.0);
        let (from, to) = positive
            .fold((f64::INFINITY, 0.0f64), |(from, to), value| (from.min(value), to.max(value)));
        match from < to {
            true => Self { from, to, logarithmic: true },
            false if to > 0.0 => Self { from: to / 2.0, to: to * 2.0, logarithmic: true },
            false => Self { from: 1.0, to: 10.0, logarithmic: true },
        }
    }

    /// Where a value is: 0 at the start of the axis, 1 at its end. Values beyond are at its ends.
    pub fn place(&self, value: f64) -> f64 {
        let Self { from, to, logarithmic } = *self;
        let place = if logarithmic {
            (value.max(from) / from).ln() / (to / from).ln()
        } else {
            (value - from) / (to - from)
        };
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }

    /// Round values on the axis in ascending order, about as many as wanted.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        if self.logarithmic { self.log_ticks(wanted) } else { self.even_ticks(wanted) }
    }

    fn even_ticks(&self, wanted: usize) -> Vec<f64> {
        let step = step(self.to - self.from, wanted);
        let first = (self.from / step - 1e-9).ceil() as i64;
        let last = (self.to / step + 1e-9).floor() as i64;
        (first..=last).map(|number| number as f64 * step).collect()
    }

    fn log_ticks(&self, wanted: usize) -> Vec<f64> {
        let (first, last) = (self.from.log10().floor() as i32, self.to.log10().ceil() as i32);
        let with = |steps: &[f64]| -> Vec<f64> {
            let decades = (first..=last).map(|power| 10f64.powi(power));
            decades
                .flat_map(|decade| steps.iter().map(move |step| step * decade))
                .filter(|tick| (self.from..=self.to).contains(tick))
                .collect()
        };
        let mut candidates = LOG_STEPS.iter().map(|steps| with(steps));
        candidates.find(|ticks| ticks.len() <= wanted).unwrap_or_else(|| with(&[1.0]))
    }
}

/// A round step (1, 2 or 5 times a power of ten) that divides a span into at most `ticks` parts.
fn step(span: f64, ticks: usize) -> f64 {
    let least = span / ticks.max(1) as f64;
    let decade = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
    steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * decade)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(values: &[f64], expected: &[f64]) {
        assert_eq!(values.len(), expected.len(), "{values:?}");
        let pairs = values.iter().zip(expected);
        assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-9), "{values:?} for {expected:?}");
    }

    #[test]
    fn even_axes_end_with_a_round_tick() {
        let scale = Scale::from_zero(87.0, 5);
        near(&scale.ticks(5), &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        near(&Scale::from_zero(0.3, 3).ticks(3), &[0.0, 0.1, 0.2, 0.3]);
        near(&[scale.place(50.0), scale.place(-1.0), scale.place(1e9)], &[0.5, 0.0, 1.0]);
        near(&Scale::linear(0.0, 8.0).ticks(10), &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    }

    #[test]
    fn logarithmic_axes_have_as_many_ticks_as_fit() {
        let scale = Scale::logarithmic([3.0, 900.0, 0.0, f64::NAN].into_iter());
        near(&scale.ticks(8), &[5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
        near(&scale.ticks(5), &[3.0, 10.0, 30.0, 100.0, 300.0]);
        near(&scale.ticks(4), &[10.0, 100.0]);
        near(&[scale.place(3.0), scale.place(900.0), scale.place(0.0)], &[0.0, 1.0, 0.0]);
        near(&[Scale::logarithmic([1.0, 100.0].into_iter()).place(10.0)], &[0.5]);
    }

    #[test]
    fn nothing_to_show_is_still_an_axis() {
        for scale in [
            Scale::from_zero(0.0, 5),
            Scale::from_zero(f64::NAN, 5),
            Scale::logarithmic(std::iter::empty()),
            Scale::logarithmic([7.0].into_iter()),
            Scale::linear(2.0, 2.0),
        ] {
            assert!(!scale.ticks(5).is_empty(), "{scale:?}");
            for value in [0.0, 7.0, f64::NAN, f64::INFINITY] {
                assert!((0.0..=1.0).contains(&scale.place(value)), "{scale:?} {value}");
            }
        }
    }
}
