//! Request bodies are compressed: well, badly, or to make the gateway burst.

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::harness::{Client, Gateway, Worker, eventually};

const ROUTE: &str = "/v1/chat/completions";
const MIB: usize = 1 << 20;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

/// One uncompressed brotli meta-block and an empty last one (RFC 7932 §9): 1 to 65,536 bytes.
fn brotli(bytes: &[u8]) -> Vec<u8> {
    let header = ((bytes.len() as u32 - 1) << 4) | (1 << 20);
    [&header.to_le_bytes()[..3], bytes, &[0b11]].concat()
}

/// One zstd frame of raw blocks (RFC 8878 §3.1.1), with a window of 8 MiB.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut out = b"\x28\xb5\x2f\xfd\x00\x68".to_vec();
    let mut blocks = bytes.chunks(128 << 10).peekable();
    while let Some(block) = blocks.next() {
        let header = ((block.len() as u32) << 3) | u32::from(blocks.peek().is_none());
        out.extend_from_slice(&header.to_le_bytes()[..3]);
        out.extend_from_slice(block);
    }
    out
}

/// A zstd frame of blocks of 128 KiB that repeat one byte: 4 bytes each.
fn zstd_zeros(length: usize) -> Vec<u8> {
    let mut out = b"\x28\xb5\x2f\xfd\x00\x68".to_vec();
    let blocks = length / (128 << 10);
    for block in 1..=blocks {
        let header = ((128 << 10) << 3) | (1 << 1) | u32::from(block == blocks);
        out.extend_from_slice(&header.to_le_bytes()[..3]);
        out.push(0);
    }
    out
}

/// 10 MiB of zeros, by the reference encoder of brotli.
const BROTLI_ZEROS: &[u8] = &[
    0xcb, 0xff, 0xff, 0x3f, 0xf8, 0x27, 0x00, 0xe2, 0xb1, 0x40, 0x20, 0xf7, 0xfe, 0x2f, 0xff, 0xff,
    0x3f, 0xf0, 0x4f, 0x00, 0xc4, 0x61, 0x11, 0x80, 0xee, 0xfd, 0x07,
];

type Encode = fn(&[u8]) -> Vec<u8>;

/// Every coding by its name, and lists of them.
const CODINGS: [(&str, Encode); 8] = [
    ("gzip", gzip),
    ("x-gzip", gzip),
    ("GZip", |bytes| [gzip(&bytes[..9]), gzip(&bytes[9..])].concat()),
    ("deflate", zlib),
    ("br", brotli),
    ("zstd", zstd),
    ("gzip, br", |bytes| brotli(&gzip(bytes))),
    ("identity, deflate ,zstd,gzip", |bytes| gzip(&zstd(&zlib(bytes)))),
];

fn body(text: &str) -> Vec<u8> {
    let body = serde_json::json!({"model": "m", "messages": [{"role": "user", "content": text}]});
    body.to_string().into_bytes()
}

fn encoded(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "POST {ROUTE} HTTP/1.1\r\nHost: g\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

/// A worker that says which one it is, and what it got.
fn naming(name: &'static str) -> Worker {
    Worker::start(move |exchange| {
        let Ok(body) = exchange.body().map(<[u8]>::to_vec) else { return };
        let coding = exchange.head.header("content-encoding").unwrap_or_default().to_owned();
        let mut answer = format!("{name}\n{coding}\n").into_bytes();
        answer.extend_from_slice(&body);
        exchange.answer(200, &answer);
    })
}

#[test]
fn it_is_routed_by_its_prompt_and_forwarded_as_it_came() {
    for shards in [1, 3] {
        let workers = ["first", "second", "third"].map(naming);
        let gateway = Gateway::before(&workers).flags(&format!("--shards {shards}")).start();
        for (turn, (coding, encode)) in CODINGS.into_iter().enumerate() {
            let prompt = body(&format!("{turn} is the subject of {}", "this talk ".repeat(40)));
            let mut client = Client::connect(&gateway);
            client.send(&encoded("identity", &prompt));
            let plain = client.response();
            assert_eq!(plain.status(), 200);
            let name = plain.text().lines().next().expect("a name").to_owned();
            // Now the others have fewer requests behind them: only the prefix speaks for it.
            let data = encode(&prompt);
            client.send(&encoded(coding, &data));
            let answer = client.response();
            assert_eq!(answer.status(), 200, "{coding}");
            let want = [format!("{name}\n{coding}\n").as_bytes(), &data[..]].concat();
            assert!(answer.body == want, "{coding}: {}", answer.text());
        }
        let matched =
            gateway.metrics().sum_of("smg_cache_aware_decisions_total", "branch=\"tree_match\"");
        assert_eq!(matched, CODINGS.len() as f64);
        gateway.is_at_rest();
    }
}

#[test]
fn it_may_come_in_chunks_and_be_sent_again() {
    let dying = Worker::start(|exchange| exchange.reset());
    let worker = naming("only");
    let gateway = Gateway::before([&dying, &worker]).flags("--policy round_robin").start();
    let data = gzip(&body("once more, in chunks"));
    for _ in 0..4 {
        let mut client = Client::connect(&gateway);
        client.send(
            format!(
                "POST {ROUTE} HTTP/1.1\r\nHost: g\r\nContent-Encoding: gzip\r\n\
                 Transfer-Encoding: chunked\r\n\r\n"
            )
            .as_bytes(),
        );
        for piece in data.chunks(7) {
            client.send(format!("{:x}\r\n", piece.len()).as_bytes());
            client.send(piece);
            client.send(b"\r\n");
        }
        client.send(b"0\r\n\r\n");
        let answer = client.response();
        assert_eq!(answer.body, [b"only\ngzip\n", &data[..]].concat(), "{}", answer.text());
    }
    assert_eq!(worker.dispatched(), 4);
    assert!(dying.dispatched() > 0);
    gateway.is_at_rest();
}

#[test]
fn a_body_that_is_not_what_it_says_is_refused() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).start();
    let plain = body("hello");
    // Over one connection: it stays usable, since each body was read whole.
    let mut client = Client::connect(&gateway);
    for (coding, encode) in CODINGS {
        let data = encode(&plain);
        let mut followed = data.clone();
        followed.extend_from_slice(b"x");
        for (broken, what) in [
            (&data[..data.len() - 1], "cut off"),
            (&followed[..], "followed"),
            (&plain[..], "plain"),
            (&b""[..], "empty"),
        ] {
            client.send(&encoded(coding, broken));
            let answer = client.response();
            assert_eq!(
                (answer.status(), answer.error_code()),
                (400, Some("bad_request")),
                "{what}"
            );
            assert!(answer.text().contains("Content-Encoding"), "{}", answer.text());
        }
        for (text, status, code) in [
            ("[1,2]", 400, "json_parse_error"),
            ("{\"model\":", 400, "json_parse_error"),
            ("{\"model\":\"no-such-model\"}", 404, "model_not_found"),
        ] {
            client.send(&encoded(coding, &encode(format!("{text}          ").as_bytes())));
            let answer = client.response();
            assert_eq!((answer.status(), answer.error_code()), (status, Some(code)), "{coding}");
        }
    }
    assert_eq!(worker.dispatched(), 0);
    client.send(&encoded("gzip", &gzip(&plain)));
    assert_eq!(client.response().status(), 200);
}

