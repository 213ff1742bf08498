//! A worker answers megabytes where a few hundred bytes are expected, or names that long.

use serde_json::json;

use crate::harness::{Client, Exchange, Gateway, Worker, eventually};

const MIB: usize = 1 << 20;

/// A worker whose answer to `path` is `body`, and whose model is `m` if that is not what it says there.
fn answering(path: &'static str, body: Vec<u8>) -> Worker {
    Worker::start_with_probes(
        |exchange| exchange.answer(200, b"{}"),
        move |exchange: &mut Exchange, asked| {
            let mine = asked == path;
            if mine {
                exchange.answer(200, &body);
            }
            mine
        },
    )
}

/// A gateway that need not find its worker up.
fn before(worker: &Worker, flags: &str) -> Gateway {
    Gateway::before([])
        .and_unready(&worker.url())
        .flags("--worker-startup-check-interval 1")
        .flags(flags)
        .start_without_waiting()
}

/// Some JSON of so many bytes that takes the most memory once it is parsed.
fn many_values(bytes: usize) -> String {
    format!("[{}0]", "0,".repeat(bytes / 2))
}

#[test]
fn what_is_too_large_is_not_parsed_and_named() {
    let body = format!(r#"{{"data":[{{"id":"m"}}],"more":{}}}"#, many_values(7 * MIB));
    let worker = answering("/v1/models", body.into_bytes());
    let gateway = before(&worker, "");
    eventually("it is said", || {
        let log = gateway.log();
        log.contains("the answer to GET /v1/models is longer than 1048576 bytes")
            && log.contains(&worker.url())
    });
    assert_eq!(gateway.readiness(), Some(503));
    let peak = gateway.peak_resident_bytes();
    assert!(peak < 100 * MIB, "{} MiB", peak / MIB);
}

#[test]
fn what_is_as_large_as_it_may_be_is_read() {
    let head = r#"{"data":[{"id":"m"}],"more":""#;
    let body = format!("{head}{}\"}}", "x".repeat(MIB - head.len() - 2));
    assert_eq!(body.len(), MIB);
    let worker = answering("/v1/models", body.into_bytes());
    let gateway = before(&worker, "");
    eventually("it is up", || gateway.readiness() == Some(200));
}

#[test]
fn a_long_answer_that_is_not_needed_keeps_nobody_out() {
    // SGLang repeats its arguments for each of its ranks.
    let body = format!(r#"{{"internal_states":{}}}"#, many_values(3 * MIB));
    let worker = answering("/get_server_info", body.into_bytes());
    let gateway = before(&worker, "");
    eventually("it is up", || gateway.readiness() == Some(200));
    assert_eq!(Client::connect(&gateway).ask("hello").status(), 200, "it serves model m");
}

#[test]
fn a_model_with_a_name_of_a_megabyte_is_not_served() {
    let body = json!({"data": [{"id": "m".repeat(MIB / 2)}]}).to_string();
    let worker = answering("/v1/models", body.into_bytes());
    let gateway = before(&worker, "");
    eventually("it is said", || gateway.log().contains("the model's id is longer than 512 bytes"));
    assert_eq!(gateway.readiness(), Some(503));
    assert!(gateway.log().len() < 64 << 10);

    // The operator may say what it serves.
    let mut admin = Client::connect(&gateway);
    let url = worker.url();
    let long = json!({"url": url, "model_id": "m".repeat(513)}).to_string();
    let response = admin.with_body("POST", "/workers", &long);
    assert_eq!(response.status(), 400, "{response:?}");
    assert!(response.text().contains("model_id is longer than 512 bytes"), "{response:?}");
}

#[test]
fn the_reason_is_shown_for_a_worker_that_is_added() {
    let worker = answering("/v1/models", many_values(2 * MIB).into_bytes());
    let gateway = Gateway::before([]).flags("--worker-startup-check-interval 1").start();
    let mut admin = Client::connect(&gateway);
    let response = admin.with_body("POST", "/workers", &json!({"url": worker.url()}).to_string());
    assert_eq!(response.status(), 202, "{response:?}");
    let added: serde_json::Value = serde_json::from_slice(&response.body).expect("JSON");
    let path = format!("/workers/{}", added["worker_id"].as_str().expect("its id"));
    eventually("the reason is shown", || {
        let shown = admin.get(&path).expect("an answer").text();
        shown.contains("longer than 1048576 bytes")
    });
}

#[test]
fn a_load_report_of_thousands_of_ranks_is_read_and_a_larger_one_is_named() {
    let rank = |at: usize| {
        let filler = "x".repeat(700);
        json!({"dp_rank": at, "num_waiting_reqs": 1, "token_usage": 0.5, "moments": filler})
    };
    for (ranks, is_read) in [(4000, true), (8000, false)] {
        let loads: Vec<_> = (0..ranks).map(rank).collect();
        let body = json!({"loads": loads}).to_string().into_bytes();
        let path = "/v1/loads?include=core,disagg,queues,memory";
        let worker = answering(path, body);
        let gateway = before(&worker, "--load-monitor-interval 1");
        eventually("it is up", || gateway.readiness() == Some(200));
        eventually(&format!("{ranks} ranks are read, or it is said"), || {
            let waiting = gateway.metrics().sum("smg_engine_waiting_requests");
            let said = gateway.log().matches("is longer than 4194304 bytes").count();
            assert!(waiting == 0.0 || is_read, "{ranks} ranks");
            assert!(said <= usize::from(!is_read), "{ranks} ranks: {}", gateway.log());
            if is_read { waiting > 0.0 } else { said == 1 }
        });
    }
}
