//! Simulated engines, honest load and side-by-side comparison.

pub mod engine;
