//! Accepting client connections, and the task of each.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use monoio::net::{TcpListener, TcpStream};
use tracing::warn;

use super::Shard;
use crate::http::answer::{self, ErrorAnswer, ErrorCode, Framing};
use crate::http::connection::Connection;
use crate::http::cors::Cors;
use crate::http::refusal;
use crate::http::transport;
use crate::http2;
use crate::runtime::descriptors::WARN_EVERY;
use crate::runtime::guard;
use crate::runtime::seldom::Seldom;
use crate::tls::{self, TlsServer};

/// After an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Refused connections that are kept at a time until they have seen why; others are closed at once.
const MAX_REFUSING: usize = 64;

/// Accepts until the listener is shut down.
pub async fn run(shard: Rc<Shard>, listener: TcpListener) {
    let mut warnings = Seldom::new(WARN_EVERY);
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let place = Place::take(&shard);
                if place.number > shard.shared.config.limits.max_connections {
                    shard.cells().connections_refused.inc();
                    drop(place);
                    // A client that waits for a handshake would not understand a word of it.
                    if shard.shared.tls.clients.is_none() {
                        drop(monoio::spawn(refuse(shard.clone(), stream)));
                    }
                    continue;
                }
                drop(monoio::spawn(serve(shard.clone(), place, stream, peer)));
            }
            Err(_) if shard.closing() => return,
            Err(error) => {
                if warnings.is_due() {
                    warn!(target: "smg::http", %error,
                        "cannot accept connections; raise the open-file limit (ulimit -n) if it is \
                         exhausted");
                }
                monoio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Stops listening. Clients that had connected by then are served: each gets an answer to one request
/// and is closed after it.
pub fn stop(shard: &Rc<Shard>) {
    let Some((listener, nonblocking)) = shard.listener.take() else { return };
    loop {
        // SAFETY: the listener is open while its accepting task runs; the new descriptor is owned.
        let accepted = unsafe {
            let no_addr = std::ptr::null_mut();
            match libc::accept4(listener, no_addr, std::ptr::null_mut(), libc::SOCK_CLOEXEC) {
                -1 => break,
                fd => std::net::TcpStream::from_raw_fd(fd),
            }
        };
        let Ok(peer) = accepted.peer_addr() else { continue };
        if accepted.set_nonblocking(nonblocking).is_ok()
            && let Ok(stream) = TcpStream::from_std(accepted)
        {
            drop(monoio::spawn(serve(shard.clone(), Place::take(shard), stream, peer)));
        }
    }
    transport::shutdown(listener);
}

/// One of the connections `--max-connections` counts; dropping it gives it back.
struct Place {
    shard: Rc<Shard>,
    /// How many there are with it.
    number: usize,
}

impl Place {
    fn take(shard: &Rc<Shard>) -> Self {
        let number = shard.shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
        Self { shard: shard.clone(), number }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shard.shared.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve(shard: Rc<Shard>, _counted: Place, stream: TcpStream, peer: SocketAddr) {
    let (place, state) = shard.connections.borrow_mut().insert(stream.as_raw_fd());
    shard.cells().connections.add(1);
    let peer = peer.ip().to_canonical();
    let transport = transport::split(stream);
    // Everything but plain HTTP/1.1 is on the heap, and that is in no more layers than it needs: each
    // adds its size to every connection's.
    match shard.shared.tls.clients.as_ref().map(TlsServer::current) {
        None => {
            let client_addr = peer.to_string().into_bytes().into();
            let connection = Connection::new(shard.clone(), transport, client_addr, state);
            let outcome = guard::catch_panic(connection.run()).await;
            if let Some(Some(start)) = shard.survivor(outcome) {
                shard.contain(Box::pin(http2::serve(shard.clone(), *start))).await;
            }
        }
        Some(config) => {
            let served = Box::pin(tls::serve(shard.clone(), config, transport, peer, state));
            shard.contain(served).await;
        }
    }
    shard.connections.borrow_mut().remove(place);
    shard.cells().connections.add(-1);
}

/// Answers a connection that there is no place for, and closes it.
async fn refuse(shard: Rc<Shard>, stream: TcpStream) {
    let mut out = Vec::new();
    let error = ErrorAnswer::new(
        ErrorCode::ConnectionLimit,
        "the gateway has no room for another connection; retry later or raise --max-connections",
    )
    .retry_after(1);
    let framing = Framing {
        request_id: b"",
        cors: &Cors::Off,
        close: true,
        head_only: false,
        http10_client: false,
    };
    answer::write_error(&mut out, &error, false, framing);
    let (mut reader, mut writer) = transport::split(stream);
    let refusing = shard.refusing.get();
    if refusing >= MAX_REFUSING {
        // A short answer fits; the client may be gone already.
        let _ = writer.write_all(out, 0).await;
        return;
    }
    shard.refusing.set(refusing + 1);
    refusal::send_last(&mut reader, &mut writer, out).await;
    shard.refusing.set(shard.refusing.get() - 1);
}
