//! Each rule with a value that breaks it, and the values at its edge.

use super::*;

/// (field, flags, value as printed, reason)
const REFUSED: &[(&str, &[&str], &str, &str)] = &[
    ("cache_threshold", &["--cache-threshold", "1.5"], "1.5", "Must be between 0.0 and 1.0"),
    ("cache_threshold", &["--cache-threshold=-0.1"], "-0.1", "Must be between 0.0 and 1.0"),
    ("cache_threshold", &["--cache-threshold", "-0.1"], "-0.1", "Must be between 0.0 and 1.0"),
    ("cache_threshold", &["--cache-threshold", "nan"], "NaN", "Must be between 0.0 and 1.0"),
    ("cache_threshold", &["--cache-threshold", "abc"], "abc", "Must be a number"),
    ("balance_rel_threshold", &["--balance-rel-threshold", "0.9"], "0.9", "Must be >= 1.0"),
    ("balance_rel_threshold", &["--balance-rel-threshold", "nan"], "NaN", "Must be >= 1.0"),
    ("balance_abs_threshold", &["--balance-abs-threshold=-1"], "-1", "Must be >= 0"),
    ("balance_abs_threshold", &["--spill-abs-threshold=x"], "x", "Must be a whole number"),
    (
        "balance_token_usage_threshold",
        &["--balance-token-usage-threshold", "0"],
        "0",
        "Must be > 0.0 (use >= 1.0 to disable)",
    ),
    (
        "overload_token_usage_threshold",
        &["--overload-token-usage-threshold", "0"],
        "0",
        "Must be > 0.0 (use >= 1.0 to disable)",
    ),
    ("overlap_decay", &["--overlap-decay=-1"], "-1", "Must be finite and >= 0.0 (0.0 disables)"),
    (
        "overlap_decay",
        &["--overlap-decay", "nan"],
        "NaN",
        "Must be finite and >= 0.0 (0.0 disables)",
    ),
    (
        "selection_temperature",
        &["--selection-temperature", "inf"],
        "inf",
        "Must be finite and >= 0.0 (0.0 is argmax)",
    ),
    ("max_tree_size", &["--max-tree-size", "0"], "0", "Must be > 0"),
    ("index_shards", &["--index-shards", "0"], "0", "Must be > 0"),
    ("index_shards", &["--index-shards", "two"], "two", "Must be a whole number"),
    (
        "index_shards",
        &["--index-shards", "2", "--cache-index", "hash", "--cache-boundaries", "16"],
        "2",
        "Must be 1 with cache_index=hash, which is not split",
    ),
    ("block_size", &["--block-size", "0"], "0", "Must be > 0"),
    ("eviction_interval_secs", &["--eviction-interval", "0"], "0", "Must be > 0"),
    ("cache_ttl_secs", &["--cache-ttl-secs", "0"], "0", "Must be > 0"),
    ("load_monitor_interval_secs", &["--load-monitor-interval", "0"], "0", "Must be > 0"),
    ("cache_index", &["--cache-index", "foo"], "foo", "Must be one of tree, hash"),
    (
        "cache_index",
        &["--cache-index", "hash"],
        "hash",
        "cache_index=hash requires non-empty cache_boundaries",
    ),
    (
        "cache_boundaries",
        &["--cache-boundaries", "8,4"],
        "[8, 4]",
        "Boundaries must be strictly ascending",
    ),
    (
        "cache_boundaries",
        &["--cache-index", "hash", "--cache-boundaries", "4,4"],
        "[4, 4]",
        "Boundaries must be strictly ascending",
    ),
    ("cache_boundaries", &["--cache-boundaries", "0,4"], "0", "Boundaries must be > 0"),
    (
        "cache_boundaries",
        &["--cache-boundaries", "abc"],
        "abc",
        "Must be a comma-separated list of whole numbers such as 2048,8192",
    ),
    (
        "worker_overload_waiting_requests",
        &["--worker-overload-waiting-requests", "0"],
        "0",
        "Must be >= 1 (0 would mark every worker overloaded)",
    ),
    (
        "worker_overload_token_usage",
        &["--worker-overload-token-usage", "0"],
        "0",
        "Must be a fraction in (0.0, 1.0]",
    ),
    (
        "worker_overload_token_usage",
        &["--worker-overload-token-usage", "1.5"],
        "1.5",
        "Must be a fraction in (0.0, 1.0]",
    ),
    (
        "policy",
        &["--policy", "nope"],
        "nope",
        "Must be one of cache_aware, round_robin, random, power_of_two, least_load, prefix_hash, \
         consistent_hashing, manual, passthrough, bucket",
    ),
    (
        "least_load_kv_pressure_weight",
        &["--least-load-kv-pressure-weight=-1"],
        "-1",
        "Must be finite and >= 0.0",
    ),
    (
        "least_load_default_throughput",
        &["--least-load-default-throughput", "0"],
        "0",
        "Must be finite and > 0.0",
    ),
    (
        "least_load_mean_prefill_tokens",
        &["--least-load-mean-prefill-tokens", "0"],
        "0",
        "Must be > 0",
    ),
    ("prefix_token_count", &["--prefix-token-count", "0"], "0", "Must be > 0"),
    (
        "prefix_hash_load_factor",
        &["--prefix-hash-load-factor", "0.5"],
        "0.5",
        "Must be finite and >= 1.0",
    ),
    ("port", &["--port", "0"], "0", "Must be a port between 1 and 65535"),
    ("port", &["--port", "65536"], "65536", "Must be a port between 1 and 65535"),
    (
        "health_check_port",
        &["--port=8080", "--health-check-port=8080"],
        "8080",
        "Must differ from port",
    ),
    (
        "prometheus_port",
        &["--port=29000", "--host=127.0.0.1"],
        "29000",
        "Must differ from port and health_check_port",
    ),
    (
        "host",
        &["--host", "localhost"],
        "localhost",
        "Must be an IP address such as 127.0.0.1 or ::1",
    ),
    (
        "worker_urls",
        &["--worker-urls", "http://a:1", "ftp://b:2"],
        "ftp://b:2",
        "URL must start with http:// or https:// (in lower case)",
    ),
    ("worker_urls", &["--worker-urls", "b:2"], "b:2", "URL must start with http:// or https://"),
    (
        "worker_urls",
        &["--worker-urls", "http://a:x"],
        "http://a:x",
        "Port must be between 1 and 65535",
    ),
    ("model_alias", &["--model-alias", "gpt"], "gpt", "Must be alias=canonical"),
    ("model_alias", &["--model-alias", "=m"], "=m", "Must be alias=canonical"),
    ("model_alias", &["--model-alias", "m=m"], "m=m", "Alias and model are the same name"),
    (
        "model_alias",
        &["--model-alias", "a=x", "--model-alias", "a=y"],
        "a=y",
        "'a' is already an alias of 'x'",
    ),
    ("request_id_headers", &["--request-id-headers", "a b"], "a b", "Invalid header name"),
    ("shards", &["--shards", "0"], "0", "Must be > 0"),
    ("data_cpus", &["--data-cpus", "3-1"], "3-1", "The range 3-1 runs backwards"),
    ("control_cpus", &["--control-cpus", "9999"], "9999", "CPU numbers end at 8191"),
    ("data_cpus", &["--data-cpus", "0,0,1"], "0,0,1", "CPU 0 is named twice"),
    ("data_cpus", &["--data-cpus", "7,1,0-2"], "7,1,0-2", "CPU 1 is named twice"),
    ("control_cpus", &["--control-cpus", "0-3,2-5"], "0-3,2-5", "CPU 2 is named twice"),
    (
        "worker_urls",
        &["--worker-urls", "http://a:1", "http://b:1", "--worker-urls", "http://A:1/"],
        "http://a:1",
        "This worker is named twice",
    ),
    (
        "data_cpus",
        &["--data-cpus", "0,,2"],
        "0,,2",
        "Must be a list of CPU numbers and ranges such as 0-5,8, not ''",
    ),
    ("io_driver", &["--io-driver", "aio"], "aio", "Must be one of auto, uring, epoll"),
    ("cb_failure_threshold", &["--cb-failure-threshold", "-1"], "-1", "Must be >= 0"),
    ("cb_failure_threshold", &["--cb-failure-threshold", "0"], "0", "Must be > 0"),
    ("cb_window_duration_secs", &["--cb-window-duration-secs", "0"], "0", "Must be > 0"),
    ("retry_max_retries", &["--retry-max-retries", "0"], "0", "Must be > 0"),
    (
        "retry_jitter_factor",
        &["--retry-jitter-factor", "1.1"],
        "1.1",
        "Must be between 0.0 and 1.0",
    ),
    (
        "retry_backoff_multiplier",
        &["--retry-backoff-multiplier", "0.5"],
        "0.5",
        "Must be finite and >= 1.0",
    ),
    (
        "retry_max_backoff_ms",
        &["--retry-max-backoff-ms", "49"],
        "49",
        "Must be >= retry_initial_backoff_ms",
    ),
    (
        "max_concurrent_requests",
        &["--max-concurrent-requests=-2"],
        "-2",
        "Must be > 0 (0 and -1 are no limit)",
    ),
    ("max_payload_size", &["--max-payload-size", "0"], "0", "Must be > 0"),
    (
        "max_payload_size",
        &["--max-payload-size", "99999999999999999999"],
        "99999999999999999999",
        "Number is too large",
    ),
    (
        "request_timeout_secs",
        &["--request-timeout-secs", "18446744073709551615"],
        "18446744073709551615",
        "Must be at most 315360000 seconds (ten years)",
    ),
    (
        "health_check_endpoint",
        &["--health-check-endpoint", "health"],
        "health",
        "Must be a path that begins with /",
    ),
    (
        "prometheus_duration_buckets",
        &["--prometheus-duration-buckets", "1", "0.5"],
        "[1.0, 0.5]",
        "Buckets must be finite, > 0 and strictly ascending",
    ),
    (
        "log_level",
        &["--log-level", "loud"],
        "loud",
        "Must be one of error, warn, info, debug, trace",
    ),
    ("log_json", &["--log-json=maybe"], "maybe", "Must be one of true, false"),
    (
        "cors_allowed_origins",
        &["--cors-allowed-origins", "https://a/"],
        "https://a/",
        "Must end after the host or port: no path, user or / at the end",
    ),
    (
        "cors_allowed_origins",
        &["--cors-allowed-origins", "https://a", "*"],
        "https://a *",
        "* stands for every origin: alone",
    ),
    ("api_key", &["--api-key="], "(empty)", "Must not be empty"),
    (
        "admin_api_key",
        &["--admin-api-key", "two words"],
        "(hidden)",
        "Must consist of visible ASCII characters without spaces",
    ),
];

