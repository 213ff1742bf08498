//! Prometheus and OpenMetrics text.

mod admission;
mod breakers;
mod engines;
mod families;
mod process;
mod reloads;
mod streams;
mod text;

pub use families::write_all;
pub use text::{Family, Text};
