//! Moves a connection's bytes between its socket, encrypted, and a pipe, in the clear.
//!
//! Nothing piles up: a direction reads no more before what it has is taken. A write of the relay
//! counts as done once its records are with the kernel.

use std::cell::RefCell;
use std::future::Future;
use std::io::{self, BufRead, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use monoio::time::{Sleep, sleep};
use rustls::Connection as Session;

use crate::http::pipe::{self, Receiver, Sender};
use crate::http::transport::{Reader, Writer};

/// First buffer for what comes from the socket, in bytes.
const FIRST_READ: usize = 4 * 1024;
/// Largest one: a record is not longer.
const LARGEST_READ: usize = 17 * 1024;
/// Plaintext of one record at most.
const RECORD: usize = 16 * 1024;
/// Between two looks at whether a peer that is not read is still there.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Once nobody is left behind the pipe: for the last records to be taken by the peer.
const LAST_RECORDS: Duration = Duration::from_secs(5);

/// Completes the handshake and sends what it leaves to be sent.
///
/// # Errors
/// What the socket or TLS says. [`flush`] then sends the peer the alert that names it.
pub async fn handshake(
    session: &mut Session,
    reader: &mut Reader,
    writer: &mut Writer,
) -> Result<(), HandshakeError> {
    loop {
        flush(session, writer).await?;
        if !session.is_handshaking() {
            return Ok(());
        }
        reader.arm(Vec::with_capacity(FIRST_READ));
        let (outcome, bytes) = reader.read().await;
        if outcome? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            session.read_tls(&mut rest)?;
            if let Err(error) = session.process_new_packets() {
                return Err(HandshakeError::Tls { error, received: bytes });
            }
        }
    }
}

/// Why a handshake came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The connection ended or broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What the peer sent is not what TLS allows or what we accept.
    #[error("{error}")]
    Tls {
        /// What is wrong.
        error: rustls::Error,
        /// The bytes in which it was found.
        received: Vec<u8>,
    },
}

/// Sends what TLS has to say.
///
/// # Errors
/// What the socket says.
pub async fn flush(session: &mut Session, writer: &mut Writer) -> io::Result<()> {
    let mut wire = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut wire)?;
    }
    writer.write_all(wire, 0).await.0
}

/// Serves both directions until whoever is behind the pipe has left. `asked` is ready when the
/// connection is to end as if the peer had ended it.
pub async fn run(
    session: Session,
    mut reader: Reader,
    mut writer: Writer,
    plain: pipe::End,
    asked: impl Fn(&mut Context<'_>) -> Poll<()>,
) {
    let session = RefCell::new(session);
    let pipe::End { receiver, sender } = plain;
    let sender = RefCell::new(sender);
    let mut inbound = std::pin::pin!(inbound(&session, &mut reader, &sender));
    let mut outbound = std::pin::pin!(outbound(&session, &mut writer, receiver));
    let (mut received_all, mut sent_all) = (false, false);
    let mut last_records: Option<Pin<Box<Sleep>>> = None;
    std::future::poll_fn(|cx| {
        if asked(cx).is_ready() {
            sender.borrow_mut().finish();
        }
        received_all = received_all || inbound.as_mut().poll(cx).is_ready();
        // After it, since what was received may call for an answer.
        if !sent_all {
            match outbound.as_mut().poll(cx) {
                Poll::Ready(Ok(())) => sent_all = true,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => {}
            }
        }
        if sender.borrow_mut().poll_gone(cx).is_pending() {
            return Poll::Pending;
        }
        if sent_all {
            return Poll::Ready(());
        }
        last_records.get_or_insert_with(|| Box::pin(sleep(LAST_RECORDS))).as_mut().poll(cx)
    })
    .await;
}

/// From the socket to the pipe, until the peer ends it or nobody takes it any more.
async fn inbound(session: &RefCell<Session>, reader: &mut Reader, sender: &RefCell<Sender>) {
    let mut size = FIRST_READ;
    let mut buf = Vec::new();
    // What came with the end of the handshake.
    if pass_plaintext(session, reader, sender).await.is_err() {
        return sender.borrow_mut().cut();
    }
    loop {
        buf.clear();
        buf.reserve_exact(size);
        reader.arm(buf);
        let (outcome, received) = reader.read().await;
        buf = received;
        match outcome {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // TLS says at its own end that nothing is missing; this is not that.
            Ok(0) | Err(_) => return sender.borrow_mut().cut(),
        }
        if decrypt(session, &buf, reader, sender).await.is_err() {
            return;
        }
        size = if buf.len() < buf.capacity() { FIRST_READ } else { LARGEST_READ };
        if buf.capacity() > size {
            buf = Vec::new();
        }
    }
}

/// Passes on what is in `bytes`. `Err`: it was the last of it.
async fn decrypt(
    session: &RefCell<Session>,
    bytes: &[u8],
    reader: &Reader,
    sender: &RefCell<Sender>,
) -> Result<(), ()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let fed = {
            let mut session = session.borrow_mut();
            let taken = session.read_tls(&mut rest);
            match taken {
                Ok(0) => Err(()),
                Ok(_) => session.process_new_packets().map_err(drop),
                Err(_) => Err(()),
            }
        };
        let passed = pass_plaintext(session, reader, sender).await;
        if fed.is_err() || passed.is_err() {
            sender.borrow_mut().cut();
            return Err(());
        }
    }
    Ok(())
}

