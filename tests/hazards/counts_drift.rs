//! Requests end in every way there is, on every shard, many at a time. At rest every count must be
//! exact: routing goes by them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::{Client, Exchange, Gateway, Worker, eventually, post};

const REQUESTS: usize = 500;
const CLIENTS: usize = 8;
/// Every failure may be tried again, at once, and no worker is left alone for it.
const FLAGS: &str = "--policy cache_aware --disable-circuit-breaker --retry-initial-backoff-ms 1";

#[test]
fn counts_are_exact_with_decisions_on_the_same_shard() {
    counts_are_exact_at_rest("--shards 1");
}

#[test]
fn counts_are_exact_with_decisions_on_another_shard() {
    counts_are_exact_at_rest("--shards 3");
}

/// How a request ends, by its place in the order.
const ENDINGS: [&str; 9] = [
    "whole",
    "streamed",
    "fails",
    "client leaves before a byte",
    "worker resets",
    "client vanishes before a byte",
    "client leaves mid-stream",
    "worker dies mid-stream",
    "not json",
];

fn counts_are_exact_at_rest(shards: &str) {
    let seen: Arc<Vec<AtomicBool>> =
        Arc::new((0..REQUESTS).map(|_| AtomicBool::new(false)).collect());
    let workers = [(); 3].map(|()| {
        let seen = seen.clone();
        Worker::start(move |exchange| perform(exchange, &seen))
    });
    let gateway = Gateway::before(&workers).flags(FLAGS).flags(shards).start();

    let descriptors = gateway.descriptors();

    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (gateway, seen) = (gateway.addr(), &seen);
            scope.spawn(move || {
                let mut connection = None;
                for number in (client..REQUESTS).step_by(CLIENTS) {
                    connection = request(gateway, seen, number, connection.take());
                }
            });
        }
    });

    gateway.is_at_rest();
    let metrics = gateway.metrics();
    let dispatched: usize = workers.iter().map(Worker::dispatched).sum();
    let sent_again = metrics.sum("smg_router_upstream_send_retries_total") as usize;
    let decisions = metrics.sum("smg_cache_aware_policy_branch_total") as usize;
    assert_eq!(decisions, dispatched - sent_again, "one decision per dispatch");
    assert_eq!(metrics.sum("smg_cache_aware_match_ratio_count") as usize, decisions);
    let without_owner = metrics.sum("smg_owner_overloaded_total") as usize;
    assert_eq!(metrics.sum("smg_worker_selection_total") as usize, decisions + without_owner);
    let requests = metrics.sum_of("smg_http_requests_total", "path=\"/v1/completions\"");
    assert_eq!(requests as usize, REQUESTS);
    let malformed = ENDINGS.len() - 1;
    assert!(decisions >= REQUESTS * malformed / ENDINGS.len(), "{decisions} decisions");
    eventually("no connection is left behind", || gateway.descriptors() <= descriptors);
}

/// One request from its first byte to its end. The connection, if it can be used again.
fn request(
    gateway: SocketAddr,
    seen: &[AtomicBool],
    number: usize,
    connection: Option<Client>,
) -> Option<Client> {
    let ending = ENDINGS[number % ENDINGS.len()];
    let mut client = connection
        .unwrap_or_else(|| Client::connect_to(gateway).expect("the gateway takes connections"));
    let prompt = format!("request {number}: {ending}. {}", "Common ground. ".repeat(number % 5));
    let body = match ending {
        "not json" => "{\"model\":".to_owned(),
        _ => serde_json::json!({"model": "m", "prompt": prompt}).to_string(),
    };
    client.send(&post("/v1/completions", body.as_bytes()));
    match ending {
        "whole" | "streamed" => {
            let response = client.response();
            assert_eq!((response.status(), response.complete), (200, true), "{number}");
        }
        "fails" => assert_eq!(client.response().status(), 500),
        "not json" => assert_eq!(client.response().status(), 400),
        "worker resets" => assert_eq!(client.response().status(), 502),
        "worker dies mid-stream" => {
            assert!(client.response().text().contains("event: error"), "{number}");
            return None;
        }
        "client leaves mid-stream" => {
            assert_eq!(client.response_head().status(), 200, "{number}");
            client.leave();
            return None;
        }
        leaves => {
            eventually("the request is at a worker", || seen[number].load(Ordering::SeqCst));
            if leaves.contains("vanishes") {
                client.vanish()
            } else {
                client.leave()
            }
            return None;
        }
    }
    Some(client)
}

/// A worker's part of it.
fn perform(exchange: &mut Exchange, seen: &[AtomicBool]) {
    let body = exchange.body().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
    let number = body.split("request ").nth(1).and_then(|rest| rest.split(':').next());
    let number: usize = number.and_then(|number| number.parse().ok()).unwrap_or_default();
    let ending = ENDINGS.into_iter().find(|ending| body.contains(ending)).unwrap_or_default();
    match ending {
        "whole" => exchange.answer(200, b"whole"),
        "fails" => exchange.answer(500, b"failed"),
        "worker resets" => exchange.reset(),
        "streamed" => {
            exchange.begin_events();
            exchange.event("one");
            exchange.end();
        }
        "client leaves mid-stream" => {
            exchange.begin_events();
            exchange.event("one");
            exchange.until_abandoned();
        }
        "worker dies mid-stream" => {
            exchange.begin_events();
            exchange.event("one");
            exchange.close();
        }
        _ => {
            seen[number].store(true, Ordering::SeqCst);
            exchange.until_abandoned();
        }
    }
}
