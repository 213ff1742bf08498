//! Sticky sessions over any policy, and the `manual` policy.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use smg_io::config::{AssignmentMode, StickyConfig};

use crate::cli::error::ConfigError;
use crate::cli::values::{distinct_lower, is_header_name, secs_within, whole};

/// Sticky sessions over any policy, and the `manual` policy.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sticky sessions and policy manual")]
pub struct StickyArgs {
    /// Keep requests with a routing key on the worker that key was first sent to, whatever the policy
    #[arg(long, visible_alias = "sticky-sessions")]
    routing_key_override: bool,
    /// Request headers to read the routing key from, in order
    #[arg(long, value_name = "HEADER", num_args = 1..,
          default_values_t = StickyConfig::default().headers)]
    routing_key_headers: Vec<String>,
    /// How a new key gets its worker [default: random for policy manual, else delegate]
    #[arg(long, value_name = "MODE", value_parser = mode_parser())]
    assignment_mode: Option<AssignmentMode>,
    /// Forget keys that were not used this long, in seconds; 0 never
    #[arg(long, visible_alias = "sticky-key-idle-secs", value_name = "SECS",
          value_parser = whole::<u64>, default_value_t = StickyConfig::default().max_idle_secs)]
    max_idle_secs: u64,
}

impl StickyArgs {
    pub fn resolve(self) -> Result<StickyConfig, ConfigError> {
        if let Some(name) = self.routing_key_headers.iter().find(|name| !is_header_name(name)) {
            return Err(ConfigError::Validation(format!(
                "routing_key_override.headers contains an invalid HTTP header name '{name}'"
            )));
        }
        Ok(StickyConfig {
            enabled: self.routing_key_override,
            headers: distinct_lower(self.routing_key_headers),
            assignment_mode: self.assignment_mode,
            max_idle_secs: secs_within("max_idle_secs", self.max_idle_secs)?,
        })
    }
}

fn mode_parser() -> impl TypedValueParser<Value = AssignmentMode> {
    const MODES: [(&str, AssignmentMode, &str); 4] = [
        ("random", AssignmentMode::Random, "any worker"),
        ("min_load", AssignmentMode::MinLoad, "the worker with the fewest requests in flight"),
        ("min_group", AssignmentMode::MinGroup, "the worker with the fewest active keys"),
        ("delegate", AssignmentMode::Delegate, "the policy chooses"),
    ];
    PossibleValuesParser::new(MODES.map(|(name, _, help)| PossibleValue::new(name).help(help)))
        .try_map(|name| {
            let mode = MODES.into_iter().find(|(known, ..)| *known == name);
            mode.map(|(_, mode, _)| mode).ok_or("Must be the name of a mode")
        })
}
