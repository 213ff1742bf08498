//! Clients that speak HTTP/2: one that follows the rules, and one that writes frames by hand.

use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;

use super::{Certificate, Gateway, PATIENCE};

/// A connection that follows the rules. It does its part only while something of it is waited for.
pub struct Http2 {
    runtime: Runtime,
    send: SendRequest<Bytes>,
    connection: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

/// An answer, as far as it came.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// How it ended if not well.
    pub broken: Option<h2::Error>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    /// The body of an answer that came whole.
    #[track_caller]
    pub fn whole(self) -> Vec<u8> {
        assert!(self.broken.is_none(), "{self:?}");
        self.body
    }
}

/// A request under way.
pub struct Asked {
    pub sending: SendStream<Bytes>,
    pub answer: ResponseFuture,
}

impl Http2 {
    /// Without TLS, by prior knowledge.
    #[track_caller]
    pub fn connect(gateway: &Gateway) -> Self {
        Self::connect_with(gateway, h2::client::Builder::new())
    }

    #[track_caller]
    pub fn connect_with(gateway: &Gateway, builder: h2::client::Builder) -> Self {
        let runtime = runtime();
        let stream = runtime.block_on(tokio::net::TcpStream::connect(gateway.addr()));
        Self::begin(runtime, stream.expect("the gateway takes connections"), builder)
    }

