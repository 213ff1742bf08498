//! Faults of an engine on command, `POST /sim/fault?kind=…&seconds=…`: what a gateway in front has to
//! cope with, when a test wants it.

use std::cell::Cell;

use crate::clock::now_ns;
use crate::engine::Nanos;

/// What is wrong with an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing is answered, and answers under way stand still: no token, no error, no close.
    Stall,
    /// Connections are reset: new ones when their request is read, those under way at their next
    /// token.
    Reset,
    /// Inference requests are answered with this status.
    Status(u16),
    /// It starts: everything is answered with 503.
    Starting,
}

/// The fault of one engine, if it has one.
#[derive(Debug, Default)]
pub(super) struct Faults {
    current: Cell<Option<(Fault, Nanos)>>,
    /// How often requests under way were cut off.
    cuts: Cell<u64>,
}

/// A fault to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Command {
    pub fault: Option<Fault>,
    pub lasts: Nanos,
    /// Requests under way are cut off and the cache is emptied.
    pub restarts: bool,
}

/// What a fault lasts if the command does not say.
const DEFAULT_SECONDS: f64 = 5.0;
/// Longest fault: an hour.
const MAX_SECONDS: f64 = 3_600.0;

impl Command {
    /// Reads a query: `kind` (`stall`, `reset`, `error`, `restart` or `none`), `seconds`, and for
    /// `error` the `status`.
    pub fn parse(query: &[u8]) -> Result<Self, String> {
        let query = std::str::from_utf8(query).map_err(|_| "the query is not text".to_owned())?;
        let (mut kind, mut seconds, mut status) = ("", DEFAULT_SECONDS, 500);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let wrong =
                || format!("'{pair}' is not kind=, seconds= (up to 3600) or status= (400 to 599)");
            match pair.split_once('=').ok_or_else(wrong)? {
                ("kind", value) => kind = value,
                ("seconds", value) => {
                    let parsed = value.parse().ok();
                    seconds =
                        parsed.filter(|s| (0.0..=MAX_SECONDS).contains(s)).ok_or_else(wrong)?;
                }
                ("status", value) => {
                    let parsed = value.parse().ok();
                    status = parsed.filter(|s| (400..=599).contains(s)).ok_or_else(wrong)?;
                }
                _ => return Err(wrong()),
            }
        }
        let fault = match kind {
            "stall" => Some(Fault::Stall),
            "reset" => Some(Fault::Reset),
            "error" => Some(Fault::Status(status)),
            "restart" => Some(Fault::Starting),
            "none" => None,
            _ => {
                return Err(format!(
                    "kind '{kind}': there are stall, reset, error, restart and none"
                ));
            }
        };
        let restarts = fault == Some(Fault::Starting);
        Ok(Self { fault, lasts: (seconds * 1e9) as Nanos, restarts })
    }
}

impl Faults {
    /// What is wrong now.
    pub fn now(&self) -> Option<Fault> {
        self.current.get().filter(|(_, until)| now_ns() < *until).map(|(fault, _)| fault)
    }

    /// Begins what a command says, in the place of what was wrong before.
    pub fn begin(&self, command: Command) {
        self.current.set(command.fault.map(|fault| (fault, now_ns() + command.lasts)));
        if command.restarts || command.fault == Some(Fault::Reset) {
            self.cuts.set(self.cuts.get() + 1);
        }
    }

    /// Changes when requests under way are cut off.
    pub fn cuts(&self) -> u64 {
        self.cuts.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_or_what_is_wrong_is_named() {
        let stall = Command { fault: Some(Fault::Stall), lasts: 250_000_000, restarts: false };
        assert_eq!(Command::parse(b"kind=stall&seconds=0.25"), Ok(stall));
        let error = Command::parse(b"kind=error&status=503").unwrap();
        assert_eq!((error.fault, error.lasts), (Some(Fault::Status(503)), 5_000_000_000));
        assert!(Command::parse(b"kind=restart").unwrap().restarts);
        assert_eq!(Command::parse(b"kind=none").unwrap().fault, None);
        for (query, words) in [
            (&b""[..], "kind ''"),
            (b"kind=fire", "kind 'fire'"),
            (b"kind=stall&seconds=-1", "'seconds=-1'"),
            (b"kind=stall&seconds=NaN", "'seconds=NaN'"),
            (b"kind=error&status=200", "'status=200'"),
            (b"kind=stall&x", "'x'"),
            (b"\xff", "not text"),
        ] {
            let error = Command::parse(query).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_fault_ends_by_itself_or_on_command() {
        let faults = Faults::default();
        assert_eq!(faults.now(), None);
        faults.begin(Command::parse(b"kind=reset&seconds=60").unwrap());
        assert_eq!((faults.now(), faults.cuts()), (Some(Fault::Reset), 1));
        faults.begin(Command::parse(b"kind=none").unwrap());
        assert_eq!((faults.now(), faults.cuts()), (None, 1));
        faults.begin(Command::parse(b"kind=stall&seconds=0").unwrap());
        assert_eq!(faults.now(), None, "over at once");
    }
}
