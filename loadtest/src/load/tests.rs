//! The load generator against engines in the same process. The harness that runs the tests sets
//! `MONOIO_FORCE_LEGACY_DRIVER=1` for a second pass, so both drivers are covered.

use std::os::fd::AsRawFd;
use std::time::Duration;

use super::bodies::{Bodies, RequestOptions, Shape};
use super::schedule::Spacing;
use super::*;
use crate::engine::Profile;
use crate::server::{EngineKind, Fleet, FleetOptions, InstantOptions};
use crate::waiting::Waiting;

fn fleet(kind: EngineKind) -> Fleet {
    let options = FleetOptions { count: 1, model: "m".into(), kind, ..FleetOptions::default() };
    Fleet::start(&options).unwrap()
}

fn options(url: &str, load: Load, stream: bool) -> RunOptions {
    let target = Target::parse(url).unwrap();
    RunOptions {
        load,
        warmup: Duration::ZERO,
        duration: Duration::from_secs(20),
        max_requests: Some(200),
        timeout: Duration::from_secs(10),
        bodies: Bodies::Generated(Shape::Short),
        request: RequestOptions {
            authority: target.authority.clone(),
            path: "/v1/chat/completions".into(),
            model: "m".into(),
            stream,
            max_tokens: 8,
            headers: Vec::new(),
        },
        proves: false,
        waiting: Waiting::Sleep,
        seed: 1,
        first_number: 0,
        target,
    }
}

#[test]
fn a_closed_loop_gets_every_answer() {
    let fleet = fleet(EngineKind::Instant(InstantOptions::default()));
    let load = Load::Closed { connections: 4 };
    let report = run(&options(&fleet.urls()[0], load, false), &mut ()).unwrap();
    assert_eq!((report.succeeded, report.failed), (200, 0));
    assert_eq!(report.latency_ms.count, 200);
    assert_eq!(report.connects, 4);
    let engine = fleet.snapshots()[0];
    assert_eq!((engine.received, engine.open), (200, 0));
    assert!(engine.most_open <= 4, "{} at once", engine.most_open);
}

/// Keeps the client's thread from running, as a machine that stands still does.
struct Standstill;

impl Observer for Standstill {
    fn measuring(&mut self) {
        crate::blocking::pause(Duration::from_millis(300));
    }
}

#[test]
fn a_client_that_did_not_run_says_so() {
    let fleet = fleet(EngineKind::Instant(InstantOptions::default()));
    let load = Load::Closed { connections: 4 };
    let report = run(&options(&fleet.urls()[0], load, false), &mut Standstill).unwrap();
    assert!(report.client_stall_ms > 200.0, "{}", report.client_stall_ms);
}

#[test]
fn an_open_loop_sends_what_is_due() {
    let fleet = fleet(EngineKind::Instant(InstantOptions::default()));
    let load = Load::Open { rate_per_s: 2_000.0, spacing: Spacing::Uniform, max_connections: 8 };
    let report = run(&options(&fleet.urls()[0], load, false), &mut ()).unwrap();
    assert_eq!((report.succeeded, report.failed), (200, 0));
    assert!(report.measured_s >= 0.0995, "200 requests at 2,000/s took {} s", report.measured_s);
    assert_eq!(fleet.snapshots()[0].received, 200);
}

#[test]
fn an_open_loop_counts_from_the_due_time_when_connections_are_short() {
    // Streams of 10 events 5 ms apart last 45 ms; one connection serves 22 a second, 100 are due.
    let kind = EngineKind::Instant(InstantOptions { events: 10, ..InstantOptions::default() });
    let fleet = fleet(kind);
    let load = Load::Open { rate_per_s: 100.0, spacing: Spacing::Uniform, max_connections: 1 };
    let run_options =
        RunOptions { max_requests: Some(10), ..options(&fleet.urls()[0], load, true) };
    let report = run(&run_options, &mut ()).unwrap();
    assert_eq!((report.succeeded, report.failed), (10, 0));
    // The tenth is due at 90 ms and cannot end before 10 × 45 ms.
    assert!(report.latency_ms.max >= 360.0, "the wait was left out: {:?}", report.latency_ms);
    assert_eq!(fleet.snapshots()[0].most_open, 1);
}

