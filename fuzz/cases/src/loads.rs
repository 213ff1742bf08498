//! What workers say about their load: `/v1/loads` against `serde_json`, Prometheus text against the
//! grammar of the exposition format.

use arbitrary::{Result, Unstructured};
use serde_json::Value;
use smg_core::policy::load_report::{
    LoadReport, MAX_RANKS, OverloadThresholds, RankLoad, parse_engine_metrics, parse_loads,
};

/// `data` is an answer, and also the choices that make a page of metrics.
pub fn run(data: &[u8]) {
    check_loads(data);
    check_metrics(data);
    let mut page = String::new();
    // Where the choices end the first of each is taken, so there is always a page.
    let _ = write_page(&mut Unstructured::new(data), &mut page);
    check_metrics(page.as_bytes());
}

fn check_loads(body: &[u8]) {
    let found = parse_loads(&mut body.to_vec());
    if let Some(report) = &found {
        assert_believable(report);
        assert!(report.ranks.len() <= MAX_RANKS);
    }
    match (serde_json::from_slice::<Value>(body), found) {
        (Ok(value), Some(found)) => {
            let expected = report_of(&value).expect("not of the schema");
            assert_eq!(found.ranks.len(), expected.ranks.len());
            for (found, expected) in found.ranks.iter().zip(&expected.ranks) {
                assert_close(found, expected);
            }
        }
        (Ok(value), None) => {
            // The SIMD parser takes no integers beyond 64 bits.
            let digits = body.split(|byte| !byte.is_ascii_digit());
            let is_large = digits.map(<[u8]>::len).max() >= Some(19);
            assert!(report_of(&value).is_none() || is_large, "of the schema");
        }
        (Err(_), Some(_)) => {
            // Deeper than serde_json reads, or of numbers it cannot hold; JSON all the same.
            assert!(serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok());
        }
        (Err(_), None) => {}
    }
}

fn report_of(value: &Value) -> Option<LoadReport> {
    let loads = value.as_object()?.get("loads")?.as_array()?;
    let ranks = loads.iter().take(MAX_RANKS).enumerate().map(|(index, rank)| {
        let rank = rank.as_object()?;
        let number = |name: &str| rank.get(name).and_then(Value::as_f64).map(clean);
        let either = |name: &str| {
            let nested = || rank.get("disaggregation")?.as_object()?.get(name)?.as_f64();
            number(name).or_else(|| nested().map(clean))
        };
        let or_zero = |name: &str| number(name).unwrap_or(0.0);
        Some(RankLoad {
            dp_rank: number("dp_rank").map_or(index as u32, |rank| rank as u32),
            running_requests: or_zero("num_running_reqs"),
            waiting_requests: or_zero("num_waiting_reqs"),
            waiting_uncached_tokens: or_zero("num_waiting_uncached_tokens"),
            total_requests: or_zero("num_total_reqs"),
            used_tokens: or_zero("num_used_tokens"),
            max_total_tokens: or_zero("max_total_num_tokens"),
            token_usage: or_zero("token_usage"),
            gen_throughput: or_zero("gen_throughput"),
            cache_hit_rate: or_zero("cache_hit_rate"),
            utilization: or_zero("utilization"),
            max_running_requests: or_zero("max_running_requests"),
            kv_transfer_latency_ms: either("kv_transfer_latency_ms"),
            kv_transfer_speed_gb_s: either("kv_transfer_speed_gb_s"),
            prefill_queue_requests: number("prefill_queue_reqs"),
            decode_queue_requests: number("decode_queue_reqs"),
        })
    });
    Some(LoadReport { ranks: ranks.collect::<Option<_>>()? })
}

/// What no engine means is 0, and nothing is above 10¹⁵.
fn clean(number: f64) -> f64 {
    if number > 0.0 { number.min(1e15) } else { 0.0 }
}