#[test]
fn a_bad_value_is_one_line_with_field_value_and_rule() {
    for (field, flags, value, reason) in REFUSED {
        let flags = [&["launch"], *flags].concat();
        assert_eq!(
            complaint(&flags),
            format!("Invalid value for field '{field}': {value} - {reason}"),
            "{flags:?}"
        );
    }
}

#[test]
fn a_bad_routing_key_header_is_named() {
    assert_eq!(
        complaint(&["--routing-key-override", "--routing-key-headers", "bad name"]),
        "Validation failed: routing_key_override.headers contains an invalid HTTP header name \
         'bad name'"
    );
}

#[test]
fn power_of_two_needs_two_workers_unless_they_come_and_go() {
    let one = ["--policy=power_of_two", "--worker-urls", "http://a:1"];
    assert_eq!(
        complaint(&one),
        "Incompatible configuration: Power-of-two policy requires at least 2 workers"
    );
    config(&[&one[..], &["--enable-igw"]].concat());
    config(&[&one[..], &["http://b:1"]].concat());
}

#[test]
fn the_memory_of_bodies_has_room_for_the_largest() {
    assert_eq!(
        complaint(&["--max-body-memory", "4999", "--max-payload-size", "5000"]),
        "Incompatible configuration: --max-body-memory 4999 is less than --max-payload-size 5000, \
         so that the largest body would never find room; raise the one or lower the other"
    );
    let limits = |arguments: &[&str], usable| {
        let (limits, body_memory) = config(arguments).limits.within(usable);
        (limits.max_payload_size, body_memory)
    };
    let given = ["--max-body-memory", "5000", "--max-payload-size", "5000"];
    assert_eq!(limits(&given, Some(1 << 40)), (5000, 5000));
    let defaulted = &given[2..];
    assert_eq!(limits(defaulted, Some(40_000)), (5000, 20_000));
    assert_eq!(limits(defaulted, Some(24_000)), (4000, 12_000), "three of them fit in half of it");
    assert_eq!(limits(defaulted, None), (5000, 15_000));
}

