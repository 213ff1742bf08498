//! Who may use the gateway.

use std::path::{Path, PathBuf};

use clap::Args;
use smg_io::config::{KeyFile, Secret};

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
    /// File with more such keys, one per line; empty lines and lines that begin with # are ignored.
    /// SIGHUP has it read again; a file that is broken then changes nothing [default: none]
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Key of the admin routes instead of all of the above [default: none]
    #[arg(long, value_name = "KEY")]
    admin_api_key: Option<String>,
}

/// What [`AuthArgs`] come to.
pub struct Auth {
    pub api_key: Option<Secret>,
    pub api_key_file: Option<KeyFile>,
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
            api_key_file: self.api_key_file.as_deref().map(key_file).transpose()?,
            admin_api_key: secret("admin_api_key", self.admin_api_key)?,
        })
    }
}

/// A key that can stand in a header; the complaint does not show it.
fn secret(field: &str, key: Option<String>) -> Result<Option<Secret>, ConfigError> {
    let Some(key) = key else { return Ok(None) };
    require(!key.is_empty(), field, "(empty)", "Must not be empty")?;
    let rule = "Must consist of visible ASCII characters without spaces";
    match Secret::checked(&key) {
        Some(key) => Ok(Some(key)),
        None => Err(ConfigError::invalid(field, "(hidden)", rule)),
    }
}

fn key_file(path: &Path) -> Result<KeyFile, ConfigError> {
    let invalid = |error| ConfigError::invalid("api_key_file", path.display(), error);
    KeyFile::read(path).map_err(invalid)
}
