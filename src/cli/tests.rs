use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use smg_io::config::{
    AssignmentMode, CacheIndex, Config, IoDriver, LogLevel, OverloadConfig, PolicyKind,
};

use super::{Action, CliError, DemoArgs, command, file, not_built, parse};

mod from_file;
mod help;
mod validation;

fn run(arguments: &[&str]) -> Result<Action, CliError> {
    let arguments = std::iter::once("smg").chain(arguments.iter().copied());
    parse(arguments.map(OsString::from), None)
}

fn config(flags: &[&str]) -> Config {
    match run(flags) {
        Ok(Action::Launch(config)) => *config,
        other => panic!("{flags:?}: {other:?}"),
    }
}

/// The line after `Configuration error: `.
fn complaint(flags: &[&str]) -> String {
    match run(flags) {
        Err(CliError::Config(error)) => error.to_string(),
        other => panic!("{flags:?}: {other:?}"),
    }
}

fn usage_error(flags: &[&str]) -> ErrorKind {
    match run(flags) {
        Err(CliError::Usage(error)) => error.kind(),
        other => panic!("{flags:?}: {other:?}"),
    }
}

#[test]
fn no_flags_give_the_defaults_with_and_without_a_command() {
    assert_eq!(config(&[]), Config::default());
    assert_eq!(config(&["launch"]), Config::default());
    assert_eq!(config(&["start"]), Config::default());
}

#[test]
fn flags_mean_the_same_with_and_without_a_command() {
    let flags = ["--port", "8080", "--policy", "random", "--log-json"];
    let bare = config(&flags);
    assert_eq!((bare.port, bare.policy, bare.log.json), (8080, PolicyKind::Random, true));
    for name in ["launch", "start"] {
        assert_eq!(config(&[&[name], &flags[..]].concat()), bare);
    }
}

#[test]
fn worker_urls_take_several_values_and_the_flag_may_repeat() {
    let config = config(&[
        "launch",
        "--worker-urls",
        "http://a:1",
        "http://b:2/",
        "--port",
        "8080",
        "--worker-urls",
        "http://c",
    ]);
    let urls: Vec<_> = config.worker_urls.iter().map(|url| url.as_str()).collect();
    assert_eq!(urls, ["http://a:1", "http://b:2", "http://c"]);
    assert_eq!(config.port, 8080);
}

#[test]
fn header_lists_take_several_values_in_order_lower_case_once() {
    let config = config(&[
        "--request-id-headers",
        "X-My-ID",
        "x-trace-id",
        "x-my-id",
        "--routing-key-headers",
        "X-Key",
    ]);
    assert_eq!(config.request_id_headers, ["x-my-id", "x-trace-id"]);
    assert_eq!(config.sticky.headers, ["x-key"]);
}

#[test]
fn aliases_of_flags() {
    let config = config(&[
        "--cache-match-threshold=0.4",
        "--spill-abs-threshold=10",
        "--spill-rel-threshold=2",
        "--eviction-interval-secs=7",
        "--sticky-sessions",
        "--sticky-key-idle-secs=100",
    ]);
    assert_eq!(config.cache.threshold, 0.4);
    assert_eq!((config.cache.balance_abs, config.cache.balance_rel), (10, 2.0));
    assert_eq!(config.cache.eviction_interval_secs, 7);
    assert_eq!((config.sticky.enabled, config.sticky.max_idle_secs), (true, 100));
}

#[test]
fn every_group_reaches_the_config() {
    let config = config(&[
        "--host=::1",
        "--health-check-port=81",
        "--cache-index=hash",
        "--cache-boundaries=4,8,16",
        "--assignment-mode=min_group",
        "--disable-health-check",
        "--disable-retries",
        "--disable-circuit-breaker",
        "--max-concurrent-requests=7",
        "--stream-idle-timeout-secs=9",
        "--io-driver=epoll",
        "--data-cpus=0-2,5",
        "--shutdown-grace-period-secs=0",
        "--prometheus-duration-buckets=0.1,1",
        "--log-level=error",
        "--api-key=k",
    ]);
    assert!(config.host.is_ipv6());
    assert_eq!(config.health_check_port, Some(81));
    assert_eq!(config.cache.index, CacheIndex::Hash);
    assert_eq!(config.cache.boundaries, [4, 8, 16]);
    assert_eq!(config.sticky.assignment_mode, Some(AssignmentMode::MinGroup));
    assert!(!config.health.enabled && !config.retry.enabled && !config.breaker.enabled);
    assert_eq!(config.admission.max_concurrent_requests, Some(7));
    assert_eq!(config.limits.stream_idle_timeout_secs, Some(9));
    assert_eq!(config.runtime.io_driver, IoDriver::Epoll);
    assert_eq!(config.runtime.data_cpus, Some(vec![0, 1, 2, 5]));
    assert_eq!(config.shutdown.grace_period_secs, 0);
    assert_eq!(config.prometheus.duration_buckets, [0.1, 1.0]);
    assert_eq!(config.log.level, LogLevel::Error);
    assert_eq!(config.api_key.as_ref().map(|key| key.expose()), Some("k"));
}

#[test]
fn concurrency_is_unlimited_at_minus_one_and_zero() {
    for flags in [&["--max-concurrent-requests", "-1"][..], &["--max-concurrent-requests=0"]] {
        assert_eq!(config(flags).admission.max_concurrent_requests, None);
    }
}

#[test]
fn the_rate_is_unlimited_at_zero() {
    let rate = |flags: &[&str]| config(flags).admission.requests_per_sec;
    assert_eq!(rate(&["--rate-limit-tokens-per-second", "0"]), None);
    assert_eq!(rate(&["--rate-limit-tokens-per-second", "7"]), Some(7));
}

