//! Bars beside names, and small columns.

use std::fmt::Write;

use super::{Anchor, Caption, Scale, escape, image, rule, text};

/// One bar: `value` long, with the least and the greatest value as a whisker.
pub(in super::super) struct Bar {
    pub name: String,
    pub class: String,
    pub value: f64,
    pub range: Option<(f64, f64)>,
    /// Written behind the bar.
    pub text: String,
}

/// Bars from the left, one below the other.
pub(in super::super) struct BarChart<'a> {
    pub caption: Caption<'a>,
    /// What is shown, with its unit.
    pub label: &'a str,
    pub bars: Vec<Bar>,
}

/// Columns side by side around a line at their mean.
pub(in super::super) struct ColumnChart<'a> {
    pub caption: Caption<'a>,
    pub class: &'a str,
    pub values: &'a [u64],
    /// The highest value the image has room for: the same in images that are compared.
    pub highest: u64,
}

const WIDTH: f64 = 860.0;
const NAMES: f64 = 178.0;
const VALUES: f64 = 84.0;
const ROW: f64 = 26.0;
const AXIS: f64 = 44.0;
const TICKS: usize = 6;

impl BarChart<'_> {
    pub fn svg(&self) -> String {
        let longest = |bar: &Bar| bar.range.map_or(bar.value, |(_, high)| high.max(bar.value));
        let scale = Scale::from_zero(self.bars.iter().map(longest).fold(0.0, f64::max), TICKS);
        let x = |value: f64| NAMES + (WIDTH - NAMES - VALUES) * scale.place(value);
        let bottom = 4.0 + ROW * self.bars.len() as f64;
        let mut content = String::new();
        for tick in scale.ticks(TICKS) {
            rule(&mut content, (x(tick), 4.0), (x(tick), bottom), "grid");
            let at = (x(tick), bottom + 16.0);
            text(&mut content, at, Anchor::Middle, "tick", &tidy(tick));
        }
        for (index, bar) in self.bars.iter().enumerate() {
            row(&mut content, bar, 4.0 + ROW * index as f64, x);
        }
        rule(&mut content, (NAMES, 4.0), (NAMES, bottom), "axis");
        let middle = (NAMES + WIDTH - VALUES) / 2.0;
        text(&mut content, (middle, bottom + 36.0), Anchor::Middle, "label", self.label);
        image(&self.caption, (WIDTH, bottom + AXIS), &content)
    }
}

fn row(into: &mut String, bar: &Bar, top: f64, x: impl Fn(f64) -> f64) {
    let middle = top + ROW / 2.0;
    text(into, (NAMES - 10.0, middle + 4.0), Anchor::End, "name", &bar.name);
    // Writing to a string cannot fail.
    let _ = write!(
        into,
        "<rect class=\"bar {}\" x=\"{NAMES:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
         rx=\"2\"><title>{}: {}</title></rect>",
        escape(&bar.class),
        top + 4.0,
        x(bar.value) - NAMES,
        ROW - 8.0,
        escape(&bar.name),
        escape(&bar.text),
    );
    let mut end = x(bar.value);
    if let Some((low, high)) = bar.range.filter(|(low, high)| high > low) {
        rule(into, (x(low), middle), (x(high), middle), "whisker");
        for value in [low, high] {
            rule(into, (x(value), middle - 4.0), (x(value), middle + 4.0), "whisker");
        }
        end = end.max(x(high));
    }
    text(into, (end + 8.0, middle + 4.0), Anchor::Start, "value", &bar.text);
}

const COLUMNS_WIDTH: f64 = 270.0;
const COLUMNS_HEIGHT: f64 = 150.0;
const COLUMNS_LEFT: f64 = 38.0;
const COLUMNS_BOTTOM: f64 = 26.0;
const COLUMNS_TOP: f64 = 8.0;
const COLUMN_TICKS: usize = 3;

impl ColumnChart<'_> {
    pub fn svg(&self) -> String {
        let scale = Scale::from_zero(self.highest as f64, COLUMN_TICKS);
        let (right, bottom) = (COLUMNS_WIDTH - 4.0, COLUMNS_HEIGHT - COLUMNS_BOTTOM);
        let y = |value: f64| bottom - (bottom - COLUMNS_TOP) * scale.place(value);
        let mut content = String::new();
        for tick in scale.ticks(COLUMN_TICKS) {
            rule(&mut content, (COLUMNS_LEFT, y(tick)), (right, y(tick)), "grid");
            let at = (COLUMNS_LEFT - 6.0, y(tick) + 4.0);
            text(&mut content, at, Anchor::End, "tick", &tidy(tick));
        }
        let count = self.values.len().max(1) as f64;
        let pitch = (right - COLUMNS_LEFT) / count;
        for (index, value) in self.values.iter().enumerate() {
            let top = y(*value as f64);
            let _ = write!(
                content,
                "<rect class=\"bar {}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\"><title>{value} requests</title></rect>",
                escape(self.class),
                COLUMNS_LEFT + pitch * (index as f64 + 0.1),
                pitch * 0.8,
                bottom - top,
            );
        }
        let mean = self.values.iter().sum::<u64>() as f64 / count;
        rule(&mut content, (COLUMNS_LEFT, y(mean)), (right, y(mean)), "mean");
        rule(&mut content, (COLUMNS_LEFT, bottom), (right, bottom), "axis");
        let middle = (COLUMNS_LEFT + right) / 2.0;
        let label = "engines, busiest first; requests each";
        text(&mut content, (middle, COLUMNS_HEIGHT - 8.0), Anchor::Middle, "tick", label);
        image(&self.caption, (COLUMNS_WIDTH, COLUMNS_HEIGHT), &content)
    }
}

/// A tick without needless digits.
fn tidy(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::xml::assert_well_formed;
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let bar = |name: &str, value, range| Bar {
            name: name.into(),
            class: "c2".into(),
            value,
            range,
            text: format!("{value} us"),
        };
        let bars = vec![bar("a&b", 50.0, None), bar("c", 90.0, Some((80.0, 99.0)))];
        let caption = Caption { id: "cpu", title: "CPU", description: "bars" };
        let svg = BarChart { caption, label: "CPU (us)", bars }.svg();
        assert_well_formed(&svg, &[]);
        // The axis ends at 100 and is 598 long.
        assert!(svg.contains("width=\"299.0\"") && svg.contains("width=\"538.2\""), "{svg}");
        assert!(svg.contains("a&amp;b: 50 us") && svg.contains(">100</text>"));
        assert_eq!(svg.matches("class=\"whisker\"").count(), 3);
    }

    #[test]
    fn columns_share_one_height() {
        let caption = Caption { id: "load", title: "Load", description: "columns" };
        let chart = ColumnChart { caption, class: "c0", values: &[30, 10], highest: 60 };
        let svg = chart.svg();
        assert_well_formed(&svg, &[]);
        // 116 high for 60 requests; the line at the mean of 20.
        assert!(svg.contains("height=\"58.0\"") && svg.contains("height=\"19.3\""), "{svg}");
        assert!(svg.contains("y1=\"85.3\"") && svg.contains("class=\"mean\""), "{svg}");
    }

    #[test]
    fn empty_charts_are_still_images() {
        let caption = || Caption { id: "x", title: "x", description: "x" };
        assert_well_formed(&BarChart { caption: caption(), label: "x", bars: vec![] }.svg(), &[]);
        let chart = ColumnChart { caption: caption(), class: "c", values: &[], highest: 0 };
        assert_well_formed(&chart.svg(), &[]);
        assert_eq!([tidy(0.5), tidy(100.0), tidy(0.0)], ["0.5", "100", "0"]);
    }
}
