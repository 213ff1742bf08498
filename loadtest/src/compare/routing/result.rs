//! What the rounds of the routing load come to.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::super::report::median;
use super::Workload;
use super::measure::RoutingSample;
use crate::load::Quantiles;

/// The routing load and what each arm made of it.
#[derive(Debug, Clone, Serialize)]
pub struct RoutingResult {
    pub workload: Workload,
    pub arms: Vec<RoutingArm>,
}

/// One arm. Latencies are of the answers of all rounds together, everything else is the median of
/// the rounds; `_runs` has them one by one.
#[derive(Debug, Clone, Serialize)]
pub struct RoutingArm {
    pub arm: String,
    pub rounds: usize,
    /// Answered and failed requests of all rounds.
    pub answered: u64,
    pub failed: u64,
    pub errors: BTreeMap<&'static str, u64>,
    pub requests_per_s: f64,
    /// Prompt tokens found in the engines' caches, as they counted them; 0 to 1.
    pub hit_share: f64,
    pub hit_share_runs: Vec<f64>,
    /// Requests at the busiest engine as a multiple of the mean.
    pub max_over_mean: f64,
    pub max_over_mean_runs: Vec<f64>,
    /// Requests per engine, the busiest first, in the round that is nearest to the median.
    pub engine_requests: Vec<u64>,
    /// From when a request was due to the first byte of its answer, and to the last.
    pub ttft_ms: Quantiles,
    pub latency_ms: Quantiles,
    /// The gateway's CPU time per request in microseconds, health checks and the like included.
    pub cpu_us: Option<f64>,
    pub cpu_us_runs: Vec<Option<f64>>,
    /// The gateway's resident memory at the end of a run.
    pub resident_mib: Option<f64>,
    /// Points of the distributions: milliseconds, and the share of answers that took no longer.
    pub ttft_cdf: Vec<(f64, f64)>,
    pub latency_cdf: Vec<(f64, f64)>,
    /// Hit share in each second since the start with empty caches, over all rounds.
    pub hit_share_by_second: Vec<Option<f64>>,
}

impl RoutingArm {
    /// Of at least one sample.
    pub(super) fn of(arm: &str, samples: &[RoutingSample]) -> Self {
        let hit_share_runs: Vec<_> = samples
            .iter()
            .map(|s| share(s.cached_tokens, s.prompt_tokens).unwrap_or(0.0))
            .collect();
        let max_over_mean_runs: Vec<_> =
            samples.iter().map(|s| max_over_mean(&s.engine_requests)).collect();
        let cpu_us_runs: Vec<_> = samples.iter().map(|s| s.cpu_us).collect();
        let of = |value: fn(&RoutingSample) -> Option<f64>| {
            median(samples.iter().filter_map(value).collect())
        };
        let max_over_mean = median(max_over_mean_runs.clone()).unwrap_or(0.0);
        let mut errors = BTreeMap::new();
        for (class, count) in samples.iter().flat_map(|s| &s.load.errors) {
            *errors.entry(*class).or_default() += count;
        }
        let ttft = together(samples, |s| &s.first_byte);
        let latency = together(samples, |s| &s.latency);
        Self {
            arm: arm.into(),
            rounds: samples.len(),
            answered: samples.iter().map(|s| s.load.succeeded).sum(),
            failed: samples.iter().map(|s| s.load.failed).sum(),
            errors,
            requests_per_s: of(|s| Some(s.load.requests_per_s)).unwrap_or(0.0),
            hit_share: median(hit_share_runs.clone()).unwrap_or(0.0),
            hit_share_runs,
            max_over_mean,
            engine_requests: nearest(samples, &max_over_mean_runs, max_over_mean),
            max_over_mean_runs,
            ttft_ms: ttft.as_ref().map(Quantiles::of).unwrap_or_default(),
            latency_ms: latency.as_ref().map(Quantiles::of).unwrap_or_default(),
            cpu_us: median(cpu_us_runs.iter().copied().flatten().collect()),
            cpu_us_runs,
            resident_mib: of(|s| s.resident_mib),
            ttft_cdf: ttft.as_ref().map(cdf).unwrap_or_default(),
            latency_cdf: latency.as_ref().map(cdf).unwrap_or_default(),
            hit_share_by_second: by_second(samples),
        }
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn max_over_mean(counts: &[u64]) -> f64 {
    let total: u64 = counts.iter().sum();
    let most = counts.iter().copied().max().unwrap_or(0);
    share(most * counts.len() as u64, total).unwrap_or(0.0)
}

/// The engines' counts, sorted down, of the run whose value is nearest to the median.
fn nearest(samples: &[RoutingSample], values: &[f64], median: f64) -> Vec<u64> {
    let distance = |value: &f64| (value - median).abs();
    let runs = samples.iter().zip(values);
    let run = runs.min_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)));
    let mut counts = run.map(|(sample, _)| sample.engine_requests.clone()).unwrap_or_default();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

