//! What is printed of a comparison, and the cells its page has in common with that.

use std::fmt;

use super::report::{NGINX, SMG};
use super::routing::{RoutingArm, RoutingResult};
use super::{ArmResult, CompareReport, ScenarioResult, Verdict};

/// A column of a table of arms.
pub(super) struct Column<T> {
    /// What the number is called in JSON.
    pub key: &'static str,
    /// Over the column, narrow enough for it.
    pub heading: &'static str,
    pub width: usize,
    pub cell: fn(&T) -> String,
}

/// The columns of the routing load.
pub(super) const ROUTING: [Column<RoutingArm>; 10] = [
    Column { key: "hit_share", heading: "hit %", width: 7, cell: |arm| percent(arm.hit_share) },
    Column {
        key: "hit_share_runs",
        heading: "range",
        width: 12,
        cell: |arm| range(arm.hit_share_runs.iter().copied(), percent),
    },
    Column {
        key: "max_over_mean",
        heading: "max/mean",
        width: 10,
        cell: |arm| format!("{:.2}", arm.max_over_mean),
    },
    Column {
        key: "ttft_ms.p50",
        heading: "TTFT p50",
        width: 10,
        cell: |arm| tenths(arm.ttft_ms.p50),
    },
    Column { key: "ttft_ms.p99", heading: "p99 ms", width: 9, cell: |arm| tenths(arm.ttft_ms.p99) },
    Column {
        key: "latency_ms.p50",
        heading: "whole p50",
        width: 11,
        cell: |arm| tenths(arm.latency_ms.p50),
    },
    Column {
        key: "latency_ms.p99",
        heading: "p99 ms",
        width: 9,
        cell: |arm| tenths(arm.latency_ms.p99),
    },
    Column { key: "cpu_us", heading: "us/req", width: 9, cell: |arm| or_dash(arm.cpu_us, 0) },
    Column {
        key: "resident_mib",
        heading: "MiB",
        width: 7,
        cell: |arm| or_dash(arm.resident_mib, 1),
    },
    Column { key: "failed", heading: "failed", width: 8, cell: |arm| arm.failed.to_string() },
];

