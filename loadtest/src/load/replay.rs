//! Requests of a trace against a live server, when the trace says, with texts or token IDs made from
//! its blocks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::Write;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::bodies::RequestOptions;
use super::client::Connection;
use super::report::Report;
use super::session::{Observer, Session, SessionOptions, Source};
use super::target::Target;
use crate::clock::now_ns;
use crate::engine::Nanos;
use crate::runtime;
use crate::timer::PreciseTimer;
use crate::trace::{Record, Spread, Trace, expand};
use crate::waiting::Waiting;

/// A replay.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    pub target: Target,
    pub trace: Arc<Trace>,
    pub spread: Spread,
    /// The trace is played so many times as fast.
    pub time_scale: f64,
    /// Only the first so many requests.
    pub requests: Option<usize>,
    pub api: ReplayApi,
    /// Longest answer asked for, whatever the trace says.
    pub max_answer_tokens: u32,
    /// Connections at most; a request that is due then waits, and its wait counts.
    pub max_connections: usize,
    /// A request not answered within this time has failed.
    pub timeout: Duration,
    /// What goes into every request; the answer's length is the trace's.
    pub request: RequestOptions,
    pub seed: u64,
}

/// How prompts are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayApi {
    /// One user message of text: `/v1/chat/completions`.
    Chat,
    /// Text: `/v1/completions`.
    Completions,
    /// Token IDs: SGLang's `/generate` with `input_ids`.
    Generate,
}

impl ReplayApi {
    /// Its path at a server.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Generate => "/generate",
        }
    }
}

/// Requests prepared before they are due.
const AHEAD: usize = 32;
/// Requests are prepared only while the next one is not due within this time.
const PREPARING: Nanos = 2_000_000;
/// How often the end of a run, or a free connection, is looked for while there is nothing else to do.
const LOOK: Nanos = 5_000_000;

/// Replays on this thread to the last answer, inside a runtime of its own. Latencies count from when
/// a request was due. All requests are measured; rates are over the time to the last answer.
pub fn replay(options: &ReplayOptions, observer: &mut impl Observer) -> io::Result<Report> {
    runtime::block_on(|_| replay_async(options, observer))
}

async fn replay_async(options: &ReplayOptions, observer: &mut impl Observer) -> Report {
    let mut times = options.trace.times();
    times.truncate(options.requests.unwrap_or(usize::MAX));
    options.spread.apply(&mut times, options.seed);
    for time in &mut times {
        *time = (*time as f64 / options.time_scale) as Nanos;
    }
    let last = Duration::from_nanos(times.last().copied().unwrap_or(0));
    // Requests that wait for a connection may begin that late.
    let duration = last + options.timeout;
    let session = Session::new(SessionOptions {
        targets: vec![options.target.clone()],
        expects_stream: options.request.stream,
        proves: false,
        timeout: options.timeout,
        warmup: Duration::ZERO,
        duration,
        waiting: Waiting::Sleep,
    });
    let sender = Rc::new(Sender {
        session: session.clone(),
        options: options.clone(),
        idle: RefCell::default(),
        body_bytes: Cell::new(0),
        bodies: Cell::new(0),
        unsent: Cell::new(0),
    });
    let count = times.len();
    session.spawn(sender.clone().send_all(times));
    session.supervise(None, observer).await;
    let RequestOptions { authority, path, .. } = &options.request;
    Report {
        target: format!("http://{authority}{path}"),
        load: format!("{count} requests of a trace, {} times its speed", options.time_scale),
        bodies: format!("{:?}", options.api).to_lowercase(),
        body_bytes: sender.body_bytes.get() / sender.bodies.get().max(1),
        unsent: sender.unsent.get(),
        ..Report::new(&session)
    }
}

/// What all requests of a replay share.
struct Sender {
    session: Rc<Session>,
    options: ReplayOptions,
    idle: RefCell<Idle>,
    /// Of all bodies that were made, and how many these are.
    body_bytes: Cell<usize>,
    bodies: Cell<usize>,
    /// Due when the run was over, and not sent.
    unsent: Cell<u64>,
}

