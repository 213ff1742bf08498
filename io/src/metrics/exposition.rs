//! Prometheus and OpenMetrics text.

mod engines;
mod families;
mod text;

pub use families::write_all;
pub use text::{Family, Text};
