//! Ten thousand requests end in every way there is, mixed, while a worker is removed and added again
//! all the time. Whoever should get an answer gets it byte for byte, no worker sees a request twice
//! that it must not, and at rest every count is exact.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::{Client, Exchange, Gateway, Worker, eventually, post};

const CLIENTS: usize = 8;
const PATH: &str = "/v1/completions";
const FLAGS: &str = "--policy cache_aware --disable-circuit-breaker --retry-initial-backoff-ms 1 \
     --request-timeout-secs 2 --drain-settle-secs 0";

#[test]
fn ten_thousand_requests_on_three_shards() {
    survive(10_000, "--shards 3");
}

#[test]
fn two_thousand_requests_on_one_shard() {
    survive(2_000, "--shards 1");
}

/// How a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Whole,
    Streamed,
    StreamedToASlowReader,
    Refused,
    FailsAtFirst,
    FailsAlways,
    ResetAtFirst,
    ClosedAtFirst,
    DiesMidStream,
    CutShort,
    LeavesDuringUpload,
    LeavesBeforeAByte,
    VanishesBeforeAByte,
    LeavesMidStream,
    Hangs,
    NotJson,
}

impl Fate {
    /// By a number that is spread evenly.
    fn of(number: usize) -> Self {
        match number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 & 0x3ff {
            0..400 => Self::Whole,
            400..560 => Self::Streamed,
            560..600 => Self::StreamedToASlowReader,
            600..640 => Self::Refused,
            640..690 => Self::FailsAtFirst,
            690..715 => Self::FailsAlways,
            715..755 => Self::ResetAtFirst,
            755..795 => Self::ClosedAtFirst,
            795..835 => Self::DiesMidStream,
            835..865 => Self::CutShort,
            865..895 => Self::LeavesDuringUpload,
            895..925 => Self::LeavesBeforeAByte,
            925..955 => Self::VanishesBeforeAByte,
            955..985 => Self::LeavesMidStream,
            985..989 => Self::Hangs,
            _ => Self::NotJson,
        }
    }

    /// How often workers see it.
    fn dispatches(self) -> usize {
        match self {
            Self::LeavesDuringUpload | Self::NotJson => 0,
            Self::FailsAtFirst | Self::ResetAtFirst | Self::ClosedAtFirst => 2,
            Self::FailsAlways => 5,
            _ => 1,
        }
    }

    /// Status of the answer the gateway sends, if it sends one.
    fn status(self) -> Option<u16> {
        match self {
            Self::Refused => Some(422),
            Self::FailsAlways => Some(500),
            Self::Hangs => Some(504),
            Self::NotJson => Some(400),
            Self::LeavesDuringUpload | Self::LeavesBeforeAByte | Self::VanishesBeforeAByte => None,
            _ => Some(200),
        }
    }
}

/// What the worker answers to a request: different for each, up to 60 kB.
fn payload(number: usize) -> Vec<u8> {
    format!("<answer {number}>").repeat(1 + number % 4000).into_bytes()
}

fn events(number: usize) -> impl Iterator<Item = String> {
    (0..=number % 20).map(move |event| format!("{number}.{event} {}", "x".repeat(number % 700)))
}

fn streamed(number: usize) -> String {
    events(number).map(|event| format!("data: {event}\n\n")).collect()
}

struct Seen(Vec<AtomicUsize>);

