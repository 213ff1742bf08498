//! Plots as SVG text: line charts, bars, columns. Colours and fonts come from the page's style sheet
//! through classes, so that they follow its light and dark schemes.

mod bars;
mod lines;
mod scale;

use std::fmt::Write;

pub(super) use bars::{Bar, BarChart, ColumnChart};
pub(super) use lines::{Axis, LineChart, Series};
pub(super) use scale::Scale;

/// Text as it may stand in an element or an attribute of HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no way to write other control characters.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// What an image is called and what it shows, for those who cannot see it.
pub(super) struct Caption<'a> {
    /// Unique on the page.
    pub id: &'a str,
    pub title: &'a str,
    pub description: &'a str,
}

/// An SVG element of this size around `content`.
fn image(caption: &Caption<'_>, (width, height): (f64, f64), content: &str) -> String {
    let Caption { id, title, description } = caption;
    let (id, title, description) = (escape(id), escape(title), escape(description));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
         aria-labelledby=\"{id}-title {id}-text\"><title id=\"{id}-title\">{title}</title>\
         <desc id=\"{id}-text\">{description}</desc>{content}</svg>"
    )
}

/// Where text is attached to its point.
#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// Adds a line of text; `class` is one of the style sheet's.
fn text(into: &mut String, (x, y): (f64, f64), anchor: Anchor, class: &str, words: &str) {
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    let words = escape(words);
    // Writing to a string cannot fail.
    let _ = write!(
        into,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{words}</text>"
    );
}

/// Adds a straight line.
fn rule(into: &mut String, from: (f64, f64), to: (f64, f64), class: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = write!(
        into,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
    );
}

#[cfg(test)]
pub(super) mod xml {
    /// Panics unless every element is closed in order and every `<`, `>`, `&` and `"` is markup.
    /// Elements in `void` need not be closed, as in HTML.
    pub fn assert_well_formed(text: &str, void: &[&str]) {
        let mut open = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('<') {
            assert_text(&rest[..at]);
            let end = rest[at..].find('>').unwrap_or_else(|| panic!("no end: {}", &rest[at..]));
            let tag = &rest[at + 1..at + end];
            rest = &rest[at + end + 1..];
            if tag.starts_with('!') {
                continue;
            }
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name), "at </{name}>");
                continue;
            }
            let name: String = tag.chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
            assert!(!name.is_empty(), "<{tag}>");
            let quotes = tag.bytes().filter(|byte| *byte == b'"').count();
            assert!(quotes.is_multiple_of(2) && !tag.contains('<'), "<{tag}>");
            let closed = tag.ends_with('/');
            if name == "style" && !closed {
                rest = rest.split_once("</style>").expect("a style ends").1;
            } else if !closed && !void.contains(&&*name) {
                open.push(name);
            }
        }
        assert_text(rest);
        assert!(open.is_empty(), "open at the end: {open:?}");
    }

    fn assert_text(text: &str) {
        assert!(!text.contains('>'), "{text}");
        for after in text.split('&').skip(1) {
            let name = after.split_once(';').map_or("", |(name, _)| name);
            let known = ["amp", "lt", "gt", "quot", "#39"].contains(&name);
            assert!(known, "& in {text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out() {
        assert_eq!(escape("a<b>&\"c'\u{1}"), "a&lt;b&gt;&amp;&quot;c&#39;\u{fffd}");
        let evil = "</title><script>\"&";
        let caption = Caption { id: "x", title: evil, description: evil };
        let mut words = String::new();
        text(&mut words, (1.0, 2.0), Anchor::End, "label", evil);
        rule(&mut words, (0.0, 0.0), (1.0, 1.0), "grid");
        let image = image(&caption, (10.0, 20.0), &words);
        xml::assert_well_formed(&image, &[]);
        assert!(!image.contains("<script"));
        assert!(image.contains("viewBox=\"0 0 10 20\"") && image.contains("text-anchor=\"end\""));
    }

    #[test]
    #[should_panic(expected = "at </svg>")]
    fn the_check_of_well_formedness_sees_what_is_not() {
        xml::assert_well_formed("<svg><g><path/></svg></g>", &[]);
    }
}
