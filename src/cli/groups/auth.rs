//! Who may use the gateway.

use clap::Args;
use smg_io::config::Secret;

use crate::cli::error::ConfigError;
use crate::cli::values::require;

/// Who may use the gateway.
#[derive(Args)]
#[command(next_help_heading = "Access")]
pub struct AuthArgs {
    /// Key clients must send as `Authorization: Bearer KEY` or `x-api-key: KEY` on inference and
    /// admin routes [default: none, everyone may]
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Key of the admin routes instead of --api-key [default: none]
    #[arg(long, value_name = "KEY")]
    admin_api_key: Option<String>,
}

/// What [`AuthArgs`] come to.
pub struct Auth {
    pub api_key: Option<Secret>,
    pub admin_api_key: Option<Secret>,
}

impl std::fmt::Debug for AuthArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthArgs { .. }")
    }
}

impl AuthArgs {
    pub fn resolve(self) -> Result<Auth, ConfigError> {
        Ok(Auth {
            api_key: secret("api_key", self.api_key)?,
            admin_api_key: secret("admin_api_key", self.admin_api_key)?,
        })
    }
}

/// A key that can stand in a header; the complaint does not show it.
fn secret(field: &str, key: Option<String>) -> Result<Option<Secret>, ConfigError> {
    if let Some(key) = &key {
        require(!key.is_empty(), field, "(empty)", "Must not be empty")?;
        require(
            key.bytes().all(|byte| byte.is_ascii_graphic()),
            field,
            "(hidden)",
            "Must consist of visible ASCII characters without spaces",
        )?;
    }
    Ok(key.map(Secret::new))
}