#[test]
fn streams_are_counted_event_by_event_with_their_delays() {
    let instant = InstantOptions {
        events: 20,
        interval: Duration::from_millis(1),
        ..InstantOptions::default()
    };
    let fleet = fleet(EngineKind::Instant(instant));
    let load = Load::Closed { connections: 4 };
    let run_options =
        RunOptions { max_requests: Some(12), ..options(&fleet.urls()[0], load, true) };
    let report = run(&run_options, &mut ()).unwrap();
    assert_eq!((report.succeeded, report.failed), (12, 0));
    // 20 events and [DONE]; the last ones fall on the end of the window.
    assert!((12 * 21 - 21..=12 * 21).contains(&report.events), "{}", report.events);
    assert!(report.event_delay_ms.count >= 11 * 20 && report.event_delay_ms.count <= 12 * 20);
    assert!(report.event_delay_ms.p50 > 0.0);
}

#[test]
fn simulated_engines_report_cached_tokens() {
    let fleet = fleet(quick());
    for stream in [false, true] {
        let load = Load::Closed { connections: 4 };
        let report = run(&options(&fleet.urls()[0], load, stream), &mut ()).unwrap();
        assert_eq!((report.succeeded, report.failed), (200, 0));
        assert!(report.prompt_tokens > 200 * 100, "{}", report.prompt_tokens);
        // 50 system prompts of 82 tokens: five whole blocks are shared, all but the first time.
        assert!(report.hit_share().unwrap() > 0.3, "{:?}", report.hit_share());
    }
    let engine = fleet.snapshots()[0];
    assert_eq!((engine.admitted, engine.finished, engine.open), (400, 400, 0));
    assert_eq!(engine.used_blocks, 0);
    fleet.reset_caches().unwrap();
}

#[test]
fn refused_connections_and_error_statuses_are_classed() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let load = Load::Closed { connections: 1 };
    let limited =
        |url: &str| RunOptions { max_requests: Some(3), ..options(url, load.clone(), false) };
    let report = run(&limited(&format!("http://{free}")), &mut ()).unwrap();
    assert_eq!(report.errors.into_iter().collect::<Vec<_>>(), [("connect", 3)]);

    let fleet = fleet(EngineKind::Simulated(Profile::named("demo").unwrap()));
    let mut wrong_model = limited(&fleet.urls()[0]);
    wrong_model.request.model = "other".into();
    let report = run(&wrong_model, &mut ()).unwrap();
    assert_eq!(report.errors.into_iter().collect::<Vec<_>>(), [("status_4xx", 3)]);
    assert_eq!(report.connects, 1, "an error answer keeps the connection");
}

/// Seconds told of.
#[derive(Default)]
struct Ticks(u32);

impl Observer for Ticks {
    fn tick(&mut self, _: &Progress<'_>) {
        self.0 += 1;
    }
}

#[test]
fn timers_go_on_while_client_and_engines_poll() {
    let options_of_fleet = FleetOptions {
        count: 1,
        model: "m".into(),
        kind: EngineKind::Instant(InstantOptions { events: 3, ..InstantOptions::default() }),
        waiting: Waiting::BusyPoll,
        ..FleetOptions::default()
    };
    let fleet = Fleet::start(&options_of_fleet).unwrap();
    // Two a second, due at 0, 0.5, 1 and 1.5 s; an engine's events are 5 ms apart by its own timer.
    let load = Load::Open { rate_per_s: 2.0, spacing: Spacing::Uniform, max_connections: 8 };
    let options = RunOptions {
        duration: Duration::from_millis(1_900),
        max_requests: None,
        waiting: Waiting::BusyPoll,
        ..options(&fleet.urls()[0], load, true)
    };
    let mut ticks = Ticks::default();
    let report = run(&options, &mut ticks).unwrap();
    assert_eq!((report.succeeded, report.failed), (4, 0));
    assert!(ticks.0 >= 1);
    assert!((report.measured_s - 1.9).abs() < 1e-6, "{}", report.measured_s);
    assert!(report.latency_ms.p50 >= 10.0, "{:?}", report.latency_ms);
}

