//! A worker breaks off after it has begun to answer. The client must see that, and nobody else must
//! get the prompt.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::{Client, Exchange, Gate, Gateway, PATIENCE, Response, Worker, post};

/// A fleet whose workers answer with `part` and die once the client has it.
struct Broken {
    workers: [Worker; 2],
    gateway: Gateway,
    client_has_it: Gate,
}

impl Broken {
    fn start(part: fn(&mut Exchange), die: fn(&mut Exchange)) -> Self {
        let gate = Gate::default();
        let worker = || {
            let gate = gate.clone();
            Worker::start(move |exchange| {
                part(exchange);
                gate.wait();
                die(exchange);
            })
        };
        let workers = [worker(), worker()];
        let gateway = Gateway::before(&workers).start();
        Self { workers, gateway, client_has_it: gate }
    }

    fn ask(&self, path: &str) -> Client {
        let mut client = Client::connect(&self.gateway);
        client.send(&post(path, br#"{"model":"m","messages":[],"max_tokens":9,"stream":true}"#));
        client
    }

    /// The worker was asked once, and nothing is left of the request.
    fn is_over(&self) {
        assert_eq!(self.workers.iter().map(Worker::dispatched).sum::<usize>(), 1);
        self.gateway.is_at_rest();
    }
}

#[test]
fn a_stream_of_events_ends_with_an_error_event() {
    for die in [Exchange::close, Exchange::reset] {
        let fleet = Broken::start(events, die);
        let mut client = fleet.ask("/v1/chat/completions");
        assert_eq!(client.response_head().status(), 200);
        assert_eq!(client.chunk().as_deref(), Some("data: one\n\n"));
        fleet.client_has_it.open();

        let error = error_event(&client.chunk().expect("an error event"));
        assert_eq!(error["error"]["code"], "upstream_connection_closed");
        assert_eq!(client.chunk().as_deref(), Some(""), "the event is the last");
        assert!(client.is_at_end());
        fleet.is_over();
    }
}

#[test]
fn anthropic_clients_get_their_own_shape_of_error() {
    let fleet = Broken::start(events, Exchange::close);
    let mut client = fleet.ask("/v1/messages");
    assert_eq!(client.response_head().status(), 200);
    assert_eq!(client.chunk().as_deref(), Some("data: one\n\n"));
    fleet.client_has_it.open();

    let error = error_event(&client.chunk().expect("an error event"));
    assert_eq!((&error["type"], &error["error"]["type"]), (&"error".into(), &"api_error".into()));
    fleet.is_over();
}

#[test]
fn half_an_event_is_told_apart_from_the_error_event() {
    let half = |exchange: &mut Exchange| {
        exchange.begin_events();
        exchange.chunk(b"data: {\"hal");
    };
    let fleet = Broken::start(half, Exchange::close);
    let mut client = fleet.ask("/v1/chat/completions");
    client.response_head();
    assert_eq!(client.chunk().as_deref(), Some("data: {\"hal"));
    fleet.client_has_it.open();

    let rest = client.chunk().expect("an error event");
    let event = rest.strip_prefix("\n\n").expect("the half event is ended first");
    assert_eq!(error_event(event)["error"]["code"], "upstream_connection_closed");
    fleet.is_over();
}

#[test]
fn a_client_of_http_1_0_gets_the_error_event_too() {
    for die in [Exchange::close, Exchange::reset] {
        let fleet = Broken::start(events, die);
        let mut client = TcpStream::connect(fleet.gateway.addr()).expect("a connection");
        client.set_read_timeout(Some(PATIENCE)).expect("a duration above 0");
        let body = r#"{"model":"m","messages":[],"stream":true}"#;
        let head = "POST /v1/chat/completions HTTP/1.0\r\nhost: g";
        write!(client, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).expect("sent");
        let mut answer = Vec::new();
        while !answer.ends_with(b"data: one\n\n") {
            let mut piece = [0; 1024];
            let received = client.read(&mut piece).expect("an answer");
            assert!(received > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..received]);
        }
        fleet.client_has_it.open();
        let mut rest = String::new();
        client.read_to_string(&mut rest).expect("an orderly end");
        assert_eq!(error_event(&rest)["error"]["code"], "upstream_connection_closed");
        fleet.is_over();
    }
}

#[test]
fn an_answer_of_known_length_is_visibly_short() {
    for die in [Exchange::close, Exchange::reset] {
        let response = broken_off(die, |exchange| {
            let _ = exchange.body();
            exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        });
        assert_eq!((response.text().as_str(), response.complete), ("half", false));
    }
}

#[test]
fn a_chunked_answer_has_no_last_chunk() {
    for die in [Exchange::close, Exchange::reset] {
        let response = broken_off(die, |exchange| {
            let _ = exchange.body();
            exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n");
            exchange.send(b"Transfer-Encoding: chunked\r\n\r\n");
            exchange.chunk(b"half");
        });
        assert_eq!((response.text().as_str(), response.complete), ("half", false));
    }
}

/// What a client has of an answer that is not a stream of events. The parts are small, so that they
/// have gone out when the worker dies.
fn broken_off(die: fn(&mut Exchange), part: fn(&mut Exchange)) -> Response {
    let fleet = Broken::start(part, die);
    let mut client = fleet.ask("/v1/chat/completions");
    let head = client.response_head();
    fleet.client_has_it.open();
    let response = client.rest_of(head);
    client.leave();
    fleet.is_over();
    response
}

fn events(exchange: &mut Exchange) {
    exchange.begin_events();
    exchange.event("one");
}

/// The JSON of one `event: error`.
fn error_event(text: &str) -> serde_json::Value {
    let data = text.strip_prefix("event: error\ndata: ").and_then(|rest| rest.strip_suffix("\n\n"));
    let data = data.unwrap_or_else(|| panic!("not one error event: {text:?}"));
    serde_json::from_str(data).expect("an error in JSON")
}
