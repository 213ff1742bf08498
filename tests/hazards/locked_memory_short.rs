//! Containers often allow little locked memory, which io_uring may need.

use crate::harness::{Client, Gateway, Worker, legacy_driver_is_forced};

#[test]
fn the_gateway_serves_and_says_what_it_went_without() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker]).limit(libc::RLIMIT_MEMLOCK, 64 << 10).start();
    for _ in 0..5 {
        assert_eq!(Client::connect(&gateway).ask("hello").status(), 200);
    }

    let reason = if legacy_driver_is_forced() {
        "MONOIO_FORCE_LEGACY_DRIVER is set"
    } else {
        "the locked-memory limit is 64 KiB"
    };
    let metrics = gateway.metrics();
    let drivers = metrics.labels("smg_io_driver");
    let control = drivers.iter().find(|labels| labels.contains("ring=\"control\""));
    let control = control.expect("the control core's driver");
    assert!(control.contains("driver=\"epoll\"") && control.contains(reason), "{control}");
    gateway.is_at_rest();
}
