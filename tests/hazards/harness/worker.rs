//! A worker that does as scripted: one thread per connection, raw bytes out.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::ServerConfig;

use super::Gate;
use super::secure::Stream;
use super::wire::{Head, Wire};
use super::{PATIENCE, within_patience};

/// An engine as the gateway sees it. It answers probes itself; inference requests go to its script.
pub struct Worker {
    addr: SocketAddr,
    state: Arc<State>,
    listener: Option<Arc<TcpListener>>,
    accepting: Option<JoinHandle<()>>,
    /// Connections that fill the queue of a worker that does not accept.
    queued: Vec<TcpStream>,
}

/// Descriptors that several threads put on and take off.
#[expect(clippy::disallowed_types, reason = "threads of a test, which wait for nothing meanwhile")]
type Descriptors = std::sync::Mutex<Vec<RawFd>>;

/// Answers a probe of this path, or says no.
type ProbeScript = dyn Fn(&mut Exchange, &str) -> bool + Send + Sync;

struct State {
    model: String,
    tls: Option<Arc<ServerConfig>>,
    script: Box<dyn Fn(&mut Exchange) + Send + Sync>,
    probe_script: Box<ProbeScript>,
    healthy: AtomicBool,
    swallows: AtomicBool,
    stopped: AtomicBool,
    dispatched: AtomicUsize,
    abandoned: AtomicUsize,
    /// Questions about its model that it breaks off.
    broken_off: AtomicUsize,
    /// Its connections.
    open: Descriptors,
}

impl Worker {
    /// A worker of model `m`.
    pub fn start(script: impl Fn(&mut Exchange) + Send + Sync + 'static) -> Self {
        Self::serving("m", script)
    }

    /// A worker that answers those probes itself for which `probed` says so.
    pub fn start_with_probes(
        script: impl Fn(&mut Exchange) + Send + Sync + 'static,
        probed: impl Fn(&mut Exchange, &str) -> bool + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port for a worker");
        Self::listening_with(listener, "m", None, script, probed)
    }

    /// A worker of the named model.
    pub fn serving(model: &str, script: impl Fn(&mut Exchange) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port for a worker");
        Self::listening(listener, model, script)
    }

    /// A worker on a port that was kept for it.
    pub fn listening(
        listener: TcpListener,
        model: &str,
        script: impl Fn(&mut Exchange) + Send + Sync + 'static,
    ) -> Self {
        Self::listening_with(listener, model, None, script, |_, _| false)
    }

    /// A worker of model `m` that speaks TLS.
    pub fn secure(
        config: Arc<ServerConfig>,
        script: impl Fn(&mut Exchange) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port for a worker");
        Self::listening_with(listener, "m", Some(config), script, |_, _| false)
    }

    fn listening_with(
        listener: TcpListener,
        model: &str,
        tls: Option<Arc<ServerConfig>>,
        script: impl Fn(&mut Exchange) + Send + Sync + 'static,
        probed: impl Fn(&mut Exchange, &str) -> bool + Send + Sync + 'static,
    ) -> Self {
        let addr = listener.local_addr().expect("its address");
        let listener = Arc::new(listener);
        let state = Arc::new(State {
            model: model.to_owned(),
            tls,
            script: Box::new(script),
            probe_script: Box::new(probed),
            healthy: AtomicBool::new(true),
            swallows: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            dispatched: AtomicUsize::new(0),
            abandoned: AtomicUsize::new(0),
            broken_off: AtomicUsize::new(0),
            open: Descriptors::default(),
        });
        let (accepting, serving) = (listener.clone(), state.clone());
        let accepting = std::thread::spawn(move || {
            for stream in accepting.incoming().flatten() {
                if serving.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let state = serving.clone();
                std::thread::spawn(move || state.serve(stream));
            }
        });
        Self {
            addr,
            state,
            listener: Some(listener),
            accepting: Some(accepting),
            queued: Vec::new(),
        }
    }