/// Open connections nobody uses, the one used last at the end, and how many are in use.
#[derive(Default)]
struct Idle {
    connections: Vec<Connection>,
    in_use: usize,
}

impl Sender {
    async fn send_all(self: Rc<Self>, times: Vec<Nanos>) {
        let timer = match PreciseTimer::new(self.session.waiting()) {
            Ok(timer) => timer,
            Err(error) => return eprintln!("the replay stops: its timer failed: {error}"),
        };
        let start = self.session.start();
        let mut coming = times.into_iter().map(|time| start + time).enumerate();
        let mut prepared: VecDeque<(Nanos, Vec<u8>)> = VecDeque::new();
        loop {
            let is_late = |(due, _): &(Nanos, _)| *due < now_ns() + PREPARING;
            while prepared.len() < AHEAD && !prepared.front().is_some_and(is_late) {
                let Some((index, due)) = coming.next() else { break };
                if let Some(record) = self.options.trace.get(index) {
                    prepared.push_back((due, self.bytes(record)));
                }
            }
            let Some((due, bytes)) = prepared.pop_front() else { return };
            if !self.wait(&timer, due).await {
                let left = [due].into_iter().chain(prepared.iter().map(|(due, _)| *due));
                let over = now_ns();
                let unsent = left.chain(coming.map(|(_, due)| due)).filter(|due| *due <= over);
                return self.unsent.set(unsent.count() as u64);
            }
            self.idle.borrow_mut().in_use += 1;
            self.session.spawn(self.clone().send(due, bytes));
        }
    }

    /// Waits until a request is due and there is a connection for it; false when the run is over.
    async fn wait(&self, timer: &PreciseTimer, due: Nanos) -> bool {
        loop {
            if self.session.is_over() {
                return false;
            }
            let now = now_ns();
            let has_room = self.idle.borrow().in_use < self.options.max_connections;
            if has_room && now >= due {
                return true;
            }
            let until = if has_room { due.min(now + LOOK) } else { now + LOOK };
            if timer.wait_until(until).await.is_err() {
                return false;
            }
        }
    }

    async fn send(self: Rc<Self>, due: Nanos, bytes: Vec<u8>) {
        let mut connection = self.idle.borrow_mut().connections.pop();
        self.session.request(due, Source::Bytes(&bytes), &mut connection, false).await;
        let mut idle = self.idle.borrow_mut();
        idle.in_use -= 1;
        idle.connections.extend(connection);
    }

    fn bytes(&self, record: Record<'_>) -> Vec<u8> {
        let body = body(&self.options, record);
        self.body_bytes.set(self.body_bytes.get() + body.len());
        self.bodies.set(self.bodies.get() + 1);
        self.options.request.request(&body).bytes
    }
}

