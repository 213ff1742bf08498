//! Many clients send large bodies, slowly or at once: together they would take all memory.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::harness::http2::{DATA, END_STREAM, RST_STREAM, SETTINGS, WINDOW_UPDATE};
use crate::harness::{
    Certificate, Client, Exchange, Gate, Gateway, Http2, RawHttp2, Worker, eventually, http2, post,
};

const ROUTE: &str = "/v1/completions";
const MIB: usize = 1 << 20;
/// Room for two bodies of three MiB, and their prompts.
const LIMIT: usize = 8 * MIB;
const FLAGS: &str = "--max-payload-size 8388608 --max-body-memory 8388608 --retry-max-retries 3 \
    --retry-initial-backoff-ms 1 --stream-body-stall-timeout-secs 600";

fn body(size: usize) -> Vec<u8> {
    let (head, tail) = (&br#"{"model":"m","prompt":""#[..], &br#""}"#[..]);
    [head, &vec![b'x'; size - head.len() - tail.len()], tail].concat()
}

fn held(gateway: &Gateway) -> usize {
    gateway.metrics().sum("smg_body_memory_bytes") as usize
}

#[track_caller]
fn nothing_is_held(gateway: &Gateway) {
    eventually("nothing is held", || held(gateway) == 0);
}

/// Sends the head of a request and `sent` bytes of its body.
fn begin(client: &mut Client, request: &[u8], sent: usize) {
    let head_len = request.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
    client.send(&request[..head_len + sent]);
}

/// With one shard and with three.
fn each(test: impl Fn(&str)) {
    for shards in [1, 3] {
        test(&format!("{FLAGS} --shards {shards}"));
    }
}

#[track_caller]
fn assert_refused(client: &mut Client) {
    let answer = client.response();
    assert_eq!((answer.status(), answer.error_code()), (503, Some("body_memory_exhausted")));
    assert_eq!(answer.head.header("retry-after"), Some("1"));
    assert!(answer.text().contains("--max-body-memory"), "{}", answer.text());
}

#[test]
fn half_sent_bodies_take_what_has_arrived_and_the_next_large_one_is_refused() {
    each(|flags| {
        let worker = Worker::obliging();
        let gateway = Gateway::before([&worker]).flags(flags).start();
        let request = post(ROUTE, &body(4 * MIB));
        // Announced are 40 MiB, and nothing of it has arrived.
        let mut announcing: Vec<Client> = (0..10).map(|_| Client::connect(&gateway)).collect();
        for client in &mut announcing {
            begin(client, &request, 1000);
        }
        let mut slow: Vec<Client> = (0..2).map(|_| Client::connect(&gateway)).collect();
        for client in &mut slow {
            begin(client, &request, 3 * MIB);
        }
        eventually("they are held", || held(&gateway) == 6 * MIB);
        // Two more MiB would fit, and no more.
        let mut refused = Client::connect(&gateway);
        refused.send(&request);
        assert_refused(&mut refused);
        assert!(refused.is_at_end(), "its connection has ended");
        let mut chunked = Client::connect(&gateway);
        chunked.send(
            format!("POST {ROUTE} HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n")
                .as_bytes(),
        );
        let chunk = vec![b'x'; 3 * MIB];
        chunked.send(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunked.send(&chunk);
        assert_refused(&mut chunked);
        eventually("what was refused is not held", || held(&gateway) == 6 * MIB);
        let mut small = Client::connect(&gateway);
        for _ in 0..3 {
            assert_eq!(small.ask("small").status(), 200);
        }
        // One that fits is served, and a larger one once there is room.
        small.send(&post(ROUTE, &body(MIB)));
        assert_eq!(small.response().status(), 200);
        slow.pop().expect("two").vanish();
        eventually("its part is given back", || held(&gateway) == 3 * MIB);
        small.send(&post(ROUTE, &body(2 * MIB)));
        assert_eq!(small.response().status(), 200);
        let metrics = gateway.metrics();
        let answers =
            metrics.sum_of("smg_http_responses_total", "error_code=\"body_memory_exhausted\"");
        assert_eq!(answers, 2.0);
        assert_eq!(metrics.sum("smg_body_memory_limit_bytes"), LIMIT as f64);
        drop((slow, announcing, small, refused, chunked));
        nothing_is_held(&gateway);
        gateway.is_at_rest();
    });
}

#[test]
fn it_is_given_back_however_a_request_ends() {
    each(|flags| {
        let gate = Gate::default();
        let opened = gate.clone();
        let dying = Worker::start(|exchange| exchange.reset());
        let worker = Worker::start(move |exchange: &mut Exchange| {
            if exchange.mentions("waits") {
                opened.wait();
            }
            exchange.answer(200, b"{}");
        });
        let gateway =
            Gateway::before([&dying, &worker]).flags(flags).flags("--policy round_robin").start();
        // Three times it fits: as it came, perhaps once more while it is sent again, and its prompt.
        let large = body(2 * MIB);
        let mut client = Client::connect(&gateway);
        // Sent again to another worker; relayed; refused for what it is.
        for _ in 0..4 {
            client.send(&post(ROUTE, &large));
            assert_eq!(client.response().status(), 200);
        }
        assert!(dying.dispatched() > 0);
        let cut = &large[..large.len() - 1];
        for (broken, status) in [(cut, 400), (&large[1..], 400)] {
            client.send(&post(ROUTE, broken));
            assert_eq!(client.response().status(), status);
        }
        let unknown =
            String::from_utf8(large.clone()).expect("ASCII").replacen("\"m\"", "\"?\"", 1);
        client.send(&post(ROUTE, unknown.as_bytes()));
        assert_eq!(client.response().status(), 404);
        nothing_is_held(&gateway);
        // While a worker computes, and its client leaves.
        let waiting =
            String::from_utf8(large.clone()).expect("ASCII").replacen("xxxxx", "waits", 1);
        client.send(&post(ROUTE, waiting.as_bytes()));
        eventually("it waits for its answer", || held(&gateway) >= 2 * MIB);
        client.vanish();
        nothing_is_held(&gateway);
        gate.open();
        // Those who leave while their body is read or waits to be read.
        let request = post(ROUTE, &body(MIB));
        let mut leaving: Vec<Client> = (0..40).map(|_| Client::connect(&gateway)).collect();
        for client in &mut leaving {
            client.send(&request);
        }
        leaving.into_iter().for_each(Client::vanish);
        nothing_is_held(&gateway);
        gateway.is_at_rest();
    });
}

#[test]
fn it_is_given_back_when_a_body_stops_arriving() {
    let worker = Worker::obliging();
    let flags = "--shards 1 --stream-body-stall-timeout-secs 1";
    let gateway = Gateway::before([&worker]).flags(flags).start();
    let mut slow = Client::connect(&gateway);
    begin(&mut slow, &post(ROUTE, &body(4 * MIB)), 3 * MIB);
    eventually("it is held", || held(&gateway) == 3 * MIB);
    assert_eq!(slow.response().status(), 408);
    nothing_is_held(&gateway);
    drop(slow);
    gateway.is_at_rest();
}

#[test]
fn it_is_given_back_when_a_body_arrives_too_slowly_for_its_size() {
    let worker = Worker::obliging();
    let flags = "--shards 1 --stream-body-stall-timeout-secs 1";
    let gateway = Gateway::before([&worker]).flags(flags).start();
    let large = post(ROUTE, &body(4 * MIB));
    let mut slow = Client::connect(&gateway);
    begin(&mut slow, &large, 3 * MIB);
    // A small one may take its time.
    let small = post(ROUTE, &body(60 << 10));
    let mut patient = Client::connect(&gateway);
    begin(&mut patient, &small, (60 << 10) - 20);
    eventually("it is held", || held(&gateway) >= 3 * MIB);
    let last = small.len() - 20;
    for at in last..last + 8 {
        patient.send(&small[at..=at]);
        slow.send(b"x");
        std::thread::park_timeout(Duration::from_millis(200));
    }
    // Its time was over a while ago, and did not begin anew with the last byte.
    let dripped = Instant::now();
    let answer = slow.response();
    assert_eq!(answer.status(), 408);
    assert!(dripped.elapsed() < Duration::from_millis(600), "a byte now and then keeps it");
    assert!(answer.text().contains("too slowly for its size"), "{}", answer.text());
    patient.send(&small[last + 8..]);
    assert_eq!(patient.response().status(), 200);
    nothing_is_held(&gateway);
    // One that grows by more than a sixteenth, 192 KiB, in every second is not slow.
    let mut steady = Client::connect(&gateway);
    let sent = large.len() - 5 * (256 << 10);
    steady.send(&large[..sent]);
    for part in large[sent..].chunks(256 << 10) {
        std::thread::park_timeout(Duration::from_millis(400));
        steady.send(part);
    }
    assert_eq!(steady.response().status(), 200);
    drop((slow, patient, steady));
    nothing_is_held(&gateway);
    gateway.is_at_rest();
}

#[test]
fn the_largest_body_has_room_for_all_it_takes_when_it_is_alone() {
    each(|flags| {
        let worker = Worker::obliging();
        let gateway = Gateway::before([&worker]).flags(flags).start();
        let mut client = Client::connect(&gateway);
        // As large as the budget, and its prompt comes on top; so do what it is decoded to, and its prompt.
        let largest = body(LIMIT);
        for request in [post(ROUTE, &largest), compressed(&largest)] {
            client.send(&request);
            assert_eq!(client.response().status(), 200);
            nothing_is_held(&gateway);
        }
        // Framing of chunks is not part of the body.
        client.send(
            format!("POST {ROUTE} HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n")
                .as_bytes(),
        );
        for chunk in largest.chunks(16 << 10) {
            client.send(&[format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
        }
        client.send(b"0\r\n\r\n");
        assert_eq!(client.response().status(), 200);
        drop(client);
        nothing_is_held(&gateway);
        gateway.is_at_rest();
    });
}

/// The request with this body in gzip.
fn compressed(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(body).expect("memory takes everything");
    let data = encoder.finish().expect("memory takes everything");
    let head = format!(
        "POST {ROUTE} HTTP/1.1\r\nHost: g\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        data.len()
    );
    [head.as_bytes(), &data].concat()
}

#[test]
fn what_is_decoded_and_prompts_count_too() {
    each(|flags| {
        let worker = Worker::obliging();
        let gateway = Gateway::before([&worker]).flags(flags).start();
        let mut slow = Client::connect(&gateway);
        begin(&mut slow, &post(ROUTE, &body(6 * MIB)), 5 * MIB);
        eventually("it is held", || held(&gateway) == 5 * MIB);
        let mut client = Client::connect(&gateway);
        // It was read whole: its connection stays.
        client.send(&compressed(&body(4 * MIB)));
        assert_refused(&mut client);
        client.send(&compressed(&body(MIB)));
        assert_eq!(client.response().status(), 200);
        // The body fits, and its prompt does not beside it.
        client.send(&post(ROUTE, &body(2 * MIB)));
        assert_refused(&mut client);
        eventually("it is held alone", || held(&gateway) == 5 * MIB);
        drop((slow, client));
        nothing_is_held(&gateway);
        gateway.is_at_rest();
    });
}

#[test]
fn it_holds_over_tls_and_http2() {
    let certificate = Certificate::new();
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags(FLAGS).tls(&certificate).start();
    let request = post(ROUTE, &body(6 * MIB));
    let mut slow = Client::connect_tls(&gateway, &certificate);
    begin(&mut slow, &request, 5 * MIB);
    eventually("it is held", || held(&gateway) == 5 * MIB);
    let mut refused = Client::connect_tls(&gateway, &certificate);
    refused.send(&post(ROUTE, &body(4 * MIB)));
    assert_refused(&mut refused);
    drop((slow, refused));
    nothing_is_held(&gateway);
    gateway.is_at_rest();

    let gateway = Gateway::before([&worker]).flags(FLAGS).start();
    let mut session = Http2::connect(&gateway);
    let mut half = session.open(http2::post(ROUTE), false);
    session.send_some(&mut half.sending, &body(6 * MIB)[..5 * MIB]);
    session.run_for(Duration::from_millis(50));
    eventually("all but what is on its way is held", || held(&gateway) >= 4 * MIB);
    let answer = session.post(ROUTE, &body(5 * MIB));
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("x-smg-error-code"), Some("body_memory_exhausted"));
    assert_eq!(session.post(ROUTE, &body(1000)).status, 200);
    drop((half, session));
    nothing_is_held(&gateway);
    gateway.is_at_rest();
}

#[test]
fn many_small_ones_over_one_connection_count() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags(FLAGS).start();
    let half = &body(60 << 10)[..50 << 10];
    let mut session = Http2::connect(&gateway);
    let mut asked: Vec<_> = (0..100).map(|_| session.open(http2::post(ROUTE), false)).collect();
    for each in &mut asked {
        session.send_some(&mut each.sending, half);
    }
    eventually("they are held", || {
        session.run_for(Duration::from_millis(20));
        held(&gateway) >= 100 * half.len()
    });
    drop((asked, session));
    nothing_is_held(&gateway);
    // Over HTTP/1.1 each needs a connection.
    let request = post(ROUTE, &body(60 << 10));
    let mut clients: Vec<Client> = (0..10).map(|_| Client::connect(&gateway)).collect();
    for client in &mut clients {
        begin(client, &request, half.len());
    }
    for client in &mut clients {
        client.send(&request[request.len() - (60 << 10) + half.len()..]);
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!(held(&gateway), 0);
    drop(clients);
    gateway.is_at_rest();
}

#[test]
fn long_heads_over_one_connection_count_while_their_bodies_are_awaited() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags(FLAGS).start();
    let mut session = Http2::connect(&gateway);
    let long = "x".repeat(50 << 10).parse::<http::HeaderValue>().expect("a value");
    let mut open = |body_comes: bool| {
        let mut request = http2::post(ROUTE);
        request.headers_mut().insert("x-long", long.clone());
        let mut asked = session.open(request, false);
        if body_comes {
            session.send_all(&mut asked.sending, &body(100));
            assert_eq!(session.answer(asked.answer).status, 200);
            return None;
        }
        session.run_for(Duration::from_millis(5));
        Some(asked)
    };
    let asked: Vec<_> = (0..50).map(|_| open(false)).collect();
    eventually("they are held", || held(&gateway) >= 50 * (50 << 10));
    open(true);
    drop((asked, session));
    nothing_is_held(&gateway);
    gateway.is_at_rest();
}

#[test]
fn what_describes_a_worker_is_short() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags(FLAGS).start();
    let numbers = "1,".repeat(150_000);
    let long = format!(r#"{{"url":"http://127.0.0.1:1","x":[{numbers}1]}}"#);
    for path in ["/workers", "/flush_cache"] {
        let mut client = Client::connect(&gateway);
        client.send(&post(path, long.as_bytes()));
        let answer = client.response();
        assert_eq!((answer.status(), answer.error_code()), (413, Some("request_too_large")));
        assert!(answer.text().contains("262144 bytes (of this path)"), "{}", answer.text());
    }
    gateway.is_at_rest();
}

#[test]
fn a_budget_that_the_largest_body_does_not_fit_is_refused_at_start() {
    let worker = Worker::obliging();
    let refusal = Gateway::before([&worker])
        .flags("--max-body-memory 1000 --max-payload-size 1001")
        .refused();
    assert_eq!(refusal.code, Some(2));
    let text = refusal.output;
    assert!(text.contains("--max-body-memory 1000") && text.contains("--max-payload-size 1001"));
}

#[test]
fn open_streams_count_beyond_the_first_of_a_connection() {
    const STREAM: usize = 32 << 10;
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags(FLAGS).start();
    let mut clients: Vec<RawHttp2> = (0..3).map(|_| RawHttp2::connect(&gateway)).collect();
    let open = |client: &mut RawHttp2, streams: std::ops::Range<u32>| {
        streams.for_each(|n| client.post(2 * n + 1, &[], false));
    };
    open(&mut clients[0], 0..8);
    open(&mut clients[1], 0..128);
    eventually("120 count", || held(&gateway) == 120 * STREAM);
    open(&mut clients[0], 8..128);
    eventually("240 count", || held(&gateway) == 240 * STREAM);
    open(&mut clients[2], 0..27);
    let refused: Vec<u32> = (0..3)
        .map(|_| {
            let frame = clients[2].frame_of(&[RST_STREAM]).expect("a refusal");
            assert_eq!(frame.payload, [0, 0, 0, 7], "REFUSED_STREAM");
            frame.stream
        })
        .collect();
    assert_eq!((refused, held(&gateway)), (vec![49, 51, 53], LIMIT));
    assert_eq!(gateway.metrics().sum_of("smg_http_responses_total", "body_memory_exhausted"), 3.0);
    // What was given up can be had again.
    clients[1].send(RST_STREAM, 0, 1 + 2 * 100, &[0, 0, 0, 8]);
    eventually("one less", || held(&gateway) == LIMIT - STREAM);
    drop(clients);
    nothing_is_held(&gateway);
    gateway.is_at_rest();
}

#[test]
fn streams_count_until_their_clients_have_taken_the_answers() {
    const STREAM: usize = 32 << 10;
    let stalled = Gate::default();
    let stalls = stalled.clone();
    let worker = Worker::start(move |exchange| {
        if !exchange.mentions("large") {
            return exchange.answer(200, &[b'x'; 10_000]);
        }
        exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
        exchange.send_until_stalled(&vec![b'x'; 64 * MIB], Duration::from_millis(500));
        stalls.open();
        exchange.until_abandoned();
    });
    let gateway = Gateway::before([&worker]).flags(FLAGS).start();
    let mut client = RawHttp2::connect(&gateway);
    // It allows all of the answers, and takes none.
    client.send(SETTINGS, 0, 0, &[0, 4, 0x40, 0, 0, 0]);
    client.send(WINDOW_UPDATE, 0, 0, &[0x3f, 0xff, 0, 0]);
    let ask = |client: &mut RawHttp2, stream: u32, prompt: &str| {
        client.post(stream, &[], false);
        let body = format!(r#"{{"model":"m","prompt":"{prompt}"}}"#);
        client.send(DATA, END_STREAM, stream, body.as_bytes());
    };
    ask(&mut client, 1, "large");
    stalled.wait();
    // One after the other: it is not by being served that they count.
    for n in 1..108 {
        ask(&mut client, 2 * n + 1, "small");
        eventually("its answer is with the gateway", || {
            let active = gateway.metrics().sum("smg_worker_requests_active");
            worker.dispatched() == n as usize + 1 && active <= 1.0
        });
    }
    assert_eq!(held(&gateway), 100 * STREAM);
    drop(client);
    nothing_is_held(&gateway);
    gateway.is_at_rest();
}

#[test]
fn long_heads_sent_as_references_count_and_a_body_alone_has_room_beside_them() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).flags(FLAGS).start();
    let mut session = Http2::connect(&gateway);
    let long = "x".repeat(3000).parse::<http::HeaderValue>().expect("a value");
    let mut open = || {
        let mut request = http2::post(ROUTE);
        // One field of the table, named twenty times.
        for _ in 0..20 {
            request.headers_mut().append("x-long", long.clone());
        }
        let asked = session.open(request, false);
        session.run_for(Duration::from_millis(5));
        asked
    };
    let asked: Vec<_> = (0..8).map(|_| open()).collect();
    eventually("the heads of free streams are held", || held(&gateway) >= 8 * 60_000);
    // It takes what there is, and has room for its copy all the same.
    assert_eq!(session.post(ROUTE, &body(8 * MIB - 1000)).status, 503, "others have some");
    drop(asked);
    session.run_for(Duration::from_millis(50));
    nothing_is_held(&gateway);
    let mut quiet: Vec<_> = (0..8).map(|_| session.open(http2::post(ROUTE), false)).collect();
    session.run_for(Duration::from_millis(50));
    assert_eq!(session.post(ROUTE, &body(8 * MIB - 1000)).status, 200, "as the ninth");
    quiet.clear();
    drop(session);
    nothing_is_held(&gateway);
    gateway.is_at_rest();
}
