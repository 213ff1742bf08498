//! Codings of request bodies (`Content-Encoding`, RFC 9110 §8.4).

use smg_core::http1::{Header, Known, list_elements};

use crate::http::answer::{ErrorAnswer, ErrorCode};

/// Most codings on top of each other. More than one is rare, and each costs a decoder.
pub const MAX_CODINGS: usize = 3;

/// A coding the gateway can undo to read the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// `gzip`, `x-gzip`.
    Gzip,
    /// `deflate`, which is the zlib format.
    Deflate,
    /// `br`.
    Brotli,
    /// `zstd`.
    Zstd,
}

impl Coding {
    fn of(name: &[u8]) -> Option<Self> {
        const NAMES: [(&[u8], Coding); 5] = [
            (b"gzip", Coding::Gzip),
            (b"x-gzip", Coding::Gzip),
            (b"deflate", Coding::Deflate),
            (b"br", Coding::Brotli),
            (b"zstd", Coding::Zstd),
        ];
        NAMES.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, it)| it)
    }

    /// Its name.
    pub fn label(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }
}

/// The codings of a body in the order they were applied; none for most requests, which then costs no
/// allocation.
///
/// # Errors
/// 415 for one that is not known, and for too many.
pub fn of_request(buf: &[u8], headers: &[Header]) -> Result<Vec<Coding>, ErrorAnswer> {
    let mut codings = Vec::new();
    for header in headers.iter().filter(|header| header.known == Known::ContentEncoding) {
        for name in list_elements(header.value.of(buf)) {
            if name.eq_ignore_ascii_case(b"identity") {
                continue;
            }
            let coding = Coding::of(name).ok_or_else(unsupported)?;
            if codings.len() == MAX_CODINGS {
                return Err(unsupported());
            }
            codings.push(coding);
        }
    }
    Ok(codings)
}

fn unsupported() -> ErrorAnswer {
    ErrorAnswer::new(
        ErrorCode::UnsupportedEncoding,
        format!(
            "Content-Encoding must be gzip, deflate, br, zstd or identity, or a list of up to \
             {MAX_CODINGS} of them; or send the body without one"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use smg_core::http1::parse_request;

    fn codings(lines: &str) -> Option<Vec<Coding>> {
        let buf = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes();
        let mut headers = Vec::new();
        parse_request(&buf, &mut headers).unwrap().unwrap();
        match of_request(&buf, &headers) {
            Ok(codings) => Some(codings),
            Err(error) => {
                assert_eq!(error.code.status(), 415);
                for name in ["gzip", "deflate", "br", "zstd", "identity"] {
                    assert!(error.message.contains(name), "{}", error.message);
                }
                None
            }
        }
    }

    #[test]
    fn codings_are_listed_in_the_order_they_were_applied() {
        use Coding::{Brotli, Deflate, Gzip, Zstd};
        for (lines, found) in [
            ("", vec![]),
            ("Content-Encoding: identity\r\n", vec![]),
            ("Content-Encoding:\r\n", vec![]),
            ("Content-Encoding: X-GZIP\r\n", vec![Gzip]),
            ("content-encoding: gzip, br\r\n", vec![Gzip, Brotli]),
            (
                "Content-Encoding: zstd ,, identity\r\nContent-Encoding: deflate\r\n",
                vec![Zstd, Deflate],
            ),
            ("Content-Encoding: br,br,br\r\n", vec![Brotli; 3]),
        ] {
            assert_eq!(codings(lines), Some(found), "{lines}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for value in ["snappy", "compress", "a b", "gzip;q=1", "gzip, lz4", "br,br,br,br"] {
            assert_eq!(codings(&format!("Content-Encoding: {value}\r\n")), None, "{value}");
        }
    }
}
