//! Saying no to a client that may not have finished speaking. A connection that is closed while bytes
//! are on their way is reset, and the client may never see the answer: so this side ends first, and what
//! still comes is read for a while and dropped.

use std::time::Duration;

use monoio::time::timeout;

use crate::http::transport::{Reader, Writer};

/// For the client to take the answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the client still sends is read and dropped for this long ...
const LINGER: Duration = Duration::from_secs(2);
/// ... and up to this many bytes,
const LINGER_BYTES: usize = 64 << 20;
/// at first as many at a time as this,
const FIRST_READ: usize = 4 << 10;
/// and more from one who sends much.
const LARGEST_READ: usize = 64 << 10;

/// Sends `answer`, ends this direction, and waits a little for the client to end the other. Whether the
/// answer was taken. Nobody else may have to do with the connection any more.
pub async fn send_last(reader: &mut Reader, writer: &mut Writer, answer: Vec<u8>) -> bool {
    // Without watching the client: one that has ended its direction still reads.
    let sent = timeout(PATIENCE, writer.write_all(answer, 0)).await;
    if !matches!(sent, Ok((Ok(()), _))) {
        return false;
    }
    writer.finish().await;
    // One that stays has had its answer.
    let _ = timeout(LINGER, drop_the_rest(reader)).await;
    true
}

async fn drop_the_rest(reader: &mut Reader) {
    let (mut dropped, mut buf) = (0, Vec::new());
    while dropped < LINGER_BYTES {
        if !reader.armed() {
            buf.reserve_exact(if dropped < FIRST_READ { FIRST_READ } else { LARGEST_READ });
            reader.arm(buf);
        }
        let (outcome, received) = reader.read().await;
        match outcome {
            Ok(count @ 1..) => dropped += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
        }
        // One that was armed before may have had all of a body to read.
        buf = if received.capacity() > LARGEST_READ { Vec::new() } else { received };
        buf.clear();
    }
}