#[test]
fn a_certificate_and_its_key_come_together() {
    for side in ["tls", "client"] {
        let (cert, key) = (format!("--{side}-cert-path"), format!("--{side}-key-path"));
        for (given, missing) in [(&cert, &key), (&key, &cert)] {
            assert_eq!(
                complaint(&[given, "x.pem"]),
                format!(
                    "Incompatible configuration: {given} is given without {missing}; give both, or \
                     neither"
                )
            );
        }
        let config = config(&[&cert, "x.pem", &key, "y.pem"]);
        let identity = if side == "tls" { config.tls } else { config.worker_tls.identity };
        assert_eq!(identity.expect("a pair").key_path, std::path::Path::new("y.pem"));
    }
}

#[test]
fn a_value_cannot_break_the_line() {
    let line = complaint(&["--host", "a\nConfiguration error: b\u{7}"]);
    assert!(!line.contains(char::is_control), "{line:?}");
}

#[test]
fn values_at_the_edge_of_their_range_are_accepted() {
    config(&[
        "--cache-threshold=0",
        "--balance-rel-threshold=1.0",
        "--balance-abs-threshold=0",
        "--overlap-decay=0",
        "--selection-temperature=0",
        "--block-size=1",
        "--max-tree-size=1",
        "--retry-jitter-factor=0",
        "--retry-max-backoff-ms=50",
        "--queue-size=0",
        "--drain-settle-secs=0",
        "--upstream-pool-idle-timeout-secs=0",
        "--max-idle-secs=0",
    ]);
    config(&[
        "--cache-threshold=1",
        "--balance-token-usage-threshold=0.001",
        "--overload-token-usage-threshold=5",
        "--cache-ttl-secs=1",
        "--worker-overload-waiting-requests=1",
        "--worker-overload-token-usage=1.0",
        "--port=65535",
        "--host=[::1]",
        "--data-cpus=8191,0-0",
        "--retry-jitter-factor=1",
    ]);
    // One port on two addresses.
    config(&["--host=127.0.0.1", "--prometheus-host=127.0.0.2", "--prometheus-port=30000"]);
}