#[test]
fn a_silent_server_times_out_and_a_leaving_client_frees_its_slot() {
    for waiting in [Waiting::Sleep, Waiting::BusyPoll] {
        times_out_and_frees_its_slot(waiting);
    }
}

fn times_out_and_frees_its_slot(waiting: Waiting) {
    // One step takes a minute.
    let profile = Profile { step_base_ns: 60_000_000_000, ..Profile::named("demo").unwrap() };
    let fleet = fleet(EngineKind::Simulated(profile));
    let load = Load::Closed { connections: 2 };
    let run_options = RunOptions {
        max_requests: Some(2),
        timeout: Duration::from_millis(100),
        waiting,
        ..options(&fleet.urls()[0], load, true)
    };
    let report = run(&run_options, &mut ()).unwrap();
    assert_eq!(report.errors.into_iter().collect::<Vec<_>>(), [("timeout", 2)]);
    let freed = (0..200).any(|_| {
        crate::blocking::pause(Duration::from_millis(10));
        let engine = fleet.snapshots()[0];
        engine.open == 0 && engine.running == 0 && engine.cancelled == 2
    });
    assert!(freed, "{:?}", fleet.snapshots()[0]);
}

#[test]
fn a_connection_that_is_not_made_times_out_too() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: plain system call; the queue of connections shrinks to one.
    unsafe { libc::listen(listener.as_raw_fd(), 0) };
    let address = listener.local_addr().unwrap();
    let _queued: Vec<_> = (0..2)
        .map(|_| {
            let patience = Duration::from_millis(200);
            std::net::TcpStream::connect_timeout(&address, patience)
        })
        .collect();
    let run_options = RunOptions {
        max_requests: Some(2),
        timeout: Duration::from_millis(200),
        ..options(&format!("http://{address}"), Load::Closed { connections: 2 }, true)
    };
    let begun = std::time::Instant::now();
    let report = run(&run_options, &mut ()).unwrap();
    assert_eq!(report.errors.into_iter().collect::<Vec<_>>(), [("timeout", 2)]);
    // The system itself would try for two minutes.
    assert!(begun.elapsed() < Duration::from_secs(60));
}

/// A quick engine whose answers depend on the prompt.
fn quick() -> EngineKind {
    EngineKind::Simulated(Profile {
        step_base_ns: 100_000,
        decode_request_ns: 1_000,
        prefill_token_ns: 100,
        ..Profile::named("demo").unwrap()
    })
}

fn proving(url: &str, stream: bool) -> RunOptions {
    let load = Load::Closed { connections: 3 };
    let mut options = RunOptions { proves: true, ..options(url, load, stream) };
    options.request.headers = bodies::proof_header(true);
    RunOptions { max_requests: Some(30), ..options }
}

#[test]
fn bodies_and_streams_are_proved_to_arrive_as_they_were_sent() {
    let simulated = fleet(quick());
    for stream in [false, true] {
        let report = run(&proving(&simulated.urls()[0], stream), &mut ()).unwrap();
        assert_eq!((report.succeeded, report.failed, report.proved), (30, 0, 30), "{stream}");
        assert_eq!(report.unproved, 0);
    }
    // An engine that simulates nothing gives no proof.
    let instant = fleet(EngineKind::Instant(InstantOptions::default()));
    let report = run(&proving(&instant.urls()[0], false), &mut ()).unwrap();
    assert_eq!((report.succeeded, report.proved, report.unproved), (30, 0, 30));
}

/// Passes connections on to `to`, with `change` done to what each read brings, of requests (true) and
/// of answers.
fn between(to: std::net::SocketAddr, change: fn(&mut [u8], bool)) -> String {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let engine = std::net::TcpStream::connect(to).unwrap();
            let ways = [
                (client.try_clone().unwrap(), engine.try_clone().unwrap(), true),
                (engine, client, false),
            ];
            for (mut from, mut to, is_request) in ways {
                std::thread::spawn(move || {
                    let mut buf = [0; 65_536];
                    while let Ok(read @ 1..) = from.read(&mut buf) {
                        change(&mut buf[..read], is_request);
                        if to.write_all(&buf[..read]).is_err() {
                            return;
                        }
                    }
                });
            }
        }
    });
    url
}

