//! Flags, `--config FILE` and worker URLs: what is accepted is within its range, what is refused is
//! told in one line, and the file and the flags mean the same.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

use hyper::Uri;
use smg::cli::{Action, CliError, parse};
use smg_core::http1::{is_field_value, is_token, is_valid_host};
use smg_io::config::{Config, WorkerUrl};
use toml::{Table, Value};

/// `data` is a file, or arguments line by line, a line of three dashes, and a file.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for line in text.lines() {
        check_url(line);
    }
    let (arguments, file) = match text.split_once("---\n") {
        Some((arguments, file)) => (arguments.lines().collect(), file),
        None => (Vec::new(), &*text),
    };
    // Files of the machine are not to be read.
    if arguments.iter().any(|argument| argument.contains("--config")) {
        return;
    }
    let by_file = with_file(&arguments, file);
    let Ok(Some(_)) = by_file else { return };
    if file.trim().is_empty() {
        assert_eq!(launch(&arguments), by_file);
    } else if let ([], Some(flags)) = (&arguments[..], as_flags(file)) {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        assert_eq!(launch(&flags), by_file);
    }
}

/// The configuration, `None` for the demo's; or what is wrong.
type Outcome = Result<Option<Config>, String>;

fn launch(arguments: &[&str]) -> Outcome {
    let arguments = std::iter::once("smg").chain(arguments.iter().copied());
    match parse(arguments.map(OsString::from), None) {
        Ok(Action::Launch(config)) => {
            assert_in_range(&config);
            Ok(Some(*config))
        }
        Ok(Action::Demo(_)) => Ok(None),
        Err(CliError::Usage(error)) => Err(error.to_string()),
        Err(CliError::Config(error)) => {
            let line = error.to_string();
            assert!(!line.is_empty() && !line.contains(['\n', '\r']), "{line:?}");
            Err(line)
        }
    }
}

/// As `--config` reads it, from memory.
fn with_file(arguments: &[&str], text: &str) -> Outcome {
    // SAFETY: the name is a C string; the descriptor is checked, and nobody else's.
    let mut file = unsafe {
        let descriptor = libc::memfd_create(c"smg.toml".as_ptr(), libc::MFD_CLOEXEC);
        assert!(descriptor >= 0, "no descriptor: {}", std::io::Error::last_os_error());
        File::from_raw_fd(descriptor)
    };
    file.write_all(text.as_bytes()).expect("memory");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let more = ["--config", &path];
    launch(&[arguments, &more].concat())
}

/// A file's settings as flags, written in the plainest way; `None` if it has what flags have not.
fn as_flags(file: &str) -> Option<Vec<String>> {
    let table: Table = file.parse().ok()?;
    let mut flags = Vec::new();
    for (key, value) in &table {
        let values = match value {
            Value::Array(values) => &values[..],
            value => std::slice::from_ref(value),
        };
        for value in values {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Integer(number) => number.to_string(),
                Value::Float(number) => number.to_string(),
                Value::Boolean(on) => on.to_string(),
                Value::Array(_) | Value::Table(_) | Value::Datetime(_) => return None,
            };
            flags.push(format!("--{}={text}", key.replace('_', "-")));
        }
    }
    Some(flags)
}

/// What the readers of a [`Config`] rely on.
fn assert_in_range(config: &Config) {
    let Config { cache, retry, limits, prometheus, .. } = config;
    assert!(config.port != 0 && config.health_check_port != Some(0) && prometheus.port != 0);
    assert!(config.health_check_port != Some(config.port));
    assert!((0.0..=1.0).contains(&cache.threshold));
    assert!(cache.balance_rel >= 1.0 && cache.balance_token_usage > 0.0);
    assert!(cache.overload_token_usage > 0.0);
    for share in
        [cache.overlap_decay, cache.selection_temperature, config.least_load.kv_pressure_weight]
    {
        assert!(share.is_finite() && share >= 0.0);
    }
    assert!(cache.eviction_interval_secs > 0 && cache.max_tree_size > 0 && cache.block_size > 0);
    assert!(cache.index_shards > 0 && cache.ttl_secs > 0);
    assert!(cache.boundaries.iter().all(|&length| length > 0));
    assert!(cache.boundaries.is_sorted_by(|a, b| a < b));
    assert!(config.least_load.default_throughput.is_finite());
    assert!(config.least_load.default_throughput > 0.0);
    assert!(config.prefix_hash.token_count > 0 && config.prefix_hash.load_factor >= 1.0);
    assert!(retry.max_attempts > 0 && retry.initial_backoff_ms > 0);
    assert!(retry.max_backoff_ms >= retry.initial_backoff_ms);
    assert!(retry.backoff_multiplier.is_finite() && retry.backoff_multiplier >= 1.0);
    assert!((0.0..=1.0).contains(&retry.jitter_factor));
    assert!(limits.max_payload_size > 0);
    assert!(config.overload.waiting_requests != Some(0));
    assert!(config.overload.token_usage.is_none_or(|usage| usage > 0.0 && usage <= 1.0));
    assert!(prometheus.duration_buckets.iter().all(|bound| bound.is_finite() && *bound > 0.0));
    assert!(prometheus.duration_buckets.is_sorted_by(|a, b| a < b));
    for name in config.request_id_headers.iter().chain(&config.sticky.headers) {
        assert!(is_token(name.as_bytes()) && *name == name.to_ascii_lowercase());
    }
    for key in [&config.api_key, &config.admin_api_key].into_iter().flatten() {
        assert!(!key.expose().is_empty() && is_field_value(key.expose().as_bytes()));
    }
    assert!(config.health.endpoint.starts_with('/'));
    let mut urls = config.worker_urls.clone();
    urls.sort();
    urls.dedup();
    assert_eq!(urls.len(), config.worker_urls.len());
}

/// A worker's URL has one normal form, whose parts fit a request, and is the same URL for hyper.
fn check_url(text: &str) {
    let Ok(url) = text.parse::<WorkerUrl>() else { return };
    let again: WorkerUrl = url.as_str().parse().expect("the normal form is a URL");
    assert_eq!((&again, again.as_str()), (&url, url.as_str()));
    let (scheme, usual_port) =
        if url.as_str().starts_with("https:") { ("https", 443) } else { ("http", 80) };
    assert_eq!(url.as_str(), format!("{scheme}://{}{}", url.authority(), url.base_path()));
    assert!(url.port() != 0 && !url.host().is_empty() && is_valid_host(url.authority().as_bytes()));
    assert!(url.base_path().is_empty() || url.base_path().starts_with('/'));
    assert!(!url.base_path().ends_with('/') && !url.base_path().contains(['?', '#', ' ']));
    // hyper refuses some characters in paths.
    let Ok(uri) = url.as_str().parse::<Uri>() else {
        assert!(url.base_path().contains(['<', '>', '`', '^', '|', '{', '}', '"', '\\']));
        return;
    };
    let host = uri.host().expect("a host").trim_start_matches('[').trim_end_matches(']');
    assert_eq!((host, uri.port_u16().unwrap_or(usual_port)), (url.host(), url.port()));
    assert_eq!(uri.scheme_str(), Some(scheme));
    let path = if uri.path() == "/" { "" } else { uri.path() };
    assert_eq!((path, uri.query()), (url.base_path(), None));
}
