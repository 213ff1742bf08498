//! The load generator against engines in the same process. The harness that runs the tests sets
//! `MONOIO_FORCE_LEGACY_DRIVER=1` for a second pass, so both drivers are covered.

use std::time::Duration;

use super::bodies::{Bodies, RequestOptions, Shape};
use super::schedule::Spacing;
use super::*;
use crate::engine::Profile;
use crate::server::{EngineKind, Fleet, FleetOptions, InstantOptions};

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
    let fleet = fleet(EngineKind::Simulated(Profile {
        step_base_ns: 100_000,
        decode_request_ns: 1_000,
        prefill_token_ns: 100,
        ..Profile::named("demo").unwrap()
    }));
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
    let limited = |url: &str| RunOptions { max_requests: Some(3), ..options(url, load, false) };
    let report = run(&limited(&format!("http://{free}")), &mut ()).unwrap();
    assert_eq!(report.errors.into_iter().collect::<Vec<_>>(), [("connect", 3)]);

    let fleet = fleet(EngineKind::Simulated(Profile::named("demo").unwrap()));
    let mut wrong_model = limited(&fleet.urls()[0]);
    wrong_model.request.model = "other".into();
    let report = run(&wrong_model, &mut ()).unwrap();
    assert_eq!(report.errors.into_iter().collect::<Vec<_>>(), [("status_4xx", 3)]);
    assert_eq!(report.connects, 1, "an error answer keeps the connection");
}

#[test]
fn a_silent_server_times_out_and_a_leaving_client_frees_its_slot() {
    // One step takes a minute.
    let profile = Profile { step_base_ns: 60_000_000_000, ..Profile::named("demo").unwrap() };
    let fleet = fleet(EngineKind::Simulated(profile));
    let load = Load::Closed { connections: 2 };
    let run_options = RunOptions {
        max_requests: Some(2),
        timeout: Duration::from_millis(100),
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
