//! What request and response heads have in common: limits, byte ranges, and when to try parsing.

/// Longest head accepted, with its start line and blank line; beyond it a request is answered 431.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Most header lines accepted; beyond it a request is answered 431.
pub const MAX_HEADERS: usize = 256;

/// Longest head that a response within the limits becomes when it is passed on: the request's id and its
/// origin come from a head too.
pub const MAX_REWRITTEN_HEAD_BYTES: usize = 3 * MAX_HEAD_BYTES;

/// Most header lines of it.
pub const MAX_REWRITTEN_HEADERS: usize = MAX_HEADERS + 32;

/// Most names the `Connection` headers of one message may list. Each costs a comparison with
/// every header, so the product is bounded by this.
pub const MAX_CONNECTION_OPTIONS: usize = 32;

/// Empty lines tolerated before a request line (RFC 9112 §2.2 asks for at least one).
pub const MAX_LEADING_EMPTY_LINES: usize = 4;

/// A byte range of the buffer a head was parsed from. Buffers grow and move between reads, so
/// heads hold ranges and not slices. At most [`MAX_REWRITTEN_HEAD_BYTES`], so 32 bits are enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// The bytes, given the buffer the head was parsed from (or one that begins with the same
    /// head). Empty when the range does not lie in `buf`.
    pub fn of(self, buf: &[u8]) -> &[u8] {
        buf.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    pub fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The range from `start` to `end`, both at most [`MAX_REWRITTEN_HEAD_BYTES`].
    pub(super) fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && end <= MAX_REWRITTEN_HEAD_BYTES);
        Self { start: start as u32, end: end as u32 }
    }

    /// Where `part`, a subslice of `whole`, lies in it.
    pub(super) fn within(whole: &[u8], part: &[u8]) -> Self {
        let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        Self::new(start, start + part.len())
    }
}

/// Says when parsing a head that arrives in pieces is worth a try, so that a head that comes
/// byte by byte costs time linear in its length and not quadratic.
///
/// ```
/// # use smg_core::http1::{HeadCursor, parse_request};
/// # let (mut cursor, mut headers) = (HeadCursor::default(), Vec::new());
/// # let buf = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
/// // after each read:
/// if cursor.ready(buf) {
///     match parse_request(buf, &mut headers) {
///         Ok(Some(head)) => cursor.reset(), // and take head.len bytes off the buffer
///         Ok(None) => {}                    // read on
///         Err(error) => {}                  // answer error.status() and close
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadCursor {
    /// Bytes already searched for a blank line.
    searched: usize,
    /// Buffer length at which to try although no blank line was seen.
    next_try: usize,
}

impl HeadCursor {
    /// Whether `buf`, which begins where it began on the last call and has grown since, may now
    /// hold a whole head or one that can be refused already. True at a blank line, at
    /// [`MAX_HEAD_BYTES`], and each time the length has doubled: garbage is refused early, and
    /// the tries add up to at most twice the head.
    pub fn ready(&mut self, buf: &[u8]) -> bool {
        let blank_line = self.search_blank_line(buf);
        let due = !buf.is_empty() && buf.len() >= self.next_try.min(MAX_HEAD_BYTES);
        if due {
            self.next_try = buf.len().saturating_mul(2);
        }
        blank_line || due
    }

    /// Starts over for the next head on the connection.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Looks for a line feed after an empty line among the bytes not searched yet. A line that
    /// ends in a bare LF counts: the parser is to see and refuse it.
    fn search_blank_line(&mut self, buf: &[u8]) -> bool {
        let from = self.searched.min(buf.len());
        self.searched = buf.len();
        memchr::memchr_iter(b'\n', &buf[from..]).any(|offset| {
            let line_feed = from + offset;
            matches!(&buf[..line_feed], [.., b'\n'] | [.., b'\n', b'\r'])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_byte_by_byte_is_tried_at_doublings_and_at_its_end() {
        let head = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"; // 33 bytes
        let mut cursor = HeadCursor::default();
        let tries: Vec<usize> =
            (0..=head.len()).filter(|&len| cursor.ready(&head[..len])).collect();
        assert_eq!(tries, [1, 2, 4, 8, 16, 32, 33]);
    }

    #[test]
    fn a_blank_line_is_seen_however_the_reads_cut_it() {
        for end in ["\r\n\r\n", "\n\n", "\n\r\n", "\r\n\n"] {
            let head = format!("GET / HTTP/1.1\r\nA: b{end}");
            for cut in 1..head.len() {
                let mut cursor = HeadCursor { searched: 0, next_try: usize::MAX };
                assert!(!cursor.ready(&head.as_bytes()[..cut]), "{end:?} at {cut}");
                assert!(cursor.ready(head.as_bytes()), "{end:?} at {cut}");
            }
        }
    }

    #[test]
    fn a_head_without_an_end_is_tried_at_the_limit() {
        let endless = vec![b'a'; MAX_HEAD_BYTES + 1];
        let mut cursor = HeadCursor::default();
        assert!(cursor.ready(&endless[..40_000]));
        assert!(!cursor.ready(&endless[..50_000]));
        assert!(cursor.ready(&endless[..MAX_HEAD_BYTES]));
        assert!(cursor.ready(&endless));
    }

    #[test]
    fn a_span_outside_the_buffer_is_empty() {
        assert_eq!(Span { start: 1, end: 3 }.of(b"abcd"), b"bc");
        assert_eq!(Span { start: 1, end: 9 }.of(b"abcd"), b"");
        assert_eq!(Span { start: 3, end: 1 }.of(b"abcd"), b"");
    }
}