#[test]
fn no_limit_on_requests_at_a_time_has_two_spellings() {
    for flag in ["--max-concurrent-requests=0", "--max-concurrent-requests=-1"] {
        assert_eq!(config(&[flag]).admission.max_concurrent_requests, None);
    }
    assert_eq!(config(&["--max-concurrent-requests=1"]).admission.max_concurrent_requests, Some(1));
}

#[test]
fn cpu_lists() {
    let cpus = |list: &str| config(&["--data-cpus", list]).runtime.data_cpus;
    assert_eq!(cpus("0-5,8"), Some(vec![0, 1, 2, 3, 4, 5, 8]));
    assert_eq!(cpus("7,1-2,0"), Some(vec![0, 1, 2, 7]));
    for bad in ["", "a", "1-", "-1", "1-2-3", " 1", "1;2", "+1"] {
        let line = complaint(&[&format!("--data-cpus={bad}")]);
        assert!(line.contains("Must be a list of CPU numbers and ranges such as 0-5,8"), "{line}");
    }
}

#[test]
fn every_flag_of_the_acceptance_suites_is_known() {
    let flags = "--policy --api-key --log-level --max-payload-size --request-timeout-secs \
        --header-read-timeout-secs --request-id-headers --shutdown-grace-period-secs \
        --max-concurrent-requests --queue-size --queue-timeout-secs --retry-max-retries \
        --retry-initial-backoff-ms --retry-max-backoff-ms --retry-backoff-multiplier \
        --retry-jitter-factor --disable-retries --cb-failure-threshold --cb-success-threshold \
        --cb-timeout-duration-secs --disable-circuit-breaker --health-check-interval-secs \
        --health-check-timeout-secs --health-failure-threshold --health-success-threshold \
        --health-check-endpoint --health-check-port --disable-health-check \
        --worker-startup-check-interval --drain-settle-secs --enable-igw --engine-metrics \
        --disable-load-monitoring --worker-overload-protection --model-alias --shards --data-cpus \
        --control-cpus --io-driver --connect-timeout-secs --upstream-pool-idle-timeout-secs \
        --enable-explain --hide-worker-id --cb-window-duration-secs --stream-idle-timeout-secs";
    let command = command();
    for flag in flags.split_whitespace() {
        let long = flag.trim_start_matches("--");
        assert!(command.get_arguments().any(|arg| arg.get_long() == Some(long)), "{flag}");
        assert_eq!(not_built::instead_of(flag), None, "{flag}");
    }
}
