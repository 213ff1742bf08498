//! `--config FILE`: a TOML file whose keys are the flags' names with underscores.
//!
//! A file is read as more command line: every key that is not already given as a flag becomes one,
//! so that a value is parsed and checked in one way wherever it comes from. What the file's keys and
//! their types are follows from the flags; nothing is listed twice.

use std::any::TypeId;
use std::ffi::OsString;
use std::io::Read;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use toml::{Table, Value};

use super::error::ConfigError;
use super::not_built;

/// Largest configuration file in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Flags that make no sense in a file.
const NOT_IN_FILE: &[&str] = &["config", "help", "version"];

/// Reads `path` and gives the arguments to append to a command line that was parsed as `given`
/// by `command`.
pub fn arguments(
    path: &str,
    command: &Command,
    given: &ArgMatches,
) -> Result<Vec<OsString>, ConfigError> {
    arguments_of(&read(path)?, path, command, given)
}

fn read(path: &str) -> Result<String, ConfigError> {
    let problem = |problem: String| ConfigError::file(path, problem);
    let file = std::fs::File::open(path).map_err(|e| problem(format!("cannot be opened: {e}")))?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|e| problem(format!("cannot be read: {e}")))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(problem(format!("is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}

/// As [`arguments`], from the file's text.
pub fn arguments_of(
    text: &str,
    path: &str,
    command: &Command,
    given: &ArgMatches,
) -> Result<Vec<OsString>, ConfigError> {
    let problem = |problem: String| ConfigError::file(path, problem);
    let table: Table = text.parse().map_err(|error| problem(syntax_problem(text, &error)))?;
    let mut arguments = Vec::new();
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (key, value) in &table {
        let arg = find(command, key).map_err(|unknown| match unknown {
            Unknown::NotBuilt(error) => error,
            Unknown::Key(_) if value.is_table() => {
                problem(format!("section '{key}' is unknown; every key stands at the top level"))
            }
            Unknown::Key(Some(meant)) => {
                problem(format!("unknown key '{key}'; did you mean '{meant}'?"))
            }
            Unknown::Key(None) => problem(format!(
                "unknown key '{key}'; keys are the flags of smg launch --help with underscores"
            )),
        })?;
        let id = arg.get_id().as_str();
        if let Some((other, _)) = seen.iter().find(|(_, seen)| *seen == id) {
            return Err(problem(format!("'{other}' and '{key}' are the same setting")));
        }
        seen.push((key, id));
        let values = values(arg, value).map_err(|expected| {
            problem(format!("'{key}' must be {expected}, not {}", article(value)))
        })?;
        if values.is_empty() && !arg.get_default_values().is_empty() {
            return Err(problem(format!("'{key}' must not be empty")));
        }
        if given.value_source(id) != Some(ValueSource::CommandLine) {
            // `find` only gives arguments with a long name.
            let flag = arg.get_long().unwrap_or_default();
            arguments.extend(values.iter().map(|value| format!("--{flag}={value}").into()));
        }
    }
    Ok(arguments)
}

fn syntax_problem(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', " ");
    match error.span() {
        Some(span) => {
            let line = text.as_bytes()[..span.start.min(text.len())]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count();
            format!("line {}: {message}", line + 1)
        }
        None => message,
    }
}

enum Unknown {
    NotBuilt(ConfigError),
    /// With the key that was probably meant.
    Key(Option<String>),
}

fn find<'a>(command: &'a Command, key: &str) -> Result<&'a Arg, Unknown> {
    not_built::check_flag(&format!("--{}", key.replace('_', "-"))).map_err(Unknown::NotBuilt)?;
    settings(command)
        .find(|arg| keys(arg).any(|known| known == key))
        .ok_or_else(|| Unknown::Key(meant(command, key)))
}

/// The arguments of `command` that a file can set.
pub fn settings(command: &Command) -> impl Iterator<Item = &Arg> {
    command
        .get_arguments()
        .filter(|arg| arg.get_long().is_some_and(|long| !NOT_IN_FILE.contains(&long)))
}

/// The keys that name `arg`: its long flag and aliases, with underscores.
fn keys(arg: &Arg) -> impl Iterator<Item = String> {
    let aliases = arg.get_all_aliases().unwrap_or_default();
    arg.get_long().into_iter().chain(aliases).map(|name| name.replace('-', "_"))
}

/// The key that was probably meant by `key`: the only one that begins so, else the one that takes the
/// fewest edits, if they are at most a third of its length. An unrelated word is near to nothing.
fn meant(command: &Command, key: &str) -> Option<String> {
    let key = key.to_ascii_lowercase().replace('-', "_");
    let known: Vec<String> = settings(command)
        .flat_map(keys)
        .filter(|known| not_built::instead_of(&format!("--{}", known.replace('_', "-"))).is_none())
        .collect();
    let mut longer = known.iter().filter(|known| key.len() > 2 && known.starts_with(&key));
    if let (Some(only), None) = (longer.next(), longer.next()) {
        return Some(only.clone());
    }
    let edits = |known: &&String| edit_distance(&key, known);
    known.iter().min_by_key(edits).filter(|known| edits(known) * 3 <= key.len().max(6)).cloned()
}

/// Levenshtein distance over the bytes of the known key `b` and the first 64 of `a`.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, byte) in a.bytes().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(byte != other);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// The texts `value` stands for as values of `arg`, or what type it should have had.
fn values(arg: &Arg, value: &Value) -> Result<Vec<String>, String> {
    let kind = Kind::of(arg);
    let is_list = matches!(arg.get_action(), ArgAction::Append);
    match value {
        Value::Array(elements) if is_list => elements
            .iter()
            .map(|element| kind.text(element))
            .collect::<Option<_>>()
            .ok_or_else(|| kind.plural().to_owned()),
        _ if is_list => Err(kind.plural().to_owned()),
        _ => kind.text(value).map(|text| vec![text]).ok_or_else(|| kind.singular().to_owned()),
    }
}

/// What type of TOML value a flag takes.
enum Kind {
    Switch,
    Whole,
    Number,
    Text,
}

impl Kind {
    fn of(arg: &Arg) -> Self {
        let id = arg.get_value_parser().type_id();
        let is = |types: &[TypeId]| types.iter().any(|known| id == *known);
        if is(&[TypeId::of::<bool>()]) {
            Self::Switch
        } else if is(&[TypeId::of::<f32>(), TypeId::of::<f64>()]) {
            Self::Number
        } else if is(&[
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
            TypeId::of::<i64>(),
        ]) {
            Self::Whole
        } else {
            Self::Text
        }
    }

    fn text(&self, value: &Value) -> Option<String> {
        match (self, value) {
            (Self::Switch, Value::Boolean(on)) => Some(on.to_string()),
            (Self::Whole | Self::Number, Value::Integer(number)) => Some(number.to_string()),
            (Self::Number, Value::Float(number)) => Some(number.to_string()),
            (Self::Text, Value::String(text)) => Some(text.clone()),
            _ => None,
        }
    }

    fn singular(&self) -> &'static str {
        match self {
            Self::Switch => "true or false",
            Self::Whole => "an integer",
            Self::Number => "a number",
            Self::Text => "a string",
        }
    }

    fn plural(&self) -> &'static str {
        match self {
            Self::Switch => "an array of true or false",
            Self::Whole => "an array of integers",
            Self::Number => "an array of numbers",
            Self::Text => "an array of strings",
        }
    }
}

fn article(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "an integer",
        Value::Float(_) => "a float",
        Value::Boolean(_) => "a boolean",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "an array",
        Value::Table(_) => "a table",
    }
}