fn survive(requests: usize, shards: &str) {
    let seen = Arc::new(Seen((0..requests).map(|_| AtomicUsize::new(0)).collect()));
    let workers = [(); 4].map(|()| {
        let seen = seen.clone();
        Worker::start(move |exchange| perform(exchange, &seen))
    });
    let gateway = Gateway::before(&workers).flags(FLAGS).flags(shards).start();
    let descriptors = gateway.descriptors();

    let over = AtomicBool::new(false);
    let (addr, url) = (gateway.addr(), workers[3].url());
    let removals = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (addr, seen) = (gateway.addr(), &seen);
                scope.spawn(move || {
                    let mut connection = None;
                    for number in (client..requests).step_by(CLIENTS) {
                        connection = request(addr, seen, number, connection.take());
                    }
                })
            })
            .collect();
        let flapping = scope.spawn({
            let (url, over) = (&url, &over);
            move || come_and_go(addr, url, over)
        });
        let outcomes: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        over.store(true, Ordering::SeqCst);
        let removals = flapping.join().expect("the worker comes and goes");
        assert!(removals > 0);
        for outcome in outcomes {
            outcome.expect("every request goes as it should");
        }
        removals
    });

    gateway.is_at_rest();
    for (number, seen) in seen.0.iter().enumerate() {
        let fate = Fate::of(number);
        assert_eq!(seen.load(Ordering::SeqCst), fate.dispatches(), "{number}: {fate:?}");
    }
    let dispatched = workers.iter().map(Worker::dispatched).sum();
    check_counts(&gateway, requests, dispatched, removals);
    eventually("no connection is left behind", || gateway.descriptors() <= descriptors);
}

fn check_counts(gateway: &Gateway, requests: usize, dispatched: usize, removals: usize) {
    let metrics = gateway.metrics();
    let mut answers = BTreeMap::new();
    for status in (0..requests).filter_map(|number| Fate::of(number).status()) {
        *answers.entry(status).or_insert(0) += 1;
    }
    for (status, expected) in answers {
        let labels = format!("path=\"{PATH}\",status_code=\"{status}\"");
        let counted = metrics.sum_of("smg_http_responses_total", &labels) as usize;
        assert_eq!(counted, expected, "answers {status}");
    }
    let count = |fates: &[Fate]| (0..requests).filter(|&n| fates.contains(&Fate::of(n))).count();
    let sent_again = metrics.sum("smg_router_upstream_send_retries_total") as usize;
    let retries = metrics.sum("smg_worker_retries_total") as usize;
    let failed_first = count(&[Fate::FailsAtFirst, Fate::ResetAtFirst, Fate::ClosedAtFirst]);
    let expected = failed_first + 4 * count(&[Fate::FailsAlways]);
    assert_eq!(retries + sent_again, expected, "second and later attempts");
    assert_eq!(
        metrics.sum("smg_worker_retries_exhausted_total") as usize,
        count(&[Fate::FailsAlways])
    );
    let decisions = metrics.sum("smg_cache_aware_policy_branch_total") as usize;
    let without_owner = metrics.sum("smg_owner_overloaded_total") as usize;
    // A worker that is removed between the decision for it and the dispatch makes for another decision.
    let wasted = (decisions + without_owner).checked_sub(dispatched - sent_again);
    let wasted = wasted.expect("no dispatch without a decision");
    assert!(wasted <= removals * CLIENTS, "{wasted} decisions too many");
}

/// Removes a worker and adds it again until the others are done; how often.
fn come_and_go(gateway: SocketAddr, url: &str, over: &AtomicBool) -> usize {
    let mut admin = Client::connect_to(gateway).expect("the gateway takes connections");
    let mut rounds = 0;
    while !over.load(Ordering::SeqCst) {
        let entry = |admin: &mut Client| {
            let workers = admin.get("/workers").expect("the workers");
            let workers: serde_json::Value = serde_json::from_slice(&workers.body).expect("JSON");
            let workers = workers["workers"].as_array().expect("a list").clone();
            workers.into_iter().find(|worker| worker["url"] == url)
        };
        let id = entry(&mut admin).expect("it is there")["id"].as_str().expect("an id").to_owned();
        let answer = admin.delete(&format!("/workers/{id}")).expect("an answer");
        assert_eq!(answer.status(), 202, "{answer:?}");
        eventually("the worker is gone", || entry(&mut admin).is_none());
        let body = serde_json::json!({ "url": url }).to_string();
        admin.send(&post("/workers", body.as_bytes()));
        let answer = admin.response();
        assert_eq!(answer.status(), 202, "{answer:?}");
        eventually("the worker is back", || {
            entry(&mut admin).is_some_and(|worker| worker["is_healthy"] == true)
        });
        rounds += 1;
    }
    rounds
}

