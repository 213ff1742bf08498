//! The process may not have as many descriptors as it takes to start, or as there are clients.

use std::time::{Duration, Instant};

use crate::harness::{Client, Gateway, Refusal, Worker, chat, eventually};

#[test]
fn clients_are_served_again_once_others_have_left() {
    let worker = Worker::obliging();
    let gateway =
        Gateway::before([&worker]).flags("--shards 1").limit(libc::RLIMIT_NOFILE, 64).start();

    let crowd: Vec<Client> = (0..200).map(|_| Client::connect(&gateway)).collect();
    eventually("the gateway is out of descriptors", || {
        gateway.log().contains("cannot accept connections")
    });
    drop(crowd);

    eventually("a client is served", || {
        let Ok(mut client) = Client::connect_to(gateway.addr()) else { return false };
        client.send(&chat("hello"));
        client.try_response().is_ok_and(|response| response.status() == 200)
    });
    gateway.is_at_rest();
    for _ in 0..20 {
        assert_eq!(Client::connect(&gateway).ask("hello").status(), 200);
    }
}

#[test]
fn a_scrape_that_waits_meanwhile_does_not_fill_the_log() {
    let worker = Worker::obliging();
    let gateway = Gateway::before([&worker])
        .flags("--shards 1 --header-read-timeout-secs 3600")
        .limit(libc::RLIMIT_NOFILE, 64)
        .start();
    let _crowd: Vec<Client> = (0..120).map(|_| Client::connect(&gateway)).collect();
    eventually("the gateway is out of descriptors", || {
        gateway.log().contains("cannot accept connections")
    });
    // A question to the worker that ends may leave its descriptor to one of them.
    let scraper = || Client::connect_to(gateway.metrics_addr()).expect("the kernel takes it");
    let _scrapers: Vec<Client> = (0..8).map(|_| scraper()).collect();
    let failed = || gateway.log().matches("accept failed").count();
    eventually("the scrape cannot be accepted", || failed() > 0);
    let before = Instant::now();
    std::thread::park_timeout(Duration::from_secs(3));
    // One whenever five seconds are over.
    let most = 2 + before.elapsed().as_secs() as usize / 5;
    assert!(failed() <= most, "{} lines: {}", failed(), gateway.log());
    assert!(gateway.log().contains("ulimit -n"), "{}", gateway.log());
}

#[test]
fn no_worker_is_blamed_for_it() {
    let worker = Worker::obliging();
    // The crowd sends nothing and is to stay, even if the machine stands still for a while.
    let gateway = Gateway::before([&worker])
        .flags("--shards 1 --header-read-timeout-secs 3600 --upstream-pool-idle-timeout-secs 1")
        .limit(libc::RLIMIT_NOFILE, 64)
        .start();
    let mut asking = Client::connect(&gateway);
    assert_eq!(asking.get("/liveness").expect("an answer").status(), 200);
    let crowd: Vec<Client> = (0..200).map(|_| Client::connect(&gateway)).collect();
    eventually("the gateway is out of descriptors", || {
        gateway.log().contains("cannot accept connections")
    });
    // A probe of the worker may end just then and leave its descriptor to a request, whose connection is
    // kept. The crowd has it once that is closed.
    let (mut sent, mut refused) = (0, 0);
    while refused < 10 {
        assert!(sent < 10, "descriptors were there for {sent} requests");
        let response = asking.ask("hello");
        if response.status() == 200 {
            sent += 1;
            std::thread::park_timeout(Duration::from_millis(1500));
            continue;
        }
        refused += 1;
        assert_eq!(response.error_code(), Some("connection_limit_reached"), "{response:?}");
        assert!(response.text().contains("ulimit -n"), "{response:?}");
    }
    assert_eq!(worker.dispatched(), sent);
    drop(crowd);

    eventually("the request can be sent", || asking.ask("hello").status() == 200);
    let log = gateway.log();
    assert!(log.contains("ending=\"not_sent\"") || log.contains("ending=not_sent"), "{log}");
    assert!(!log.contains("worker taken out"), "{log}");
    assert!(gateway.metrics().is_zero("smg_worker_cb_consecutive_failures"));
    asking.leave();
    gateway.is_at_rest();
}

#[test]
fn too_few_to_start_with_is_said_with_the_limit_to_raise() {
    // Each runs out at another place. Below seven the loader itself fails.
    for limit in 7..=24 {
        let Refusal { code, output } =
            Gateway::before([]).flags("--shards 8").limit(libc::RLIMIT_NOFILE, limit).refused();
        assert_eq!(code, Some(1), "{limit}: {output}");
        assert!(output.contains("Too many open files"), "{limit}: {output}");
        assert!(output.contains("ulimit -n"), "{limit}: {output}");
    }
}

#[test]
fn the_soft_limit_does_not_count() {
    let worker = Worker::obliging();
    let gateway =
        Gateway::before([&worker]).flags("--shards 1").soft_limit(libc::RLIMIT_NOFILE, 32).start();
    let crowd: Vec<Client> = (0..100).map(|_| Client::connect(&gateway)).collect();
    for mut client in crowd {
        assert_eq!(client.ask("hello").status(), 200);
    }
    assert!(!gateway.log().contains("cannot accept connections"), "{}", gateway.log());
}
