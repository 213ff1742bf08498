//! One stream: its request into a connection in memory, the answer out of it.

use std::future::Future;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use smg_core::http1::{
    BodyLength, ChunkedDecoder, LAST_CHUNK, ResponseHead, chunk_prefix, parse_rewritten_response,
};
use tracing::debug;

use super::head::{self, Upload};
use super::share::{Piece, StreamShare};
use crate::http::connection::Connection;
use crate::http::pipe::{self, Receiver, Sender};
use crate::http::transport::split_pipe;
use crate::shard::Shard;

/// Bytes of an answer taken at a time.
const READ: usize = 16 * 1024;

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With an answer, whole or cut.
    Answered,
    /// The client reset it, or the connection is gone.
    Abandoned,
}

/// Serves one stream.
pub async fn serve(
    shard: Rc<Shard>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Piece>,
    client_addr: Box<[u8]>,
    share: Rc<StreamShare>,
) -> Ended {
    let (parts, body) = request.into_parts();
    let (request_head, upload) = match head::request(&parts, body.is_end_stream()) {
        Ok(written) => written,
        Err(malformed) => {
            debug!(target: "smg::http", rule = malformed.0, "malformed HTTP/2 request");
            respond.send_reset(Reason::PROTOCOL_ERROR);
            return Ended::Abandoned;
        }
    };
    let to_head = parts.method == http::Method::HEAD;
    drop(parts);
    let (near, far) = pipe::duplex();
    drop(monoio::spawn(converse(shard, far, client_addr)));
    let mut sending = std::pin::pin!(send_request(near.sender, request_head, body, upload));
    let mut answering = std::pin::pin!(answer(near.receiver, respond, to_head, &share));
    // Kept until the answer is through: its end would be the client's leaving.
    let mut sent = None;
    std::future::poll_fn(|cx| {
        if sent.is_none()
            && let Poll::Ready(outcome) = sending.as_mut().poll(cx)
        {
            match outcome {
                Ok(kept) => sent = Some(kept),
                Err(Gone) => return Poll::Ready(Ended::Abandoned),
            }
        }
        answering.as_mut().poll(cx).map(|outcome| match outcome {
            Ok(()) => Ended::Answered,
            Err(Gone) => Ended::Abandoned,
        })
    })
    .await
}

/// What serves every request, on the other side of the pipe.
async fn converse(shard: Rc<Shard>, far: pipe::End, client_addr: Box<[u8]>) {
    let (place, state) = shard.connections.borrow_mut().insert_stream();
    let connection = Connection::new(shard.clone(), split_pipe(far), client_addr, state).sharing();
    shard
        .contain(async {
            // Another protocol cannot begin in a stream: its first bytes are a head of ours.
            drop(connection.run().await);
        })
        .await;
    shard.connections.borrow_mut().remove(place);
}

/// The client has reset the stream, or its connection is gone.
struct Gone;

/// Sends head and body as they come; the sender is given back. What nobody wants to read is dropped as it
/// comes, and the client may not send more in its place.
async fn send_request(
    mut sender: Sender,
    request_head: Vec<u8>,
    mut body: RecvStream,
    mut upload: Upload,
) -> Result<Sender, Gone> {
    let mut is_wanted = sender.send_all(&request_head).await.is_ok();
    drop(request_head);
    while let Some(data) = std::future::poll_fn(|cx| body.poll_data(cx)).await {
        let data = data.map_err(|_| Gone)?;
        if !is_wanted {
            continue;
        }
        let sent = match &mut upload {
            Upload::Plain(left) => {
                // The h2 crate has seen to it. Beyond the body the next request would begin.
                *left = left.checked_sub(data.len() as u64).ok_or(Gone)?;
                sender.send_all(&data).await
            }
            Upload::Chunked => send_chunk(&mut sender, &data).await,
        };
        is_wanted = sent.is_ok();
        if is_wanted {
            // Only now may the client send as much again.
            let _ = body.flow_control().release_capacity(data.len());
        }
    }
    if is_wanted && upload == Upload::Chunked {
        // Whoever has gone has answered.
        let _ = sender.send_all(LAST_CHUNK).await;
    }
    Ok(sender)
}

async fn send_chunk(sender: &mut Sender, data: &[u8]) -> std::io::Result<()> {
    if data.is_empty() {
        return Ok(());
    }
    let (prefix, at) = chunk_prefix(data.len());
    sender.send_all(&prefix[at..]).await?;
    sender.send_all(data).await?;
    sender.send_all(b"\r\n").await
}

/// Sends the answer that comes out of the pipe, each piece at once.
async fn answer(
    mut receiver: Receiver,
    mut respond: SendResponse<Piece>,
    to_head: bool,
    share: &Rc<StreamShare>,
) -> Result<(), Gone> {
    let mut buf = Vec::with_capacity(READ);
    let (response_head, response) =
        match answer_head(&mut receiver, &mut respond, to_head, &mut buf).await? {
            Some(found) => found,
            None => {
                respond.send_reset(Reason::INTERNAL_ERROR);
                return Ok(());
            }
        };
    let mut body = Body::of(response_head.body);
    let mut stream = respond.send_response(response, body.done).map_err(|_| Gone)?;
    buf.drain(..response_head.len);
    let whole = body.done || relay(&mut receiver, &mut stream, &mut body, buf, share).await?;
    if whole {
        // Tells the relay that all of it was taken.
        std::future::poll_fn(|cx| {
            let _ = receiver.poll_receive(cx, |_| Ok(0));
            Poll::Ready(())
        })
        .await;
    } else {
        stream.send_reset(Reason::INTERNAL_ERROR);
    }
    Ok(())
}