    /// A worker that answers every request with `{"id":"ok"}`.
    pub fn obliging() -> Self {
        Self::start(|exchange| exchange.answer(200, br#"{"id":"ok"}"#))
    }

    /// Answers at once, but who mentions a stream gets one of two events, the second when `gate` opens.
    pub fn pausing(gate: &Gate) -> Self {
        let gate = gate.clone();
        Self::start(move |exchange| {
            if !exchange.mentions("stream") {
                return exchange.answer(200, b"at once");
            }
            exchange.begin_events();
            exchange.event("one");
            gate.wait();
            exchange.event("two");
            exchange.end();
        })
    }

    pub fn url(&self) -> String {
        let scheme = if self.state.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.addr)
    }

    /// Inference requests that reached it.
    pub fn dispatched(&self) -> usize {
        self.state.dispatched.load(Ordering::SeqCst)
    }

    /// Connections that the gateway closed while [`Exchange::until_abandoned`] waited for that.
    pub fn abandoned(&self) -> usize {
        self.state.abandoned.load(Ordering::SeqCst)
    }

    /// What its health route says from now on.
    pub fn set_healthy(&self, healthy: bool) {
        self.state.healthy.store(healthy, Ordering::SeqCst);
    }

    /// Breaks off so many of the questions which model it serves.
    pub fn break_off(&self, questions: usize) {
        self.state.broken_off.store(questions, Ordering::SeqCst);
    }

    /// From now on it completes connections and takes what is sent, and says nothing any more.
    pub fn swallow(&self) {
        self.state.swallows.store(true, Ordering::SeqCst);
    }

    /// From now on it is as if its host were gone: what is sent to it, over connections that are open
    /// too, arrives nowhere and is acknowledged by nobody.
    pub fn vanish(&self) {
        let listener = self.listener.as_ref().expect("it has not been stopped");
        drop_all_packets(listener.as_raw_fd());
        for &fd in self.state.open.lock().expect("nobody panicked with it").iter() {
            drop_all_packets(fd);
        }
    }

    /// Stops listening: from now on connections to it are refused.
    pub fn stop(&mut self) {
        self.stop_accepting();
        self.listener = None;
    }

    /// Stops accepting, with the kernel's queue full: from now on attempts to connect get no answer.
    pub fn stop_answering_connects(&mut self) {
        self.stop_accepting();
        let listener = self.listener.as_ref().expect("it has not been stopped");
        // SAFETY: a plain system call on a socket that is open; it shortens the queue.
        let outcome = unsafe { libc::listen(listener.as_raw_fd(), 0) };
        assert_eq!(outcome, 0, "listen: {}", io::Error::last_os_error());
        let filled = within_patience(|| {
            match TcpStream::connect_timeout(&self.addr, Duration::from_millis(200)) {
                Ok(stream) => self.queued.push(stream),
                Err(error) => return error.kind() == io::ErrorKind::TimedOut,
            }
            false
        });
        assert!(filled, "connections are still taken");
    }

    fn stop_accepting(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        if let Some(accepting) = self.accepting.take() {
            if let Some(listener) = &self.listener {
                stop_dropping_packets(listener.as_raw_fd());
            }
            // Wakes it; without a listener it has ended already.
            drop(TcpStream::connect(self.addr));
            accepting.join().expect("a thread that accepts");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop_accepting();
    }
}

/// One request at a worker, and what it does with it.
pub struct Exchange {
    /// The request's head. Its body is read when asked for.
    pub head: Head,
    /// The connection carried a request before.
    pub reused: bool,
    state: Arc<State>,
    wire: Wire,
    body: Option<Vec<u8>>,
    open: bool,
}

/// Has the kernel drop every packet that arrives at a socket, before TCP sees it.
fn drop_all_packets(fd: RawFd) {
    // "ret #0": of every packet, no byte is let in.
    let mut program =
        [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
    let filter = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    // SAFETY: the program and what names it live through the call, which copies them.
    let outcome = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    assert_eq!(outcome, 0, "SO_ATTACH_FILTER: {}", io::Error::last_os_error());
}

/// Undoes it; nothing if there is nothing to undo.
fn stop_dropping_packets(fd: RawFd) {
    let unused = 0i32;
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the unused value lives through the call, on a socket that is open.
    unsafe {
        let unused = (&raw const unused).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, unused, length);
    }
}

/// A connection on its worker's list, held open until it is off it.
struct Listed(Arc<State>, TcpStream);

impl Listed {
    fn new(state: Arc<State>, stream: &TcpStream) -> Self {
        let held = stream.try_clone().expect("another descriptor");
        state.open.lock().expect("nobody panicked with it").push(held.as_raw_fd());
        Self(state, held)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let fd = self.1.as_raw_fd();
        self.0.open.lock().expect("nobody panicked with it").retain(|&open| open != fd);
    }
}

impl State {
    /// Serves a connection until either side ends it.
    fn serve(self: Arc<Self>, stream: TcpStream) {
        let _listed = Listed::new(self.clone(), &stream);
        let stream = match &self.tls {
            None => Stream::Plain(stream),
            Some(config) => Stream::server(stream, config.clone()),
        };
        let mut wire = Wire::over(stream);
        let mut reused = false;
        while let Ok(Some(head)) = wire.head() {
            let state = self.clone();
            let mut exchange = Exchange { head, reused, state, wire, body: None, open: true };
            if self.swallows.load(Ordering::SeqCst) {
                exchange.until_abandoned();
            } else if exchange.is_probe() {
                exchange.answer_probe();
            } else {
                self.dispatched.fetch_add(1, Ordering::SeqCst);
                (self.script)(&mut exchange);
            }
            // The next head begins behind the body.
            if !exchange.open || exchange.body().is_err() {
                return;
            }
            (wire, reused) = (exchange.wire, true);
        }
    }
}

impl Exchange {
    /// The request's body.
    pub fn body(&mut self) -> io::Result<&[u8]> {
        if self.body.is_none() {
            let body = self.wire.body(&self.head, false)?;
            if !body.complete {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.body = Some(body.bytes);
        }
        Ok(self.body.as_deref().unwrap_or_default())
    }

    /// Whether the request's body contains `word`.
    pub fn mentions(&mut self, word: &str) -> bool {
        let body = self.body().map(String::from_utf8_lossy).unwrap_or_default();
        body.contains(word)
    }

    /// Bytes as they are; a connection the gateway has closed takes none.
    pub fn send(&mut self, bytes: &[u8]) {
        self.open &= self.wire.send(bytes).is_ok();
    }

    /// Sends as much of `bytes` as the gateway takes until it takes no more for `stall`; how much that
    /// was.
    pub fn send_until_stalled(&mut self, bytes: &[u8], stall: Duration) -> usize {
        let stream = &mut self.wire.stream;
        stream.socket().set_write_timeout(Some(stall)).expect("a duration above 0");
        let mut sent = 0;
        while sent < bytes.len() {
            match stream.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        stream.socket().set_write_timeout(Some(PATIENCE)).expect("a duration above 0");
        sent
    }

    /// A whole JSON answer.
    pub fn answer(&mut self, status: u16, body: &[u8]) {
        let mut answer = format!(
            "HTTP/1.1 {status} Scripted\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        answer.extend_from_slice(body);
        // The request first: an answer before its end would leave the connection unusable.
        let _ = self.body();
        self.send(&answer);
    }

    /// Whether the gateway took everything so far.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The head of a stream of events.
    pub fn begin_events(&mut self) {
        let _ = self.body();
        self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
    }

    /// One event of a stream, in a chunk of its own.
    pub fn event(&mut self, data: &str) {
        let event = format!("data: {data}\n\n");
        self.chunk(event.as_bytes());
    }

    /// One chunk of a chunked answer; an empty one is the last.
    pub fn chunk(&mut self, payload: &[u8]) {
        let mut chunk = format!("{:x}\r\n", payload.len()).into_bytes();
        chunk.extend_from_slice(payload);
        chunk.extend_from_slice(b"\r\n");
        self.send(&chunk);
    }

    /// The end of a chunked answer.
    pub fn end(&mut self) {
        self.chunk(b"");
    }

    /// Closes the connection in good order once the script is through.
    pub fn close(&mut self) {
        self.open = false;
    }

    /// Resets the connection once the script is through.
    pub fn reset(&mut self) {
        self.wire.reset_on_close();
        self.open = false;
    }

    /// Says nothing more until the gateway closes the connection.
    pub fn until_abandoned(&mut self) {
        self.until_abandoned_after();
    }

    /// The same; the number of bytes that still came.
    pub fn until_abandoned_after(&mut self) -> usize {
        self.open = false;
        let Ok(received) = self.wire.drain() else { return 0 };
        self.state.abandoned.fetch_add(1, Ordering::SeqCst);
        received
    }

    fn breaks_off(&self) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        let broken_off = &self.state.broken_off;
        broken_off.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }

    fn is_probe(&self) -> bool {
        self.head.first_line.starts_with("GET ")
    }

    fn answer_probe(&mut self) {
        let path = self.head.first_line.split(' ').nth(1).unwrap_or_default().to_owned();
        let state = self.state.clone();
        if (state.probe_script)(self, &path) {
            return;
        }
        match path.as_str() {
            "/health" if self.state.healthy.load(Ordering::SeqCst) => self.answer(200, b"{}"),
            "/health" => self.answer(503, b"{}"),
            "/v1/models" | "/get_model_info" | "/get_server_info" if self.breaks_off() => {
                self.close()
            }
            "/v1/models" => {
                let model = &self.state.model;
                let body = serde_json::json!({"object": "list", "data": [{"id": model, "object": "model"}]});
                self.answer(200, body.to_string().as_bytes());
            }
            _ => self.answer(404, b"{}"),
        }
    }
}
