//! The least a client can do, to see what `smg-loadtest run` adds: one connection, one request prepared
//! once, an open loop at even gaps; nothing but spinning between a due time, the write and the last byte
//! of the answer. Latency counts from the due time, as in `run`. `scripts/run-latency` compares the two.
//!
//! Usage: least_client HOST:PORT RATE SECONDS WARMUP_SECONDS CPU. Prints `latency_ms` and `sent_late_ms` as JSON.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use smg_loadtest::clock::now_ns;
use smg_loadtest::load::Quantiles;
use smg_loadtest::load::record::histogram;
use smg_loadtest::runtime::pin_to;

/// An answer that takes longer is a failure.
const TIMEOUT_NS: u64 = 10_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, rate, seconds, warmup, cpu] = arguments.as_slice() else {
        return Err("usage: least_client HOST:PORT RATE SECONDS WARMUP_SECONDS CPU".into());
    };
    let (rate, seconds, warmup): (f64, f64, f64) =
        (rate.parse()?, seconds.parse()?, warmup.parse()?);
    pin_to(&[cpu.parse()?])?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let request = request(address);
    let (mut latency, mut sent_late) = (histogram(), histogram());
    let start = now_ns();
    let unmeasured = (warmup * rate) as u64;
    for number in 0..unmeasured + (seconds * rate) as u64 {
        let due = start + (number as f64 * 1e9 / rate).round() as u64;
        while now_ns() < due {
            std::hint::spin_loop();
        }
        stream.write_all(&request)?;
        let sent = now_ns();
        receive(&mut stream)?;
        if number >= unmeasured {
            latency.saturating_record(now_ns() - due);
            sent_late.saturating_record(sent - due);
        }
    }
    let report = serde_json::json!({
        "latency_ms": Quantiles::of(&latency),
        "sent_late_ms": Quantiles::of(&sent_late),
    });
    println!("{report}");
    Ok(())
}

/// Of the size of those `run` sends.
fn request(address: &str) -> Vec<u8> {
    let text = "word ".repeat(96);
    let body = format!(
        r#"{{"model":"sim-8b","stream":false,"max_tokens":64,"messages":[{{"role":"user","content":"{text}"}}]}}"#
    );
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Reads one answer to its last byte.
fn receive(stream: &mut TcpStream) -> Result<(), Box<dyn Error>> {
    let mut answer = [0; 16 * 1024];
    let mut len = 0;
    let give_up = now_ns() + TIMEOUT_NS;
    loop {
        match stream.read(&mut answer[len..]) {
            Ok(0) => return Err("the connection ended within an answer".into()),
            Ok(read) => len += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if now_ns() > give_up {
                    return Err("no answer".into());
                }
                std::hint::spin_loop();
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        if is_whole(&answer[..len])? {
            return Ok(());
        }
    }
}

/// Whether an answer with a content-length is complete.
fn is_whole(answer: &[u8]) -> Result<bool, Box<dyn Error>> {
    let Some(head) = answer.windows(4).position(|end| end == b"\r\n\r\n") else { return Ok(false) };
    let text = std::str::from_utf8(&answer[..head])?;
    if !text.starts_with("HTTP/1.1 200 ") {
        return Err(format!("not answered with 200: {text}").into());
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.ok_or("an answer without content-length")?.parse()?;
    Ok(answer.len() >= head + 4 + length)
}
