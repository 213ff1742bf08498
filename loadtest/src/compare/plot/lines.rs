//! Line charts.

use std::fmt::Write;

use super::{Anchor, Caption, Scale, escape, image, rule, text};

/// One line. Its look is the class `line` and one of its own.
pub(in super::super) struct Series {
    pub name: String,
    pub class: String,
    pub points: Vec<(f64, f64)>,
}

/// What an axis shows: its label with the unit, its scale, and how its ticks are written.
pub(in super::super) struct Axis {
    pub label: &'static str,
    pub scale: Scale,
    pub format: fn(f64) -> String,
}

/// Lines over a grid.
pub(in super::super) struct LineChart<'a> {
    pub caption: Caption<'a>,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 46.0;
const X_TICKS: usize = 12;
const Y_TICKS: usize = 5;

impl LineChart<'_> {
    pub fn svg(&self) -> String {
        let mut content = String::new();
        self.grid(&mut content);
        for series in &self.series {
            let path = self.path(&series.points);
            if path.is_empty() {
                continue;
            }
            // Writing to a string cannot fail.
            let _ = write!(
                content,
                "<path class=\"line {}\" d=\"{path}\"><title>{}</title></path>",
                escape(&series.class),
                escape(&series.name)
            );
        }
        image(&self.caption, (WIDTH, HEIGHT), &content)
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * self.x.scale.place(value)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * self.y.scale.place(value)
    }

    fn grid(&self, into: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in self.y.scale.ticks(Y_TICKS) {
            let y = self.y(tick);
            rule(into, (LEFT, y), (right, y), "grid");
            text(into, (LEFT - 8.0, y + 4.0), Anchor::End, "tick", &(self.y.format)(tick));
        }
        for tick in self.x.scale.ticks(X_TICKS) {
            let x = self.x(tick);
            rule(into, (x, TOP), (x, bottom), "grid");
            text(into, (x, bottom + 17.0), Anchor::Middle, "tick", &(self.x.format)(tick));
        }
        rule(into, (LEFT, bottom), (right, bottom), "axis");
        rule(into, (LEFT, TOP), (LEFT, bottom), "axis");
        let middle = (LEFT + right) / 2.0;
        text(into, (middle, HEIGHT - 8.0), Anchor::Middle, "label", self.x.label);
        text(into, (4.0, TOP - 14.0), Anchor::Start, "label", self.y.label);
    }

    /// The points in order; nothing is drawn for those that are no numbers.
    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        for (x, y) in points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", self.x(*x), self.y(*y));
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::super::xml::assert_well_formed;
    use super::*;

    #[test]
    fn points_are_where_the_scales_say() {
        let series = |name: &str, points: &[(f64, f64)]| Series {
            name: name.into(),
            class: "c1".into(),
            points: points.to_vec(),
        };
        let chart = LineChart {
            caption: Caption { id: "cdf", title: "A & B", description: "two lines" },
            x: Axis {
                label: "time (ms)",
                scale: Scale::logarithmic([1.0, 100.0].into_iter()),
                format: |value| format!("{value}"),
            },
            y: Axis {
                label: "share (%)",
                scale: Scale::linear(0.0, 1.0),
                format: |value| format!("{:.0} %", 100.0 * value),
            },
            series: vec![
                series("<a>", &[(1.0, 0.0), (10.0, 0.5), (f64::NAN, 0.6), (100.0, 1.0)]),
                series("b", &[]),
            ],
        };
        let svg = chart.svg();
        assert_well_formed(&svg, &[]);
        // From the lower left corner through the middle to the upper right one.
        assert!(svg.contains("d=\"M58.0 294.0L450.0 161.0L842.0 28.0\""), "{svg}");
        assert!(svg.contains("&lt;a&gt;") && svg.contains("time (ms)") && svg.contains("40 %"));
        assert_eq!(svg.matches("<path").count(), 1);
    }
}
