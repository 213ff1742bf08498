//! The program: one path from the command line to a running gateway.

use std::process::ExitCode;

use smg_io::config::Config;

use crate::cli::{Action, CliError, DemoArgs};

mod cli;
mod logging;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os(), std::env::var("RUST_LOG").ok()) {
        Ok(Action::Launch(config)) => launch(*config),
        Ok(Action::Demo(args)) => run_demo(args),
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &CliError) -> ExitCode {
    error.report();
    error.exit_code()
}

fn launch(config: Config) -> ExitCode {
    let logging = match logging::init(&config.log) {
        Ok(logging) => logging,
        Err(error) => return refuse(&error.into()),
    };
    tracing::debug!(?config, "Configuration");
    let dropped_lines = logging.dropped_lines();
    drop(logging);
    if dropped_lines() > 0 {
        eprintln!("{} log lines were dropped: standard output was too slow", dropped_lines());
    }
    ExitCode::SUCCESS
}

fn run_demo(args: DemoArgs) -> ExitCode {
    eprintln!("smg demo is not available in this build ({args:?})");
    ExitCode::FAILURE
}
