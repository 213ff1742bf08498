//! What the kernel knows of this process, under the names of Prometheus' client libraries. What it does
//! not say is left out.

use std::fs;

use super::{Family, Text};
use crate::runtime::descriptors;

/// Writes `process_*`.
pub(super) fn write(text: &mut Text) {
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let stat = stat.as_deref().and_then(|stat| Stat::parse(stat, tick()?, page_bytes()?));
    let booted = || boot_secs(&fs::read_to_string("/proc/stat").ok()?);
    let values = [
        (
            "process_cpu_seconds_total",
            Family::Counter,
            "CPU time of all threads, user and system.",
            stat.as_ref().map(|stat| stat.cpu_secs),
        ),
        (
            "process_resident_memory_bytes",
            Family::Gauge,
            "Resident memory.",
            stat.as_ref().map(|stat| stat.resident_bytes),
        ),
        (
            "process_start_time_seconds",
            Family::Gauge,
            "Start of the process, in seconds since the epoch.",
            stat.as_ref().and_then(|stat| Some(booted()? + stat.started_secs)),
        ),
        ("process_open_fds", Family::Gauge, "Open file descriptors.", open_descriptors()),
        (
            "process_max_fds",
            Family::Gauge,
            "Limit of open file descriptors.",
            descriptors::limit().map(|limit| limit as f64),
        ),
    ];
    for (name, kind, help, value) in values {
        if let Some(value) = value {
            text.family(name, kind, help);
            text.sample(name, &[], value);
        }
    }
}

/// Fields of `/proc/self/stat` (proc_pid_stat(5)).
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_secs: f64,
    resident_bytes: f64,
    /// After the machine's boot.
    started_secs: f64,
}

impl Stat {
    fn parse(stat: &str, tick_secs: f64, page_bytes: f64) -> Option<Self> {
        // The second field is the name in parentheses, which may hold anything; the third follows it.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_secs: (field(14)? + field(15)?) * tick_secs,
            started_secs: field(22)? * tick_secs,
            resident_bytes: field(24)? * page_bytes,
        })
    }
}

/// When the machine booted, in seconds since the epoch, from `/proc/stat`.
fn boot_secs(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn open_descriptors() -> Option<f64> {
    // Since Linux 6.2 it is the size of the directory; to list 100,000 takes a tenth of a second.
    let known = fs::metadata("/proc/self/fd").ok()?.len();
    if known > 0 {
        return Some(known as f64);
    }
    // One of them is the directory that is being read.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

/// Seconds per tick of the kernel's clock.
fn tick() -> Option<f64> {
    system(libc::_SC_CLK_TCK).map(|ticks| 1.0 / ticks)
}

fn page_bytes() -> Option<f64> {
    system(libc::_SC_PAGESIZE)
}

fn system(name: libc::c_int) -> Option<f64> {
    // SAFETY: takes a number and touches no memory of ours.
    let value = unsafe { libc::sysconf(name) };
    (value > 0).then_some(value as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_behind_the_name() {
        let stat =
            "7 (a) b (c)) S 1 7 7 0 -1 4194560 900 0 0 0 250 50 0 0 20 0 5 0 1000 1048576 300 1844";
        let parsed = Stat::parse(stat, 0.01, 4096.0);
        let expected = Stat { cpu_secs: 3.0, resident_bytes: 1_228_800.0, started_secs: 10.0 };
        assert_eq!(parsed, Some(expected));
        assert_eq!(Stat::parse("7 (a) S 1 7", 0.01, 4096.0), None);
        assert_eq!(Stat::parse("", 0.01, 4096.0), None);
    }

    #[test]
    fn the_boot_is_a_line_of_its_own() {
        assert_eq!(boot_secs("cpu 1 2 3\nbtime 1700000000\nprocesses 9\n"), Some(1.7e9));
        assert_eq!(boot_secs("cpu 1 2 3\n"), None);
    }

    #[test]
    fn this_process_has_all_of_them() {
        let mut text = Text::new(false);
        write(&mut text);
        let page = String::from_utf8(text.finish()).expect("text");
        let value = |name: &str| -> f64 {
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.parse().ok()).expect(name)
        };
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_start_time_seconds") > 1.7e9);
        let open = value("process_open_fds");
        assert!((3.0..value("process_max_fds")).contains(&open), "{open}");
    }
}
