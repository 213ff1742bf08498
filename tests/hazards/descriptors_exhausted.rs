//! More clients connect than the process may have descriptors.

use crate::harness::{Client, Gateway, Worker, chat, eventually};

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
