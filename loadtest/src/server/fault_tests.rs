//! Each fault as a client of the engine sees it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::Fleet;
use crate::blocking;

const PATIENCE: Duration = Duration::from_secs(20);

fn engine() -> (Fleet, SocketAddr) {
    let fleet = Fleet::of_one(2_000_000);
    let address = fleet.addresses[0];
    (fleet, address)
}

fn fault(address: SocketAddr, query: &str) -> u16 {
    blocking::post(address, &format!("/sim/fault?{query}"), PATIENCE).unwrap().status
}

/// Sends a completion of 64 prompt tokens.
fn send(address: SocketAddr, answer_tokens: u32, stream: bool) -> TcpStream {
    let prompt = "abcd".repeat(64);
    let body = format!(r#"{{"prompt":"{prompt}","max_tokens":{answer_tokens},"stream":{stream}}}"#);
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: e\r\nconnection: close\r\ncontent-length:";
    write!(connection, "{head} {length}\r\n\r\n{body}").unwrap();
    connection
}

/// What arrives until the connection ends, and whether it ended in a reset.
fn receive(mut connection: TcpStream) -> (String, bool) {
    let mut answer = Vec::new();
    let reset = match connection.read_to_end(&mut answer) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            true
        }
    };
    (String::from_utf8(answer).unwrap(), reset)
}

fn status(address: SocketAddr) -> String {
    let (answer, reset) = receive(send(address, 1, false));
    assert!(!reset);
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn errors_are_answered_to_inference_only_and_end_on_command() {
    let (_fleet, address) = engine();
    assert_eq!(status(address), "200");
    assert_eq!(fault(address, "kind=error&status=502&seconds=600"), 200);
    assert_eq!(status(address), "502");
    assert_eq!(blocking::get(address, "/health", PATIENCE).unwrap().status, 200);
    assert_eq!(fault(address, "kind=none"), 200);
    assert_eq!(status(address), "200");
    assert_eq!(fault(address, "kind=smoke"), 400);
}

#[test]
fn a_stalled_engine_answers_when_it_is_over() {
    let (_fleet, address) = engine();
    let mut streaming = send(address, 600, true);
    let mut first = [0; 1];
    streaming.read_exact(&mut first).unwrap();
    assert_eq!(fault(address, "kind=stall&seconds=600"), 200);
    let waiting = send(address, 1, false);
    waiting.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let nothing = (&waiting).read(&mut first).unwrap_err().kind();
    assert!(matches!(nothing, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{nothing:?}");
    assert!(blocking::get(address, "/health", Duration::from_millis(100)).is_err());
    assert_eq!(fault(address, "kind=none"), 200);
    waiting.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(receive(waiting).0.starts_with("HTTP/1.1 200"));
    let (rest, reset) = receive(streaming);
    assert!(rest.contains("[DONE]") && !reset);
}

#[test]
fn a_reset_ends_new_requests_and_those_under_way() {
    let (fleet, address) = engine();
    let streaming = send(address, 4_000, true);
    let mut first = [0; 1];
    (&streaming).read_exact(&mut first).unwrap();
    assert_eq!(fault(address, "kind=reset&seconds=600"), 200);
    let (rest, reset) = receive(streaming);
    assert!(!rest.contains("[DONE]") && reset, "{reset}");
    let (answer, reset) = receive(send(address, 1, false));
    assert!(answer.is_empty() && reset, "{answer}");
    assert_eq!(fault(address, "kind=none"), 200);
    assert_eq!(status(address), "200");
    assert_eq!(fleet.snapshots()[0].cancelled, 1, "the stream's place is free");
}

#[test]
fn a_restart_empties_the_cache_and_takes_its_time() {
    let (fleet, address) = engine();
    let cached = || fleet.snapshots()[0].cached_tokens;
    assert_eq!((status(address), cached()), ("200".into(), 0));
    // The last token is always computed: 3 blocks of 16 tokens.
    assert_eq!((status(address), cached()), ("200".into(), 48));
    let streaming = send(address, 4_000, true);
    let mut first = [0; 1];
    (&streaming).read_exact(&mut first).unwrap();
    assert_eq!(fault(address, "kind=restart&seconds=600"), 200);
    assert!(receive(streaming).1, "cut off");
    assert_eq!(status(address), "503");
    assert_eq!(blocking::get(address, "/health", PATIENCE).unwrap().status, 503);
    assert_eq!(fault(address, "kind=none"), 200);
    let before = cached();
    assert_eq!((status(address), cached() - before), ("200".into(), 0));
}
