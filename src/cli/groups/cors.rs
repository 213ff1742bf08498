//! Which web pages may use the gateway.

use clap::Args;
use smg_io::config::{AllowedOrigins, origin};

use crate::cli::error::ConfigError;
use crate::cli::values::require;

/// Which web pages may use the gateway.
#[derive(Debug, Args)]
#[command(next_help_heading = "Access")]
pub struct CorsArgs {
    /// Origins whose web pages may use the gateway, such as https://app.example.com, or * for all.
    /// The gateway then answers browsers' preflight requests itself and replaces the engines' CORS
    /// headers [default: none, CORS is left to the engines]
    #[arg(long, value_name = "ORIGIN", num_args = 1..)]
    cors_allowed_origins: Vec<String>,
}

impl CorsArgs {
    pub fn resolve(self) -> Result<Option<AllowedOrigins>, ConfigError> {
        const FIELD: &str = "cors_allowed_origins";
        let given = self.cors_allowed_origins;
        if given.iter().any(|origin| origin == "*") {
            require(given.len() == 1, FIELD, given.join(" "), "* stands for every origin: alone")?;
            return Ok(Some(AllowedOrigins::Any));
        }
        let mut listed = Vec::new();
        for text in given {
            let origin = origin(&text).map_err(|rule| ConfigError::invalid(FIELD, &text, rule))?;
            if !listed.contains(&origin) {
                listed.push(origin);
            }
        }
        Ok((!listed.is_empty()).then_some(AllowedOrigins::Listed(listed)))
    }
}
