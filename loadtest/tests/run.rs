//! `smg-loadtest run` as a program, against `smg-loadtest engines`.

mod harness;

use std::process::Output;
use std::time::{Duration, Instant};

use harness::{Engines, command};
use smg_loadtest::blocking::pause;

fn run(url: &str, arguments: &str) -> Output {
    let arguments = arguments.split_whitespace();
    command(false).args(["run", url, "--quiet"]).args(arguments).output().unwrap()
}

fn report(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_workload_is_sent_proved_and_counted_at_the_engines() {
    let engines = Engines::start(false, &["-n", "2", "--profile", "demo"]);
    let (url, witnesses) = (&engines.urls[0], engines.urls.join(","));
    for workload in ["unique", "groups", "churn", "rag", "chats"] {
        let arguments = format!(
            "--workload {workload} --text cjk --groups 5 --prefix-chars 300 --question-chars 30 \
             --turns 2 --think 0.05 --lifetime 0.5 --stream --max-tokens 4 --rate 40 --duration 1 \
             --warmup 0 --prove --engines {witnesses} --json -"
        );
        let report = report(&run(url, &arguments));
        assert_eq!(report["failed"], 0, "{workload}: {report}");
        let succeeded = report["succeeded"].as_u64().unwrap();
        let unsent = report["unsent"].as_u64().unwrap();
        assert!(succeeded >= 1 && succeeded + unsent >= 20, "{workload}: {report}");
        let (one, other) = (&report["engines"][0], &report["engines"][1]);
        assert_eq!((&one["received"], &other["received"]), (&report["proved"], &0.into()));
        let most = one["most_open"].as_u64().unwrap();
        assert!((1..=succeeded).contains(&most) && other["most_open"] == 0, "{report}");
    }
}

#[test]
fn rates_by_schedule_last_as_long_as_it_does() {
    let engines = Engines::start(false, &["-n", "2", "--instant"]);
    for (arguments, due, measured_s) in [
        // 20 at 0 to 0.38 s, then 20 at 0.6 to 0.79 s: what is due as a pause begins waits for its end.
        ("--schedule 50:0.4,0:0.2,100:0.2", 40, 0.8),
        // It ends in a pause: at 0 to 0.3 s.
        ("--schedule 10:0.4,0:0.4", 4, 0.8),
        ("--schedule 10:0.4,0:0.4 --busy-poll", 4, 0.8),
        // At 0 s only; the next one would be at 2 s.
        ("--rate 0.5 --duration 0.7", 1, 0.7),
        // A limit of requests ends it before: at 0 s and at 0.1 s.
        ("--schedule 10:0.4,0:0.4 --requests 2", 2, 0.1),
    ] {
        let report = report(&run(&engines.urls[0], &format!("{arguments} --warmup 0 --json -")));
        // A machine that stands still leaves some unsent.
        let count = |name: &str| report[name].as_u64().unwrap();
        let all = (count("succeeded") + count("unsent"), count("failed"));
        assert_eq!(all, (due, 0), "{arguments}: {report}");
        let (measured, is_limited) = (&report["measured_s"], arguments.contains("--requests"));
        let measured = measured.as_f64().unwrap();
        if is_limited {
            assert!((measured_s..0.4).contains(&measured), "{arguments}: {report}");
        } else {
            assert!((measured - measured_s).abs() < 1e-6, "{arguments}: {report}");
        }
    }
}

#[test]
fn an_interrupt_ends_a_pause() {
    let engines = Engines::start(false, &["-n", "2", "--profile", "demo"]);
    for (waiting, sent) in [(&[][..], 4), (&["--busy-poll"], 8)] {
        let arguments =
            ["run", &engines.urls[0], "--quiet", "--schedule", "20:0.2,0:60", "-w", "0"];
        let child = command(false)
            .args(arguments)
            .args(waiting)
            .args(["--json", "-"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while engines.finished(0) < sent && Instant::now() < deadline {
            pause(Duration::from_millis(30));
        }
        // SAFETY: plain system call; the child has not been waited for.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
        let report = report(&child.wait_with_output().unwrap());
        assert_eq!(report["succeeded"], 4, "{report}");
        assert!(report["measured_s"].as_f64().unwrap() < 30.0, "{report}");
    }
}

#[test]
fn who_reads_no_report_is_no_failure() {
    let engines = Engines::start(false, &["-n", "2", "--instant"]);
    let mut child = command(false)
        .args(["run", &engines.urls[0], "--quiet", "--rate", "50", "-d", "0.3", "-w", "0"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn how_late_requests_were_sent_is_said() {
    let engines = Engines::start(false, &["-n", "2", "--instant", "--busy-poll"]);
    for (flag, waiting) in [("", "sleep"), ("--busy-poll", "busy_poll")] {
        let arguments = format!("--rate 500 --duration 0.6 --warmup 0 {flag}");
        let report = report(&run(&engines.urls[0], &format!("{arguments} --json -")));
        assert_eq!(report["client_waiting"], waiting);
        let of = |times: &str, what: &str| report[times][what].as_f64().unwrap();
        assert_eq!(of("sent_late_ms", "count"), of("latency_ms", "count"), "{report}");
        let (sent, answered) = (of("sent_late_ms", "p50"), of("latency_ms", "p50"));
        assert!(0.0 < sent && sent < answered, "{report}");
        let text = run(&engines.urls[0], &arguments).stdout;
        let text = String::from_utf8(text).unwrap();
        let said = if flag.is_empty() { "sleeps" } else { "busy-polls" };
        assert!(text.contains("sent late by") && text.contains(said), "{text}");
    }
}

#[test]
fn what_cannot_be_done_is_said_with_its_remedy() {
    let engines = Engines::start(false, &["-n", "2", "--instant"]);
    let url = &engines.urls[0];
    for (arguments, code, words) in [
        ("-n 3", 1, "give --warmup 0"),
        ("--workload chats", 2, "needs --rate"),
        ("--workload chats --rate 5 --requests 3", 2, "goes without --requests"),
        ("--poisson", 2, "--rate or --schedule"),
        ("--schedule 10", 2, "RATE:SECONDS"),
        ("--schedule=-1:5", 2, "RATE:SECONDS"),
        ("--workload rag --body 20k", 2, "--body"),
        ("--turns 3", 2, "--workload"),
        ("--prove -n 3 -d 1 -w 0", 1, "x-smg-loadtest-proof"),
        ("--engines http://127.0.0.1:1", 1, "smg-loadtest engines"),
    ] {
        let output = run(url, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {said}");
        assert!(said.contains(words), "{arguments}: {said}");
    }
}