    /// With TLS, agreed on by ALPN.
    #[track_caller]
    pub fn connect_tls(gateway: &Gateway, certificate: &Certificate) -> Self {
        let runtime = runtime();
        let connector = tokio_rustls::TlsConnector::from(certificate.client_config(&["h2"]));
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpStream::connect(gateway.addr()).await?;
            let name = "localhost".try_into().expect("a name");
            connector.connect(name, socket).await
        });
        let stream = stream.expect("a TLS connection");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let mut builder = h2::client::Builder::new();
        // Answers that are not read yet must not hold up the others.
        builder.initial_connection_window_size(16 << 20);
        Self::begin(runtime, stream, builder)
    }

    #[track_caller]
    fn begin(
        runtime: Runtime,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        builder: h2::client::Builder,
    ) -> Self {
        let (send, connection) =
            runtime.block_on(builder.handshake(stream)).expect("an HTTP/2 connection");
        let connection = runtime.spawn(connection);
        Self { runtime, send, connection }
    }

    /// Does what is to be done until `wanted` is there.
    #[track_caller]
    pub fn until<T>(&self, wanted: impl Future<Output = T>) -> T {
        let limited = async { tokio::time::timeout(PATIENCE, wanted).await };
        self.runtime.block_on(limited).expect("it comes in time")
    }

    /// Does what is to be done for a while.
    pub fn run_for(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Begins a request; `ends` if it has no body.
    #[track_caller]
    pub fn open(&mut self, request: Request<()>, ends: bool) -> Asked {
        let send = self.send.clone();
        let mut send = self.until(send.ready()).expect("a connection that takes requests");
        let (answer, sending) = send.send_request(request, ends).expect("a request");
        Asked { sending, answer }
    }

    /// Begins a chat request.
    #[track_caller]
    pub fn chat(&mut self, text: &str) -> Asked {
        let (request, body) = chat(text);
        let mut asked = self.open(request, false);
        asked.sending.send_data(body, true).expect("a body");
        asked
    }

    /// A POST with a body, and its whole answer.
    #[track_caller]
    pub fn post(&mut self, path: &str, body: &[u8]) -> Answer {
        let mut asked = self.open(post(path), false);
        self.send_all(&mut asked.sending, body);
        self.answer(asked.answer)
    }

    /// Sends a body as the gateway allows it, and ends it.
    #[track_caller]
    pub fn send_all(&self, sending: &mut SendStream<Bytes>, body: &[u8]) {
        self.send_some(sending, body);
        // An answer may have ended the need for it.
        let _ = sending.send_data(Bytes::new(), true);
    }

    /// Sends a part of a body as the gateway allows it.
    #[track_caller]
    pub fn send_some(&self, sending: &mut SendStream<Bytes>, body: &[u8]) {
        let mut body = Bytes::copy_from_slice(body);
        self.until(async {
            while !body.is_empty() {
                sending.reserve_capacity(body.len());
                let allowed = std::future::poll_fn(|cx| sending.poll_capacity(cx)).await;
                // An answer may end the need for a body.
                let Some(Ok(allowed)) = allowed else { return };
                let piece = body.split_to(allowed.min(body.len()));
                if sending.send_data(piece, false).is_err() {
                    return;
                }
            }
        });
    }

    /// A request without a body, and its whole answer.
    #[track_caller]
    pub fn ask(&mut self, method: &str, path: &str) -> Answer {
        let request = Request::builder().method(method).uri(uri(path)).body(()).expect("a request");
        let asked = self.open(request, true);
        self.answer(asked.answer)
    }

    /// The head of an answer.
    #[track_caller]
    pub fn head(&self, answer: ResponseFuture) -> http::Response<RecvStream> {
        self.until(answer).expect("the head of an answer")
    }

    /// The whole answer, or as much of it as comes.
    #[track_caller]
    pub fn answer(&self, answer: ResponseFuture) -> Answer {
        let head = self.head(answer);
        self.rest_of(head)
    }

    /// The rest of an answer.
    #[track_caller]
    pub fn rest_of(&self, head: http::Response<RecvStream>) -> Answer {
        let (head, mut stream) = head.into_parts();
        let mut answer = Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: Vec::new(),
            broken: None,
        };
        loop {
            match self.data(&mut stream) {
                Some(Ok(data)) => answer.body.extend_from_slice(&data),
                Some(Err(error)) => answer.broken = Some(error),
                None => return answer,
            }
            if answer.broken.is_some() {
                return answer;
            }
        }
    }

    /// The next piece of an answer, never an empty one.
    #[track_caller]
    pub fn data(&self, stream: &mut RecvStream) -> Option<Result<Bytes, h2::Error>> {
        loop {
            let data = self.until(stream.data());
            if let Some(Ok(data)) = &data {
                // The stream may have ended by now.
                let _ = stream.flow_control().release_capacity(data.len());
                if data.is_empty() {
                    continue;
                }
            }
            return data;
        }
    }

    /// Waits for the end of the connection; how it ended.
    #[track_caller]
    pub fn end(&mut self) -> Result<(), h2::Error> {
        let limited = async { tokio::time::timeout(PATIENCE, &mut self.connection).await };
        self.runtime.block_on(limited).expect("an end in time").expect("it has not panicked")
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn uri(path: &str) -> String {
    format!("http://gateway{path}")
}

/// The head of a POST request.
pub fn post(path: &str) -> Request<()> {
    let request = Request::post(uri(path)).header("content-type", "application/json");
    request.body(()).expect("a request")
}

fn chat(text: &str) -> (Request<()>, Bytes) {
    let body = serde_json::json!({"model": "m", "messages": [{"role": "user", "content": text}]});
    (post("/v1/chat/completions"), body.to_string().into())
}

/// A client that writes its frames by hand, and so can break any rule.
pub struct RawHttp2 {
    stream: TcpStream,
}

/// A frame: type, flags, stream, payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

impl RawHttp2 {
    /// Connects and exchanges settings.
    #[track_caller]
    pub fn connect(gateway: &Gateway) -> Self {
        let stream = TcpStream::connect(gateway.addr()).expect("the gateway takes connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("a duration above 0");
        let mut client = Self { stream };
        client.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("a preface");
        client.send(SETTINGS, 0, 0, b"");
        client
    }

    #[track_caller]
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        assert!(self.try_send(kind, flags, stream, payload), "the gateway takes a frame");
    }

    /// Whether the gateway takes another frame.
    pub fn try_send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let length = u32::try_from(payload.len()).expect("a frame");
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, flags]);
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).is_ok()
    }

    /// Sends bytes that are no whole frame.
    pub fn write_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the gateway takes bytes");
    }

    /// From now on a frame that the gateway does not take at once counts as not taken.
    pub fn stop_waiting_to_send(&self) {
        self.stream.set_write_timeout(Some(Duration::from_secs(1))).expect("a duration above 0");
    }

    /// Sends the head of a POST request, with these fields behind those it needs.
    #[track_caller]
    pub fn post(&mut self, stream: u32, fields: &[(&[u8], &[u8])], ends: bool) {
        let head = post_block(fields);
        self.send(HEADERS, END_HEADERS | u8::from(ends), stream, &head);
    }

    /// The next frame; `None` at the end of the connection.
    #[track_caller]
    pub fn frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        if let Err(error) = self.stream.read_exact(&mut head) {
            let waited = matches!(error.kind(), std::io::ErrorKind::WouldBlock);
            assert!(!waited, "no frame in time");
            return None;
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).expect("a whole frame");
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The next frame of one of these types.
    #[track_caller]
    pub fn frame_of(&mut self, kinds: &[u8]) -> Option<Frame> {
        loop {
            match self.frame() {
                Some(frame) if !kinds.contains(&frame.kind) => {}
                other => return other,
            }
        }
    }
}

/// The fields of a chat request and more, in HPACK without tables or Huffman.
pub fn post_block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let needed: [(&[u8], &[u8]); 4] = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/v1/chat/completions"),
        (b":authority", b"gateway"),
    ];
    block(needed.iter().chain(fields))
}

/// Fields in HPACK: literals that are not indexed.
pub fn block<'a>(fields: impl IntoIterator<Item = &'a (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            push_length(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// An integer with a prefix of seven bits (RFC 7541 §5.1).
fn push_length(block: &mut Vec<u8>, length: usize) {
    if length < 127 {
        return block.push(length as u8);
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    block.push(rest as u8);
}