/// The final head, at the start of `buf`; interim ones are passed on. `None` when there is none.
async fn answer_head(
    receiver: &mut Receiver,
    respond: &mut SendResponse<Piece>,
    to_head: bool,
    buf: &mut Vec<u8>,
) -> Result<Option<(ResponseHead, Response<()>)>, Gone> {
    let mut headers = Vec::new();
    loop {
        match parse_rewritten_response(buf, to_head, &mut headers) {
            Ok(Some(head)) => {
                let Some(response) = head::response(buf, &head, &headers) else { return Ok(None) };
                if !head.is_interim() {
                    return Ok(Some((head, response)));
                }
                respond.send_informational(response).map_err(|_| Gone)?;
                buf.drain(..head.len);
                continue;
            }
            Ok(None) => {}
            Err(_) => return Ok(None),
        }
        if buf.len() == buf.capacity() {
            buf.reserve(READ);
        }
        let received = std::future::poll_fn(|cx| {
            if respond.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(Gone));
            }
            receiver.poll_read(cx, buf).map(Ok)
        })
        .await?;
        if !matches!(received, Ok(1..)) {
            return Ok(None);
        }
    }
}

/// Relays a body of which `first` is the beginning; whether it was whole.
async fn relay(
    receiver: &mut Receiver,
    stream: &mut SendStream<Piece>,
    body: &mut Body,
    first: Vec<u8>,
    share: &Rc<StreamShare>,
) -> Result<bool, Gone> {
    let mut buf = first;
    loop {
        let sound = body.take(&mut buf);
        if (!buf.is_empty() || body.done)
            && !send(receiver, stream, Bytes::from(buf), body.done, share).await?
        {
            return Ok(false);
        }
        if body.done || !sound {
            return Ok(body.done);
        }
        buf = Vec::new();
        let received = std::future::poll_fn(|cx| {
            if stream.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(Gone));
            }
            let read = receiver.poll_receive(cx, |waiting| {
                let taken = waiting.len().min(READ);
                buf = waiting[..taken].to_vec();
                Ok(taken)
            });
            read.map(Ok)
        })
        .await?;
        if !matches!(received, Ok(1..)) {
            return Ok(false);
        }
    }
}

/// Sends `data` as the client allows it; false when the relay lost its patience with it. No more is
/// asked of the connection's allowance than there is to send, since the other streams share it.
async fn send(
    receiver: &mut Receiver,
    stream: &mut SendStream<Piece>,
    mut data: Bytes,
    last: bool,
    share: &Rc<StreamShare>,
) -> Result<bool, Gone> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let allowed = std::future::poll_fn(|cx| {
            if stream.capacity() > 0 {
                return Poll::Ready(Ok(stream.capacity()));
            }
            match stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(allowed))) => Poll::Ready(Ok(allowed)),
                Poll::Ready(Some(Err(_)) | None) => Poll::Ready(Err(Gone)),
                Poll::Pending if stream.poll_reset(cx).is_ready() => Poll::Ready(Err(Gone)),
                // It waits for what it sent to be taken unless it has given up.
                Poll::Pending => receiver.poll_sender_ended(cx).map(|()| Ok(0)),
            }
        })
        .await?;
        if allowed == 0 {
            return Ok(false);
        }
        let piece = data.split_to(allowed.min(data.len()));
        let ends = last && data.is_empty();
        stream.send_data(Piece::new(piece, share), ends).map_err(|_| Gone)?;
        if ends {
            return Ok(true);
        }
    }
    if last {
        stream.send_data(Piece::new(Bytes::new(), share), true).map_err(|_| Gone)?;
    }
    Ok(true)
}

/// Where in an answer's body the relay's bytes are.
struct Body {
    framing: Framing,
    done: bool,
}

enum Framing {
    Fixed(u64),
    Chunked(ChunkedDecoder),
}

impl Body {
    fn of(length: BodyLength) -> Self {
        let (framing, done) = match length {
            BodyLength::None => (Framing::Fixed(0), true),
            BodyLength::Fixed(length) => (Framing::Fixed(length), length == 0),
            BodyLength::Chunked => (Framing::Chunked(ChunkedDecoder::new()), false),
            // To a client of HTTP/1.1 the gateway says how long an answer is: this one never ends well.
            BodyLength::UntilClose => (Framing::Fixed(u64::MAX), false),
        };
        Self { framing, done }
    }

    /// Leaves in `buf` what belongs to the body. False when it is broken.
    fn take(&mut self, buf: &mut Vec<u8>) -> bool {
        match &mut self.framing {
            Framing::Fixed(left) => {
                let payload = usize::try_from(*left).unwrap_or(usize::MAX).min(buf.len());
                buf.truncate(payload);
                *left -= payload as u64;
                self.done = *left == 0;
                true
            }
            Framing::Chunked(decoder) => match decoder.decode(buf) {
                Ok(decoded) => {
                    buf.truncate(decoded.payload);
                    self.done = decoded.done;
                    true
                }
                Err(error) => {
                    buf.truncate(error.payload);
                    false
                }
            },
        }
    }
}
