//! `--config FILE`.

use clap::{Arg, ArgAction};

use super::*;

/// A configuration file that goes with the test.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("smg-cli-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn config_with(name: &str, text: &str, flags: &[&str]) -> Config {
    let file = TempFile::new(name, text);
    config(&[&["launch", "--config", file.path()], flags].concat())
}

/// The complaint without the path it begins with.
fn complaint_about(name: &str, text: &str) -> String {
    let file = TempFile::new(name, text);
    let line = complaint(&["launch", "--config", file.path()]);
    match line.strip_prefix(&format!("{}: ", file.path())) {
        Some(rest) => rest.to_owned(),
        None => line,
    }
}

#[test]
fn a_file_sets_what_no_flag_sets() {
    let text = r#"
        # two engines
        worker_urls = ["http://a:1", "http://b:2"]
        port = 8080
        cache_threshold = 1
        overlap_decay = 0.5
        cache_boundaries = [4, 8]
        data_cpus = "0-1"
        log_json = true
        disable_retries = false
        max_concurrent_requests = -1
        prometheus_duration_buckets = [0.5, 1]
        model_alias = ["a=b"]
    "#;
    let from_file = config_with("sets", text, &[]);
    let from_flags = config(&[
        "--worker-urls=http://a:1",
        "--worker-urls=http://b:2",
        "--port=8080",
        "--cache-threshold=1",
        "--overlap-decay=0.5",
        "--cache-boundaries=4,8",
        "--data-cpus=0-1",
        "--log-json",
        "--prometheus-duration-buckets=0.5,1",
        "--model-alias=a=b",
    ]);
    assert_eq!(from_file, from_flags);
}

#[test]
fn a_flag_beats_the_file() {
    let text = r#"
        worker_urls = ["http://a:1", "http://b:2"]
        port = 8080
        log_json = true
        spill_abs_threshold = 9
        policy = "random"
    "#;
    let config = config_with(
        "beats",
        text,
        &["--worker-urls", "http://c:3", "--log-json=false", "--balance-abs-threshold", "5"],
    );
    assert_eq!(config.worker_urls.len(), 1);
    assert_eq!(config.worker_urls[0].as_str(), "http://c:3");
    assert!(!config.log.json);
    assert_eq!(config.cache.balance_abs, 5);
    // What no flag says stays the file's.
    assert_eq!((config.port, config.policy), (8080, PolicyKind::Random));
}

#[test]
fn a_flag_that_repeats_the_default_beats_the_file_too() {
    assert_eq!(config_with("default", "port = 8080", &["--port", "30000"]).port, 30_000);
}

#[test]
fn the_file_works_without_a_command_too() {
    let file = TempFile::new("bare", "port = 8080");
    assert_eq!(config(&["--config", file.path()]).port, 8080);
}

#[test]
fn an_empty_file_changes_nothing() {
    assert_eq!(config_with("empty", "", &[]), Config::default());
    assert_eq!(config_with("none", "worker_urls = []", &[]), Config::default());
}

#[test]
fn an_unknown_key_is_refused_with_the_one_that_was_meant() {
    for (name, text, line) in [
        ("u1", "polcy = 'random'", "unknown key 'polcy'; did you mean 'policy'?"),
        (
            "u2",
            "cache-threshold = 1",
            "unknown key 'cache-threshold'; did you mean 'cache_threshold'?",
        ),
        ("u3", "Port = 1", "unknown key 'Port'; did you mean 'port'?"),
        ("u4", "prot = 1", "unknown key 'prot'; did you mean 'port'?"),
        (
            "u5",
            "max_concurrent = 1",
            "unknown key 'max_concurrent'; did you mean 'max_concurrent_requests'?",
        ),
        (
            "u6",
            "worker_url = ['http://a']",
            "unknown key 'worker_url'; did you mean 'worker_urls'?",
        ),
    ] {
        assert_eq!(complaint_about(name, text), line);
    }
}

#[test]
fn an_unknown_key_that_is_near_to_nothing_gets_no_suggestion() {
    // `config` is a flag, but not a setting of a file; many keys begin with `cache`.
    for key in ["banana", "timeout", "x", "id", "config", "cache", "replicas", "gpu_memory"] {
        let line = complaint_about(&format!("n-{key}"), &format!("{key} = 1"));
        assert_eq!(
            line,
            format!(
                "unknown key '{key}'; keys are the flags of smg launch --help with underscores"
            )
        );
    }
}

#[test]
fn a_section_is_refused_as_one() {
    assert_eq!(
        complaint_about("section", "[cache]\nthreshold = 1"),
        "section 'cache' is unknown; every key stands at the top level"
    );
}

#[test]
fn a_wrong_type_is_refused_with_the_expected_one() {
    for (name, text, line) in [
        ("t1", "port = '8080'", "'port' must be an integer, not a string"),
        ("t2", "cache_threshold = '0.5'", "'cache_threshold' must be a number, not a string"),
        ("t3", "log_json = 'yes'", "'log_json' must be true or false, not a string"),
        ("t4", "policy = 3", "'policy' must be a string, not an integer"),
        (
            "t5",
            "worker_urls = 'http://a'",
            "'worker_urls' must be an array of strings, not a string",
        ),
        (
            "t6",
            "cache_boundaries = [4, '8']",
            "'cache_boundaries' must be an array of integers, not an array",
        ),
        ("t7", "port = 80.5", "'port' must be an integer, not a float"),
        ("t8", "queue_size = [1]", "'queue_size' must be an integer, not an array"),
        ("t9", "[port]\nx = 1", "'port' must be an integer, not a table"),
    ] {
        assert_eq!(complaint_about(name, text), line);
    }
}

