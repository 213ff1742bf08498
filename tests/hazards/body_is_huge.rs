//! Request bodies so large that reading the prompt takes long.

use crate::harness::{Client, Gateway, Worker, eventually, post};

const ROUTE: &str = "/v1/completions";
/// From this size on, reading is left to the pool.
const LENT_FROM: usize = 256 << 10;

/// A body of exactly this size whose prompt begins with `start`.
fn body(start: &str, size: usize) -> Vec<u8> {
    let (head, tail) = (format!(r#"{{"model":"m","prompt":"{start}"#), r#""}"#);
    let mut body = head.into_bytes();
    let filler = b" word".iter().cycle().take(size - body.len() - tail.len());
    body.extend(filler);
    body.extend_from_slice(tail.as_bytes());
    assert_eq!(body.len(), size);
    body
}

fn naming(name: &'static str) -> Worker {
    Worker::start(move |exchange| {
        let Ok(body) = exchange.body() else { return };
        let sum = body.iter().fold(0u64, |sum, &byte| sum.wrapping_mul(31) + u64::from(byte));
        let answer = format!("{name} {} {sum}", body.len());
        exchange.answer(200, answer.as_bytes());
    })
}

fn lent(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metrics().sum_of("smg_bodies_lent_total", &format!("reason=\"{reason}\""))
}

#[test]
fn it_is_routed_and_forwarded_like_any_other() {
    for shards in [1, 3] {
        let workers = ["first", "second", "third"].map(naming);
        let gateway = Gateway::before(&workers).flags(&format!("--shards {shards}")).start();
        let sizes = [LENT_FROM - 1, LENT_FROM, 1 << 20, 6 << 20];
        for (turn, size) in sizes.into_iter().enumerate() {
            let request = body(&format!("{turn} is the subject"), size);
            let sum =
                request.iter().fold(0u64, |sum, &byte| sum.wrapping_mul(31) + u64::from(byte));
            let mut answers = Vec::new();
            for _ in 0..3 {
                let mut client = Client::connect(&gateway);
                client.send(&post(ROUTE, &request));
                let answer = client.response();
                assert_eq!(answer.status(), 200, "{}", answer.text());
                answers.push(answer.text());
            }
            assert!(answers[0].ends_with(&format!(" {size} {sum}")), "{}", answers[0]);
            // The prefix leads all of them to one worker, unless the owner of the model was asked and
            // took so long, as it may where nothing is optimized, that the request went without it.
            let in_time = gateway.metrics().is_zero("smg_owner_overloaded_total");
            let alike = answers.iter().all(|answer| *answer == answers[0]);
            assert!(alike || shards > 1 && !in_time, "{answers:?}");
        }
        assert_eq!((lent(&gateway, "large"), lent(&gateway, "compressed")), (9.0, 0.0));
        let matched =
            gateway.metrics().sum_of("smg_cache_aware_decisions_total", "branch=\"tree_match\"");
        assert!(matched == 8.0 || shards > 1, "{matched}");
        gateway.is_at_rest();
    }
}

#[test]
fn faults_in_it_are_found_where_they_are() {
    let worker = naming("only");
    let gateway = Gateway::before([&worker]).start();
    let mut client = Client::connect(&gateway);
    for size in [1000, LENT_FROM + 1000, 5 << 20] {
        let sound = body("p", size);
        let mut cut = sound.clone();
        cut.truncate(size - 1);
        let mut binary = sound.clone();
        binary[size - 5] = 0xff;
        let mut list = vec![b' '; size];
        list[..2].copy_from_slice(b"[]");
        let unknown = String::from_utf8(sound).expect("ASCII").replacen("\"m\"", "\"x\"", 1);
        for (request, status, code, said) in [
            (&cut[..], 400, "json_parse_error", format!("at byte {}", size - 1)),
            (&binary, 400, "json_parse_error", format!("not valid UTF-8 at byte {}", size - 5)),
            (&list, 400, "json_parse_error", "must be a JSON object".to_owned()),
            (unknown.as_bytes(), 404, "model_not_found", "'x'".to_owned()),
        ] {
            client.send(&post(ROUTE, request));
            let answer = client.response();
            assert_eq!((answer.status(), answer.error_code()), (status, Some(code)), "{size}");
            assert!(answer.text().contains(&said), "{said}: {}", answer.text());
        }
    }
    assert_eq!(worker.dispatched(), 0);
    assert_eq!(lent(&gateway, "large"), 8.0);
    client.leave();
    gateway.is_at_rest();
}

#[test]
fn it_is_sent_again_whole_to_another_worker() {
    // It takes a part of the body with it.
    let dying = Worker::start(|exchange| exchange.reset());
    let worker = naming("only");
    let flags = "--policy round_robin --retry-initial-backoff-ms 1";
    let gateway = Gateway::before([&dying, &worker]).flags(flags).start();
    let request = body("again", 3 << 20);
    let sum = request.iter().fold(0u64, |sum, &byte| sum.wrapping_mul(31) + u64::from(byte));
    for _ in 0..4 {
        let mut client = Client::connect(&gateway);
        client.send(&post(ROUTE, &request));
        assert_eq!(client.response().text(), format!("only {} {sum}", 3 << 20));
    }
    assert!(dying.dispatched() > 0);
    assert_eq!(worker.dispatched(), 4);
    gateway.is_at_rest();
}

#[test]
fn others_are_served_while_it_is_read() {
    // Reading a huge one, number after number, takes far longer than answering a small one and than sending
    // it on, whatever the machine.
    const HUGE: usize = 12;
    const SMALL: usize = 6;
    let huge = Worker::serving("m", |exchange| exchange.answer(200, b"huge"));
    let small = Worker::serving("s", |exchange| exchange.answer(200, b"small"));
    let gateway = Gateway::before([&huge, &small]).flags("--shards 1").start();
    let numbers = "1,".repeat(2 << 20);
    let request =
        post(ROUTE, format!(r#"{{"model":"m","prompt":"p","x":[{numbers}1]}}"#).as_bytes());
    let mut clients: Vec<Client> = (0..HUGE).map(|_| Client::connect(&gateway)).collect();
    for client in &mut clients {
        client.send(&request);
    }
    let before = huge.dispatched();
    let mut client = Client::connect(&gateway);
    for _ in 0..SMALL {
        client.send(&post(ROUTE, br#"{"model":"s","prompt":"p"}"#));
        assert_eq!(client.response().text(), "small");
    }
    // If the shard read the huge ones itself, it would read at least one between two small ones.
    let meanwhile = huge.dispatched() - before;
    assert!(meanwhile < SMALL, "{meanwhile} huge ones went before {SMALL} small ones");
    for client in &mut clients {
        assert_eq!(client.response().text(), "huge");
    }
}

#[test]
fn who_leaves_while_it_is_read_is_forgotten() {
    let worker = naming("only");
    let gateway = Gateway::before([&worker]).flags("--shards 3").start();
    let request = post(ROUTE, &body("leaves", 2 << 20));
    let mut clients: Vec<Client> = (0..60).map(|_| Client::connect(&gateway)).collect();
    for client in &mut clients {
        client.send(&request);
    }
    clients.into_iter().for_each(Client::vanish);
    gateway.is_at_rest();
    eventually("it serves on", || Client::connect(&gateway).ask("hello").status() == 200);
}
