//! The two text formats. They differ in how counters are declared, in the content type and in the
//! end marker.

use std::fmt::Write;

use crate::metrics::cell::HistogramTotal;

/// A page being written.
pub struct Text {
    out: String,
    open_metrics: bool,
}

/// What kind of numbers a family holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Buckets, sum and count.
    Histogram,
}

impl Text {
    /// An empty page.
    pub fn new(open_metrics: bool) -> Self {
        Self { out: String::with_capacity(16 << 10), open_metrics }
    }

    /// The `Content-Type` of the page.
    pub fn content_type(&self) -> &'static str {
        if self.open_metrics {
            "application/openmetrics-text; version=1.0.0; charset=utf-8"
        } else {
            "text/plain; version=0.0.4; charset=utf-8"
        }
    }

    /// Declares a family; its samples must follow at once.
    pub fn family(&mut self, name: &str, kind: Family, help: &str) {
        let kind_name = match kind {
            Family::Counter => "counter",
            Family::Gauge => "gauge",
            Family::Histogram => "histogram",
        };
        let declared = match kind {
            Family::Counter if self.open_metrics => name.strip_suffix("_total").unwrap_or(name),
            _ => name,
        };
        self.line(format_args!("# HELP {declared} {help}\n# TYPE {declared} {kind_name}\n"));
    }

    /// One sample of a counter or gauge.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.series(name, "", labels, None);
        self.line(format_args!(" {value}\n"));
    }

    /// All samples of one histogram; nothing when it has none.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        bounds: &[f64],
        total: &HistogramTotal,
    ) {
        if total.buckets.is_empty() {
            return;
        }
        let mut cumulative = 0;
        for (at, count) in total.buckets.iter().enumerate() {
            cumulative += count;
            self.series(name, "_bucket", labels, Some(bounds.get(at).copied()));
            self.line(format_args!(" {cumulative}\n"));
        }
        self.series(name, "_sum", labels, None);
        self.line(format_args!(" {}\n", total.sum));
        self.series(name, "_count", labels, None);
        self.line(format_args!(" {cumulative}\n"));
    }

    /// The page's bytes.
    pub fn finish(mut self) -> Vec<u8> {
        if self.open_metrics {
            self.out.push_str("# EOF\n");
        }
        self.out.into_bytes()
    }

    /// `name_suffix{labels}`; `le` is `Some(None)` for the last bucket.
    fn series(
        &mut self,
        name: &str,
        suffix: &str,
        labels: &[(&str, &str)],
        le: Option<Option<f64>>,
    ) {
        self.out.push_str(name);
        self.out.push_str(suffix);
        if labels.is_empty() && le.is_none() {
            return;
        }
        self.out.push('{');
        for (at, (label, value)) in labels.iter().enumerate() {
            if at > 0 {
                self.out.push(',');
            }
            self.out.push_str(label);
            self.out.push_str("=\"");
            self.escaped(value);
            self.out.push('"');
        }
        if let Some(bound) = le {
            if !labels.is_empty() {
                self.out.push(',');
            }
            match bound {
                Some(bound) if self.open_metrics => self.line(format_args!("le=\"{bound:?}\"")),
                Some(bound) => self.line(format_args!("le=\"{bound}\"")),
                None => self.out.push_str("le=\"+Inf\""),
            }
        }
        self.out.push('}');
    }

    fn escaped(&mut self, value: &str) {
        for character in value.chars() {
            match character {
                '\\' => self.out.push_str("\\\\"),
                '"' => self.out.push_str("\\\""),
                '\n' => self.out.push_str("\\n"),
                other => self.out.push(other),
            }
        }
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(open_metrics: bool) -> String {
        let mut text = Text::new(open_metrics);
        text.family("smg_x_total", Family::Counter, "X.");
        text.sample("smg_x_total", &[("a", "q\"\\\n")], 2.0);
        text.family("smg_h", Family::Histogram, "H.");
        let total = HistogramTotal { buckets: vec![1, 0, 2], sum: 4.5 };
        text.histogram("smg_h", &[], &[0.0, 1.0], &total);
        String::from_utf8(text.finish()).unwrap()
    }

    #[test]
    fn prometheus_text() {
        assert_eq!(
            page(false),
            "# HELP smg_x_total X.\n# TYPE smg_x_total counter\nsmg_x_total{a=\"q\\\"\\\\\\n\"} 2\n\
             # HELP smg_h H.\n# TYPE smg_h histogram\nsmg_h_bucket{le=\"0\"} 1\n\
             smg_h_bucket{le=\"1\"} 1\nsmg_h_bucket{le=\"+Inf\"} 3\nsmg_h_sum 4.5\nsmg_h_count 3\n"
        );
    }

    #[test]
    fn open_metrics_text() {
        let page = page(true);
        assert!(page.starts_with("# HELP smg_x X.\n# TYPE smg_x counter\nsmg_x_total{"), "{page}");
        assert!(page.contains("smg_h_bucket{le=\"1.0\"} 1\n"), "{page}");
        assert!(page.ends_with("# EOF\n"), "{page}");
    }
}
