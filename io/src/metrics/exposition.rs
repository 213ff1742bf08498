//! Prometheus and OpenMetrics text.

mod families;
mod text;

pub use families::write_all;
pub use text::{Family, Text};
