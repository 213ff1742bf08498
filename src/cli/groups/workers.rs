//! Which engines the gateway stands in front of, and how they join.

use clap::Args;
use smg_io::config::{StartupConfig, WorkerUrl};

use crate::cli::error::ConfigError;
use crate::cli::values::{model_alias, positive_secs, require, whole};

/// Which engines the gateway stands in front of, and how they join.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workers")]
pub struct WorkerArgs {
    /// Engines to register at start, as http://host[:port][/base-path] or https://...; more can
    /// join by POST /workers
    #[arg(long, value_name = "URL", num_args = 1..)]
    worker_urls: Vec<WorkerUrl>,
    /// Another name a model answers to; may be repeated. Case counts
    #[arg(long, value_name = "ALIAS=MODEL", value_parser = model_alias)]
    model_alias: Vec<(String, String)>,
    /// Give up on a worker that is not healthy this long after its registration began
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = StartupConfig::default().worker_timeout_secs)]
    worker_startup_timeout_secs: u64,
    /// Time between two looks at a worker that is not up yet, in seconds
    #[arg(long, value_name = "SECS", value_parser = whole::<u64>,
          default_value_t = StartupConfig::default().worker_check_interval_secs)]
    worker_startup_check_interval: u64,
    /// Workers of several models come and go at run time: start with any number of them
    #[arg(long)]
    enable_igw: bool,
}

/// What [`WorkerArgs`] come to.
pub struct Workers {
    pub urls: Vec<WorkerUrl>,
    pub aliases: Vec<(String, String)>,
    pub startup: StartupConfig,
    pub enable_igw: bool,
}

impl WorkerArgs {
    pub fn resolve(self) -> Result<Workers, ConfigError> {
        let mut urls: Vec<WorkerUrl> = Vec::new();
        for url in self.worker_urls {
            // Probably a slip for another one, which would be missed only under load.
            require(!urls.contains(&url), "worker_urls", &url, "This worker is named twice")?;
            urls.push(url);
        }
        Ok(Workers {
            urls,
            aliases: aliases(self.model_alias)?,
            startup: StartupConfig {
                worker_timeout_secs: positive_secs(
                    "worker_startup_timeout_secs",
                    self.worker_startup_timeout_secs,
                )?,
                worker_check_interval_secs: positive_secs(
                    "worker_startup_check_interval",
                    self.worker_startup_check_interval,
                )?,
            },
            enable_igw: self.enable_igw,
        })
    }
}

/// Drops exact repeats and refuses an alias of two models, or of itself.
fn aliases(given: Vec<(String, String)>) -> Result<Vec<(String, String)>, ConfigError> {
    let mut aliases: Vec<(String, String)> = Vec::new();
    for (alias, model) in given {
        let text = format!("{alias}={model}");
        require(alias != model, "model_alias", &text, "Alias and model are the same name")?;
        match aliases.iter().find(|(known, _)| *known == alias) {
            None => aliases.push((alias, model)),
            Some((_, other)) => {
                let reason = format!("'{alias}' is already an alias of '{other}'");
                require(*other == model, "model_alias", &text, &reason)?;
            }
        }
    }
    Ok(aliases)
}
