//! A client sends its body slowly, or not at all, while few requests may run at a time.

use crate::harness::{Client, Exchange, Gate, Gateway, Http2, Worker, chat, eventually, http2};

#[test]
fn it_keeps_nobody_from_running() {
    let worker = Worker::obliging();
    let flags = "--shards 1 --max-concurrent-requests 1 --queue-size 0";
    let gateway = Gateway::before([&worker]).flags(flags).start();
    let request = chat("slow");
    let (begun, rest) = request.split_at(request.len() - 10);
    let mut slow = Client::connect(&gateway);
    slow.send(begun);
    let mut slow_stream = Http2::connect(&gateway);
    let mut asked = slow_stream.open(http2::post("/v1/chat/completions"), false);
    slow_stream.run_for(std::time::Duration::from_millis(50));
    eventually("both are being read", || {
        gateway.metrics().sum("smg_http_connections_active") == 2.0
    });

    let mut quick = Client::connect(&gateway);
    for _ in 0..3 {
        assert_eq!(quick.ask("quick").status(), 200);
    }
    eventually("the quick one has left", || gateway.metrics().is_zero("smg_admission_inflight"));
    slow.send(rest);
    assert_eq!(slow.response().status(), 200);
    let body = br#"{"model":"m","messages":[{"role":"user","content":"slow"}]}"#;
    slow_stream.send_all(&mut asked.sending, body);
    assert_eq!(slow_stream.answer(asked.answer).status, 200);
    drop((slow, slow_stream, quick));
    gateway.is_at_rest();
}

#[test]
fn who_would_be_turned_away_need_not_send_it() {
    let gate = Gate::default();
    let opened = gate.clone();
    let worker = Worker::start(move |exchange: &mut Exchange| {
        opened.wait();
        exchange.answer(200, b"{}");
    });
    let flags = "--shards 1 --max-concurrent-requests 1 --queue-size 0";
    let gateway = Gateway::before([&worker]).flags(flags).start();
    let mut running = Client::connect(&gateway);
    running.send(&chat("runs"));
    eventually("it runs", || worker.dispatched() == 1);

    let mut polite = Client::connect(&gateway);
    polite.send(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Length: 1000000\r\n\
          Expect: 100-continue\r\n\r\n",
    );
    let response = polite.response();
    assert_eq!((response.status(), response.error_code()), (429, Some("admission_queue_full")));
    gate.open();
    assert_eq!(running.response().status(), 200);
    drop((running, polite));
    gateway.is_at_rest();
}
