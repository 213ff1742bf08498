//! The program: one path from the command line to a running gateway.

use std::process::ExitCode;

use smg::cli::{self, Action, CliError};
use smg_io::config::Config;
use smg_io::launch::Signals;
use smg_io::shared::Memory;

mod demo;
mod logging;

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

/// By itself the allocator gives memory back as time goes by, but only while it is used.
const MEMORY: Memory = Memory {
    reclaim: || collect(false),
    trim: || collect(true),
    ask_for_small_pages: || {
        // SAFETY: the option may be changed at any time; it counts for memory mapped from then on.
        unsafe { libmimalloc_sys::mi_option_set(ALLOW_THP, 0) };
    },
};

/// `mi_option_allow_thp` of mimalloc 3, which its crate does not name.
const ALLOW_THP: libmimalloc_sys::mi_option_t = 43;

fn collect(force: bool) {
    // SAFETY: the function may be called at any time; it only touches the allocator's own state.
    unsafe { libmimalloc_sys::mi_collect(force) };
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
    let outcome = smg_io::launch::launch(config, MEMORY, &signals);
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
