//! The command line: flags, `--config FILE` and `RUST_LOG` in, one checked [`Config`] out.
//!
//! [`parse`] is the only place that reads any of them. The flags themselves are in [`groups`], one
//! file per subject; flags of features that do not exist are in [`not_built`].

use std::ffi::OsString;

use clap::builder::ValueParser;
use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand,
};
use smg_io::config::Config;

pub use error::{CliError, ConfigError};
pub use groups::DemoArgs;

mod error;
mod file;
mod groups;
mod not_built;
#[cfg(test)]
mod tests;
mod values;

/// What the command line asks for.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Run the gateway.
    Launch(Box<Config>),
    /// Show what cache-aware routing does, on simulated engines.
    Demo(DemoArgs),
}

/// Reads the command line, program name first, and the value of `RUST_LOG`.
///
/// # Errors
/// Help, version, a usage mistake, or a setting that cannot be used; see [`CliError::exit_code`].
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    rust_log: Option<String>,
) -> Result<Action, CliError> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    not_built::check_command_line(arguments.iter().skip(1).filter_map(|text| text.to_str()))?;
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(&arguments)?;
    if let Some((path, more)) = file_arguments(&command, &matches)? {
        arguments.extend(more);
        // What the flags gave was sound, so a complaint now is about the file.
        matches = command
            .try_get_matches_from_mut(&arguments)
            .map_err(|error| in_file(&path, CliError::from(error)))?;
    }
    let cli = Cli::from_arg_matches(&matches)?;
    let launch = match cli.command {
        Some(Subcommands::Demo(args)) => return Ok(Action::Demo(args.resolve()?)),
        Some(Subcommands::Launch(args)) => *args,
        None => cli.launch,
    };
    let rust_log = rust_log.filter(|directives| !directives.trim().is_empty());
    Ok(Action::Launch(Box::new(launch.resolve(rust_log)?)))
}

/// Cache-aware gateway in front of LLM inference engines.
#[derive(Debug, Parser)]
#[command(
    name = "smg",
    version,
    about = "Cache-aware gateway in front of LLM inference engines",
    after_help = "Example:\n  smg --worker-urls http://10.0.0.7:8000 http://10.0.0.8:8000",
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Subcommands>,
    #[command(flatten)]
    launch: groups::LaunchArgs,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Run the gateway; the same as smg without a command
    #[command(visible_alias = "start")]
    Launch(Box<groups::LaunchArgs>),
    /// Start simulated engines and compare policies on a multi-turn chat workload
    Demo(groups::DemoArgs),
}

/// The command with what derives cannot say about every argument at once.
fn command() -> Command {
    let subcommands = ["launch", "demo"];
    subcommands.into_iter().fold(Cli::command().mut_args(configure), |command, name| {
        command.mut_subcommand(name, |command| command.mut_args(configure))
    })
}

fn configure(arg: Arg) -> Arg {
    let not_built =
        arg.get_long().is_some_and(|long| not_built::instead_of(&format!("--{long}")).is_some());
    let arg = arg.hide(not_built);
    match arg.get_action() {
        // `--flag=false` must be possible, or a flag could not beat the file.
        ArgAction::SetTrue => arg
            .action(ArgAction::Set)
            .value_parser(ValueParser::bool())
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_value("false")
            .default_missing_value("true")
            .hide_default_value(true)
            .hide_possible_values(true),
        ArgAction::Set | ArgAction::Append => arg.allow_negative_numbers(true),
        _ => arg,
    }
}

/// The path given with `--config` and the arguments in that file.
fn file_arguments(
    command: &Command,
    matches: &ArgMatches,
) -> Result<Option<(String, Vec<OsString>)>, ConfigError> {
    let (command, given) = match matches.subcommand() {
        None => (command, matches),
        Some((name, given)) => match command.find_subcommand(name) {
            Some(command) => (command, given),
            None => return Ok(None),
        },
    };
    match given.try_get_one::<String>("config") {
        Ok(Some(path)) => Ok(Some((path.clone(), file::arguments(path, command, given)?))),
        _ => Ok(None),
    }
}

fn in_file(path: &str, error: CliError) -> CliError {
    match error {
        CliError::Config(error) => ConfigError::file(path, error).into(),
        usage => usage,
    }
}