fn check_metrics(page: &[u8]) {
    let found = parse_engine_metrics(page);
    if let Some(report) = &found {
        assert_believable(report);
        assert_eq!(report.ranks.len(), 1);
    }
    let text = std::str::from_utf8(page).ok();
    assert!(text.is_some() || found.is_none());
    if let Some(samples) = text.and_then(samples) {
        let expected = rank_of(&samples);
        match (found.as_ref().map(|report| &report.ranks[0]), &expected) {
            (Some(found), Some(expected)) => assert_close(found, expected),
            (None, None) => {}
            (found, _) => panic!("{found:?} is not {expected:?}"),
        }
    }
}

/// The load in samples, by the table of the contract.
fn rank_of(samples: &[(&str, f64)]) -> Option<RankLoad> {
    let of = |name: &str| -> Vec<f64> {
        let named = samples.iter().filter(|(other, _)| *other == name);
        named.map(|(_, value)| clean(*value)).collect()
    };
    let sum = |name: &str| of(name).iter().sum::<f64>();
    let mean = |name: &str| {
        let values = of(name);
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let vllm = mean("vllm:kv_cache_usage_perc").or_else(|| mean("vllm:gpu_cache_usage_perc"));
    if let Some(token_usage) = vllm {
        let queries = sum("vllm:prefix_cache_queries_total");
        let lifetime = (queries > 0.0).then(|| sum("vllm:prefix_cache_hits_total") / queries);
        let running_requests = sum("vllm:num_requests_running");
        let waiting_requests = sum("vllm:num_requests_waiting");
        return Some(RankLoad {
            token_usage,
            running_requests,
            waiting_requests,
            total_requests: running_requests + waiting_requests,
            cache_hit_rate: mean("vllm:gpu_prefix_cache_hit_rate").or(lifetime).unwrap_or(0.0),
            ..RankLoad::default()
        });
    }
    // Both prefixes are one engine's.
    let samples: Vec<(&str, f64)> = samples
        .iter()
        .filter_map(|(name, value)| {
            let name = name.strip_prefix("sglang:").or_else(|| name.strip_prefix("sglang_"))?;
            Some((name, *value))
        })
        .collect();
    let of = |name: &str| -> Vec<f64> {
        let named = samples.iter().filter(|(other, _)| *other == name);
        named.map(|(_, value)| clean(*value)).collect()
    };
    let sum = |name: &str| of(name).iter().sum::<f64>();
    let mean = |name: &str| {
        let values = of(name);
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    Some(RankLoad {
        token_usage: mean("token_usage")?,
        running_requests: sum("num_running_reqs"),
        waiting_requests: sum("num_queue_reqs"),
        total_requests: sum("num_running_reqs") + sum("num_queue_reqs"),
        gen_throughput: sum("gen_throughput"),
        cache_hit_rate: mean("cache_hit_rate").unwrap_or(0.0),
        utilization: mean("utilization").unwrap_or(0.0),
        used_tokens: sum("num_used_tokens"),
        max_total_tokens: sum("max_total_num_tokens"),
        ..RankLoad::default()
    })
}

/// The samples of a page in the exposition format; `None` if a line is not of it.
///
/// ```text
/// sample = name [ "{" [ label *( "," label ) [ "," ] ] "}" ] 1*SP value [ 1*SP timestamp ]
/// label  = name "=" DQUOTE *( character / "\\" / "\" DQUOTE / "\n" ) DQUOTE
/// ```
fn samples(page: &str) -> Option<Vec<(&str, f64)>> {
    let mut samples = Vec::new();
    for line in page.split('\n').filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let name_end = line.find(|c: char| !is_name_char(c)).filter(|&end| end > 0)?;
        let (name, mut rest) = line.split_at(name_end);
        if let Some(labels) = rest.strip_prefix('{') {
            rest = after_labels(labels)?;
        }
        let mut parts = rest.strip_prefix(' ')?.split(' ').filter(|part| !part.is_empty());
        let value = number(parts.next()?)?;
        let timestamp = parts.next().is_none_or(|text| text.parse::<i64>().is_ok());
        if !timestamp || parts.next().is_some() || rest.contains(|c: char| c.is_control()) {
            return None;
        }
        samples.push((name, value));
    }
    Some(samples)
}

fn after_labels(mut rest: &str) -> Option<&str> {
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return Some(rest);
        }
        let name_end = rest.find('=')?;
        if name_end == 0 || !rest[..name_end].chars().all(is_name_char) {
            return None;
        }
        rest = rest[name_end + 1..].strip_prefix('"')?;
        loop {
            let mut chars = rest.chars();
            match chars.next()? {
                '"' => break,
                '\\' if !matches!(chars.next()?, '\\' | '"' | 'n') => return None,
                _ => {}
            }
            rest = chars.as_str();
        }
        rest = &rest[1..];
        rest = match rest.strip_prefix(',') {
            Some(rest) => rest,
            None if rest.starts_with('}') => rest,
            None => return None,
        };
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// A decimal number, `NaN` or an infinity.
fn number(text: &str) -> Option<f64> {
    let is_decimal = text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+')
        && text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    let is_other = matches!(text, "NaN" | "+Inf" | "-Inf");
    if is_decimal || is_other { text.parse().ok() } else { None }
}

fn assert_believable(report: &LoadReport) {
    let sums = [
        report.waiting_uncached_tokens(),
        report.throughput(),
        report.used_tokens(),
        report.kv_usage(),
    ];
    assert!(sums.iter().all(|sum| sum.is_finite() && *sum >= 0.0), "{report:?}");
    let thresholds =
        OverloadThresholds { waiting_requests: Some(u32::MAX), token_usage: Some(f64::MAX) };
    let _ = thresholds.verdict(report);
}

/// Equal, but that two readers may round a number of many digits to neighbours.
fn assert_close(found: &RankLoad, expected: &RankLoad) {
    let numbers = |rank: &RankLoad| {
        [
            Some(rank.running_requests),
            Some(rank.waiting_requests),
            Some(rank.waiting_uncached_tokens),
            Some(rank.total_requests),
            Some(rank.used_tokens),
            Some(rank.max_total_tokens),
            Some(rank.token_usage),
            Some(rank.gen_throughput),
            Some(rank.cache_hit_rate),
            Some(rank.utilization),
            Some(rank.max_running_requests),
            rank.kv_transfer_latency_ms,
            rank.kv_transfer_speed_gb_s,
            rank.prefill_queue_requests,
            rank.decode_queue_requests,
        ]
    };
    let is_close = |(a, b): (Option<f64>, Option<f64>)| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-12 * a.abs().max(b.abs()),
        (a, b) => a == b,
    };
    let mut pairs = numbers(found).into_iter().zip(numbers(expected));
    let same_rank = found.dp_rank.abs_diff(expected.dp_rank) <= 1;
    assert!(same_rank && pairs.all(is_close), "{found:?} is not {expected:?}");
}

