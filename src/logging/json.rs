//! Log lines for machines: one JSON object per line, an event's fields beside `timestamp`, `level`,
//! `target` and `message`.
//!
//! A field that has one of these names itself appears with the prefix `fields.`, so that no key is
//! there twice: the hash index's `level` is `fields.level`.

use std::fmt::{self, Debug, Write};

use tracing::Event;
use tracing::field::{Field, Visit};
use tracing_subscriber::fmt::format::Writer;

use super::time::Moment;

/// Writes `event` and the end of its line.
pub fn write_line(writer: &mut Writer<'_>, now: Moment, event: &Event<'_>) -> fmt::Result {
    let metadata = event.metadata();
    write!(
        writer,
        r#"{{"timestamp":"{}","level":"{}","target":""#,
        now.to_micros(),
        metadata.level()
    )?;
    Escaped(writer).write_str(metadata.target())?;
    writer.write_char('"')?;
    let mut fields = Fields { writer, result: Ok(()) };
    event.record(&mut fields);
    fields.result?;
    writer.write_str("}\n")
}

struct Fields<'a, 'w> {
    writer: &'a mut Writer<'w>,
    result: fmt::Result,
}

impl Fields<'_, '_> {
    /// A number or word that JSON takes as it is.
    fn bare(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if self.result.is_ok() {
            self.result = self.key(field.name()).and_then(|()| self.writer.write_fmt(value));
        }
    }

    fn string(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if self.result.is_ok() {
            self.result = self.try_string(field.name(), value);
        }
    }

    fn try_string(&mut self, name: &str, value: fmt::Arguments<'_>) -> fmt::Result {
        self.key(name)?;
        self.writer.write_char('"')?;
        Escaped(self.writer).write_fmt(value)?;
        self.writer.write_char('"')
    }

    fn key(&mut self, name: &str) -> fmt::Result {
        let name = name.trim_start_matches("r#");
        self.writer.write_str(",\"")?;
        if matches!(name, "timestamp" | "level" | "target") {
            self.writer.write_str("fields.")?;
        }
        Escaped(self.writer).write_str(name)?;
        self.writer.write_str("\":")
    }
}

impl Visit for Fields<'_, '_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.string(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.string(field, format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.string(field, format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.bare(field, format_args!("{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.bare(field, format_args!("{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.bare(field, format_args!("{value}"));
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.bare(field, format_args!("{value}"));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.bare(field, format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.bare(field, format_args!("{value}"));
        } else {
            // JSON has no word for it (RFC 8259 §6).
            self.bare(field, format_args!("null"));
        }
    }
}

/// Writes the inside of a JSON string (RFC 8259 §7).
struct Escaped<'a, 'w>(&'a mut Writer<'w>);

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut clean_from = 0;
        for (at, byte) in text.bytes().enumerate() {
            if byte >= 0x20 && byte != b'"' && byte != b'\\' {
                continue;
            }
            // Every byte escaped here is ASCII, so `at` is a character boundary.
            self.0.write_str(&text[clean_from..at])?;
            clean_from = at + 1;
            match byte {
                b'"' => self.0.write_str("\\\"")?,
                b'\\' => self.0.write_str("\\\\")?,
                b'\n' => self.0.write_str("\\n")?,
                b'\r' => self.0.write_str("\\r")?,
                b'\t' => self.0.write_str("\\t")?,
                _ => write!(self.0, "\\u{byte:04x}")?,
            }
        }
        self.0.write_str(&text[clean_from..])
    }
}
