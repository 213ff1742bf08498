//! The program: one path from the command line to a running gateway.

use std::process::ExitCode;

use smg::cli::{self, Action, CliError};
use smg_io::config::Config;
use smg_io::launch::Signals;

mod demo;
mod logging;
mod memory;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os(), std::env::var("RUST_LOG").ok()) {
        Ok(Action::Launch(config)) => launch(*config),
        Ok(Action::Demo(args)) => demo::run(args),
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &CliError) -> ExitCode {
    error.report();
    error.exit_code()
}

fn launch(config: Config) -> ExitCode {
    // Before logging starts its thread, which inherits the mask.
    let signals = match Signals::block() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("smg: cannot mask signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    let logging = match logging::init(&config.log) {
        Ok(logging) => logging,
        Err(error) => return refuse(&error.into()),
    };
    tracing::debug!(target: "smg", ?config, "configuration");
    let outcome = smg_io::launch::launch(config, memory::ALLOCATORS, &signals);
    let dropped_lines = logging.dropped_lines();
    drop(logging);
    if dropped_lines() > 0 {
        eprintln!("smg: {} log lines were dropped: standard output was too slow", dropped_lines());
    }
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("smg: {error}");
            if error.is_usage() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
