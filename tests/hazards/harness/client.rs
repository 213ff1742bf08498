//! A client that speaks raw bytes and notices every one it gets.

use std::io;
use std::net::{SocketAddr, TcpStream};

use super::secure::Stream;
use super::wire::{Head, Wire};
use super::{Certificate, Gateway};

/// A connection to a gateway.
pub struct Client {
    wire: Wire,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Response {
    pub head: Head,
    pub body: Vec<u8>,
    /// It ended as its head announced.
    pub complete: bool,
}

impl Response {
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The gateway's own error code, if the answer is the gateway's own.
    pub fn error_code(&self) -> Option<&str> {
        self.head.header("x-smg-error-code")
    }
}

impl Client {
    #[track_caller]
    pub fn connect(gateway: &Gateway) -> Self {
        Self::connect_to(gateway.addr()).expect("the gateway takes connections")
    }

    /// # Errors
    /// The connection is refused.
    pub fn connect_to(addr: SocketAddr) -> io::Result<Self> {
        Ok(Self { wire: Wire::new(TcpStream::connect(addr)?) })
    }

    /// Over a connection that has been used before.
    pub fn from_socket(socket: TcpStream) -> Self {
        Self { wire: Wire::new(socket) }
    }

    /// With TLS, and HTTP/1.1 in it.
    #[track_caller]
    pub fn connect_tls(gateway: &Gateway, certificate: &Certificate) -> Self {
        let socket = TcpStream::connect(gateway.addr()).expect("the gateway takes connections");
        let stream = Stream::client(socket, certificate.client_config(&["http/1.1"]));
        Self { wire: Wire::over(stream) }
    }

    /// Whether the connection has ended, and without the word with which TLS ends.
    pub fn was_cut(&self) -> bool {
        self.wire.was_cut()
    }

    /// Whether the connection comes to its end, whatever is said before.
    #[track_caller]
    pub fn ends(&mut self) -> bool {
        self.wire.drain().is_ok()
    }

    /// Completes a TLS handshake without saying anything in it.
    #[track_caller]
    pub fn flush_handshake(&mut self) {
        self.wire.send(b"").expect("a handshake");
    }

    /// Says the word with which TLS ends, and stays.
    pub fn close_notify(&mut self) {
        self.wire.stream.close_notify();
    }

    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.wire.send(bytes).expect("the gateway takes the request");
    }

    /// Sends a chat request and waits for its whole answer.
    #[track_caller]
    pub fn ask(&mut self, text: &str) -> Response {
        self.send(&chat(text));
        self.response()
    }

    /// Asks for a path with GET.
    ///
    /// # Errors
    /// The connection ended or stalled.
    pub fn get(&mut self, path: &str) -> io::Result<Response> {
        self.without_body("GET", path)
    }

    /// Asks for a resource to be deleted.
    ///
    /// # Errors
    /// The connection ended or stalled.
    pub fn delete(&mut self, path: &str) -> io::Result<Response> {
        self.without_body("DELETE", path)
    }

    /// Sends a body with a method.
    #[track_caller]
    pub fn with_body(&mut self, method: &str, path: &str, body: &str) -> Response {
        self.send(&request(method, path, body.as_bytes()));
        self.response()
    }

    fn without_body(&mut self, method: &str, path: &str) -> io::Result<Response> {
        self.wire.send(format!("{method} {path} HTTP/1.1\r\nHost: gateway\r\n\r\n").as_bytes())?;
        self.try_response()
    }

    /// The next answer, or as much of it as comes.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        self.try_response().expect("an answer")
    }

    /// # Errors
    /// The connection ended or stalled before a head was whole, or the answer stalled.
    pub fn try_response(&mut self) -> io::Result<Response> {
        let head = self.wire.head()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        // 204 has neither a body nor a length.
        let body = self.wire.body(&head, head.status() != 204)?;
        Ok(Response { head, body: body.bytes, complete: body.complete })
    }

    /// The answer whose head was taken with [`Client::response_head`].
    #[track_caller]
    pub fn rest_of(&mut self, head: Head) -> Response {
        let body = self.wire.body(&head, true).expect("the rest in time");
        Response { head, body: body.bytes, complete: body.complete }
    }

    /// The head of the next answer.
    #[track_caller]
    pub fn response_head(&mut self) -> Head {
        self.wire.head().expect("a head in time").expect("a head before the end")
    }

    /// The next chunk of a chunked answer as text: empty for the last, `None` when it is cut off.
    #[track_caller]
    pub fn chunk(&mut self) -> Option<String> {
        let chunk = self.wire.chunk().expect("a chunk in time");
        chunk.map(|chunk| String::from_utf8(chunk).expect("text"))
    }

    /// Whether the gateway ends the connection without saying anything more.
    #[track_caller]
    pub fn is_at_end(&mut self) -> bool {
        self.wire.is_at_end().expect("an end in time")
    }

    /// Closes the connection in good order.
    pub fn leave(self) {
        drop(self);
    }

    /// Resets the connection, as a process that is killed does.
    pub fn vanish(self) {
        self.wire.reset_on_close();
    }
}

/// A request for a chat completion with one message.
pub fn chat(text: &str) -> Vec<u8> {
    let body = serde_json::json!({"model": "m", "messages": [{"role": "user", "content": text}]});
    post("/v1/chat/completions", body.to_string().as_bytes())
}

/// A POST request with a body.
pub fn post(path: &str, body: &[u8]) -> Vec<u8> {
    request("POST", path, body)
}

fn request(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}
