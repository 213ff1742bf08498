//! Load from an engine's own Prometheus text, for engines without `/v1/loads`.
//!
//! | | vLLM | SGLang (`sglang:` or `sglang_`) |
//! |---|---|---|
//! | KV usage, required | `kv_cache_usage_perc`, else `gpu_cache_usage_perc` | `token_usage` |
//! | running, waiting | `num_requests_running`, `num_requests_waiting` | `num_running_reqs`, `num_queue_reqs` |
//! | throughput | | `gen_throughput` |
//! | hit rate | `gpu_prefix_cache_hit_rate`, else hits / queries since start | `cache_hit_rate` |
//!
//! Counts and throughputs are summed over an engine's series, shares are averaged. Neither engine
//! says how many uncached tokens wait.

use crate::policy::load_report::{LoadReport, RankLoad, clean};

/// Reads the body of an engine's `GET /metrics` as one rank. `None` when it is neither engine's.
pub fn parse_engine_metrics(text: &[u8]) -> Option<LoadReport> {
    let text = std::str::from_utf8(text).ok()?;
    let rank = vllm(text).or_else(|| sglang(text))?;
    Some(LoadReport { ranks: vec![rank] })
}

fn vllm(text: &str) -> Option<RankLoad> {
    let mut usage = [Series::default(); 2];
    let [mut running, mut waiting, mut hit_rate, mut hits, mut queries] = [Series::default(); 5];
    for (name, value) in samples(text) {
        let Some(name) = name.strip_prefix("vllm:") else { continue };
        match name {
            "kv_cache_usage_perc" => usage[0].add(value),
            "gpu_cache_usage_perc" => usage[1].add(value),
            "num_requests_running" => running.add(value),
            "num_requests_waiting" => waiting.add(value),
            "gpu_prefix_cache_hit_rate" => hit_rate.add(value),
            "prefix_cache_hits_total" => hits.add(value),
            "prefix_cache_queries_total" => queries.add(value),
            _ => {}
        }
    }
    let lifetime = (queries.sum > 0.0).then(|| hits.sum / queries.sum);
    Some(RankLoad {
        token_usage: usage[0].mean().or(usage[1].mean())?,
        running_requests: running.sum,
        waiting_requests: waiting.sum,
        total_requests: running.sum + waiting.sum,
        cache_hit_rate: hit_rate.mean().or(lifetime).unwrap_or(0.0),
        ..RankLoad::default()
    })
}

fn sglang(text: &str) -> Option<RankLoad> {
    let [mut usage, mut running, mut waiting, mut throughput] = [Series::default(); 4];
    let [mut hit_rate, mut utilization, mut used, mut capacity] = [Series::default(); 4];
    for (name, value) in samples(text) {
        let name = name.strip_prefix("sglang").and_then(|name| name.strip_prefix([':', '_']));
        match name {
            Some("token_usage") => usage.add(value),
            Some("num_running_reqs") => running.add(value),
            Some("num_queue_reqs") => waiting.add(value),
            Some("gen_throughput") => throughput.add(value),
            Some("cache_hit_rate") => hit_rate.add(value),
            Some("utilization") => utilization.add(value),
            Some("num_used_tokens") => used.add(value),
            Some("max_total_num_tokens") => capacity.add(value),
            _ => {}
        }
    }
    Some(RankLoad {
        token_usage: usage.mean()?,
        running_requests: running.sum,
        waiting_requests: waiting.sum,
        total_requests: running.sum + waiting.sum,
        gen_throughput: throughput.sum,
        cache_hit_rate: hit_rate.mean().unwrap_or(0.0),
        utilization: utilization.mean().unwrap_or(0.0),
        used_tokens: used.sum,
        max_total_tokens: capacity.sum,
        ..RankLoad::default()
    })
}

/// The series of one metric.
#[derive(Debug, Clone, Copy, Default)]
struct Series {
    sum: f64,
    count: u32,
}

impl Series {
    fn add(&mut self, value: f64) {
        self.sum += clean(value);
        self.count += 1;
    }

    fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

/// (metric name, value) of the lines that are samples; others are skipped.
fn samples(text: &str) -> impl Iterator<Item = (&str, f64)> {
    text.lines().filter_map(sample)
}

fn sample(line: &str) -> Option<(&str, f64)> {
    let line = line.trim();
    let name_end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(name_end);
    let rest = match rest.strip_prefix('{') {
        Some(labels) => &labels[labels_end(labels)? + 1..],
        None => rest,
    };
    // A timestamp may follow.
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    (!name.starts_with('#')).then_some((name, value))
}

/// Position of the brace that closes a label set; braces and escaped quotes inside values are not
/// it.
fn labels_end(labels: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    labels.bytes().position(|byte| {
        let ends = byte == b'}' && !quoted;
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            _ => {}
        }
        ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a vLLM 0.32 `/metrics`, as captured after some requests.
    const VLLM: &str = "\
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
python_gc_objects_collected_total{generation=\"0\"} 31620.0
vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 0.0
vllm:num_requests_waiting{engine=\"0\",model_name=\"tiny\"} 0.0
vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"tiny\",reason=\"capacity\"} 0.0
vllm:engine_sleep_state{engine=\"0\",model_name=\"tiny\",sleep_state=\"awake\"} 1.0
vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} 0.0
vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"tiny\"} 5730.0
vllm:prefix_cache_queries_created{engine=\"0\",model_name=\"tiny\"} 1.7959726719102612e+09
vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"tiny\"} 800.0
";

    /// Lines of an SGLang 0.5.23 `/metrics`.
    const SGLANG: &str = "\
# TYPE sglang:token_usage gauge
sglang:max_total_num_tokens{engine_type=\"unified\",model_name=\"tiny\",tp_rank=\"0\"} 4096.0
sglang:num_running_reqs{engine_type=\"unified\",model_name=\"tiny\",tp_rank=\"0\"} 0.0
sglang:num_queue_reqs{engine_type=\"unified\",model_name=\"tiny\",tp_rank=\"0\"} 0.0
sglang:gen_throughput{engine_type=\"unified\",model_name=\"tiny\",tp_rank=\"0\"} 0.0
sglang:token_usage{engine_type=\"unified\",model_name=\"tiny\",tp_rank=\"0\"} 0.0
sglang:full_token_usage{engine_type=\"unified\",model_name=\"tiny\",tp_rank=\"0\"} 0.0
sglang:num_used_tokens{engine_type=\"unified\",model_name=\"tiny\",tp_rank=\"0\"} 0.0
sglang:fwd_occupancy{engine_type=\"unified\",model_name=\"tiny\",tp_rank=\"0\"} NaN
";

    fn only_rank(text: &str) -> RankLoad {
        let report = parse_engine_metrics(text.as_bytes()).unwrap();
        assert_eq!(report.ranks.len(), 1);
        report.ranks[0]
    }

    #[test]
    fn a_captured_vllm_page() {
        let rank = only_rank(VLLM);
        assert_eq!(rank, RankLoad { cache_hit_rate: 800.0 / 5730.0, ..RankLoad::default() });
    }

    #[test]
    fn a_captured_sglang_page() {
        let rank = only_rank(SGLANG);
        assert_eq!(rank, RankLoad { max_total_tokens: 4096.0, ..RankLoad::default() });
    }

    #[test]
    fn vllm_counts_add_up_and_usage_is_averaged_over_engines() {
        let rank = only_rank(
            "vllm:gpu_cache_usage_perc{engine=\"0\"} 0.9\n\
             vllm:gpu_cache_usage_perc{engine=\"1\"} 0.1\n\
             vllm:num_requests_running{engine=\"0\"} 3\n\
             vllm:num_requests_running{engine=\"1\"} 4\n\
             vllm:num_requests_waiting{engine=\"0\"} 40 1795972671910\n\
             vllm:num_requests_waiting{engine=\"1\"} 2e1\n\
             vllm:gpu_prefix_cache_hit_rate 0.25\n\
             vllm:prefix_cache_queries_total 10\n",
        );
        assert_eq!(rank.token_usage, 0.5);
        assert_eq!((rank.running_requests, rank.waiting_requests), (7.0, 60.0));
        assert_eq!((rank.total_requests, rank.cache_hit_rate), (67.0, 0.25));
    }

    #[test]
    fn the_newer_usage_name_wins() {
        let rank = only_rank("vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.2\n");
        assert_eq!(rank.token_usage, 0.2);
    }

    #[test]
    fn sglang_under_either_prefix() {
        for prefix in ["sglang:", "sglang_"] {
            let page = "P_token_usage 0.5\nP_num_running_reqs 1\nP_num_queue_reqs 40\n\
                        P_gen_throughput 1000\nP_cache_hit_rate 0.3\nP_utilization 0.4\n"
                .replace("P_", prefix);
            let rank = only_rank(&page);
            assert_eq!((rank.token_usage, rank.waiting_requests), (0.5, 40.0));
            assert_eq!((rank.gen_throughput, rank.cache_hit_rate), (1000.0, 0.3));
            assert_eq!((rank.running_requests, rank.utilization), (1.0, 0.4));
        }
    }

    #[test]
    fn a_page_without_usage_is_nobodys() {
        assert_eq!(parse_engine_metrics(b"vllm:num_requests_waiting 3\n"), None);
        assert_eq!(parse_engine_metrics(b"llamacpp:requests_processing 0\n"), None);
        assert_eq!(parse_engine_metrics(b"# sglang:token_usage 0.5\n"), None);
        assert_eq!(parse_engine_metrics(b""), None);
        assert_eq!(parse_engine_metrics(b"sglang:token_usage \xff 0.5\n"), None);
    }

    #[test]
    fn lines_that_are_no_samples_and_numbers_that_are_none() {
        let rank = only_rank(
            "sglang:token_usage{a=\"x} 0.9 \\\"{\",b=\"y\"} 0.5\n\
             sglang:gen_throughput NaN\nsglang:cache_hit_rate -1\nsglang:utilization +Inf\n\
             sglang:num_queue_reqs\nsglang:num_queue_reqs{open=\"\n sglang:num_running_reqs 2\n",
        );
        assert_eq!((rank.token_usage, rank.running_requests), (0.5, 2.0));
        assert_eq!((rank.gen_throughput, rank.cache_hit_rate), (0.0, 0.0));
        assert_eq!((rank.utilization, rank.waiting_requests), (1e15, 0.0));
    }
}
