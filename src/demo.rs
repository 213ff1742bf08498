//! `smg demo`: this very program as the gateway, in front of simulated engines.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use smg_loadtest::demo::{DemoOptions, GatewayHandle, demo};
use smg_loadtest::process::{Running, free_port};

use smg::cli::DemoArgs;

/// Part of each policy's time that fills the caches and is not measured.
const WARMUP_SHARE: u64 = 4;

/// Runs the demonstration and prints its tables.
pub fn run(args: DemoArgs) -> ExitCode {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return fail(&format!("cannot find this program: {error}")),
    };
    let warmup = Duration::from_secs((args.seconds / WARMUP_SHARE).max(1));
    let mut options = DemoOptions {
        engines: args.engines,
        policies: args.policies.iter().map(|policy| policy.as_str().to_owned()).collect(),
        ..DemoOptions::default()
    };
    options.conversations.warmup = warmup;
    options.conversations.duration =
        Duration::from_secs(args.seconds).saturating_sub(warmup).max(warmup);
    let log = std::env::temp_dir().join(format!("smg-demo-{}.log", std::process::id()));
    let outcome =
        demo(&options, |policy: &str, engines: &[String]| start(&program, policy, engines, &log));
    match outcome {
        Ok(_) => {
            // Left where it is when it cannot be removed; it is in the temporary directory.
            let _ = std::fs::remove_file(&log);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&format!("{error} (the gateway's output is in {})", log.display())),
    }
}

fn start(
    program: &Path,
    policy: &str,
    engines: &[String],
    log: &Path,
) -> Result<GatewayHandle, std::io::Error> {
    let (port, metrics_port) = (free_port()?, free_port()?);
    let mut words = vec![program.to_string_lossy().into_owned(), "launch".to_owned()];
    let flags = [
        ("--host", "127.0.0.1"),
        ("--port", &port.to_string()),
        ("--prometheus-host", "127.0.0.1"),
        ("--prometheus-port", &metrics_port.to_string()),
        ("--policy", policy),
        ("--log-level", "warn"),
        ("--worker-startup-check-interval", "1"),
    ];
    words.extend(flags.iter().flat_map(|(flag, value)| [*flag, value]).map(str::to_owned));
    words.push("--worker-urls".to_owned());
    words.extend_from_slice(engines);
    let process = Running::start(&words, &[], log)?;
    Ok(GatewayHandle::new(format!("http://127.0.0.1:{port}"), process))
}

fn fail(message: &str) -> ExitCode {
    eprintln!("smg demo: {message}");
    ExitCode::FAILURE
}
