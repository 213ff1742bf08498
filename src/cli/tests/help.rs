//! What `--help` shows.

use super::*;

fn help_of(flags: &[&str]) -> String {
    match run(flags) {
        Err(CliError::Usage(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_flag_has_a_help_text_and_a_heading() {
    let command = command();
    for name in ["launch", "demo"] {
        let command = command.find_subcommand(name).unwrap();
        for arg in file::settings(command) {
            let long = arg.get_long().unwrap();
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.len() > 10 && !help.ends_with('.'), "--{long}: {help:?}");
            assert!(name == "demo" || arg.get_help_heading().is_some(), "--{long} has no heading");
        }
    }
}

#[test]
fn the_demo_script_names_the_flags_of_the_demo() {
    // It must answer --help before anything is built.
    let script = include_str!("../../../scripts/demo");
    let command = command();
    let demo = command.find_subcommand("demo").unwrap();
    for arg in file::settings(demo) {
        let long = arg.get_long().unwrap();
        let line = script.lines().find(|line| line.starts_with(&format!("#   --{long} ")));
        let line = line.unwrap_or_else(|| panic!("--{long} is not in scripts/demo"));
        for default in arg.get_default_values() {
            assert!(line.contains(default.to_str().unwrap()), "{line}");
        }
    }
}

#[test]
fn every_flag_with_a_value_shows_its_default() {
    let command = command();
    let launch = command.find_subcommand("launch").unwrap();
    for arg in file::settings(launch) {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let is_switch = arg.is_hide_default_value_set();
        let is_list_of_none =
            ["worker-urls", "model-alias", "ca-cert-paths"].contains(&arg.get_long().unwrap());
        assert!(
            is_switch
                || is_list_of_none
                || !arg.get_default_values().is_empty()
                || help.contains("[default: "),
            "--{}",
            arg.get_long().unwrap()
        );
    }
}

#[test]
fn help_groups_flags_by_subject() {
    for flags in [&["--help"][..], &["launch", "--help"]] {
        let help = help_of(flags);
        let position = |text: &str| help.find(text).unwrap_or_else(|| panic!("no {text}"));
        let order = [
            "Configuration file:",
            "Listening:",
            "--host <IP>",
            "Workers:",
            "--worker-urls <URL>...",
            "Routing:",
            "--policy <POLICY>",
            "[default: cache_aware]",
            "Cache-aware routing:",
            "[alias: --cache-match-threshold]",
            "Health checks:",
            "Retries:",
            "Circuit breaker:",
            "Admission:",
            "Sizes and timeouts:",
            "[default: 536870912]",
            "Access:",
            "Threads and CPUs:",
            "Shutdown and draining:",
            "Metrics:",
            "Logs:",
        ];
        assert!(order.is_sorted_by_key(|text| position(text)), "{help}");
    }
}

#[test]
fn help_names_the_commands() {
    let help = help_of(&["--help"]);
    assert!(help.contains("launch") && help.contains("demo") && help.contains("smg <COMMAND>"));
}

#[test]
fn help_leaves_out_what_is_not_built() {
    let help = help_of(&["launch", "--help"]);
    for (flag, _) in not_built::NOT_BUILT.iter().filter(|(flag, _)| !flag.ends_with('*')) {
        assert!(!help.contains(&format!("{flag} ")), "{flag}");
    }
}