/// The columns of a cost load, but for those that depend on the scenario.
pub(super) fn cost_cells(result: &ScenarioResult, arm: &ArmResult) -> [(&'static str, String); 9] {
    let stream = result.scenario.is_stream();
    let pick = |of_requests: (&'static str, f64), of_events: (&'static str, f64)| {
        if stream { of_events } else { of_requests }
    };
    let (rate_key, rate) =
        pick(("requests_per_s", arm.requests_per_s), ("events_per_s", arm.events_per_s));
    let (p50_key, p50) =
        pick(("p50_ms", arm.p50_ms), ("event_delay_p50_ms", arm.event_delay_p50_ms));
    let (p99_key, p99) =
        pick(("p99_ms", arm.p99_ms), ("event_delay_p99_ms", arm.event_delay_p99_ms));
    let runs = arm.cpu_us_runs.iter().copied().flatten();
    [
        ("arm", arm.arm.clone()),
        (rate_key, format!("{rate:.0}")),
        (p50_key, format!("{p50:.3}")),
        (p99_key, format!("{p99:.3}")),
        ("cpu_us", or_dash(arm.cpu_us, 2)),
        ("cpu_us_runs", range(runs, |value| format!("{value:.1}"))),
        ("x_nginx", or_dash(result.cpu_ratio(&arm.arm, NGINX), 2)),
        ("x_smg", or_dash(result.cpu_ratio(&arm.arm, SMG), 2)),
        ("failed", arm.failed.to_string()),
    ]
}

/// What stands over the cells of [`cost_cells`].
pub(super) fn cost_headings(stream: bool) -> [&'static str; 9] {
    let (rate, cpu) = if stream { ("events/s", "us/event") } else { ("req/s", "us/req") };
    let (p50, p99) = if stream { ("delay p50", "delay p99") } else { ("p50 ms", "p99 ms") };
    ["", rate, p50, p99, cpu, "range", "x nginx", "x smg", "failed"]
}

fn percent(share: f64) -> String {
    tenths(100.0 * share)
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

fn or_dash(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.decimals$}"))
}

/// The least and the greatest value; a dash without any.
fn range(values: impl Iterator<Item = f64> + Clone, write: fn(f64) -> String) -> String {
    let low = values.clone().reduce(f64::min);
    let high = values.reduce(f64::max);
    low.zip(high)
        .map_or_else(|| "-".into(), |(low, high)| format!("{}..{}", write(low), write(high)))
}

impl fmt::Display for CompareReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "medians of {} rounds", self.runs)?;
        if !self.scenarios.is_empty() {
            write!(f, " of {} s", self.seconds)?;
        }
        writeln!(
            f,
            "; gateway on CPU {:?}, engines and client on CPU {:?}",
            self.gateway_cpus, self.load_cpus
        )?;
        for result in &self.scenarios {
            writeln!(f)?;
            result.fmt(f)?;
        }
        if !self.resident_mib.is_empty() {
            writeln!(f, "\nresident memory at start")?;
        }
        for (arm, mib) in &self.resident_mib {
            if let Some(mib) = mib {
                writeln!(f, "{arm:<12}{mib:>8.1} MiB")?;
            }
        }
        if let Some(routing) = &self.routing {
            writeln!(f)?;
            routing.fmt(f)?;
        }
        for missing in &self.missing {
            writeln!(f, "\nwithout {}: {}", missing.arm, missing.reason)?;
        }
        if !self.verdicts.is_empty() {
            writeln!(f, "\nbars")?;
        }
        for verdict in &self.verdicts {
            let Verdict { bar, measured, limit, holds } = verdict;
            let word = if *holds { "holds" } else { "MISSED" };
            writeln!(f, "{bar:<44}{measured:>8.2}   limit {limit:>6.2}   {word}")?;
        }
        writeln!(f, "\nin short")?;
        self.summary.iter().try_for_each(|sentence| writeln!(f, "- {sentence}"))
    }
}

impl fmt::Display for ScenarioResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.scenario, self.scenario.about())?;
        write_cost(f, cost_headings(self.scenario.is_stream()))?;
        for arm in &self.arms {
            let cells = cost_cells(self, arm);
            write_cost(f, cells.each_ref().map(|(_, cell)| &**cell))?;
        }
        Ok(())
    }
}

fn write_cost(f: &mut fmt::Formatter<'_>, cells: [&str; 9]) -> fmt::Result {
    let [arm, rate, p50, p99, cpu, range, x_nginx, x_smg, failed] = cells;
    writeln!(
        f,
        "{arm:<12}{rate:>10}{p50:>11}{p99:>11}{cpu:>12}{range:>16}{x_nginx:>9}{x_smg:>9}{failed:>8}"
    )
}

impl fmt::Display for RoutingResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "routing: {}", self.workload)?;
        let arms = self.arms.iter().map(|arm| arm.arm.len());
        let width = arms.max().unwrap_or(0) + 1;
        write!(f, "{:<width$}", "")?;
        for column in &ROUTING {
            write!(f, "{:>1$}", column.heading, column.width)?;
        }
        writeln!(f)?;
        for arm in &self.arms {
            write!(f, "{:<width$}", arm.arm)?;
            for column in &ROUTING {
                write!(f, "{:>1$}", (column.cell)(arm), column.width)?;
            }
            writeln!(f)?;
        }
        writeln!(
            f,
            "hit: prompt tokens found in the engines' caches; max/mean: requests per engine; whole: \
             whole answers;\nlatencies are of the answers of all rounds, the rest are medians of rounds"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_missing_values() {
        assert_eq!(range([0.5, 0.25, 0.75].into_iter(), percent), "25.0..75.0");
        assert_eq!(range(std::iter::empty(), percent), "-");
        assert_eq!([or_dash(None, 1), or_dash(Some(1.25), 1)], ["-", "1.2"]);
    }
}