/// A page of the metrics that are read, with series, labels and values as the choices say.
fn write_page(choices: &mut Unstructured<'_>, page: &mut String) -> Result<()> {
    const NAMES: &[&str] = &[
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:gpu_prefix_cache_hit_rate",
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_queries_total",
        "sglang:token_usage",
        "sglang_token_usage",
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        "sglang:gen_throughput",
        "sglang:cache_hit_rate",
        "sglang_utilization",
        "sglang:num_used_tokens",
        "sglang:max_total_num_tokens",
        "sglang:full_token_usage",
        "# HELP sglang:token_usage",
        "",
    ];
    const LABELS: &[&str] = &[
        "",
        "{}",
        "{engine=\"0\"}",
        "{a=\"}\",b=\"\\\"{\"}",
        "{a=\"\\\\\",}",
        "{a=\" 0.5 \",b=\"\u{e9}\"}",
        "{a=\"",
        "{a}",
    ];
    const VALUES: &[&str] =
        &["0.5", "0", "1", "40", "1e3", "1.5e+15", "NaN", "+Inf", "-Inf", "-1", "1e999", "x", ""];
    while !choices.is_empty() {
        page.push_str(choices.choose(NAMES)?);
        page.push_str(choices.choose(LABELS)?);
        page.push_str(choices.choose(&[" ", " ", "  ", "\t", ""])?);
        page.push_str(choices.choose(VALUES)?);
        page.push_str(choices.choose(&["\n", "\n", " 1795972671910\n", "\r\n", " ", "\n\n"])?);
    }
    Ok(())
}
