//! Whoever looks into a request reads the log next to what its worker saw.

use std::sync::{Arc, OnceLock};

use crate::harness::{Client, Gateway, OutputFile, Worker};

#[test]
fn a_decision_is_in_the_log_before_its_worker_has_the_request() {
    let output: Arc<OnceLock<OutputFile>> = Arc::default();
    let seen = output.clone();
    let worker = Worker::start(move |exchange| {
        let log = seen.get().expect("the gateway has started").text();
        let decisions = log.matches("Cache-aware selection").count();
        exchange.answer(200, decisions.to_string().as_bytes());
    });
    let launch = Gateway::before([&worker]).flags("--policy cache_aware --log-level debug");
    let gateway = launch.output_to_file().start();
    assert!(output.set(gateway.output_file()).is_ok());

    let mut client = Client::connect(&gateway);
    for n in 1..=200 {
        assert_eq!(client.ask("hello").text(), n.to_string());
    }
}
