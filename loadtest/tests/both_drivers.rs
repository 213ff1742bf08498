//! `smg-loadtest run` against `smg-loadtest engines`, as programs, on io_uring and on epoll.

mod harness;

use harness::{Engines, command};

fn run(epoll: bool, url: &str, arguments: &[&str]) -> serde_json::Value {
    let output = command(epoll)
        .args(["run", url, "--json", "-", "--quiet", "--warmup", "0", "--duration", "20"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn instant_engines_answer_every_kind_of_load_on_both_drivers() {
    for epoll in [false, true] {
        let engines = Engines::start(
            epoll,
            &[
                "-n",
                "2",
                "--instant",
                "--events",
                "10",
                "--interval-ms",
                "1",
                "--answer-bytes",
                "700",
            ],
        );
        for (arguments, requests) in [
            (&["-n", "500", "-c", "8"][..], 500),
            (&["-n", "60", "-c", "4", "--body", "100k"], 60),
            (&["-n", "200", "--rate", "2000", "--poisson"], 200),
            (&["-n", "200", "--rate", "2000", "--busy-poll"], 200),
            (&["-n", "500", "-c", "8", "--busy-poll"], 500),
            (&["-n", "40", "-c", "8", "--stream"], 40),
        ] {
            for url in &engines.urls {
                let report = run(epoll, url, arguments);
                assert_eq!(report["succeeded"], requests, "epoll {epoll}: {arguments:?}: {report}");
                assert_eq!(report["failed"], 0);
                assert_eq!(report["latency_ms"]["count"], requests);
            }
        }
    }
}

#[test]
fn simulated_engines_stream_and_count_cached_tokens_on_both_drivers() {
    for epoll in [false, true] {
        let engines = Engines::start(epoll, &["-n", "2", "--profile", "demo", "--step-ms", "1"]);
        let arguments = ["-n", "200", "-c", "8", "--stream", "--max-tokens", "4"];
        let report = run(epoll, &engines.urls[0], &arguments);
        assert_eq!(report["succeeded"], 200, "epoll {epoll}: {report}");
        assert!(report["cached_tokens"].as_u64().unwrap() > 0);
        // Role, four tokens, usage and [DONE]: seven events, most of them in the window.
        assert!(report["events"].as_u64().unwrap() > 200 * 5, "{report}");
        assert!(report["first_byte_ms"]["p50"].as_f64().unwrap() > 0.0);
    }
}

/// The first two share two blocks of 512 tokens.
const TRACE: &str = r#"{"timestamp":0,"input_length":1030,"output_length":5,"hash_ids":[1,2,3]}
{"timestamp":100,"input_length":1536,"output_length":3,"hash_ids":[1,2,4]}
{"timestamp":200,"input_length":512,"output_length":4,"hash_ids":[8]}
"#;

struct TraceFile(std::path::PathBuf);

impl TraceFile {
    fn new(name: &str, text: &str) -> Self {
        let file = format!("smg-loadtest-{}-{name}.jsonl", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_trace_is_replayed_on_both_drivers() {
    let trace = TraceFile::new("replay", TRACE);
    for epoll in [false, true] {
        let engines = Engines::start(epoll, &["-n", "2", "--profile", "demo", "--step-ms", "1"]);
        for api in ["chat", "completions", "generate"] {
            let output = command(epoll)
                .args(["replay", &engines.urls[0], "--trace", trace.path(), "--api", api])
                .args(["--json", "-", "--quiet"])
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!((&report["succeeded"], &report["failed"]), (&3.into(), &0.into()), "{api}");
            assert!(report["cached_tokens"].as_u64().unwrap() >= 1024, "{api}: {report}");
        }
    }
}

#[test]
fn a_simulation_prints_the_same_bytes_every_time() {
    let trace = TraceFile::new("simulate", TRACE);
    let simulate = |arguments: &[&str]| {
        let output = command(false).arg("simulate").args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let chats = ["-n", "500", "--policy", "cache_aware,random,oracle-clairvoyant"];
    assert_eq!(simulate(&chats), simulate(&chats));
    let table = simulate(&["--trace", trace.path(), "--cache-share", "10", "--engines", "2"]);
    for words in ["3 requests, 5 distinct blocks", "each with 25 blocks", "cache_aware", "33.27"] {
        assert!(table.contains(words), "{words} is not in\n{table}");
    }
    let json = simulate(&["--trace", trace.path(), "--json", "-", "--policy", "oracle-infinite"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["arms"][0]["cached_tokens"], 1024);
}

#[test]
fn mistakes_on_the_command_line_are_named_with_exit_code_2() {
    for (arguments, words) in [
        (&["run", "https://x"][..], "TLS is not supported"),
        (&["run", "http://127.0.0.1:1", "--rate", "-3"], "'-3'"),
        (&["engines", "--profile", "nope"], "8b-h100"),
        (&["engines", "--answer-bytes", "5"], "--instant"),
        (&["simulate", "--trace", "/no/such/file"], "/no/such/file"),
        (&["simulate", "--policy", "nobody"], "oracle-clairvoyant"),
        (&["simulate", "--fail-engine-at", "5:8"], "engines 0 to 7"),
        (&["simulate", "--cache-index", "hash"], "--cache-boundaries"),
        (&["replay", "http://127.0.0.1:1", "--trace", "/no/such/file"], "/no/such/file"),
        (&["compare", "--ours", "'"], "quote"),
        (&["compare", "--arm", "x"], "NAME=COMMAND"),
    ] {
        let output = command(false).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
    let refused = command(false).args(["run", "http://127.0.0.1:1"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
}
