//! The table.

use std::fmt;

use serde::Serialize;

use super::ArmReport;

/// What was simulated, in words, and a row per policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub workload: String,
    pub fleet: String,
    pub gateways: String,
    pub seed: u64,
    /// Of times to first token, for goodput.
    pub slo_ms: f64,
    pub arms: Vec<ArmReport>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "workload   {}", self.workload)?;
        writeln!(f, "fleet      {}", self.fleet)?;
        writeln!(f, "gateways   {}", self.gateways)?;
        writeln!(f, "seed       {}", self.seed)?;
        writeln!(f)?;
        let width = self.arms.iter().map(|arm| arm.policy.len()).max().unwrap_or(0).max(6);
        writeln!(
            f,
            "{:<width$}  {:>9} {:>7} {:>7} {:>9} {:>8} {:>9} {:>9} {:>9} {:>6} {:>8}",
            "policy",
            "requests",
            "failed",
            "hit %",
            "oracle %",
            "TTFT p50",
            "p99 ms",
            "max/mean",
            "busy m/m",
            "busy %",
            "good %"
        )?;
        for arm in &self.arms {
            let ratio = |ratio: f64| match ratio {
                0.0 => "-".to_owned(),
                ratio => format!("{ratio:.2}"),
            };
            writeln!(
                f,
                "{:<width$}  {:>9} {:>7} {:>7.2} {:>9.1} {:>8.1} {:>9.0} {:>9} {:>9} {:>6.1} {:>8.1}",
                arm.policy,
                arm.requests,
                arm.failed,
                100.0 * arm.hit_share,
                100.0 * arm.oracle_share,
                arm.ttft_ms.p50,
                arm.ttft_ms.p99,
                ratio(arm.requests_max_over_mean),
                ratio(arm.busy_max_over_mean),
                100.0 * arm.utilization,
                100.0 * arm.goodput_share,
            )?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "hit: prompt tokens found in engine caches; oracle: of those one cache without limits \
             would have;\nmax/mean: requests per engine; busy: time computing; good: first token \
             within {} ms",
            self.slo_ms
        )
    }
}