/// One request from its first byte to its end. The connection, if it can be used again.
fn request(
    gateway: SocketAddr,
    seen: &Seen,
    number: usize,
    connection: Option<Client>,
) -> Option<Client> {
    let fate = Fate::of(number);
    let mut client = connection
        .unwrap_or_else(|| Client::connect_to(gateway).expect("the gateway takes connections"));
    let prompt = format!("Conversation {}. ", number % 50).repeat(1 + number % 30);
    let prompt = format!("{prompt}request {number}.");
    let body = match fate {
        Fate::NotJson => "{\"model\":".to_owned(),
        _ => serde_json::json!({"model": "m", "prompt": prompt}).to_string(),
    };
    let bytes = post(PATH, body.as_bytes());
    if fate == Fate::LeavesDuringUpload {
        client.send(&bytes[..bytes.len() - 1 - number % 20]);
        client.leave();
        return None;
    }
    client.send(&bytes);
    match fate {
        Fate::LeavesBeforeAByte | Fate::VanishesBeforeAByte => {
            eventually("the request is at a worker", || seen.0[number].load(Ordering::SeqCst) > 0);
            if fate == Fate::LeavesBeforeAByte {
                client.leave()
            } else {
                client.vanish()
            }
            return None;
        }
        Fate::LeavesMidStream => {
            assert_eq!(client.response_head().status(), 200, "{number}");
            client.leave();
            return None;
        }
        _ => {}
    }
    let head = client.response_head();
    assert_eq!(Some(head.status()), fate.status(), "{number}: {fate:?} {head:?}");
    if fate == Fate::StreamedToASlowReader {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let response = client.rest_of(head);
    let text = response.text();
    match fate {
        Fate::DiesMidStream => {
            let all = format!("{}event: error\ndata: ", streamed(number));
            assert!(text.starts_with(&all), "{number}: {text}");
            return None;
        }
        Fate::CutShort => {
            assert!(!response.complete, "{number}: the cut is seen");
            assert!(payload(number).starts_with(&response.body), "{number}: {text}");
            return None;
        }
        Fate::Streamed | Fate::StreamedToASlowReader => assert_eq!(text, streamed(number)),
        Fate::Hangs => assert_eq!(response.error_code(), Some("upstream_timeout")),
        Fate::NotJson => assert_eq!(response.error_code(), Some("json_parse_error")),
        _ => assert!(response.body == payload(number), "{number}: {fate:?} {text}"),
    }
    assert!(response.complete, "{number}: {fate:?}");
    Some(client)
}

/// A worker's part of it.
fn perform(exchange: &mut Exchange, seen: &Seen) {
    let body = exchange.body().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
    let number = body.split("request ").nth(1).and_then(|rest| rest.split('.').next());
    let number: usize = number.and_then(|number| number.parse().ok()).expect("a whole request");
    let before = seen.0[number].fetch_add(1, Ordering::SeqCst);
    match Fate::of(number) {
        Fate::Refused => exchange.answer(422, &payload(number)),
        Fate::FailsAlways => exchange.answer(500, &payload(number)),
        Fate::FailsAtFirst if before == 0 => exchange.answer(503, b"not now"),
        Fate::ResetAtFirst if before == 0 => exchange.reset(),
        Fate::ClosedAtFirst if before == 0 => exchange.close(),
        Fate::Streamed | Fate::StreamedToASlowReader => {
            stream(exchange, number);
            exchange.end();
        }
        Fate::DiesMidStream => {
            stream(exchange, number);
            exchange.close();
        }
        Fate::CutShort => {
            let payload = payload(number);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", payload.len() + 1);
            exchange.send(head.as_bytes());
            exchange.send(&payload);
            exchange.close();
        }
        Fate::LeavesMidStream => {
            stream(exchange, number);
            exchange.until_abandoned();
        }
        Fate::LeavesBeforeAByte | Fate::VanishesBeforeAByte | Fate::Hangs => {
            exchange.until_abandoned();
        }
        Fate::LeavesDuringUpload | Fate::NotJson => panic!("{number} reached a worker: {body}"),
        _ => exchange.answer(200, &payload(number)),
    }
}

fn stream(exchange: &mut Exchange, number: usize) {
    exchange.begin_events();
    for event in events(number) {
        exchange.event(&event);
    }
}
