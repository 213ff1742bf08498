//! The file of API keys is replaced while requests are under way, by a good one or by a broken one.

use std::path::{Path, PathBuf};

use crate::harness::{Client, Gateway, Refusal, Response, Worker, eventually, free_port, post};

/// A file of keys that goes with the test.
struct KeyFile(PathBuf);

impl KeyFile {
    fn with(text: &[u8]) -> Self {
        let name = format!("smg-keys-{}-{}", std::process::id(), free_port());
        let file = Self(std::env::temp_dir().join(name));
        file.replace(text);
        file
    }

    fn replace(&self, text: &[u8]) {
        std::fs::write(&self.0, text).expect("the directory takes files");
    }

    fn remove(&self) {
        std::fs::remove_file(&self.0).expect("it is there");
    }

    fn flag(&self) -> String {
        format!("--api-key-file {}", self.0.display())
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        // A test may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn request(key: &str) -> Vec<u8> {
    let plain = post("/v1/completions", br#"{"model":"m","prompt":"hello"}"#);
    let plain = String::from_utf8(plain).expect("ASCII");
    plain.replacen("\r\n", &format!("\r\nAuthorization: Bearer {key}\r\n"), 1).into_bytes()
}

/// Over a connection of its own, so that every shard is asked sooner or later.
#[track_caller]
fn ask(gateway: &Gateway, key: &str) -> Response {
    let mut client = Client::connect(gateway);
    client.send(&request(key));
    client.response()
}

#[track_caller]
fn statuses(gateway: &Gateway, keys: [&str; 3]) -> [u16; 3] {
    keys.map(|key| {
        let answers: Vec<u16> = (0..8).map(|_| ask(gateway, key).status()).collect();
        assert!(answers.iter().all(|status| *status == answers[0]), "{key}: {answers:?}");
        answers[0]
    })
}

fn reloads(gateway: &Gateway, result: &str) -> f64 {
    gateway.metrics().sum_of("smg_reloads_total", &format!("result=\"{result}\""))
}

#[track_caller]
fn reload(gateway: &Gateway, result: &str) {
    let before = reloads(gateway, result);
    gateway.signal(libc::SIGHUP);
    eventually("the file was read again", || reloads(gateway, result) == before + 1.0);
}

#[test]
fn keys_come_and_go_with_the_file() {
    let worker = Worker::start(|exchange| {
        let leaked = exchange.head.headers.iter().any(|(name, value)| {
            name.eq_ignore_ascii_case("authorization") || value.contains("sk-")
        });
        exchange.answer(if leaked { 418 } else { 200 }, b"{}");
    });
    let file = KeyFile::with(b"# first\nsk-one\n\nsk-two\n");
    let flags = format!("--shards 3 --api-key sk-flag {}", file.flag());
    let gateway = Gateway::before([&worker]).flags(&flags).start();
    let keys = ["sk-one", "sk-two", "sk-three"];
    assert_eq!(statuses(&gateway, keys), [200, 200, 401]);

    file.replace(b"sk-two\r\nsk-three\r\n");
    assert_eq!(statuses(&gateway, keys), [200, 200, 401], "nobody has asked for a reload");
    reload(&gateway, "success");
    assert_eq!(statuses(&gateway, keys), [401, 200, 200]);
    assert_eq!(ask(&gateway, "sk-flag").status(), 200, "the flag's key stays");
    eventually("it is logged", || gateway.log().contains("reloaded what=api_keys"));
    assert!(gateway.log().contains("2 keys from"), "{}", gateway.log());
}

#[test]
fn a_broken_file_changes_nothing_and_says_so() {
    let worker = Worker::obliging();
    let file = KeyFile::with(b"sk-one\n");
    let gateway = Gateway::before([&worker]).flags(&file.flag()).start();
    let broken: [(&[u8], &str); 4] = [
        (b"", "has no key in it"),
        (b"# all gone\n", "has no key in it"),
        (b"sk-new\nsk-hidden word\n", "line 2 is not a key"),
        (b"sk-hidden\xff\n", "line 1 is not a key"),
    ];
    for (text, _) in broken {
        file.replace(text);
        reload(&gateway, "failure");
        assert_eq!(statuses(&gateway, ["sk-one", "sk-new", "sk-hidden"]), [200, 401, 401]);
    }
    file.remove();
    reload(&gateway, "failure");
    assert_eq!(ask(&gateway, "sk-one").status(), 200);

    let complaints = broken.map(|(_, complaint)| complaint);
    for complaint in complaints.into_iter().chain(["cannot be read"]) {
        eventually(complaint, || {
            let log = gateway.log();
            let mut lines = log.lines().filter(|line| line.contains("not reloaded"));
            lines.any(|line| line.contains(complaint) && line.contains("--api-key-file"))
        });
    }
    let log = gateway.log();
    assert_eq!(log.lines().filter(|line| line.contains("not reloaded")).count(), 5, "{log}");
    assert!(!log.contains("hidden") && !log.contains("sk-"), "{log}");
    assert_eq!(reloads(&gateway, "success"), 0.0);

    file.replace(b"sk-new\n");
    reload(&gateway, "success");
    assert_eq!(statuses(&gateway, ["sk-one", "sk-new", "sk-hidden"]), [401, 200, 401]);
}

#[test]
fn a_stream_goes_on_after_its_key_has_gone() {
    let proceed = crate::harness::Gate::default();
    let gate = proceed.clone();
    let worker = Worker::start(move |exchange| {
        exchange.begin_events();
        exchange.event("first");
        gate.wait();
        exchange.event("last");
        exchange.end();
    });
    let file = KeyFile::with(b"sk-one\n");
    let gateway = Gateway::before([&worker]).flags(&file.flag()).start();
    let mut streaming = Client::connect(&gateway);
    streaming.send(&request("sk-one"));
    let head = streaming.response_head();
    assert_eq!(head.status(), 200);
    assert_eq!(streaming.chunk().as_deref(), Some("data: first\n\n"));

    file.replace(b"sk-two\n");
    reload(&gateway, "success");
    assert_eq!(ask(&gateway, "sk-one").status(), 401);
    proceed.open();
    assert_eq!(streaming.chunk().as_deref(), Some("data: last\n\n"));
    assert_eq!(streaming.chunk().as_deref(), Some(""));
    // The same connection, with the key it had: it is not known any more.
    streaming.send(&request("sk-one"));
    assert_eq!(streaming.response().status(), 401);
    streaming.leave();
    gateway.is_at_rest();
}

#[test]
fn without_a_file_a_reload_changes_nothing() {
    let worker = Worker::obliging();
    let mut gateway = Gateway::before([&worker]).flags("--api-key sk-flag").start();
    gateway.signal(libc::SIGHUP);
    eventually("it is said", || gateway.log().contains("SIGHUP changes nothing"));
    assert_eq!(ask(&gateway, "sk-flag").status(), 200);
    assert!(gateway.is_running());
}

#[test]
fn a_file_that_cannot_be_used_is_refused_at_start() {
    let start = |path: &Path| {
        Gateway::before([]).flags(&format!("--api-key-file {}", path.display())).refused()
    };
    for (text, complaint) in [
        (&b""[..], "has no key in it"),
        (b"sk-fine\n# note\nsk-hidden word\n", "line 3 is not a key"),
        ("sk-fine\nsk-hidden\u{e9}\n".as_bytes(), "line 2 is not a key"),
    ] {
        let file = KeyFile::with(text);
        let Refusal { code, output } = start(&file.0);
        assert_eq!(code, Some(2), "{output}");
        let path = file.0.display().to_string();
        for word in ["api_key_file", &path, complaint, "one key per line"] {
            assert!(output.contains(word), "{word} is missing: {output}");
        }
        assert!(!output.contains("hidden") && !output.contains("fine"), "{output}");
    }
    for path in ["/no/such/file", "/"] {
        let Refusal { code, output } = start(Path::new(path));
        assert_eq!(code, Some(2), "{output}");
        assert!(output.contains("api_key_file") && output.contains("cannot be read"), "{output}");
    }
}
