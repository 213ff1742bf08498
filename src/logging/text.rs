//! Log lines for people: `2026-11-29 20:28:07 INFO target: message key=value`.
//!
//! A value that could be mistaken for more than one, or that holds control characters (a client
//! chose it), is quoted and escaped: an event is always exactly one line.

use std::cell::Cell;
use std::fmt::{self, Debug, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level};
use tracing_subscriber::fmt::format::Writer;

use super::time::Moment;

/// A scratch buffer above this size is not kept.
const MAX_KEPT_BYTES: usize = 16 * 1024;

thread_local! {
    /// Where a value is rendered before it is known whether it needs quotes; reused by every line.
    static SCRATCH: Cell<String> = const { Cell::new(String::new()) };
}

/// Writes `event` and the end of its line.
pub fn write_line(
    writer: &mut Writer<'_>,
    now: Moment,
    event: &Event<'_>,
    colours: bool,
) -> fmt::Result {
    let metadata = event.metadata();
    write!(writer, "{} ", now.to_seconds())?;
    write_level(writer, *metadata.level(), colours)?;
    write!(writer, " {}:", metadata.target())?;
    let mut fields =
        Fields { writer, scratch: SCRATCH.take(), pass: Pass::Message, result: Ok(()) };
    event.record(&mut fields);
    fields.pass = Pass::Others;
    event.record(&mut fields);
    let Fields { mut scratch, result, .. } = fields;
    scratch.clear();
    scratch.shrink_to(MAX_KEPT_BYTES);
    SCRATCH.set(scratch);
    result?;
    writer.write_char('\n')
}

fn write_level(writer: &mut Writer<'_>, level: Level, colours: bool) -> fmt::Result {
    if !colours {
        return write!(writer, "{level}");
    }
    let colour = match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    };
    write!(writer, "\x1b[{colour}m{level}\x1b[0m")
}

/// The message comes first, wherever the event has it.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Message,
    Others,
}

struct Fields<'a, 'w> {
    writer: &'a mut Writer<'w>,
    scratch: String,
    pass: Pass,
    result: fmt::Result,
}

impl Fields<'_, '_> {
    fn write(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let is_message = field.name() == "message";
        if self.result.is_ok() && is_message == (self.pass == Pass::Message) {
            self.result = self.try_write(field.name(), value);
        }
    }

    fn try_write(&mut self, name: &str, value: fmt::Arguments<'_>) -> fmt::Result {
        self.scratch.clear();
        self.scratch.write_fmt(value)?;
        self.writer.write_char(' ')?;
        if self.pass == Pass::Message {
            return write_escaped(self.writer, &self.scratch, false);
        }
        write!(self.writer, "{}=", name.trim_start_matches("r#"))?;
        if is_quoted(&self.scratch) {
            write_escaped(self.writer, &self.scratch, false)
        } else if needs_quotes(&self.scratch) {
            self.writer.write_char('"')?;
            write_escaped(self.writer, &self.scratch, true)?;
            self.writer.write_char('"')
        } else {
            self.writer.write_str(&self.scratch)
        }
    }
}

impl Visit for Fields<'_, '_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.write(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.write(field, format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.write(field, format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.write(field, format_args!("{value}"));
    }
}

/// A string that was recorded with its quotes (`?value`).
fn is_quoted(value: &str) -> bool {
    value.len() >= 2 && value.starts_with('"') && value.ends_with('"')
}

fn needs_quotes(value: &str) -> bool {
    value.is_empty()
        || value.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '"' | '='))
}

fn write_escaped(writer: &mut Writer<'_>, value: &str, quoted: bool) -> fmt::Result {
    for c in value.chars() {
        match c {
            '"' | '\\' if quoted => write!(writer, "\\{c}")?,
            c if c.is_control() => write!(writer, "{}", c.escape_default())?,
            c => writer.write_char(c)?,
        }
    }
    Ok(())
}
