//! Why a body could not be read.

use std::fmt;

/// Why a JSON endpoint's body was refused; a 400 with code `json_parse_error`. The [`fmt::Display`]
/// text is one line, says what to fix and quotes nothing from the body, so it may be sent to the
/// client. `at` is a byte offset into the body (after a byte order mark, if there is one).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptError {
    /// No bytes at all.
    Empty,
    /// Not JSON (RFC 8259).
    NotJson {
        /// Where it stops being JSON.
        at: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// Not UTF-8.
    NotUtf8 {
        /// The first byte that is not.
        at: usize,
    },
    /// JSON, but not an object.
    NotAnObject,
    /// Arrays and objects nested deeper than [`super::MAX_DEPTH`].
    TooDeep {
        /// The bracket that opens one level too many.
        at: usize,
    },
    /// Nobody waits for it any more, and it was not read to its end.
    Abandoned,
}

impl fmt::Display for PromptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the request body is empty; send a JSON object"),
            Self::NotJson { at, expected } => {
                write!(f, "the request body is not valid JSON: expected {expected} at byte {at}")
            }
            Self::NotUtf8 { at } => write!(
                f,
                "the request body is not valid UTF-8 at byte {at}; send JSON encoded in UTF-8"
            ),
            Self::NotAnObject => f.write_str("the request body must be a JSON object"),
            Self::TooDeep { at } => write!(
                f,
                "the request body nests arrays and objects deeper than {} levels at byte {at}",
                super::MAX_DEPTH
            ),
            Self::Abandoned => f.write_str("the request was abandoned while its body was read"),
        }
    }
}

impl std::error::Error for PromptError {}
