//! Multi-turn chats: conversations arrive in an open loop, share system prompts, and each turn
//! carries everything said before, the engine's own answers included.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use smg_core::rng::Rng;

use super::bodies::{Messages, RequestOptions, Script, chat_body, proof_header};
use super::report::Report;
use super::schedule::{Schedule, Spacing};
use super::session::{Observer, Session, SessionOptions, Source};
use super::target::Target;
use super::tickets::Tickets;
use crate::clock::now_ns;
use crate::engine::Nanos;
use crate::runtime;
use crate::waiting::Waiting;

/// A chat workload.
#[derive(Debug, Clone)]
pub struct ConversationOptions {
    /// Where requests go. With one, a conversation keeps its connection; with several each request
    /// goes to the next one, on a connection of its own: a client that balances load by itself.
    pub targets: Vec<Target>,
    pub model: String,
    /// New conversations per second, at random (Poisson) times.
    pub arrivals_per_s: f64,
    /// System prompts, of which each conversation has one, all equally likely.
    pub system_prompts: usize,
    pub system_prompt_chars: usize,
    pub turns: usize,
    /// Length of each question.
    pub question_chars: usize,
    pub answer_tokens: u32,
    /// From the end of an answer to the next question.
    pub think_time: Duration,
    /// Not measured.
    pub warmup: Duration,
    /// Measured.
    pub duration: Duration,
    pub timeout: Duration,
    pub script: Script,
    /// Ask the engines for proof that bodies and answers arrive as they were sent.
    pub proves: bool,
    pub waiting: Waiting,
    pub seed: u64,
}

impl Default for ConversationOptions {
    /// Four turns over system prompts of 2,000 tokens, 10 s of them, sent nowhere yet.
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            model: "sim-8b".into(),
            arrivals_per_s: 10.0,
            system_prompts: 24,
            system_prompt_chars: 8_000,
            turns: 4,
            question_chars: 160,
            answer_tokens: 32,
            think_time: Duration::from_millis(400),
            warmup: Duration::ZERO,
            duration: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            script: Script::English,
            proves: false,
            waiting: Waiting::Sleep,
            seed: 1,
        }
    }
}

/// Conversations under way at most; one more waits, and its wait is counted.
const MAX_CONVERSATIONS: usize = 10_000;

/// Runs the workload on this thread, inside a runtime of its own. Latencies of a first turn count
/// from the conversation's arrival, of later turns from the end of the think time. Conversations
/// that are not finished when the time is over are left unfinished.
pub fn run_conversations(
    options: &ConversationOptions,
    observer: &mut impl Observer,
) -> io::Result<Report> {
    let Some(target) = options.targets.first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no target"));
    };
    runtime::block_on(|_| options.waiting.during(run_async(options, target, observer)))?
}

async fn run_async(
    options: &ConversationOptions,
    target: &Target,
    observer: &mut impl Observer,
) -> Report {
    let session = Session::new(SessionOptions {
        targets: options.targets.clone(),
        expects_stream: true,
        proves: options.proves,
        timeout: options.timeout,
        warmup: options.warmup,
        duration: options.duration,
        waiting: options.waiting,
    });
    let mut rng = Rng::new(options.seed);
    let systems: Vec<String> = (0..options.system_prompts.max(1))
        .map(|_| options.script.text(&mut rng, options.system_prompt_chars))
        .collect();
    let workload = Rc::new(Workload {
        systems,
        request: RequestOptions {
            authority: target.authority.clone(),
            path: format!("{}/v1/chat/completions", target.base_path),
            model: options.model.clone(),
            stream: true,
            max_tokens: options.answer_tokens,
            headers: proof_header(options.proves),
        },
        options: options.clone(),
        sent: Cell::default(),
    });
    let window = (session.start(), session.end());
    let schedule =
        Schedule::new(Spacing::Poisson, options.arrivals_per_s, window, None, options.seed);
    let tickets = Rc::new(Tickets::new(schedule));
    let (hosts, paced, held) = (session.clone(), tickets.clone(), workload.clone());
    session.spawn(async move {
        let mut started = 0;
        let more_workers = || {
            if started >= MAX_CONVERSATIONS {
                return false;
            }
            started += 1;
            hosts.spawn(converse(hosts.clone(), held.clone(), paced.clone()));
            true
        };
        if let Err(error) = paced.pace(hosts.waiting(), more_workers).await {
            eprintln!("no more conversations: the timer failed: {error}");
            paced.close();
        }
    });
    session.supervise(Some(&tickets), observer).await;
    let (requests, bytes) = workload.sent.get();
    Report {
        target: format!("http://{}{}/v1/chat/completions", target.authority, target.base_path),
        load: format!("{} conversations/s of {} turns", options.arrivals_per_s, options.turns),
        bodies: format!("chats over {} system prompts", options.system_prompts),
        body_bytes: bytes / requests.max(1),
        unsent: tickets.unsent(),
        ..Report::new(&session)
    }
}

struct Workload {
    systems: Vec<String>,
    request: RequestOptions,
    options: ConversationOptions,
    /// Requests, and bytes of their bodies.
    sent: Cell<(usize, usize)>,
}

