use std::io::{self, Write};
use std::sync::mpsc::{Sender, channel};

use serde_json::{Value, json};
use tracing::{debug, error, info, warn};

use super::*;

/// Writes each line into a channel.
struct Line(Sender<String>);

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8(line.to_vec()).map_err(io::Error::other)?;
        self.0.send(text).map_err(io::Error::other)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lines(config: &LogConfig, colours: bool, events: impl FnOnce()) -> Vec<String> {
    let (sender, receiver) = channel();
    let writer = move || Line(sender.clone());
    let subscriber = subscriber(filter(config).unwrap(), config.json, colours, writer);
    tracing::subscriber::with_default(subscriber, events);
    receiver.into_iter().collect()
}

/// Text lines without their date and time.
fn text(filter: Option<&str>, events: impl FnOnce()) -> Vec<String> {
    let config = LogConfig { filter: filter.map(String::from), ..LogConfig::default() };
    let stamp = "2026-11-29 20:28:07 ".len();
    lines(&config, false, events)
        .into_iter()
        .map(|line| {
            assert_eq!(&line[4..5], "-");
            assert_eq!(&line[10..11], " ");
            line[stamp..].strip_suffix('\n').unwrap().to_owned()
        })
        .collect()
}

fn json_lines(events: impl FnOnce()) -> Vec<Value> {
    let config = LogConfig { json: true, ..LogConfig::default() };
    lines(&config, false, events)
        .into_iter()
        .map(|line| {
            assert_eq!(line.find('\n'), Some(line.len() - 1));
            serde_json::from_str(&line).unwrap()
        })
        .collect()
}

#[test]
fn a_text_line() {
    let seen = text(None, || {
        info!(target: "smg::policies::cache_aware", branch = "spill", level = 4, worker = %"http://a:1",
              matched_ratio = 0.5, ok = true, "Cache-aware selection");
    });
    assert_eq!(
        seen,
        ["INFO smg::policies::cache_aware: Cache-aware selection branch=spill level=4 \
          worker=http://a:1 matched_ratio=0.5 ok=true"]
    );
}

#[test]
fn an_event_is_one_line_whatever_a_client_put_in_it() {
    let seen = text(None, || {
        info!(target: "smg", path = "/a b\r\nINFO fake", quote = "x\"y", debug = ?"p\nq", empty = "",
              "one\ntwo");
    });
    assert_eq!(
        seen,
        [r#"INFO smg: one\ntwo path="/a b\r\nINFO fake" quote="x\"y" debug="p\nq" empty="""#]
    );
}

#[test]
fn colours_only_on_request() {
    let config = LogConfig::default();
    let seen = lines(&config, true, || warn!(target: "smg", "x"));
    assert!(seen[0].ends_with(" \x1b[33mWARN\x1b[0m smg: x\n"), "{seen:?}");
}

#[test]
fn ours_from_the_level_and_dependencies_from_warn() {
    let events = || {
        info!(target: "smg_io::shard", "ours");
        debug!(target: "smg_core", "ours");
        info!(target: "monoio", "theirs");
        warn!(target: "monoio", "theirs");
    };
    assert_eq!(text(None, events), ["INFO smg_io::shard: ours", "WARN monoio: theirs"]);
    let config = LogConfig { level: LogLevel::Error, ..LogConfig::default() };
    assert_eq!(lines(&config, false, events).len(), 0);
    let config = LogConfig { level: LogLevel::Debug, ..LogConfig::default() };
    assert_eq!(lines(&config, false, events).len(), 3);
}

#[test]
fn rust_log_replaces_the_level() {
    let seen = text(Some("info,smg::policies::cache_aware=debug"), || {
        debug!(target: "smg::policies::cache_aware", "yes");
        debug!(target: "smg_io", "no");
        info!(target: "monoio", "yes");
    });
    assert_eq!(seen, ["DEBUG smg::policies::cache_aware: yes", "INFO monoio: yes"]);
    let config = LogConfig {
        level: LogLevel::Error,
        filter: Some("smg=info".to_owned()),
        ..LogConfig::default()
    };
    assert_eq!(lines(&config, false, || info!(target: "smg", "x")).len(), 1);
}

#[test]
fn a_bad_rust_log_is_refused() {
    let config = LogConfig { filter: Some("smg=loud".to_owned()), ..LogConfig::default() };
    let line = filter(&config).unwrap_err().to_string();
    assert!(line.starts_with("Invalid value for field 'RUST_LOG': smg=loud - "), "{line}");
}

#[test]
fn a_json_line_has_its_fields_at_the_top() {
    let seen = json_lines(|| {
        let cause = io::Error::other("gone");
        error!(target: "smg", worker = "http://a:1", n = 3u64, i = -3, big = 1u128 << 70, f = 0.25,
               nan = f64::NAN, on = false, debug = ?Some("x"), r#type = "t",
               cause = &cause as &dyn std::error::Error, "said \"hi\"\u{1}\n\\");
    });
    let mut line = seen[0].clone();
    let stamp = line.as_object_mut().unwrap().remove("timestamp").unwrap();
    assert_eq!(stamp.as_str().unwrap().len(), "2026-11-29T20:28:07.000042Z".len());
    let big = serde_json::from_str::<Value>("1180591620717411303424").unwrap();
    assert_eq!(
        line,
        json!({
            "level": "ERROR", "target": "smg", "message": "said \"hi\"\u{1}\n\\",
            "worker": "http://a:1", "n": 3, "i": -3, "big": big, "f": 0.25, "nan": null,
            "on": false, "debug": "Some(\"x\")", "type": "t", "cause": "gone",
        })
    );
}

#[test]
fn a_field_named_level_keeps_its_number_beside_the_severity() {
    let config = LogConfig { json: true, ..LogConfig::default() };
    let seen = lines(&config, false, || {
        info!(target: "smg", index = "hash", level = 8, "Cache-aware selection");
    });
    let line: Value = serde_json::from_str(&seen[0]).unwrap();
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["fields.level"], 8);
    assert!(seen[0].contains(r#""fields.level":8"#), "{seen:?}");
}
