//! More requests come per second than may. Bounds that hold on a machine of any speed: no test asks for
//! something to be quick.

use std::time::{Duration, Instant};

use crate::harness::{Client, Gateway, Response, Worker, chat, eventually};

/// Sends a request over each of `count` connections at once, then reads the answers.
fn at_once(gateway: &Gateway, count: usize) -> Vec<Response> {
    let mut clients: Vec<Client> = (0..count).map(|_| Client::connect(gateway)).collect();
    for client in &mut clients {
        client.send(&chat("hello"));
    }
    clients.iter_mut().map(Client::response).collect()
}

fn count(answers: &[Response], status: u16) -> usize {
    answers.iter().filter(|answer| answer.status() == status).count()
}

#[test]
fn a_burst_is_let_in_and_the_rest_is_refused() {
    for shards in [1, 3] {
        let worker = Worker::obliging();
        let flags = format!("--shards {shards} --rate-limit-tokens-per-second 4 --queue-size 0");
        let gateway = Gateway::before([&worker]).flags(&flags).start();
        let begun = Instant::now();
        let answers = at_once(&gateway, 40);
        let (let_in, refused) = (count(&answers, 200), count(&answers, 429));
        // A full bucket of one second, and four for each second that has passed.
        let most = 4 + (begun.elapsed().as_secs_f64() * 4.0) as usize;
        assert!((4..=most).contains(&let_in), "{let_in} of at most {most}");
        assert_eq!(let_in + refused, 40);
        for answer in answers.iter().filter(|answer| answer.status() == 429) {
            assert_eq!(answer.error_code(), Some("admission_queue_full"));
            assert_eq!(answer.head.header("retry-after"), Some("2"));
        }
        assert_eq!(worker.dispatched(), let_in);
        let metrics = gateway.metrics();
        for (name, label, value) in [
            ("smg_http_rate_limit_total", "result=\"allowed\"", let_in),
            ("smg_http_rate_limit_total", "result=\"rejected\"", refused),
            ("smg_admission_queue_rejected_total", "reason=\"full\"", refused),
        ] {
            assert_eq!(metrics.sum_of(name, label), value as f64, "{name} {label}");
        }
        // Other routes take no tokens.
        let mut client = Client::connect(&gateway);
        for _ in 0..20 {
            assert_eq!(client.get("/v1/models").expect("an answer").status(), 200);
        }
        client.leave();
        gateway.is_at_rest();
        assert!(gateway.metrics().is_zero("smg_admission_inflight"));
    }
}

#[test]
fn those_who_wait_are_let_in_at_the_rate() {
    for shards in [1, 3] {
        let worker = Worker::obliging();
        let flags = format!(
            "--shards {shards} --rate-limit-tokens-per-second 20 --max-concurrent-requests 5 \
             --queue-size 100"
        );
        let gateway = Gateway::before([&worker]).flags(&flags).start();
        let begun = Instant::now();
        let answers = at_once(&gateway, 30);
        assert_eq!(count(&answers, 200), 30);
        // Five at once, then 25 each 50 ms after the other.
        assert!(begun.elapsed() >= Duration::from_millis(1250), "{:?}", begun.elapsed());
        gateway.is_at_rest();
        assert!(gateway.metrics().is_zero("smg_admission_queue_depth"));
    }
}

#[test]
fn an_answer_gives_no_token_back() {
    let worker = Worker::obliging();
    let flags = "--rate-limit-tokens-per-second 10 --max-concurrent-requests 1";
    let gateway = Gateway::before([&worker]).flags(flags).start();
    let begun = Instant::now();
    let mut client = Client::connect(&gateway);
    for _ in 0..6 {
        assert_eq!(client.ask("hello").status(), 200);
    }
    assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());
}

#[test]
fn who_leaves_the_queue_takes_no_token() {
    let worker = Worker::obliging();
    let flags = "--shards 1 --rate-limit-tokens-per-second 1 --max-concurrent-requests 1";
    let gateway = Gateway::before([&worker]).flags(flags).start();
    assert_eq!(Client::connect(&gateway).ask("first").status(), 200);
    let mut leaving: Vec<Client> = (0..50).map(|_| Client::connect(&gateway)).collect();
    for client in &mut leaving {
        client.send(&chat("leaves"));
    }
    eventually("they wait", || gateway.metrics().sum("smg_admission_queue_depth") >= 20.0);
    leaving.into_iter().for_each(Client::vanish);
    eventually("they are gone", || gateway.metrics().is_zero("smg_admission_queue_depth"));
    // 50 tokens would take as many seconds, more than a client of these tests waits.
    assert_eq!(Client::connect(&gateway).ask("last").status(), 200);
    gateway.is_at_rest();
}

#[test]
fn who_waits_too_long_is_told_so() {
    let worker = Worker::obliging();
    let flags =
        "--rate-limit-tokens-per-second 1 --max-concurrent-requests 1 --queue-timeout-secs 1";
    let gateway = Gateway::before([&worker]).flags(flags).start();
    let answers = at_once(&gateway, 12);
    let (let_in, late) = (count(&answers, 200), count(&answers, 503));
    assert_eq!(let_in + late, 12);
    assert!(let_in >= 1 && late >= 1, "{let_in} let in, {late} too late");
    let timed_out = answers.iter().find(|answer| answer.status() == 503).expect("one of them");
    assert_eq!(timed_out.error_code(), Some("admission_queue_timeout"));
    assert_eq!(timed_out.head.header("retry-after"), Some("2"));
    gateway.is_at_rest();
}