/// Holds one conversation after the other, each on a connection of its own.
async fn converse(session: Rc<Session>, workload: Rc<Workload>, tickets: Rc<Tickets>) {
    let options = &workload.options;
    while let Some(arrival) = tickets.next().await {
        // What is said depends on the seed and the time of arrival only: two runs hold the same
        // conversations, however busy their servers are.
        let mut rng = Rng::new(options.seed ^ (arrival - session.start()).rotate_left(32));
        let mut messages = Messages::default();
        messages.push("system", &workload.systems[rng.below(workload.systems.len())]);
        let mut connection = None;
        let mut due = arrival;
        for turn in 0..options.turns {
            messages.push("user", &options.script.text(&mut rng, options.question_chars));
            let body = chat_body(&workload.request, &messages);
            let request = workload.request.request(&body).bytes;
            let (requests, bytes) = workload.sent.get();
            workload.sent.set((requests + 1, bytes + body.len()));
            if options.targets.len() > 1 {
                connection = None;
            }
            let source = Source::Bytes(&request);
            let Some(answer) = session.request(due, source, &mut connection, true).await else {
                break;
            };
            messages.push("assistant", &answer_text(answer.transcript.as_deref().unwrap_or(b"")));
            if turn + 1 < options.turns {
                due = now_ns() + options.think_time.as_nanos() as u64;
                think(&session, due).await;
            }
            if session.is_over() {
                break;
            }
        }
    }
}

/// Waits until `due`, or until no more is to be sent.
async fn think(session: &Session, due: Nanos) {
    const LOOK: Duration = Duration::from_millis(50);
    while let Some(rest) = due.checked_sub(now_ns()).filter(|rest| *rest > 0) {
        if session.is_over() {
            return;
        }
        monoio::time::sleep(Duration::from_nanos(rest).min(LOOK)).await;
    }
}

/// The text a chat stream carried: all its `delta.content` parts.
fn answer_text(stream: &[u8]) -> String {
    let mut text = String::new();
    for line in stream.split(|byte| *byte == b'\n') {
        let Some(data) = line.strip_prefix(b"data: ") else { continue };
        let Ok(event) = serde_json::from_slice::<serde_json::Value>(data) else { continue };
        if let Some(content) = event["choices"][0]["delta"]["content"].as_str() {
            text.push_str(content);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Fleet;

    #[test]
    fn the_text_of_a_stream_is_its_content_parts() {
        let stream =
            b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
            data: {\"choices\":[{\"delta\":{\"content\":\"bab \"}}]}\n\n\
            data: {\"choices\":[{\"delta\":{\"content\":\"cec\\n\"}}]}\n\n\
            data: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n";
        assert_eq!(answer_text(stream), "bab cec\n");
    }

    #[test]
    fn several_targets_are_taken_in_turn() {
        let fleets = [Fleet::of_one(100_000), Fleet::of_one(100_000), Fleet::of_one(100_000)];
        let urls = fleets.iter().map(|fleet| fleet.urls()[0].clone());
        let options = ConversationOptions {
            targets: urls.map(|url| Target::parse(&url).unwrap()).collect(),
            model: "m".into(),
            arrivals_per_s: 40.0,
            system_prompts: 1,
            system_prompt_chars: 80,
            turns: 3,
            question_chars: 40,
            answer_tokens: 2,
            think_time: Duration::ZERO,
            duration: Duration::from_millis(300),
            timeout: Duration::from_secs(10),
            proves: true,
            seed: 2,
            ..ConversationOptions::default()
        };
        let report = run_conversations(&options, &mut ()).unwrap();
        let received = fleets.each_ref().map(|fleet| fleet.snapshots()[0].received);
        assert_eq!((report.failed, received.iter().sum::<u64>()), (0, report.succeeded));
        assert!(report.proved >= report.succeeded && report.unproved == 0);
        assert!(received.iter().all(|count| count.abs_diff(received[0]) <= 1), "{received:?}");
        assert!(report.succeeded >= 3);
        let nowhere = ConversationOptions { targets: Vec::new(), ..options };
        assert!(run_conversations(&nowhere, &mut ()).is_err());
    }

    #[test]
    fn every_turn_after_the_first_finds_the_last_turn_in_the_cache() {
        let fleet = Fleet::of_one(1_000_000);
        let options = ConversationOptions {
            targets: vec![Target::parse(&fleet.urls()[0]).unwrap()],
            model: "m".into(),
            arrivals_per_s: 40.0,
            system_prompts: 2,
            system_prompt_chars: 800,
            turns: 4,
            question_chars: 80,
            answer_tokens: 8,
            think_time: Duration::from_millis(5),
            duration: Duration::from_millis(1_000),
            timeout: Duration::from_secs(10),
            proves: true,
            seed: 5,
            ..ConversationOptions::default()
        };
        let report = run_conversations(&options, &mut ()).unwrap();
        assert_eq!(report.failed, 0);
        assert!(report.succeeded >= 8, "{}", report.succeeded);
        let engine = fleet.snapshots()[0];
        assert_eq!(engine.admitted, engine.finished);
        // A first turn has 202 + 23 + 1 tokens, of which 192 are cached once its system prompt was
        // seen; a later one has 33 more than the turn before, all of which is cached but for the
        // last, partial block. Two system prompts are computed once each.
        let share = engine.cached_tokens as f64 / engine.prompt_tokens as f64;
        let unseen_systems = 2.0 * 202.0 / engine.prompt_tokens as f64;
        assert!(share > 0.75 - unseen_systems, "{share} of {} tokens", engine.prompt_tokens);
    }
}
