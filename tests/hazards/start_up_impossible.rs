//! The gateway cannot start as asked, or not on the driver it would like best: it says so.

use std::net::TcpListener;

use crate::harness::{
    Client, Gateway, Refusal, Worker, eventually, free_port, legacy_driver_is_forced,
};

#[test]
fn a_port_in_use_is_named_with_its_flag_and_the_remedy() {
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = held.local_addr().expect("its address").port();
    for (ports, flag) in [
        ((taken, free_port()), "--host/--port"),
        ((free_port(), taken), "--prometheus-host/--prometheus-port"),
    ] {
        let Refusal { code, output } = Gateway::before([]).ports(ports.0, ports.1).refused();
        assert_eq!(code, Some(1), "{output}");
        for word in [&taken.to_string(), flag, "choose another port"] {
            assert!(output.contains(word), "{word} is missing: {output}");
        }
    }
}

#[test]
fn a_second_gateway_does_not_share_the_port_of_the_first() {
    let worker = Worker::obliging();
    let first = Gateway::before([&worker]).start();
    let second = Gateway::before([&worker]).ports(first.addr().port(), free_port()).refused();
    assert_eq!(second.code, Some(1), "{}", second.output);
    assert_eq!(Client::connect(&first).ask("hello").status(), 200);
}

#[test]
fn a_cpu_that_is_not_there_is_named() {
    for flag in ["--data-cpus", "--control-cpus"] {
        let Refusal { code, output } =
            Gateway::before([]).flags(&format!("{flag} 0,8191")).refused();
        assert_eq!(code, Some(2), "{output}");
        assert!(output.contains(&format!("{flag} names CPU 8191")), "{output}");
    }
    let Refusal { code, output } = Gateway::before([]).flags("--data-cpus 0-x").refused();
    assert_eq!(code, Some(2), "{output}");
    assert!(output.contains("0-x"), "{output}");
}

#[test]
fn a_cpu_or_worker_that_is_named_twice_is_refused() {
    for (flag, named) in [
        ("--data-cpus 0,0", "CPU 0"),
        ("--control-cpus 0,0-1", "CPU 0"),
        ("--worker-urls http://A:80/ http://a", "http://a"),
    ] {
        let Refusal { code, output } = Gateway::before([]).flags(flag).refused();
        assert_eq!(code, Some(2), "{output}");
        assert!(output.contains(named) && output.contains("named twice"), "{output}");
    }
}

#[test]
fn a_driver_that_was_insisted_on_is_not_replaced() {
    let Refusal { code, output } = Gateway::before([])
        .environment("MONOIO_FORCE_LEGACY_DRIVER", "1")
        .flags("--io-driver uring")
        .refused();
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("--io-driver uring: io_uring is not usable"), "{output}");
    assert!(output.contains("MONOIO_FORCE_LEGACY_DRIVER is set"), "{output}");
}

#[test]
fn the_driver_in_use_and_why_not_a_better_one_is_said() {
    let worker = Worker::obliging();
    let auto = Gateway::before([&worker]).start();
    let epoll = Gateway::before([&worker]).flags("--io-driver epoll").start();
    for (gateway, only_driver, reason) in [
        (&auto, None, legacy_driver_is_forced().then_some("MONOIO_FORCE_LEGACY_DRIVER is set")),
        (&epoll, Some("epoll"), Some("--io-driver epoll")),
    ] {
        eventually("the drivers are logged", || gateway.log().contains("I/O driver"));
        let (log, metrics) = (gateway.log(), gateway.metrics());
        let lines: Vec<_> = log.lines().filter(|line| line.contains("I/O driver")).collect();
        let [line] = lines[..] else { panic!("not one line about drivers:\n{log}") };
        assert!(line.contains("INFO"), "{line}");
        for ring in ["shard-0", "control"] {
            let labels = metrics.labels("smg_io_driver");
            let of_ring = format!("ring=\"{ring}\"");
            let labels = labels.iter().find(|labels| labels.contains(&of_ring)).expect("a series");
            let driver = value(labels, "driver");
            assert!(only_driver.is_none_or(|only| only == driver), "{labels}");
            let said = value(labels, "reason");
            assert!(reason.map_or(!said.is_empty(), |reason| reason == said), "{labels}");
            assert!(line.contains(&format!("{driver} ({said})")), "{ring} is missing: {line}");
        }
    }
}

/// The value of one label.
fn value<'a>(labels: &'a str, name: &str) -> &'a str {
    let value = labels.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
    value.unwrap_or_else(|| panic!("no {name}: {labels}"))
}