/// The answers of all runs in one histogram; none if there were none.
fn together(
    samples: &[RoutingSample],
    pick: fn(&RoutingSample) -> &Histogram<u64>,
) -> Option<Histogram<u64>> {
    let mut all = pick(samples.first()?).clone();
    for sample in &samples[1..] {
        // All have the same bounds, so this adds without loss.
        let _ = all.add(pick(sample));
    }
    (!all.is_empty()).then_some(all)
}

/// Every percent, and some more near the end.
fn cdf(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let percents = (0..100).map(|percent| f64::from(percent) / 100.0);
    percents
        .chain([0.995, 0.999, 1.0])
        .map(|share| (histogram.value_at_quantile(share) as f64 / 1e6, share))
        .collect()
}

fn by_second(samples: &[RoutingSample]) -> Vec<Option<f64>> {
    let seconds = samples.iter().map(|sample| sample.seconds.len()).max().unwrap_or(0);
    (0..seconds)
        .map(|second| {
            let counts = samples.iter().filter_map(|sample| sample.seconds.get(second));
            let (prompt, cached) =
                counts.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
            share(cached, prompt)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::record::histogram;

    fn sample(ttft_ms: &[u64], engines: &[u64], cached: u64, cpu_us: f64) -> RoutingSample {
        let mut first_byte = histogram();
        ttft_ms.iter().for_each(|ms| first_byte.saturating_record(ms * 1_000_000));
        RoutingSample {
            load: crate::load::Report::empty(),
            latency: first_byte.clone(),
            first_byte,
            prompt_tokens: 1_000,
            cached_tokens: cached,
            engine_requests: engines.to_vec(),
            cpu_us: Some(cpu_us),
            resident_mib: None,
            seconds: vec![(100, 0), (300, cached / 10)],
        }
    }

    #[test]
    fn rounds_are_pooled_for_latencies_and_their_median_taken_for_the_rest() {
        let arm = RoutingArm::of(
            "x",
            &[
                sample(&[10, 20], &[1, 3], 900, 50.0),
                sample(&[30], &[2, 2], 500, 10.0),
                sample(&[40, 1_000], &[0, 4], 600, 20.0),
            ],
        );
        assert_eq!((arm.hit_share, arm.cpu_us, arm.rounds), (0.6, Some(20.0), 3));
        // 3 of 4, 2 of 4 and 4 of 4 requests at the busiest of two engines.
        assert_eq!(arm.max_over_mean_runs, [1.5, 1.0, 2.0]);
        assert_eq!((arm.max_over_mean, &arm.engine_requests[..]), (1.5, &[3, 1][..]));
        assert_eq!(arm.ttft_ms.count, 5);
        assert!((arm.ttft_ms.p50 - 30.0).abs() < 0.1, "{:?}", arm.ttft_ms);
        assert_eq!(arm.ttft_cdf.len(), 103);
        let (last_ms, last_share) = *arm.ttft_cdf.last().unwrap();
        assert!((last_ms - 1_000.0).abs() < 1.0 && last_share == 1.0);
        assert!(arm.ttft_cdf.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        // 90 + 50 + 60 of 900 tokens.
        assert_eq!(arm.hit_share_by_second, [Some(0.0), Some(200.0 / 900.0)]);
    }

    #[test]
    fn nothing_answered_is_no_panic() {
        let arm = RoutingArm::of("x", &[sample(&[], &[0, 0], 0, 0.0)]);
        assert_eq!((arm.ttft_ms.count, arm.max_over_mean), (0, 0.0));
        assert!(arm.ttft_cdf.is_empty());
    }
}
