//! What an index held is freed, but the process keeps it.

use crate::harness::{Client, Gateway, Worker, eventually};

const PROMPTS: usize = 400;
const PROMPT_CHARS: usize = 100_000;

#[test]
fn what_a_removed_worker_was_sent_leaves_the_process() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker])
        .flags("--shards 1 --eviction-interval 1 --drain-settle-secs 0")
        .start();
    let mut client = Client::connect(&gateway);
    // Buffers for one request are there before and after.
    assert_eq!(client.ask(&prompt(0)).status(), 200);
    let before = gateway.resident_bytes();
    for at in 1..PROMPTS {
        assert_eq!(client.ask(&prompt(at)).status(), 200);
    }
    let full = gateway.resident_bytes();
    let grown = full - before;
    assert!(grown > PROMPTS * PROMPT_CHARS * 9 / 10, "{grown} bytes for what was sent");

    let mut admin = Client::connect(&gateway);
    let workers: serde_json::Value =
        serde_json::from_slice(&admin.get("/workers").expect("an answer").body).expect("JSON");
    let path = format!("/workers/{}", workers["workers"][0]["id"].as_str().expect("an id"));
    assert_eq!(admin.delete(&path).expect("an answer").status(), 202);
    eventually("four fifths of it are back with the system", || {
        gateway.resident_bytes() < full - grown * 4 / 5
    });
}

/// Like no other from its first character on, nearly.
fn prompt(at: usize) -> String {
    let first = char::from_u32('一' as u32 + at as u32).expect("a character");
    let mut text = String::from(first);
    while text.len() < PROMPT_CHARS {
        text.push_str("what is said at length ");
    }
    text
}
