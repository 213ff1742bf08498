//! From the text of one flag to its value: numbers, ports, addresses, CPU lists; and the range
//! checks the groups share.

use std::fmt::Display;
use std::net::IpAddr;
use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

use super::error::ConfigError;

/// Longest time a flag can set, in seconds: ten years. Keeps sums with the clock from overflowing.
pub const MAX_SECS: u64 = 10 * 365 * 24 * 3600;

/// Highest CPU number a list can name, above what Linux supports.
pub const MAX_CPU: usize = 8191;

/// A whole number; a sign is refused for unsigned types.
pub fn whole<T: FromStr<Err = ParseIntError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: ParseIntError| {
        let negative = text.strip_prefix('-').is_some_and(|rest| rest.parse::<u64>().is_ok());
        match error.kind() {
            IntErrorKind::PosOverflow => "Number is too large".to_owned(),
            _ if negative => "Must be >= 0".to_owned(),
            _ => "Must be a whole number".to_owned(),
        }
    })
}

/// A number with or without decimals. `nan` and `inf` pass; the range check names the rule.
pub fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "Must be a number".to_owned())
}

/// A port that can be listened on.
pub fn port(text: &str) -> Result<u16, String> {
    text.parse()
        .ok()
        .filter(|&port| port != 0)
        .ok_or_else(|| "Must be a port between 1 and 65535".to_owned())
}

/// An IP literal; an IPv6 one may stand in brackets.
pub fn ip(text: &str) -> Result<IpAddr, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().map_err(|_| "Must be an IP address such as 127.0.0.1 or ::1".to_owned())
}

/// Ascending CPU numbers of a list such as `0-5,8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (cpu(first, text)?, cpu(last, text)?),
                None => (cpu(part, text)?, cpu(part, text)?),
            };
            if first > last {
                return Err(format!("The range {first}-{last} runs backwards"));
            }
            for cpu in first..=last {
                // Also bounds the list, whatever the number of ranges.
                if cpus.contains(&cpu) {
                    return Err(format!("CPU {cpu} is named twice"));
                }
                cpus.push(cpu);
            }
        }
        cpus.sort_unstable();
        Ok(Self(cpus))
    }
}

fn cpu(text: &str, list: &str) -> Result<usize, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let what = if list.is_empty() { "an empty list".to_owned() } else { format!("'{text}'") };
        return Err(format!("Must be a list of CPU numbers and ranges such as 0-5,8, not {what}"));
    }
    text.parse()
        .ok()
        .filter(|&cpu| cpu <= MAX_CPU)
        .ok_or_else(|| format!("CPU numbers end at {MAX_CPU}"))
}

/// `alias=canonical`.
pub fn model_alias(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((alias, model)) if !alias.is_empty() && !model.is_empty() => {
            Ok((alias.to_owned(), model.to_owned()))
        }
        _ => Err("Must be alias=canonical".to_owned()),
    }
}

/// Whether `name` is a header name (an RFC 9110 §5.6.2 token).
pub fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Lower-cases header names and drops repeats.
pub fn distinct_lower(names: Vec<String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        let name = name.to_ascii_lowercase();
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

/// `reason` is the rule that `value` of `field` must follow, and `holds` whether it does.
pub fn require(
    holds: bool,
    field: &str,
    value: impl Display,
    reason: &str,
) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError::invalid(field, value, reason)) }
}

/// Refuses 0.
pub fn positive<T: Display + Default + PartialOrd>(
    field: &str,
    value: T,
) -> Result<T, ConfigError> {
    require(value > T::default(), field, &value, "Must be > 0")?;
    Ok(value)
}

/// A time above 0 that a clock can be advanced by.
pub fn positive_secs(field: &str, secs: u64) -> Result<u64, ConfigError> {
    secs_within(field, positive(field, secs)?)
}

/// A time, possibly 0, that a clock can be advanced by.
pub fn secs_within(field: &str, secs: u64) -> Result<u64, ConfigError> {
    require(secs <= MAX_SECS, field, secs, "Must be at most 315360000 seconds (ten years)")?;
    Ok(secs)
}
