//! `smg-loadtest run` as a program, against `smg-loadtest engines`.

mod harness;

use std::process::Output;

use harness::{Engines, command};

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
    let report = report(&run(&engines.urls[0], "--schedule 50:0.4,0:0.2,100:0.2 -w 0 --json -"));
    // The last one is due 10 ms before the end.
    let measured = report["measured_s"].as_f64().unwrap();
    assert!((0.789..0.801).contains(&measured), "{report}");
    // 20 and the one at the end of the first step, then 20 of which the last is due at the end. A
    // machine that stands still leaves some unsent.
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!((count("succeeded") + count("unsent"), count("failed")), (40, 0), "{report}");
}

#[test]
fn what_cannot_be_done_is_said_with_its_remedy() {
    let engines = Engines::start(false, &["-n", "2", "--instant"]);
    let url = &engines.urls[0];
    for (arguments, code, words) in [
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