#[test]
fn overload_protection_alone_means_nine_tenths_of_the_kv_cache() {
    let overload = |flags: &[&str]| config(flags).overload;
    assert_eq!(overload(&[]), OverloadConfig { waiting_requests: None, token_usage: None });
    assert_eq!(
        overload(&["--worker-overload-protection"]),
        OverloadConfig { waiting_requests: None, token_usage: Some(0.9) }
    );
    for protection in [&["--worker-overload-protection"][..], &[]] {
        let flags = [protection, &["--worker-overload-waiting-requests=3"]].concat();
        assert_eq!(
            overload(&flags),
            OverloadConfig { waiting_requests: Some(3), token_usage: None }
        );
    }
}

#[test]
fn model_aliases_repeat() {
    let config =
        config(&["--model-alias", "gpt=llama", "--model-alias=a=b=c", "--model-alias=gpt=llama"]);
    assert_eq!(config.model_aliases, [("gpt".into(), "llama".into()), ("a".into(), "b=c".into())]);
}

#[test]
fn rust_log_is_kept_unless_it_is_empty() {
    let filter = |rust_log: &str| match parse(["smg".into()], Some(rust_log.to_owned())) {
        Ok(Action::Launch(config)) => config.log.filter,
        other => panic!("{other:?}"),
    };
    assert_eq!(filter("info,smg=debug"), Some("info,smg=debug".to_owned()));
    assert_eq!(filter(" "), None);
}

#[test]
fn switches_can_be_turned_off_in_so_many_words() {
    assert!(config(&["--log-json"]).log.json);
    assert!(config(&["--log-json=true"]).log.json);
    assert!(!config(&["--log-json=false"]).log.json);
    // The word after a switch is not its value.
    assert!(config(&["--log-json", "--port", "1"]).log.json);
}

#[test]
fn demo_flags() {
    let demo = |flags: &[&str]| match run(flags) {
        Ok(Action::Demo(args)) => args,
        other => panic!("{other:?}"),
    };
    let defaults = DemoArgs {
        engines: 4,
        seconds: 20,
        policies: vec![PolicyKind::RoundRobin, PolicyKind::CacheAware],
    };
    assert_eq!(demo(&["demo"]), defaults);
    assert_eq!(
        demo(&["demo", "--engines=2", "--seconds", "5", "--policy", "random,least_load"]),
        DemoArgs {
            engines: 2,
            seconds: 5,
            policies: vec![PolicyKind::Random, PolicyKind::LeastLoad]
        }
    );
    assert_eq!(
        complaint(&["demo", "--engines", "0"]),
        "Invalid value for field 'engines': 0 - Must be between 1 and 64"
    );
}

#[test]
fn usage_mistakes_are_claps() {
    assert_eq!(usage_error(&["--no-such-flag"]), ErrorKind::UnknownArgument);
    assert_eq!(usage_error(&["launch", "stray"]), ErrorKind::UnknownArgument);
    assert_eq!(usage_error(&["--port"]), ErrorKind::InvalidValue);
    assert_eq!(usage_error(&["--port=1", "--port=2"]), ErrorKind::ArgumentConflict);
    assert_eq!(usage_error(&["--help"]), ErrorKind::DisplayHelp);
    assert_eq!(usage_error(&["--version"]), ErrorKind::DisplayVersion);
    assert_eq!(usage_error(&["launch", "--help"]), ErrorKind::DisplayHelp);
}

#[test]
fn mistakes_exit_with_2_and_questions_with_0() {
    let code = |flags: &[&str]| format!("{:?}", run(flags).unwrap_err().exit_code());
    let of = |code: u8| format!("{:?}", std::process::ExitCode::from(code));
    for mistake in [&["--no-such-flag"][..], &["--port=x"], &["--block-size=0"], &["--enable-mesh"]]
    {
        assert_eq!(code(mistake), of(2), "{mistake:?}");
    }
    assert_eq!(code(&["--help"]), of(0));
    assert_eq!(code(&["--version"]), of(0));
}

#[test]
fn the_command_is_well_formed() {
    command().debug_assert();
}

#[test]
fn flags_of_features_that_are_not_built_are_refused() {
    assert_eq!(
        complaint(&["launch", "--enable-mesh"]),
        "--enable-mesh is not available in this version of smg: run gateways independently and \
         keep a client on one of them in the load balancer"
    );
    assert_eq!(
        complaint(&["--log-dir=/x", "--history-backend=redis"]),
        "--log-dir is not available in this version of smg: logs go to standard output, redirect it"
    );
    // Before a mistake that clap would have found.
    assert!(complaint(&["--port", "x", "--pd-disaggregation"]).starts_with("--pd-disaggregation"));
    for flag in ["--mesh-port", "--kv-indexer-ttl-secs", "--service-discovery", "--jwt-issuer"] {
        assert!(complaint(&["launch", flag, "1"]).starts_with(flag), "{flag}");
    }
}

#[test]
fn a_pattern_of_flags_that_are_not_built_spares_the_others() {
    for flag in ["--model-alias", "--prefix-token-count", "--queue-size", "--log-level"] {
        assert_eq!(not_built::instead_of(flag), None, "{flag}");
    }
    assert!(not_built::instead_of("--model").is_some());
    assert!(not_built::instead_of("--mesh-anything").is_some());
}

#[test]
fn every_flag_that_is_not_built_says_what_to_do_in_one_line() {
    for (flag, instead) in not_built::NOT_BUILT {
        assert!(flag.starts_with("--") && flag.len() > 4, "{flag}");
        assert!(!instead.is_empty() && !instead.contains('\n'), "{flag}");
    }
}