#[test]
fn a_bad_value_in_the_file_is_refused_as_on_the_command_line() {
    assert_eq!(
        complaint_about("v1", "port = 70000"),
        "Invalid value for field 'port': 70000 - Must be a port between 1 and 65535"
    );
    assert_eq!(
        complaint_about("v2", "policy = 'nope'").split(" - ").next().unwrap(),
        "Invalid value for field 'policy': nope"
    );
    assert_eq!(
        complaint_about("v3", "cache_threshold = 1.5"),
        "Invalid value for field 'cache_threshold': 1.5 - Must be between 0.0 and 1.0"
    );
    assert_eq!(
        complaint_about("v4", "request_id_headers = []"),
        "'request_id_headers' must not be empty"
    );
    assert_eq!(
        complaint_about("v5", "balance_abs_threshold = 1\nspill_abs_threshold = 2"),
        "'balance_abs_threshold' and 'spill_abs_threshold' are the same setting"
    );
}

#[test]
fn a_feature_that_is_not_built_is_refused_in_the_file() {
    assert_eq!(
        complaint_about("n1", "log_dir = 'x'"),
        "--log-dir is not available in this version of smg: logs go to standard output, redirect it"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let line = complaint(&["--config", "/nonexistent/smg.toml"]);
    assert!(line.starts_with("/nonexistent/smg.toml: cannot be opened: "), "{line}");
    let line = complaint_about("s1", "port = 1\nhost = \n");
    assert!(line.starts_with("line 2: "), "{line}");
    let line = complaint_about("s2", "port = 1\nport = 2\n");
    assert!(line.starts_with("line 2: "), "{line}");
    let line = complaint_about("s3", &"#".repeat((1 << 20) + 1));
    assert_eq!(line, "is larger than 1048576 bytes");
}

/// Every key of the file is a flag's name and every flag has its key: for each flag, a file with its
/// name and a value comes to the same as the flag with that value.
#[test]
fn every_flag_is_a_key_of_the_file_and_means_the_same() {
    let command = command();
    let launch = command.find_subcommand("launch").unwrap();
    let mut changed = 0;
    for arg in file::settings(launch).filter(|arg| !arg.is_hide_set()) {
        let long = arg.get_long().unwrap();
        let (toml, text) = sample(arg);
        let line = format!("{} = {toml}", long.replace('-', "_"));
        let other_half = other_half(long);
        let other_half: Vec<&str> = other_half.as_deref().into_iter().collect();
        let from_file = config_with(long, &line, &other_half);
        let from_flag =
            config(&[&["launch", &format!("--{long}={text}")], &other_half[..]].concat());
        assert_eq!(from_file, from_flag, "{line}");
        changed += usize::from(from_file != Config::default());
    }
    // Hardly any sample is a default, so that equality says something.
    assert!(changed > 60, "{changed}");
}

/// The flag without which this one, or its sample, is refused.
fn other_half(long: &str) -> Option<String> {
    match (long.strip_suffix("-cert-path"), long.strip_suffix("-key-path")) {
        (Some(side), _) => Some(format!("--{side}-key-path=y.pem")),
        (_, Some(side)) => Some(format!("--{side}-cert-path=y.pem")),
        _ => (long == "max-body-memory").then(|| "--max-payload-size=1".to_owned()),
    }
}

/// A value for `arg`, in TOML and as the text of a flag.
fn sample(arg: &Arg) -> (String, String) {
    let text = match arg.get_long().unwrap() {
        "host" | "prometheus-host" => "127.0.0.1",
        "worker-urls" => "http://a:1",
        "model-alias" => "a=b",
        "policy" => "random",
        "cache-index" => "tree",
        "assignment-mode" => "min_load",
        "health-check-endpoint" => "/alive",
        "log-level" => "warn",
        "io-driver" => "epoll",
        "data-cpus" | "control-cpus" => "0-1",
        "api-key" | "admin-api-key" => "k",
        "cors-allowed-origins" => "https://a",
        // A file of one line on every Linux.
        "api-key-file" => "/proc/sys/kernel/ostype",
        "request-id-headers" | "routing-key-headers" => "x-a",
        "retry-max-backoff-ms" => "60",
        "max-body-memory" => "1",
        long if other_half(long).is_some() || long == "ca-cert-paths" => "x.pem",
        _ if arg.is_hide_default_value_set() => "true",
        _ => "1",
    };
    let is_string = text.parse::<f64>().is_err() && text != "true";
    let element = if is_string { format!("'{text}'") } else { text.to_owned() };
    let is_list = matches!(arg.get_action(), ArgAction::Append);
    (if is_list { format!("[{element}]") } else { element }, text.to_owned())
}
