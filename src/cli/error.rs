//! Why the program does not start: one line for a bad setting, clap's own text for a bad usage.

use std::fmt::{self, Display};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A setting that cannot be used. Its text is one line that follows `Configuration error: `.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// One value out of its range.
    Invalid { field: String, value: String, reason: String },
    /// Values that are sound one by one but not as a set, or a part of a list.
    Validation(String),
    /// Settings that exclude one another.
    Incompatible(String),
    /// A flag of a feature that is not built.
    NotAvailable { flag: String, instead: &'static str },
    /// The configuration file as such.
    File { path: String, problem: String },
}

impl ConfigError {
    /// `value` does not follow the rule `reason` of `field`.
    pub fn invalid(field: &str, value: impl Display, reason: impl Display) -> Self {
        Self::Invalid {
            field: field.to_owned(),
            value: one_line(&value.to_string()),
            reason: one_line(&reason.to_string()),
        }
    }

    /// The file at `path` cannot be used.
    pub fn file(path: &str, problem: impl Display) -> Self {
        Self::File { path: path.to_owned(), problem: one_line(&problem.to_string()) }
    }

    /// Reads clap's complaint about one value as ours; `None` for any other usage error.
    pub fn from_value_error(error: &clap::Error) -> Option<Self> {
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.as_str()),
            _ => None,
        };
        let field = field_of(text(ContextKind::InvalidArg)?);
        let value = text(ContextKind::InvalidValue)?;
        let reason = match error.kind() {
            ErrorKind::ValueValidation => std::error::Error::source(error)?.to_string(),
            ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(names)) if !value.is_empty() && !names.is_empty() => {
                    format!("Must be one of {}", names.join(", "))
                }
                _ => return None,
            },
            _ => return None,
        };
        Some(Self::invalid(&field, value, reason))
    }
}

impl Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { field, value, reason } => {
                write!(f, "Invalid value for field '{field}': {value} - {reason}")
            }
            Self::Validation(problem) => write!(f, "Validation failed: {problem}"),
            Self::Incompatible(problem) => write!(f, "Incompatible configuration: {problem}"),
            Self::NotAvailable { flag, instead } => {
                write!(f, "{flag} is not available in this version of smg: {instead}")
            }
            Self::File { path, problem } => write!(f, "{path}: {problem}"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// The outcome of a command line that asks for no work: help, version, or a mistake.
#[derive(Debug)]
pub enum CliError {
    /// Clap's text, which is also that of `--help` and `--version`.
    Usage(clap::Error),
    /// A setting that cannot be used.
    Config(ConfigError),
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<clap::Error> for CliError {
    fn from(error: clap::Error) -> Self {
        match ConfigError::from_value_error(&error) {
            Some(config) => Self::Config(config),
            None => Self::Usage(error),
        }
    }
}

impl CliError {
    /// Prints it where it belongs.
    pub fn report(&self) {
        match self {
            Self::Usage(error) => {
                // A closed terminal leaves nobody to tell.
                let _ = error.print();
            }
            Self::Config(error) => eprintln!("Configuration error: {error}"),
        }
    }

    /// 0 for help and version, else 2.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(error) if !error.use_stderr() => ExitCode::SUCCESS,
            _ => ExitCode::from(2),
        }
    }
}

/// `field` of `--the-flag <VALUE>...`, as clap names an argument.
fn field_of(argument: &str) -> String {
    let name = argument.trim_start_matches('-');
    let end = name.find([' ', '[', '=', '<']).unwrap_or(name.len());
    name[..end].replace('-', "_")
}

/// Keeps a hostile or careless value from breaking the line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
