//! Sans-IO core of the gateway: bytes and time in, decisions and bytes out.
//!
//! Nothing in this crate opens a socket, reads a clock, starts a thread or draws from a random
//! source it was not given. `scripts/check-core-purity` proves it for the dependency tree, and the
//! `clippy.toml` at the root for the code.

pub mod breaker;
pub mod fleet;
pub mod http1;
pub mod index;
pub mod policy;
pub mod prefetch;
pub mod prompt;
pub mod rate;
pub mod retry;
pub mod rng;
pub mod usage;
