//! A load balancer asks for readiness while the gateway is still starting.

use crate::harness::{Gateway, Worker, eventually};

const SHARDS: usize = 48;

#[test]
fn it_is_not_ready_before_every_shard_is() {
    let worker = Worker::obliging();
    let gateway =
        Gateway::before([&worker]).flags(&format!("--shards {SHARDS}")).start_without_waiting();
    eventually("it is ready", || gateway.readiness() == Some(200));
    let metrics = gateway.metrics();
    let rings = metrics.labels("smg_io_driver");
    let shards = rings.iter().filter(|labels| labels.contains("ring=\"shard-")).count();
    assert_eq!(shards, SHARDS);
}
