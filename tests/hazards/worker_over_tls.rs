//! Workers that are reached over TLS: what they show may be wrong, and the rest is as without.

use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use crate::harness::{
    Certificate, Client, Exchange, Gateway, Launch, Refusal, Worker, chat, eventually, post,
};

/// A gateway that trusts whoever `certificate` is vouched for by.
fn trusting(certificate: &Certificate, worker: &Worker) -> Launch {
    let flags = format!("--ca-cert-paths {}", certificate.authority_path());
    Gateway::before([worker]).flags(&flags)
}

#[test]
fn requests_and_answers_pass_unaltered() {
    let certificate = Certificate::new();
    let worker = Worker::secure(certificate.server_config(None), |exchange| {
        let Ok(body) = exchange.body().map(<[u8]>::to_vec) else { return };
        if !exchange.mentions("chunks") {
            return exchange.answer(200, &body);
        }
        exchange.begin_events();
        body.chunks(1000).for_each(|chunk| exchange.chunk(chunk));
        exchange.end();
    });
    let gateway = trusting(&certificate, &worker).start();
    let mut client = Client::connect(&gateway);
    for name in ["plain", "chunks"] {
        for length in [1, 70_000, 1 << 20] {
            let prompt = format!("{name} {}", "x".repeat(length));
            let body = serde_json::json!({"model": "m", "prompt": prompt}).to_string();
            client.send(&post("/v1/completions", body.as_bytes()));
            let response = client.response();
            assert!(response.complete && response.text() == body, "{name}, {length}");
        }
    }
    client.leave();
    gateway.is_at_rest();
    assert_eq!(worker.dispatched(), 6);
}

#[test]
fn a_worker_is_let_go_when_its_client_leaves() {
    let certificate = Certificate::new();
    let worker = Worker::secure(certificate.server_config(None), |exchange| {
        exchange.begin_events();
        exchange.event("one");
        exchange.until_abandoned();
    });
    let gateway = trusting(&certificate, &worker).start();
    let mut client = Client::connect(&gateway);
    client.send(&chat("hang"));
    client.response_head();
    assert_eq!(client.chunk().as_deref(), Some("data: one\n\n"));
    client.leave();
    eventually("the worker is let go", || worker.abandoned() == 1);
    gateway.is_at_rest();
}

#[test]
fn an_answer_whose_end_is_missing_is_cut() {
    let certificate = Certificate::new();
    let worker = Worker::secure(certificate.server_config(None), |exchange: &mut Exchange| {
        let _ = exchange.body();
        // Only TLS could say that this was all.
        exchange.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf of it");
        exchange.close();
    });
    let gateway = trusting(&certificate, &worker).start();
    let response = Client::connect(&gateway).ask("cut");
    assert!(response.body == b"half of it" && !response.complete, "{response:?}");
    gateway.is_at_rest();
}

#[test]
fn an_idle_connection_that_its_worker_closed_is_not_used() {
    let certificate = Certificate::new();
    let worker = Worker::secure(certificate.server_config(None), |exchange| {
        exchange.answer(200, b"{}");
        exchange.close();
    });
    let gateway = trusting(&certificate, &worker).flags("--disable-retries").start();
    let mut client = Client::connect(&gateway);
    for _ in 0..5 {
        assert_eq!(client.ask("again").status(), 200);
    }
    assert_eq!(worker.dispatched(), 5);
}

#[test]
fn a_certificate_that_cannot_be_trusted_keeps_its_worker_out_and_is_named() {
    let (certificate, stranger) = (Certificate::new(), Certificate::new());
    let elsewhere = Certificate::naming(&["elsewhere.test"]);
    for (shown, trusted, reason) in [
        (&stranger, &certificate, "UnknownIssuer; name the authority"),
        (&elsewhere, &elsewhere, "not valid for name"),
    ] {
        let worker = Worker::secure(shown.server_config(None), Exchange::until_abandoned);
        let flags = format!("--ca-cert-paths {}", trusted.authority_path());
        let gateway = Gateway::before([]).flags(&flags).and_unready(&worker.url()).start();
        eventually("the reason is logged", || gateway.log().contains(reason));
        assert_eq!(gateway.readiness(), Some(503));
        assert_eq!(worker.dispatched(), 0);
    }
}

#[test]
fn a_certificate_that_has_expired_is_named_once_and_not_at_every_check() {
    let expired = Certificate::expired();
    let worker = Worker::secure(expired.server_config(None), Exchange::until_abandoned);
    let flags =
        format!("--ca-cert-paths {} --worker-startup-check-interval 1", expired.authority_path());
    let gateway = Gateway::before([]).flags(&flags).and_unready(&worker.url()).start();
    let lines = || gateway.log().matches("worker is not up yet").count();
    eventually("the reason is logged", || lines() > 0);
    assert!(gateway.log().contains("xpired"), "{}", gateway.log());
    // It says how many seconds ago, another number each time.
    std::thread::park_timeout(Duration::from_secs(5));
    assert_eq!(lines(), 1, "{}", gateway.log());
}

#[test]
fn a_worker_that_does_not_speak_tls_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // The gateway may have hung up.
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let gateway = Gateway::before([]).and_unready(&url).start();
    eventually("the reason is logged", || gateway.log().contains("its URL begins with http://"));
}

#[test]
fn a_worker_that_asks_for_a_certificate_gets_it() {
    let (certificate, own) = (Certificate::new(), Certificate::new());
    let config = certificate.server_config(Some(&own));
    let worker = Worker::secure(config, |exchange| exchange.answer(200, b"trusted"));
    let flags =
        format!("--client-cert-path {} --client-key-path {}", own.cert_path(), own.key_path());
    let gateway = trusting(&certificate, &worker).flags(&flags).start();
    assert_eq!(Client::connect(&gateway).ask("hello").text(), "trusted");

    let flags = format!("--ca-cert-paths {}", certificate.authority_path());
    let without = Gateway::before([]).flags(&flags).and_unready(&worker.url()).start();
    eventually("the reason is logged", || {
        without.log().contains("CertificateRequired; give one with")
    });
}

#[test]
fn files_that_cannot_be_used_are_refused() {
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let (cert, key) = (certificate.cert_path(), other.key_path());
    for (flags, words) in [
        (format!("--client-cert-path {cert}"), "without --client-key-path"),
        (format!("--client-key-path {key}"), "without --client-cert-path"),
        (
            format!("--client-cert-path {cert} --client-key-path {key}"),
            "not that of the certificate",
        ),
        ("--ca-cert-paths /nonexistent/ca.pem".to_owned(), "cannot be read"),
        (format!("--ca-cert-paths {key}"), "holds no certificate"),
    ] {
        let Refusal { code, output } = Gateway::before([]).flags(&flags).refused();
        assert_eq!(code, Some(2), "{output}");
        assert!(output.contains(words), "{output}");
    }
}
