//! Where and when a comparison was run.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The machine of a comparison, as the kernel describes it.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// When the comparison began, UTC.
    pub date: String,
    pub cpu: String,
    pub cpus: usize,
    pub kernel: String,
    /// Tasks that ran or wanted to, over the minute before the comparison. A quiet machine has less
    /// than 0.2.
    pub load_before: f64,
}

impl Machine {
    #[expect(clippy::disallowed_methods, reason = "a report says when it was made")]
    pub(super) fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load = read("/proc/loadavg");
        let first = load.split_whitespace().next().and_then(|word| word.parse().ok());
        Self {
            date: date_of(SystemTime::now()),
            cpu: model.map_or_else(|| std::env::consts::ARCH.into(), |(_, name)| name.to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            load_before: first.unwrap_or(0.0),
        }
    }
}

/// `2026-11-30 07:05 UTC`.
fn date_of(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (mut days, minutes) = (seconds / 86_400, seconds / 60 % 1_440);
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute) = (minutes / 60, minutes % 60);
    format!("{year}-{:02}-{:02} {hour:02}:{minute:02} UTC", month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_798_761_599, "2026-12-31 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date_of(UNIX_EPOCH + Duration::from_secs(seconds)), date);
        }
    }
}