/// Moves the decrypted bytes into the pipe as it takes them, and meanwhile looks whether the peer is
/// still there. `Err`: no more will come.
async fn pass_plaintext(
    session: &RefCell<Session>,
    reader: &Reader,
    sender: &RefCell<Sender>,
) -> Result<(), ()> {
    let mut pause: Option<Pin<Box<Sleep>>> = None;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(passed) = poll_pass(cx, &mut session.borrow_mut(), sender) {
            return Poll::Ready(passed);
        }
        loop {
            if reader.peer_has_left() {
                return Poll::Ready(Err(()));
            }
            let sleep = pause.get_or_insert_with(|| Box::pin(sleep(LOOK_PAUSE)));
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            pause = None;
        }
    })
    .await
}

/// Pending while the pipe is full.
fn poll_pass(
    cx: &mut Context<'_>,
    session: &mut Session,
    sender: &RefCell<Sender>,
) -> Poll<Result<(), ()>> {
    let mut plain = session.reader();
    let mut sender = sender.borrow_mut();
    loop {
        let sent = match plain.fill_buf() {
            Ok([]) => {
                sender.finish();
                return Poll::Ready(Err(()));
            }
            Ok(chunk) => match sender.poll_send(cx, chunk) {
                Poll::Ready(Ok(sent)) => sent,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(())),
                Poll::Pending => return Poll::Pending,
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Ready(Ok(())),
            Err(_) => return Poll::Ready(Err(())),
        };
        plain.consume(sent);
    }
}

/// From the pipe, and what TLS itself has to say, to the socket.
async fn outbound(
    session: &RefCell<Session>,
    writer: &mut Writer,
    mut receiver: Receiver,
) -> io::Result<()> {
    let mut wire = Vec::new();
    loop {
        let more = std::future::poll_fn(|cx| {
            if session.borrow().wants_write() {
                return Poll::Ready(Ok(true));
            }
            // INVARIANT: nothing waits in the session, so it takes some of it, and 0 is the end.
            receiver
                .poll_receive(cx, |plain| session.borrow_mut().writer().write(plain))
                .map(|taken| taken.map(|taken| taken > 0))
        })
        .await;
        if let Ok(false) = more {
            session.borrow_mut().send_close_notify();
        }
        wire.clear();
        {
            let mut session = session.borrow_mut();
            while session.wants_write() {
                session.write_tls(&mut wire)?;
            }
        }
        let (outcome, back) = writer.write_all(wire, 0).await;
        outcome?;
        wire = back;
        if !matches!(more, Ok(true)) {
            writer.finish().await;
            return Ok(());
        }
        if wire.capacity() > RECORD {
            wire = Vec::new();
        }
    }
}
