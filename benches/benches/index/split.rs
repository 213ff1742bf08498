//! `--index-shards`: how many leading characters of a text should say which part of a split tree it
//! belongs to. Few leave no match behind in another part; many spread prompts that begin alike.

use smg_core::index::{Limits, TextTree};
use smg_core::rng::Rng;
use xxhash_rust::xxh3::xxh3_64;

use crate::corpus::worker_id;

/// Share of a prompt above which its holders are preferred (`--cache-threshold`).
const THRESHOLD: f64 = 0.3;
const PARTS: usize = 4;
const CONVERSATIONS: usize = 4000;
const TURNS: usize = 6;

/// What conversations have in common.
#[derive(Clone, Copy)]
struct Traffic {
    name: &'static str,
    /// Applications, each with a system prompt of this many characters.
    applications: usize,
    system_chars: usize,
}

const TRAFFIC: [Traffic; 4] = [
    Traffic { name: "chats without system prompt", applications: 1, system_chars: 0 },
    Traffic { name: "200 applications, 40 characters", applications: 200, system_chars: 40 },
    Traffic { name: "200 applications, 1,500 characters", applications: 200, system_chars: 1500 },
    Traffic { name: "one application, 1,500 characters", applications: 1, system_chars: 1500 },
];

/// Prints what a split loses and how even it is, by the length of the head.
pub fn compare() {
    println!("\nstring tree in {PARTS} parts by the first N characters, threshold {THRESHOLD}");
    println!(
        "| traffic | N | matched above the threshold in one tree | of these lost | prompts of the busiest part / mean |"
    );
    println!("|---|---|---|---|---|");
    for traffic in TRAFFIC {
        let prompts = prompts(traffic);
        for head_chars in [16, 32, 64, 128, 256] {
            measure(traffic.name, &prompts, head_chars);
        }
    }
}

fn measure(name: &str, prompts: &[String], head_chars: usize) {
    let mut whole = TextTree::new(Limits::new(1 << 30));
    let mut parts: Vec<_> = (0..PARTS).map(|_| TextTree::new(Limits::new(1 << 30))).collect();
    let (mut matched, mut lost, mut load) = (0, 0, [0usize; PARTS]);
    for (at, prompt) in prompts.iter().enumerate() {
        let head =
            prompt.char_indices().nth(head_chars).map_or(&prompt[..], |(end, _)| &prompt[..end]);
        let part = ((xxh3_64(head.as_bytes()) >> 32) as usize * PARTS) >> 32;
        load[part] += 1;
        let decide = |tree: &mut TextTree| {
            let found = tree.find(None, prompt, |_| true);
            tree.record(&found, prompt, worker_id(at % 8), at as u64);
            found.ratio() > THRESHOLD
        };
        let in_whole = decide(&mut whole);
        matched += usize::from(in_whole);
        lost += usize::from(in_whole & !decide(&mut parts[part]));
    }
    let busiest = load.into_iter().max().unwrap_or_default();
    println!(
        "| {name} | {head_chars} | {:.1} % | {:.2} % | {:.2} |",
        100.0 * matched as f64 / prompts.len() as f64,
        100.0 * lost as f64 / matched.max(1) as f64,
        (busiest * PARTS) as f64 / prompts.len() as f64
    );
}

/// Turns of all conversations, in the order they come in. A first message has 5 to 150 characters and
/// begins like many others.
fn prompts(traffic: Traffic) -> Vec<String> {
    const OPENINGS: [&str; 12] = [
        "Hi",
        "Hello, ",
        "How do I ",
        "What is ",
        "What is the ",
        "Can you ",
        "Can you help me ",
        "Write a ",
        "Write a function that ",
        "Explain ",
        "Please summarise ",
        "Why does ",
    ];
    let mut rng = Rng::new(21);
    let systems: Vec<_> =
        (0..traffic.applications).map(|_| words(&mut rng, traffic.system_chars)).collect();
    let mut conversations: Vec<String> = (0..CONVERSATIONS)
        .map(|at| {
            let rest = 3 + rng.below(12) * rng.below(12);
            format!(
                "{}{}{}",
                systems[at % systems.len()],
                OPENINGS[rng.below(12)],
                words(&mut rng, rest)
            )
        })
        .collect();
    let mut prompts = Vec::new();
    for _ in 0..TURNS {
        for conversation in &mut conversations {
            prompts.push(conversation.clone());
            let answer = 20 + rng.below(30) * rng.below(30);
            let question = 5 + rng.below(12) * rng.below(12);
            let said = words(&mut rng, answer + question);
            conversation.push_str(&said);
        }
    }
    prompts
}

/// Text of `chars` characters.
fn words(rng: &mut Rng, chars: usize) -> String {
    (0..chars).map(|_| char::from(b"etaoinshrdlu cmfwyp "[rng.below(20)])).collect()
}
