//! Simulated engines, honest load and side-by-side comparison.

pub mod blocking;
pub mod clock;
pub mod compare;
pub mod demo;
pub mod engine;
pub mod load;
pub mod process;
pub mod proof;
pub mod runtime;
pub mod server;
pub mod simulate;
pub mod timer;
pub mod trace;
pub mod waiting;