#[test]
fn what_is_altered_on_its_way_is_found() {
    let fleet = fleet(quick());
    let engine = Target::parse(&fleet.urls()[0]).unwrap().address;
    let untouched = between(engine, |_, _| {});
    let questions = between(engine, |data, is_request| {
        // The first word of a sentence, within the prompt.
        if is_request && let Some(at) = memchr::memmem::find(data, b". the ") {
            data[at + 2] = b'T';
        }
    });
    let answers = between(engine, |data, is_request| {
        if !is_request && let Some(at) = memchr::memmem::find(data, b"\"length\"") {
            data[at + 1] = b'L';
        }
    });
    for stream in [false, true] {
        let report = run(&proving(&untouched, stream), &mut ()).unwrap();
        assert_eq!((report.failed, report.proved), (0, 30));
        let report = run(&proving(&answers, stream), &mut ()).unwrap();
        assert_eq!((report.succeeded, report.errors.get("altered")), (0, Some(&30)), "{stream}");
        let report = run(&proving(&questions, stream), &mut ()).unwrap();
        let altered = report.errors.get("altered").copied().unwrap_or(0);
        assert!(altered > 0 && altered + report.proved == 30, "{altered} of {}", report.proved);
    }
}

#[test]
fn made_requests_are_sent_and_share_what_they_should() {
    let fleet = fleet(quick());
    let made = made::MadeOptions {
        sharing: made::Sharing::Groups,
        script: bodies::Script::Cjk,
        groups: 2,
        prefix_chars: 2_000,
        question_chars: 40,
        lifetime: Duration::from_secs(1),
    };
    let options = RunOptions { bodies: Bodies::Made(made), ..proving(&fleet.urls()[0], true) };
    let report = run(&options, &mut ()).unwrap();
    assert_eq!((report.succeeded, report.proved), (30, 30));
    // 2,040 characters of three bytes, and the JSON around them.
    assert!((6_120..6_500).contains(&report.body_bytes), "{}", report.body_bytes);
    // Of 30 prompts 28 find their prefix, which is most of them.
    assert!(report.hit_share().unwrap() > 0.8, "{:?}", report.hit_share());
    // Another run goes on with other questions.
    let next = RunOptions { first_number: 30, ..options };
    assert!(run(&next, &mut ()).unwrap().hit_share().unwrap() < 0.99);
}

#[test]
fn rates_change_during_a_run() {
    let fleet = fleet(EngineKind::Instant(InstantOptions::default()));
    let step = |rate_per_s, ms| schedule::Step { rate_per_s, time: Duration::from_millis(ms) };
    let steps = vec![step(100.0, 200), step(0.0, 100), step(500.0, 100)];
    let load = Load::Stepped { steps, spacing: Spacing::Uniform, max_connections: 8 };
    let options = RunOptions {
        duration: Duration::from_millis(400),
        max_requests: None,
        ..options(&fleet.urls()[0], load, false)
    };
    let report = run(&options, &mut ()).unwrap();
    // 20 and the one at the end of the step, none, then 50 of which the last is due when it is over.
    assert_eq!((report.succeeded + report.unsent, report.failed), (70, 0));
}

#[test]
fn what_was_due_and_could_not_be_sent_is_said() {
    // As above: 30 are due in 300 ms, and one connection serves one in 45 ms.
    let kind = EngineKind::Instant(InstantOptions { events: 10, ..InstantOptions::default() });
    let fleet = fleet(kind);
    let load = Load::Open { rate_per_s: 100.0, spacing: Spacing::Uniform, max_connections: 1 };
    let options = RunOptions {
        duration: Duration::from_millis(300),
        max_requests: None,
        ..options(&fleet.urls()[0], load, true)
    };
    let report = run(&options, &mut ()).unwrap();
    assert_eq!((report.succeeded + report.unsent, report.failed), (30, 0));
    assert!(report.unsent > 20, "{}", report.unsent);
}
