//! Heads of answers as they arrive, for requests that are relayed and for the gateway's own questions.

use smg_core::http1::{HeadCursor, Header, ResponseHead, parse_response};

/// Reads the head of one answer.
#[derive(Default)]
pub struct HeadParser {
    /// The headers of the final head.
    pub headers: Vec<Header>,
    cursor: HeadCursor,
    interims: usize,
}

/// Interim heads (1xx) of one answer; a worker that sends more of them does not mean to answer.
const MAX_INTERIM_HEADS: usize = 32;

impl HeadParser {
    /// Whether the worker has begun to answer, if only with interim heads.
    pub fn interim_seen(&self) -> bool {
        self.interims > 0
    }

    /// The final head at the start of `buf`, if it is whole; interim heads are cut off.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(&mut self, buf: &mut Vec<u8>) -> Result<Option<ResponseHead>, &'static str> {
        while self.cursor.ready(buf) {
            match parse_response(buf, false, &mut self.headers) {
                Ok(Some(head)) if head.is_interim() => {
                    buf.drain(..head.len);
                    self.cursor.reset();
                    self.interims += 1;
                    if self.interims > MAX_INTERIM_HEADS {
                        return Err("too many interim responses");
                    }
                }
                Ok(head) => return Ok(head),
                Err(error) => return Err(error.message()),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interim_heads_are_cut_off() {
        let mut buf =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec();
        let mut parser = HeadParser::default();
        let head = parser.parse(&mut buf).unwrap().unwrap();
        assert_eq!((head.status, &buf[head.len..]), (200, &b"{}"[..]));
        assert!(parser.interim_seen());
    }

    #[test]
    fn interim_heads_without_end_are_no_answer() {
        let mut parser = HeadParser::default();
        let mut buf = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(MAX_INTERIM_HEADS);
        assert!(matches!(parser.parse(&mut buf), Ok(None)) && buf.is_empty());
        let mut buf = b"HTTP/1.1 100 Continue\r\n\r\n".to_vec();
        assert!(parser.parse(&mut buf).is_err());
    }
}
