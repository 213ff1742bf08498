//! `smg-loadtest compare` as a program. An instant engine stands in for a gateway: it answers
//! `/readiness` and chats as one does.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_smg-loadtest");

/// How long anything may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// The stand-in; without `{policy}`, so that it is one arm.
fn gateway() -> String {
    format!("'{PROGRAM}' engines -n 1 --base-port {{port}} --instant")
}

fn compare(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["compare", "--runs", "1", "--seconds", "0.5", "--engines", "2"]);
    command.args(["--system-prompt-tokens", "50", "--answer-tokens", "4"]);
    command.args(["--routing-warmup", "0", "--ours", &gateway()]).args(arguments);
    command
}

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("smg-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn table_json_and_page_agree_and_who_is_missing_is_named() {
    let directory = Directory::new("files");
    let (json, html) = (directory.file("out.json"), directory.file("out.html"));
    let output = compare(&["--peers", "direct,nginx,ours", "--nginx", "/no/such/nginx"])
        .args(["--scenarios", "short,routing", "--routing-seconds", "1.2"])
        .args(["--json", &json, "--html", &html, "--seed", "3", "--seed", "7"])
        .output()
        .unwrap();
    let (table, progress) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{progress}");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let html = std::fs::read_to_string(&html).unwrap();
    for words in ["1/4  ", "short  ours", "routing  direct", "left  ", "report: "] {
        assert!(progress.contains(words), "{words} is not in\n{progress}");
    }
    let missing = &json["missing"][0];
    assert_eq!(missing["arm"], "nginx");
    assert!(missing["reason"].as_str().unwrap().contains("apt-get install nginx-light"));
    assert!(table.contains("without nginx: ") && html.contains("Without nginx"), "{table}");
    // The last of an option given twice is meant: scripts give theirs first.
    assert_eq!(json["routing"]["workload"]["seed"], 7);
    assert_eq!(json["interrupted"], false);
    let routing = json["routing"]["arms"].as_array().unwrap();
    assert_eq!(routing.iter().map(|arm| &arm["arm"]).collect::<Vec<_>>(), ["direct", "ours"]);
    let hits = format!("{:.1}", 100.0 * routing[0]["hit_share"].as_f64().unwrap());
    assert!(html.contains(&format!("<td data-of=\"routing/direct/hit_share\">{hits}</td>")));
    let cpu = json["scenarios"][0]["arms"][1]["cpu_us"].as_f64().unwrap();
    assert!(html.contains(&format!("<td data-of=\"short/ours/cpu_us\">{cpu:.2}</td>")));
    for number in [hits, format!("{cpu:.2}")] {
        assert!(table.contains(&number), "{number} is not in\n{table}");
    }
    // The engines are told apart: those in front of which nothing stood, and the stand-in's own.
    assert!(routing[0]["answered"].as_u64().unwrap() > 0 && routing[0]["cpu_us"].is_null());
    assert!(routing[1]["cpu_us"].as_f64().unwrap() > 0.0);
    for sentence in json["summary"].as_array().unwrap() {
        let sentence = sentence.as_str().unwrap();
        assert!(html.contains(sentence) && table.contains(sentence), "{sentence}");
    }
}

#[test]
fn an_interrupted_comparison_reports_what_it_has_and_stops_its_gateways() {
    let directory = Directory::new("interrupted");
    let html = directory.file("out.html");
    let mut child = compare(&["--peers", "ours", "--scenarios", "short,routing"])
        .args(["--routing-seconds", "500", "--html", &html])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut progress = BufReader::new(child.stderr.take().unwrap()).lines();
    progress.find(|line| line.as_ref().unwrap().contains("routing  ours")).unwrap().unwrap();
    let gateway = within_patience(|| children(child.id()).first().copied());
    signal(&child, libc::SIGINT);
    assert!(wait(&mut child).success());
    let mut table = String::new();
    child.stdout.take().unwrap().read_to_string(&mut table).unwrap();
    assert!(table.contains("broken off") && table.contains("short: "), "{table}");
    assert!(!table.contains("routing: "), "half a run is none:\n{table}");
    assert!(std::fs::read_to_string(html).unwrap().contains("broken off"));
    within_patience(|| (!Path::new(&format!("/proc/{gateway}")).exists()).then_some(()));
}

#[test]
fn nothing_measured_is_a_failure() {
    let output = compare(&["--peers", "nginx", "--nginx", "/no/such/nginx"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no arm could be started"));
}

#[test]
fn mistakes_are_named_before_anything_is_started() {
    for (arguments, words) in [
        (&["--policies", "cache_aware,psychic"][..], "no policy is called 'psychic'"),
        (&["--html", "/no/such/directory/x.html"], "/no/such/directory/x.html"),
        (&["--system-prompt-tokens", "40000"], "--cache-blocks"),
        (&["--arm", "ours=x"], "'ours' twice"),
        (&["--profile", "nope"], "8b-h100"),
        (&["--arrivals", "0"], "'0' is not a rate"),
    ] {
        let output = compare(arguments).output().unwrap();
        let text = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let lists =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    let lists: Vec<_> = lists.collect();
    lists
        .iter()
        .flat_map(|list| list.split_whitespace())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

fn signal(child: &Child, signal: libc::c_int) {
    let pid = libc::pid_t::try_from(child.id()).unwrap();
    // SAFETY: a plain system call; the pid is that of our own child, not waited for yet.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

fn wait(child: &mut Child) -> std::process::ExitStatus {
    within_patience(|| child.try_wait().unwrap())
}

#[track_caller]
fn within_patience<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "still waiting after {PATIENCE:?}");
        smg_loadtest::blocking::pause(Duration::from_millis(20));
    }
}
