//! What the fuzz targets check: one module and one function per target, which takes any bytes and
//! panics when a property does not hold. `tests/corpora.rs` runs them over the kept corpora, so
//! that they are part of every ordinary test run; `fuzz/README.md` says what each checks.

pub mod admin;
pub mod chunked;
pub mod config;
pub mod events;
pub mod h2_head;
pub mod headers;
pub mod loads;
pub mod prompt;
pub mod request;
pub mod response;

mod cuts;
mod grammar;
mod peer;

/// A check that any bytes must pass.
pub type Case = fn(&[u8]);

/// Every target by its name, which is also that of its corpus.
pub const CASES: &[(&str, Case)] = &[
    ("admin", admin::run),
    ("chunked", chunked::run),
    ("config", config::run),
    ("events", events::run),
    ("h2_head", h2_head::run),
    ("headers", headers::run),
    ("loads", loads::run),
    ("prompt", prompt::run),
    ("request", request::run),
    ("response", response::run),
];
