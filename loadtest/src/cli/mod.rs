//! The command line. Exit codes: 0 done, 1 failed while running, 2 wrong usage.

mod compare;
mod demo;
mod engines;
mod replay;
mod run;
mod signal;
mod simulate;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use smg_loadtest::waiting::Waiting;

/// Simulated inference engines, honest load, and gateways side by side.
///
/// Everything runs on this machine: no GPU, no model, no network.
#[derive(Parser)]
#[command(name = "smg-loadtest", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Engines(engines::Args),
    Run(run::Args),
    Replay(replay::Args),
    Demo(demo::Args),
    Compare(compare::Args),
    Simulate(simulate::Args),
}

pub fn main() -> ExitCode {
    let cli = Cli::parse();
    smg_loadtest::runtime::raise_open_files();
    let result = match cli.command {
        Command::Engines(args) => engines::main(args),
        Command::Run(args) => run::main(args),
        Command::Replay(args) => replay::main(args),
        Command::Demo(args) => demo::main(args),
        Command::Compare(args) => compare::main(args),
        Command::Simulate(args) => simulate::main(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
        Err(Failure::Run(message)) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Why a command failed; the text is one line that says what to do.
enum Failure {
    Usage(String),
    Run(String),
}

impl Failure {
    fn usage(error: impl std::fmt::Display) -> Self {
        Self::Usage(error.to_string())
    }

    fn run(error: impl std::fmt::Display) -> Self {
        Self::Run(error.to_string())
    }
}

/// Prints a report: as text to stdout, and as JSON to a file if one is named, `-` being stdout in the
/// text's place.
fn print_report(
    report: &(impl serde::Serialize + std::fmt::Display),
    json: Option<&std::path::Path>,
) -> Result<(), Failure> {
    let Some(path) = json else { return print(report) };
    let json = serde_json::to_string_pretty(report).map_err(Failure::run)?;
    if path.as_os_str() == "-" {
        print(json + "\n")
    } else {
        std::fs::write(path, json + "\n")
            .map_err(|e| Failure::Run(format!("cannot write {}: {e}", path.display())))?;
        print(report)
    }
}

/// Writes to stdout. Whoever has closed it has read what he wanted.
fn print(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match write!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Reads seconds, fractions allowed.
fn seconds(text: &str) -> Result<std::time::Duration, String> {
    text.parse::<f64>()
        .ok()
        .and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("'{text}' is not a number of seconds"))
}

/// Reads milliseconds, fractions allowed.
fn milliseconds(text: &str) -> Result<std::time::Duration, String> {
    text.parse::<f64>()
        .ok()
        .and_then(|ms| std::time::Duration::try_from_secs_f64(ms / 1e3).ok())
        .ok_or_else(|| format!("'{text}' is not a number of milliseconds"))
}

/// Reads a CPU list such as `0-3,8`, ascending and without repeats.
fn cpu_list(text: &str) -> Result<CpuList, String> {
    let wrong = || format!("'{text}' is not a CPU list such as 0-3,8");
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let from: usize = from.trim().parse().map_err(|_| wrong())?;
        let to: usize = to.trim().parse().map_err(|_| wrong())?;
        if from > to || to >= 1024 {
            return Err(wrong());
        }
        cpus.extend(from..=to);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(CpuList(cpus))
}

/// Reads a CPU list all of which this process may use.
fn usable_cpu_list(text: &str) -> Result<CpuList, String> {
    let list = cpu_list(text)?;
    among(list, &smg_loadtest::runtime::allowed_cpus())
}

fn among(list: CpuList, allowed: &[usize]) -> Result<CpuList, String> {
    match list.0.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(missing) => {
            let allowed: Vec<String> = allowed.iter().map(usize::to_string).collect();
            let allowed = allowed.join(", ");
            Err(format!("CPU {missing} cannot be used; this process may run on {allowed}"))
        }
        None => Ok(list),
    }
}

/// What --busy-poll asks for.
fn waiting(busy_poll: bool) -> Waiting {
    if busy_poll { Waiting::BusyPoll } else { Waiting::Sleep }
}

/// CPUs named on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CpuList(Vec<usize>);

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_demo_names_its_defaults() {
        let options = smg_loadtest::demo::DemoOptions::default();
        let conversations = &options.conversations;
        let command = Cli::command();
        let demo = command.find_subcommand("demo").unwrap();
        for (flag, default) in [
            ("cache_blocks", options.profile.cache_blocks.to_string()),
            ("arrivals", conversations.arrivals_per_s.to_string()),
            ("system_prompts", conversations.system_prompts.to_string()),
            ("duration", conversations.duration.as_secs().to_string()),
        ] {
            let arg = demo.get_arguments().find(|arg| arg.get_id() == flag).unwrap();
            let help = arg.get_help().unwrap().to_string();
            assert!(help.contains(&format!("[default: {default}]")), "{flag}: {help}");
        }
        assert_eq!(conversations.warmup.as_secs(), 5, "as --duration says");
        assert_eq!(conversations.system_prompt_chars, 4 * 2000, "as --system-prompts says");
    }

    #[test]
    fn simulating_nothing_and_changing_the_simulation_exclude_each_other() {
        let parse = |flags: &str| {
            Cli::try_parse_from(format!("smg-loadtest engines {flags}").split_whitespace())
        };
        assert!(parse("--instant --events 5").is_ok() && parse("--cache-blocks 9").is_ok());
        for wrong in ["--instant --cache-blocks 9", "--instant --profile demo", "--events 5"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_and_cpu_lists_are_read_or_named() {
        assert_eq!(seconds("1.5").unwrap().as_millis(), 1_500);
        assert_eq!(milliseconds("5").unwrap().as_millis(), 5);
        assert!(seconds("-1").unwrap_err().contains("'-1'"));
        assert!(seconds("soon").is_err());
        assert_eq!(cpu_list("0-2,5,1").unwrap().0, [0, 1, 2, 5]);
        for wrong in ["", "2-1", "a", "0,", "5000"] {
            assert!(cpu_list(wrong).is_err(), "{wrong}");
        }
        let usable = |text| among(cpu_list(text).unwrap(), &[0, 1, 4]);
        assert_eq!(usable("0,4").unwrap().0, [0, 4]);
        let error = "CPU 2 cannot be used; this process may run on 0, 1, 4";
        assert_eq!(usable("0-4").unwrap_err(), error);
    }
}
