//! A TLS connection of a client, from its first byte to its end.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::server::{ServerConfig, ServerConnection};
use tracing::debug;

use super::pump::{self, HandshakeError};
use crate::http::answer::{self, ErrorAnswer, ErrorCode, Framing};
use crate::http::connection::Connection;
use crate::http::cors::Cors;
use crate::http::pipe;
use crate::http::refusal;
use crate::http::transport::{Reader, Writer, split_pipe};
use crate::http2;
use crate::metrics::HandshakeFailure;
use crate::shard::{ConnectionState, EndedBy, Shard};

/// Serves one connection until either side ends it.
pub async fn serve(
    shard: Rc<Shard>,
    config: Arc<ServerConfig>,
    (mut reader, mut writer): (Reader, Writer),
    peer: IpAddr,
    state: Rc<ConnectionState>,
) {
    let limit = Duration::from_secs(shard.shared.config.limits.header_read_timeout_secs);
    let mut session: rustls::Connection = match ServerConnection::new(config) {
        Ok(session) => session.into(),
        Err(error) => return debug!(target: "smg::tls", %error, "no TLS session"),
    };
    let shaken = pump::handshake(&mut session, &mut reader, &mut writer);
    match monoio::time::timeout(limit, shaken).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            debug!(target: "smg::tls", %peer, %error, "TLS handshake failed");
            shard.cells().handshake_failures[failure(&error) as usize].inc();
            if let HandshakeError::Tls { received, .. } = error {
                if begins_plain_http(&received) {
                    refuse_plain_http(&mut reader, &mut writer).await;
                } else {
                    // The alert: the client learns the cause if it still listens.
                    let _ = pump::flush(&mut session, &mut writer).await;
                }
            }
            return;
        }
        Err(_) => {
            shard.cells().handshake_failures[HandshakeFailure::Timeout as usize].inc();
            return debug!(target: "smg::tls", %peer, "TLS handshake did not end in time");
        }
    }
    let h2 = session.alpn_protocol() == Some(b"h2");
    state.ended_by(if h2 { EndedBy::Asking } else { EndedBy::AskingWhenIdle });
    let (near, far) = pipe::duplex();
    let (plain_reader, plain_writer) = split_pipe(far);
    let (inner_shard, inner_state) = (shard.clone(), state.clone());
    let client_addr = peer.to_string().into_bytes().into();
    drop(monoio::spawn(async move {
        let shard = inner_shard.clone();
        shard
            .contain(async move {
                let transport = (plain_reader, plain_writer);
                if h2 {
                    let start = http2::Start::new(transport, Vec::new(), client_addr, inner_state);
                    return http2::serve(inner_shard, start).await;
                }
                let connection =
                    Connection::new(inner_shard.clone(), transport, client_addr, inner_state);
                if let Some(start) = connection.run().await {
                    http2::serve(inner_shard, *start).await;
                }
            })
            .await;
    }));
    let asked = |cx: &mut Context<'_>| {
        // HTTP/2 is asked itself, and ends in its own time; by its preface it may begin here too.
        if state.is_ended_by() == EndedBy::Asking { Poll::Pending } else { state.poll_asked(cx) }
    };
    pump::run(session, reader, writer, near, asked).await;
}

fn failure(error: &HandshakeError) -> HandshakeFailure {
    match error {
        HandshakeError::Io(_) => HandshakeFailure::Connection,
        HandshakeError::Tls { received, .. } if begins_plain_http(received) => {
            HandshakeFailure::PlainHttp
        }
        HandshakeError::Tls { error: rustls::Error::AlertReceived(_), .. } => {
            HandshakeFailure::Alert
        }
        HandshakeError::Tls { error: rustls::Error::PeerIncompatible(_), .. } => {
            HandshakeFailure::Incompatible
        }
        HandshakeError::Tls { .. } => HandshakeFailure::Protocol,
    }
}

/// Whether bytes that are not TLS look like the head of a plain request.
fn begins_plain_http(received: &[u8]) -> bool {
    received.first().is_some_and(u8::is_ascii_uppercase)
}

async fn refuse_plain_http(reader: &mut Reader, writer: &mut Writer) {
    let error = ErrorAnswer::new(
        ErrorCode::BadRequest,
        "this port speaks TLS; send the request to https:// instead of http://",
    );
    let framing = Framing {
        request_id: b"",
        close: true,
        head_only: false,
        http10_client: false,
        cors: &Cors::Off,
    };
    let mut out = Vec::new();
    answer::write_error(&mut out, &error, false, framing);
    refusal::send_last(reader, writer, out).await;
}