/// The JSON body of a request. What an engine or gateway may look for stands in front.
fn body(options: &ReplayOptions, record: Record<'_>) -> String {
    let block_tokens = options.trace.block_tokens();
    let RequestOptions { model, stream, .. } = &options.request;
    let model = serde_json::Value::from(model.as_str());
    let limit = record.output_tokens.min(options.max_answer_tokens);
    let usage = if *stream { r#","stream_options":{"include_usage":true}"# } else { "" };
    let head = format!(r#"{{"model":{model},"stream":{stream}{usage},"max_tokens":{limit}"#);
    let mut prompt = String::new();
    match options.api {
        ReplayApi::Generate => {
            let mut ids = Vec::with_capacity(record.input_tokens as usize);
            expand::tokens(record.blocks, block_tokens, record.input_tokens, &mut ids);
            for (index, id) in ids.iter().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                // Writing to a string cannot fail.
                let _ = write!(prompt, "{comma}{id}");
            }
            let sampling = format!(r#"{{"max_new_tokens":{limit},"ignore_eos":true}}"#);
            format!(
                r#"{{"model":{model},"stream":{stream},"sampling_params":{sampling},"input_ids":[{prompt}]}}"#
            )
        }
        ReplayApi::Chat => {
            expand::text(record.blocks, block_tokens, record.input_tokens, &mut prompt);
            format!(
                r#"{head},"ignore_eos":true,"messages":[{{"role":"user","content":"{prompt}"}}]}}"#
            )
        }
        ReplayApi::Completions => {
            expand::text(record.blocks, block_tokens, record.input_tokens, &mut prompt);
            format!(r#"{head},"ignore_eos":true,"prompt":"{prompt}"}}"#)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Fleet;

    /// Blocks of 512 tokens: the third request repeats the first and goes on, the last is alone.
    const TRACE: &str = r#"{"timestamp":0,"input_length":1030,"output_length":5,"hash_ids":[1,2,3]}
{"timestamp":0,"input_length":512,"output_length":4,"hash_ids":[8]}
{"timestamp":300,"input_length":1536,"output_length":3,"hash_ids":[1,2,4]}
{"timestamp":600,"input_length":700,"output_length":900,"hash_ids":[9,10]}
"#;

    fn replayed(api: ReplayApi, stream: bool) -> (Report, Fleet) {
        let fleet = Fleet::of_one(1_000_000);
        (replay(&options(&fleet.urls()[0], api, stream), &mut ()).unwrap(), fleet)
    }

    fn options(url: &str, api: ReplayApi, stream: bool) -> ReplayOptions {
        let target = Target::parse(url).unwrap();
        ReplayOptions {
            trace: Arc::new(Trace::read(TRACE.as_bytes(), 512).unwrap()),
            spread: Spread::Even,
            time_scale: 3.0,
            requests: None,
            api,
            max_answer_tokens: 6,
            max_connections: 8,
            timeout: Duration::from_secs(20),
            request: RequestOptions {
                authority: target.authority.clone(),
                path: api.path().into(),
                model: "m".into(),
                stream,
                max_tokens: 0,
                headers: Vec::new(),
            },
            seed: 1,
            target,
        }
    }

    #[test]
    fn what_found_no_connection_in_time_is_said() {
        // Its system takes connections, and nobody answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let options = ReplayOptions {
            max_connections: 1,
            timeout: Duration::from_millis(120),
            ..options(&url, ReplayApi::Chat, true)
        };
        let report = replay(&options, &mut ()).unwrap();
        assert_eq!((report.succeeded, report.failed + report.unsent), (0, 4), "{report}");
        assert!(report.failed >= 1 && report.unsent >= 1, "{report}");
        // Of those that were made: the longest has 1,536 tokens of four characters.
        assert!((2_000..7_000).contains(&report.body_bytes), "{}", report.body_bytes);
    }

    #[test]
    fn the_engine_finds_what_the_trace_says_is_shared() {
        for api in [ReplayApi::Chat, ReplayApi::Completions, ReplayApi::Generate] {
            for stream in [false, true] {
                let (report, fleet) = replayed(api, stream);
                assert_eq!((report.succeeded, report.failed), (4, 0), "{api:?}: {report}");
                let engine = fleet.snapshots()[0];
                // A chat has a role marker in front, an end and another role behind.
                let markers = if api == ReplayApi::Chat { 3 } else { 0 };
                let prompt_tokens = 1030 + 512 + 1536 + 700 + 4 * markers;
                assert_eq!(engine.prompt_tokens, prompt_tokens, "{api:?}");
                // 1,024 tokens are shared, in blocks of 16.
                assert_eq!(engine.cached_tokens, 1024, "{api:?}");
                assert_eq!(engine.generated_tokens, 5 + 4 + 3 + 6);
                assert_eq!((report.prompt_tokens, report.cached_tokens), (prompt_tokens, 1024));
                assert_eq!(report.latency_ms.count, 4);
                // The last is due at 600 / 3 ms.
                assert!(report.run_s >= 0.2, "{}", report.run_s);
            }
        }
    }
}
