//! The process may not have as many descriptors as it takes to start, or as there are clients.

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
