//! Requests whose body is lent to the pool to have their prompt read: compressed ones, and large ones.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use smg_core::prompt::Endpoint;

use crate::http::answer::{ErrorAnswer, ErrorCode};
use crate::http::client::{ClientSide, Interrupt};
use crate::http::coding::Coding;
use crate::http::read::too_large;
use crate::http::request::Request;
use crate::http::route::BodyLimit;
use crate::metrics::Lent;
use crate::offload::{BodyError, DecodeError, LentPrompt, Work};
use crate::shard::{Shard, unreadable};

/// Bodies from this size in bytes on are lent. Reading so much takes a shard half a millisecond to one,
/// in which nothing else of it runs; lending costs two wakings of a sleeping thread, some 70 µs.
const LENT_FROM: usize = 256 << 10;

/// Why there is no prompt.
pub enum Unread {
    /// Nobody waits for it.
    ClientGone,
    /// The client is to be told.
    Refused(ErrorAnswer),
}

/// Has the prompt of `request` read by the pool, if this shard had better not do it. The client is
/// watched meanwhile. While the buffer is lent, and for good if the client leaves or the wait ends
/// early, `request` has no bytes.
///
/// # Errors
/// See [`Unread`].
pub async fn read_prompt(
    shard: &Shard,
    client: &mut ClientSide,
    endpoint: Endpoint,
    request: &mut Request,
) -> Result<Option<Arc<LentPrompt>>, Unread> {
    let reason = match request.codings.is_empty() {
        true if request.body.len() < LENT_FROM => return Ok(None),
        true => Lent::Large,
        false => Lent::Compressed,
    };
    shard.cells().lent[reason as usize].inc();
    let limits = &shard.shared.config.limits;
    let memory = &shard.shared.body_memory;
    // An attempt before this one may not have let go of it yet.
    let buf = Rc::try_unwrap(std::mem::take(&mut request.buf))
        .or_else(|shared| shared.copy(memory))
        .map_err(|full| Unread::Refused(full.answer()))?;
    let work = Work {
        endpoint,
        want: shard.wanted(endpoint),
        codings: request.codings.clone(),
        buf,
        body: request.body.clone(),
        limit: limits.max_payload_size,
        memory: memory.clone(),
    };
    client.set_deadline(Duration::from_secs(limits.request_timeout_secs));
    // On the heap, because it is large and rare.
    let reading = Box::pin(shard.shared.bodies.read(work));
    let done = match client.watch(reading).await {
        Ok(Some(done)) => done,
        Ok(None) => return Err(Unread::Refused(failed())),
        Err(Interrupt::ClientGone) => return Err(Unread::ClientGone),
        Err(Interrupt::Deadline) => return Err(Unread::Refused(late())),
    };
    request.buf = Rc::new(done.buf);
    let refusal =
        |error| Unread::Refused(refusal(error, BodyLimit::of_payload(limits.max_payload_size)));
    done.prompt.map(|prompt| Some(Arc::new(prompt))).map_err(refusal)
}

fn refusal(error: BodyError, limit: BodyLimit) -> ErrorAnswer {
    match error {
        BodyError::Prompt(error) => unreadable(error),
        BodyError::NoRoom(full) | BodyError::Decode(DecodeError::NoRoom(full)) => full.answer(),
        BodyError::Decode(DecodeError::TooLarge) => too_large(limit),
        BodyError::Decode(DecodeError::Broken(coding)) => broken(coding),
        // Nobody waits for this one.
        BodyError::Decode(DecodeError::Cancelled) => failed(),
    }
}

fn broken(coding: Coding) -> ErrorAnswer {
    let format = match coding {
        Coding::Gzip => "gzip",
        Coding::Deflate => "zlib (which is what deflate names)",
        Coding::Brotli => "brotli",
        Coding::Zstd => "zstd (with a window of up to 8 MiB)",
    };
    ErrorAnswer::new(
        ErrorCode::BadRequest,
        format!(
            "the request body is not one whole piece of {format} data, as Content-Encoding says it \
             is: it is broken, cut off, or followed by something else"
        ),
    )
}

fn failed() -> ErrorAnswer {
    ErrorAnswer::new(ErrorCode::InternalError, "the gateway failed to read the request body")
}

fn late() -> ErrorAnswer {
    ErrorAnswer::new(
        ErrorCode::BodyReadTimeout,
        "the gateway did not get to read the request body within --request-timeout-secs; retry",
    )
    .retry_after(1)
}
