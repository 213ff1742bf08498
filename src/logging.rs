//! Log lines on standard output, as text or JSON, without blocking the thread that logs.
//!
//! Lines go through a bounded queue to one writing thread. When the reader of standard output is
//! too slow, lines are dropped and counted rather than a request delayed. A line is written within
//! about a millisecond, on a busy machine too. With debug lines on, every line is out before the
//! thread that logs it goes on, as long as standard output has room (`direct`).

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write, stdout};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use smg_io::config::{LogConfig, LogLevel};
use tracing::subscriber::set_global_default;
use tracing::{Event, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

use smg::cli::ConfigError;

use direct::{Direct, Waiting};

mod direct;
mod json;
mod text;
mod time;

/// Lines that may wait for the writing thread. The queue's slots exist from the start, 32 bytes each.
const MAX_WAITING_LINES: usize = 8192;

/// Bytes the writing thread gathers while lines keep coming.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

/// When lines come faster than this, the writing thread waits so long for more of them before it
/// writes. While it waits it need not be woken, which costs the thread that logs as much as making
/// the line.
const GATHER: Duration = Duration::from_micros(500);

/// Logging for as long as this value lives; its drop writes the lines still waiting.
#[must_use = "lines that wait are lost unless it lives to the end of the program"]
pub struct Logging {
    dropped: ErrorCounter,
    _flush_on_drop: WorkerGuard,
}

impl Logging {
    /// Reads how many lines were dropped so far because standard output was too slow.
    pub fn dropped_lines(&self) -> impl Fn() -> u64 + Clone + Send + Sync + 'static {
        let dropped = self.dropped.clone();
        move || dropped.dropped_lines() as u64
    }
}

/// Sends the program's events to standard output from here on. Call it once.
///
/// # Errors
/// `RUST_LOG` is not a list of directives.
pub fn init(config: &LogConfig) -> Result<Logging, ConfigError> {
    let filter = filter(config)?;
    let waiting = Waiting::default();
    let out = BufWriter::with_capacity(WRITE_BUFFER_BYTES, stdout());
    let out = Gathering { out, flushed: None, lines: 0, waiting: waiting.clone() };
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MAX_WAITING_LINES)
        .thread_name("smg-log")
        .finish(out);
    let dropped = writer.error_counter();
    let colours = stdout().is_terminal();
    // Only a second call can fail, and then the first one's output goes on.
    let _ = if filter.max_level_hint().is_none_or(|most| most >= LevelFilter::DEBUG) {
        let out = stdout().as_raw_fd();
        let writer = Direct { out, queue: writer, waiting };
        set_global_default(subscriber(filter, config.json, colours, writer))
    } else {
        set_global_default(subscriber(filter, config.json, colours, writer))
    };
    Ok(Logging { dropped, _flush_on_drop: guard })
}

/// Standard output as the writing thread sees it. It is flushed when no line waits.
struct Gathering {
    out: BufWriter<Stdout>,
    /// `None` before the first line.
    flushed: Option<Instant>,
    /// Taken since then.
    lines: u64,
    waiting: Waiting,
}

impl Write for Gathering {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.lines += 1;
        if self.lines == 1 {
            match self.flushed {
                Some(flushed) if flushed.elapsed() < GATHER => std::thread::park_timeout(GATHER),
                Some(_) => {}
                // Where it is refused, lines come when they come.
                None => drop(smg_io::runtime::slice::take_short_ones()),
            }
        }
        self.out.write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let outcome = self.out.flush();
        self.flushed = Some(Instant::now());
        self.waiting.written(std::mem::take(&mut self.lines));
        outcome
    }
}

fn filter(config: &LogConfig) -> Result<EnvFilter, ConfigError> {
    match &config.filter {
        Some(directives) => EnvFilter::builder().parse(directives).map_err(|error| {
            ConfigError::invalid(
                "RUST_LOG",
                directives,
                format_args!("Must be directives such as info,smg_io=debug ({error})"),
            )
        }),
        // "smg" is the beginning of every target of ours.
        None => Ok(EnvFilter::new(match config.level {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "warn,smg=info",
            LogLevel::Debug => "warn,smg=debug",
            LogLevel::Trace => "warn,smg=trace",
        })),
    }
}

fn subscriber<W>(
    filter: EnvFilter,
    json: bool,
    colours: bool,
    writer: W,
) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(writer)
        .event_format(if json { LineFormat::Json } else { LineFormat::Text { colours } });
    tracing_subscriber::registry().with(filter).with(lines)
}

/// How an event becomes a line. Spans are not shown: what a line needs is in its fields.
enum LineFormat {
    /// `2026-11-29 20:28:07 INFO target: message key=value`, in UTC.
    Text { colours: bool },
    /// `{"timestamp":…,"level":…,"target":…,"message":…,"key":value}`.
    Json,
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let now = time::now();
        match self {
            Self::Text { colours } => text::write_line(&mut writer, now, event, *colours),
            Self::Json => json::write_line(&mut writer, now, event),
        }
    }
}

#[cfg(test)]
mod tests;
