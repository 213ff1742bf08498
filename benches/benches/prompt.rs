//! Prompt extraction: chat bodies of about 600 B, 20 kB and 100 kB, one with many tools, ones with
//! large images, and token IDs.
//! The peer parses the same body into a `serde_json::Value` and joins the same text from it.
//!
//! A ratio of the two from interleaved runs is printed first, then criterion's own figures.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};
use smg_core::prompt::{Endpoint, Extractor};
use std::hint::black_box;
use std::time::{Duration, Instant};

struct Case {
    name: &'static str,
    endpoint: Endpoint,
    body: Vec<u8>,
}

fn cases() -> Vec<Case> {
    let chat = |name, body: Value| Case {
        name,
        endpoint: Endpoint::Chat,
        body: serde_json::to_vec(&body).unwrap_or_default(),
    };
    vec![
        chat("chat_600B", conversation(2, 200)),
        chat("chat_20kB", conversation(16, 1200)),
        chat("chat_100kB", conversation(4, 25_000)),
        chat("chat_100kB_tools", with_tools(conversation(8, 2500), 240)),
        chat("chat_2MB_image", with_image(conversation(4, 2500), 2 << 20)),
        chat("chat_6MB_image", with_image(conversation(4, 2500), 6 << 20)),
        Case {
            name: "generate_8192_ids",
            endpoint: Endpoint::Generate,
            body: serde_json::to_vec(&json!({
                "input_ids": (0..8192u32).map(|i| i * 7919 % 128_000).collect::<Vec<_>>(),
                "sampling_params": {"temperature": 0.7, "max_new_tokens": 128},
            }))
            .unwrap_or_default(),
        },
    ]
}

/// A conversation of `turns` messages of about `chars` characters each.
fn conversation(turns: usize, chars: usize) -> Value {
    let messages: Vec<Value> = (0..turns)
        .map(|turn| {
            let role = ["system", "user", "assistant"][if turn == 0 { 0 } else { 1 + turn % 2 }];
            json!({"role": role, "content": prose(turn, chars)})
        })
        .collect();
    json!({
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "messages": messages,
        "temperature": 0.7,
        "max_tokens": 512,
        "stream": true,
    })
}

fn with_tools(mut body: Value, tools: usize) -> Value {
    body["tools"] = (0..tools)
        .map(|i| {
            json!({"type": "function", "function": {
                "name": format!("tool_{i}"),
                "description": "Looks something up and returns it.",
                "parameters": {"type": "object", "required": ["query"], "properties": {
                    "query": {"type": "string"}, "limit": {"type": "integer", "minimum": 1},
                }},
            }})
        })
        .collect();
    body
}

/// Adds a message whose image is a data URL. A body of 6 MB is not copied to be parsed.
fn with_image(mut body: Value, bytes: usize) -> Value {
    let image = json!({"type": "image_url", "image_url": {"url": "data:".repeat(bytes / 5)}});
    if let Some(messages) = body["messages"].as_array_mut() {
        messages.push(json!({"role": "user", "content": [image]}));
    }
    body
}

/// English-like text: a line break about every 80 characters, a quotation now and then.
fn prose(seed: usize, chars: usize) -> String {
    const WORDS: [&str; 8] =
        ["the", "gateway", "routes", "each", "request", "to", "a \"warm\"", "worker"];
    let mut text = String::with_capacity(chars + 16);
    let mut line = 0;
    let mut state = seed;
    while text.len() < chars {
        state = state.wrapping_mul(25_214_903_917).wrapping_add(11);
        let word = WORDS[(state >> 16) % WORDS.len()];
        text.push_str(word);
        line += word.len() + 1;
        text.push(if line > 80 { '\n' } else { ' ' });
        if line > 80 {
            line = 0;
        }
    }
    text
}

/// The peer: the length of the same routing text, from a document tree.
fn peer(body: &[u8]) -> usize {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return 0 };
    if let Some(ids) = body["input_ids"].as_array() {
        return ids.iter().filter_map(Value::as_u64).collect::<Vec<_>>().len();
    }
    let messages = body["messages"].as_array();
    let texts = messages.into_iter().flatten().filter_map(|message| message["content"].as_str());
    texts.collect::<Vec<_>>().join(" ").len()
}

fn ours(extractor: &mut Extractor, case: &Case) -> usize {
    match extractor.extract(case.endpoint, black_box(&case.body)) {
        Ok(prompt) => prompt.text.len() + prompt.tokens.len(),
        Err(_) => 0,
    }
}

/// The fastest of many alternating runs of both.
fn print_ratio(case: &Case) {
    let mut extractor = Extractor::new();
    assert_eq!(ours(&mut extractor, case), peer(&case.body), "both read the same text");
    let (mut best_ours, mut best_peer) = (Duration::MAX, Duration::MAX);
    for _ in 0..300 {
        let start = Instant::now();
        black_box(ours(&mut extractor, case));
        best_ours = best_ours.min(start.elapsed());
        let start = Instant::now();
        black_box(peer(black_box(&case.body)));
        best_peer = best_peer.min(start.elapsed());
    }
    println!(
        "{:<20} {:>7} B: {:>8.2?} ({:.2} GB/s), serde_json {:>8.2?}, ratio {:.1}",
        case.name,
        case.body.len(),
        best_ours,
        case.body.len() as f64 / best_ours.as_secs_f64() / 1e9,
        best_peer,
        best_peer.as_secs_f64() / best_ours.as_secs_f64(),
    );
}

fn prompt(criterion: &mut Criterion) {
    let cases = cases();
    cases.iter().for_each(print_ratio);
    let mut extractor = Extractor::new();
    let mut group = criterion.benchmark_group("prompt");
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    for case in &cases {
        group.throughput(Throughput::Bytes(case.body.len() as u64));
        group.bench_with_input(BenchmarkId::new("extract", case.name), case, |bench, case| {
            bench.iter(|| ours(&mut extractor, case));
        });
        group.bench_with_input(BenchmarkId::new("extract_head", case.name), case, |bench, case| {
            bench.iter(|| extractor.extract_head(case.endpoint, black_box(&case.body)).is_ok());
        });
        group.bench_with_input(BenchmarkId::new("serde_json", case.name), case, |bench, case| {
            bench.iter(|| peer(black_box(&case.body)));
        });
    }
    group.finish();
}

criterion_group!(benches, prompt);
criterion_main!(benches);
