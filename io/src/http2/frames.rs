//! What a client has begun to send on a connection and not finished, told by the bytes: the `h2` crate says
//! nothing of a head before all of it is here.

/// Bytes before the first frame (RFC 9113 §3.4).
const PREFACE_BYTES: usize = 24;
/// ... and of a frame before its payload (§4.1).
const HEADER_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Follows the frames of one direction.
#[derive(Debug)]
pub struct Frames {
    preface_left: usize,
    header: [u8; HEADER_BYTES],
    /// Bytes of `header` that are of the frame under way; none between frames.
    filled: usize,
    payload_left: usize,
    /// A head that goes on in the next frame.
    in_head: bool,
    /// Frames and heads begun so far; a head is one with the frames it goes on in.
    begun: u64,
}

impl Default for Frames {
    fn default() -> Self {
        Self {
            preface_left: PREFACE_BYTES,
            header: [0; HEADER_BYTES],
            filled: 0,
            payload_left: 0,
            in_head: false,
            begun: 0,
        }
    }
}

impl Frames {
    /// Follows the bytes that come next.
    pub fn take(&mut self, mut bytes: &[u8]) {
        skip(&mut bytes, &mut self.preface_left);
        while !bytes.is_empty() {
            if self.filled < HEADER_BYTES {
                if self.filled == 0 && !self.in_head {
                    self.begun += 1;
                }
                let taken = bytes.len().min(HEADER_BYTES - self.filled);
                self.header[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
                self.filled += taken;
                bytes = &bytes[taken..];
                if self.filled < HEADER_BYTES {
                    return;
                }
                let [a, b, c, kind, flags, ..] = self.header;
                self.payload_left = u32::from_be_bytes([0, a, b, c]) as usize;
                if matches!(kind, HEADERS | CONTINUATION) {
                    self.in_head = flags & END_HEADERS == 0;
                }
            }
            skip(&mut bytes, &mut self.payload_left);
            if self.payload_left == 0 {
                self.filled = 0;
            }
        }
    }

    /// The number of the head or other frame under way, unless it is of a body: those have time limits of
    /// their own.
    pub fn unfinished(&self) -> Option<u64> {
        let is_data = self.filled == HEADER_BYTES && self.header[3] == DATA;
        (self.in_head || (self.filled > 0 && !is_data)).then_some(self.begun)
    }
}

/// Leaves out as many bytes as are `left`.
fn skip(bytes: &mut &[u8], left: &mut usize) {
    let skipped = bytes.len().min(*left);
    *left -= skipped;
    *bytes = &bytes[skipped..];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let mut bytes = (payload as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags, 0, 0, 0, 1]);
        bytes.resize(HEADER_BYTES + payload, b'x');
        bytes
    }

    #[test]
    fn what_is_unfinished_is_known_after_every_byte() {
        let all = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(4, 0, 0),
            frame(HEADERS, END_HEADERS, 3),
            frame(DATA, 0, 2),
            frame(HEADERS, 0, 2),
            frame(CONTINUATION, 0, 0),
            frame(CONTINUATION, END_HEADERS, 1),
            frame(6, 0, 8),
        ]
        .concat();
        let told: Vec<Option<u64>> = {
            let mut frames = Frames::default();
            all.iter()
                .map(|&byte| {
                    frames.take(&[byte]);
                    frames.unfinished()
                })
                .collect()
        };
        let expected = [
            vec![None; 24],
            // SETTINGS: unfinished until its last byte.
            vec![Some(1); 8],
            vec![None],
            vec![Some(2); 11],
            vec![None],
            // DATA: until its kind is known.
            vec![Some(3); 8],
            vec![None; 3],
            // One head in three frames.
            vec![Some(4); 11 + 9 + 9],
            vec![None],
            vec![Some(5); 16],
            vec![None],
        ]
        .concat();
        assert_eq!(told, expected);
        for size in [2, 7, 30, 1000] {
            let mut frames = Frames::default();
            let mut at = 0;
            for piece in all.chunks(size) {
                frames.take(piece);
                at += piece.len();
                assert_eq!(frames.unfinished(), told[at - 1], "{at} bytes, {size} at a time");
            }
        }
    }
}
