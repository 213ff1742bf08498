//! Prometheus and OpenMetrics text.

mod admission;
mod engines;
mod families;
mod text;

pub use families::write_all;
pub use text::{Family, Text};
