//! `smg-loadtest run` against `smg-loadtest engines`, as programs, on io_uring and on epoll.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_smg-loadtest");

struct Engines {
    child: Child,
    urls: Vec<String>,
}

impl Engines {
    fn start(epoll: bool, arguments: &[&str]) -> Self {
        let mut child = command(epoll)
            .arg("engines")
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let urls = lines.take(2).map(Result::unwrap).collect();
        Self { child, urls }
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(epoll: bool) -> Command {
    let mut command = Command::new(PROGRAM);
    if epoll {
        command.env("MONOIO_FORCE_LEGACY_DRIVER", "1");
    }
    command
}

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

#[test]
fn mistakes_on_the_command_line_are_named_with_exit_code_2() {
    for (arguments, words) in [
        (&["run", "https://x"][..], "TLS is not supported"),
        (&["run", "http://127.0.0.1:1", "--rate", "-3"], "'-3'"),
        (&["engines", "--profile", "nope"], "8b-h100"),
        (&["engines", "--answer-bytes", "5"], "--instant"),
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