#[test]
fn a_coding_nobody_knows_is_refused_with_the_names_of_those_that_are_known() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).start();
    for coding in ["snappy", "compress", "gzip, lz4", "gzip;q=1", "br, br, br, br"] {
        let mut client = Client::connect(&gateway);
        client.send(&encoded(coding, b"anything"));
        let answer = client.response();
        assert_eq!(answer.status(), 415, "{coding}");
        assert_eq!(answer.error_code(), Some("unsupported_content_encoding"));
        for known in ["gzip", "deflate", "br", "zstd"] {
            assert!(answer.text().contains(known), "{}", answer.text());
        }
    }
    assert_eq!(worker.dispatched(), 0);
}

#[test]
fn a_bomb_is_refused_and_takes_no_memory() {
    let worker = Worker::obliging();
    let flags = format!("--shards 3 --max-payload-size {MIB}");
    let gateway = Gateway::before([&worker]).flags(&flags).start();
    let zeros = vec![0; 10 * MIB];
    let bombs = [
        ("gzip", gzip(&zeros)),
        ("gzip", gzip(&zeros[..MIB]).repeat(10)),
        ("deflate", zlib(&zeros)),
        ("br", BROTLI_ZEROS.to_vec()),
        ("zstd", zstd_zeros(10 * MIB)),
        // 4 GiB.
        ("zstd", zstd_zeros(4 << 30)),
        ("gzip, gzip", gzip(&gzip(&zeros))),
        // Nothing comes out of it, but much lies between the two.
        ("gzip, gzip", gzip(&gzip(b"").repeat(10 * MIB / 20))),
    ];
    // Every code path once, so that what they keep is counted before.
    let mut client = Client::connect(&gateway);
    for (coding, encode) in CODINGS {
        client.send(&encoded(coding, &encode(&body("hello"))));
        assert_eq!(client.response().status(), 200, "{coding}");
    }
    let before = gateway.peak_resident_bytes();
    let mut clients: Vec<Client> =
        (0..10 * bombs.len()).map(|_| Client::connect(&gateway)).collect();
    for (client, (coding, bomb)) in clients.iter_mut().zip(bombs.iter().cycle()) {
        client.send(&encoded(coding, bomb));
    }
    for (client, (coding, _)) in clients.iter_mut().zip(bombs.iter().cycle()) {
        let answer = client.response();
        let code = answer.error_code();
        assert_eq!((answer.status(), code), (413, Some("request_too_large")), "{coding}");
    }
    // Decoded they are more than 40 GiB. A thread of the pool holds 1 MiB of it, or a zstd window of
    // 8 MiB, in a buffer that doubles; there are two, and what is freed is not gone at once.
    let grown = gateway.peak_resident_bytes() - before;
    assert!(grown < 96 * MIB, "{} KiB more", grown >> 10);
    assert_eq!(worker.dispatched(), CODINGS.len());
    // Exactly the limit is not too much.
    let mut largest = body(&"y".repeat(MIB - body("").len()));
    assert_eq!(largest.len(), MIB);
    client.send(&encoded("gzip", &gzip(&largest)));
    assert_eq!(client.response().status(), 200);
    largest.push(b' ');
    client.send(&encoded("gzip", &gzip(&largest)));
    assert_eq!(client.response().status(), 413);
}

#[test]
fn more_bodies_than_there_is_room_for_wait_and_those_who_leave_are_forgotten() {
    for shards in [1, 3] {
        let worker = Worker::obliging();
        let gateway = Gateway::before([&worker]).flags(&format!("--shards {shards}")).start();
        let data = gzip(&body(&"many words ".repeat(40_000)));
        let mut clients: Vec<Client> = (0..240).map(|_| Client::connect(&gateway)).collect();
        for client in &mut clients {
            client.send(&encoded("gzip", &data));
        }
        let staying = clients.split_off(160);
        clients.into_iter().for_each(Client::vanish);
        for mut client in staying {
            assert_eq!(client.response().status(), 200);
            client.leave();
        }
        gateway.is_at_rest();
        eventually("the pool serves on", || Client::connect(&gateway).ask("hello").status() == 200);
    }
}
