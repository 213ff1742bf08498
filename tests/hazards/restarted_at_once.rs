//! A gateway ends and is started again at once, as a supervisor does. The kernel may still be busy
//! taking down the rings that held its sockets.

use crate::harness::{Client, Gateway, Worker, free_port};

#[test]
fn the_next_process_gets_the_same_ports() {
    let worker = Worker::obliging();
    let (main, metrics) = (free_port(), free_port());
    for signal in [libc::SIGTERM, libc::SIGKILL].repeat(4) {
        let launch = Gateway::before([&worker]).ports(main, metrics);
        let mut gateway = launch.flags("--drain-settle-secs 0").start();
        assert_eq!(Client::connect(&gateway).ask("hello").status(), 200);
        gateway.signal(signal);
        gateway.exit_status();
    }
}
