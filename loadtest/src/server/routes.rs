//! The routes beside inference: health, identity, load, metrics, cache reset.

use std::fmt::Write;

use smg_core::http1::Method;

use super::endpoint::{Endpoint, Kind};
use super::fault::Command;
use super::stats::EngineSnapshot;
use crate::engine::Profile;

pub(super) const JSON: &str = "application/json";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Version the engines report; a gateway may choose what it asks by it.
const VERSION: &str = "0.32.0";

/// An answer with its body in memory.
pub(super) struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

impl Reply {
    fn json(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, content_type: JSON, body: body.into() }
    }

    fn text(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, content_type: TEXT, body: body.into() }
    }

    /// An error in vLLM's shape.
    pub fn error(status: u16, message: &str) -> Self {
        Self { status, content_type: JSON, body: error_body(status, message) }
    }
}

/// vLLM's error object.
pub(super) fn error_body(status: u16, message: &str) -> Vec<u8> {
    let kind = match status {
        404 => "NotFoundError",
        503 => "ServiceUnavailableError",
        _ => "Bad Request",
    };
    serde_json::json!({
        "error": { "message": message, "type": kind, "param": null, "code": status }
    })
    .to_string()
    .into_bytes()
}

/// Answers every route but the inference ones.
pub(super) fn answer(endpoint: &Endpoint, method: Method, path: &[u8]) -> Reply {
    let get = matches!(method, Method::Get | Method::Head);
    match path {
        b"/health" | b"/health_generate" | b"/ping" | b"/readiness" if get => Reply::text(""),
        b"/v1/models" if get => Reply::json(models(endpoint)),
        b"/get_model_info" | b"/model_info" if get => Reply::json(model_info(endpoint)),
        b"/get_server_info" | b"/server_info" if get => Reply::json(server_info(endpoint)),
        b"/version" if get => Reply::json(format!(r#"{{"version":"{VERSION}"}}"#)),
        b"/load" if get => {
            let open = endpoint.stats.snapshot().open;
            Reply::json(format!(r#"{{"server_load":{open}}}"#))
        }
        b"/v1/loads" if get => Reply::json(loads(endpoint)),
        b"/sim/stats" if get => Reply::json(stats(endpoint)),
        b"/sim/stats" if method == Method::Post => {
            let before = stats(endpoint);
            endpoint.stats.count_most_open_anew();
            Reply::json(before)
        }
        b"/metrics" if get => Reply::text(metrics(endpoint)),
        b"/reset_prefix_cache" if method == Method::Post => {
            reset(endpoint);
            Reply::json(r#"{"success":true}"#)
        }
        b"/flush_cache" => {
            reset(endpoint);
            Reply::text("Cache flushed.\n")
        }
        _ => Reply { status: 404, content_type: JSON, body: br#"{"detail":"Not Found"}"#.into() },
    }
}

/// Everything that an engine counts; a POST has the most that were open at once counted anew.
fn stats(endpoint: &Endpoint) -> String {
    // Numbers under names: there is nothing that could fail.
    serde_json::to_string(&endpoint.stats.snapshot()).unwrap_or_default()
}

/// Begins the fault a query names.
pub(super) fn begin_fault(endpoint: &Endpoint, query: &[u8]) -> Reply {
    match Command::parse(query) {
        Ok(command) => {
            endpoint.faults.begin(command);
            if command.restarts {
                reset(endpoint);
            }
            Reply::json(r#"{"success":true}"#)
        }
        Err(what) => Reply::error(400, &what),
    }
}

fn reset(endpoint: &Endpoint) {
    if let Kind::Simulated(host) = &endpoint.kind {
        host.reset_cache();
    }
}

/// The profile behind the endpoint; an instant engine claims a large one.
fn with_profile<T>(endpoint: &Endpoint, read: impl FnOnce(&Profile) -> T) -> T {
    match &endpoint.kind {
        Kind::Simulated(host) => host.read(|engine| read(engine.profile())),
        Kind::Instant(_) => read(&Profile::all()[0]),
    }
}

fn models(endpoint: &Endpoint) -> String {
    let Endpoint { model_json, started, .. } = endpoint;
    let max_len = with_profile(endpoint, |profile| profile.max_model_len);
    format!(
        r#"{{"object":"list","data":[{{"id":{model_json},"object":"model","created":{started},"owned_by":"smg-loadtest","root":{model_json},"parent":null,"max_model_len":{max_len}}}]}}"#
    )
}

fn model_info(endpoint: &Endpoint) -> String {
    let model = &endpoint.model_json;
    format!(
        r#"{{"model_path":{model},"served_model_name":{model},"tokenizer_path":{model},"is_generation":true,"preferred_sampling_params":null,"weight_version":"default","model_type":"simulated","architectures":["SimulatedForCausalLM"]}}"#
    )
}

fn server_info(endpoint: &Endpoint) -> String {
    let model = &endpoint.model_json;
    with_profile(endpoint, |profile| {
        let Profile { block_tokens, cache_blocks, max_batch, step_tokens, max_model_len, .. } =
            profile;
        let total = u64::from(*cache_blocks) * u64::from(*block_tokens);
        format!(
            r#"{{"model_path":{model},"served_model_name":{model},"tokenizer_path":{model},"context_length":{max_model_len},"page_size":{block_tokens},"max_running_requests":{max_batch},"max_total_tokens":{total},"chunked_prefill_size":{step_tokens},"disable_radix_cache":false,"dp_size":1,"tp_size":1,"version":"{VERSION}"}}"#
        )
    })
}

/// SGLang's load report. `num_used_tokens` counts whole blocks.
fn loads(endpoint: &Endpoint) -> String {
    let waiting_uncached = match &endpoint.kind {
        Kind::Simulated(host) => host.read(|engine| engine.waiting_uncached_tokens()),
        Kind::Instant(_) => 0,
    };
    let stats = endpoint.stats.snapshot();
    let (block_tokens, max_batch) = with_profile(endpoint, |p| (p.block_tokens, p.max_batch));
    let block_tokens = u64::from(block_tokens);
    let now = crate::clock::unix_seconds();
    let EngineSnapshot { running, waiting, used_blocks, total_blocks, .. } = stats;
    format!(
        r#"{{"timestamp":{now},"version":"{VERSION}","dp_rank_count":1,"loads":[{{"timestamp":{now},"dp_rank":0,"num_running_reqs":{running},"num_waiting_reqs":{waiting},"num_total_reqs":{},"num_waiting_uncached_tokens":{waiting_uncached},"num_used_tokens":{},"max_total_num_tokens":{},"max_running_requests":{max_batch},"token_usage":{:.4},"gen_throughput":{:.1},"cache_hit_rate":{:.4},"utilization":{:.4}}}]}}"#,
        running + waiting,
        used_blocks * block_tokens,
        total_blocks * block_tokens,
        usage(&stats),
        throughput(&stats),
        hit_share(&stats),
        running as f64 / f64::from(max_batch),
    )
}

fn usage(stats: &EngineSnapshot) -> f64 {
    stats.used_blocks as f64 / stats.total_blocks.max(1) as f64
}

fn hit_share(stats: &EngineSnapshot) -> f64 {
    stats.cached_tokens as f64 / stats.prompt_tokens.max(1) as f64
}

/// Generated tokens per second of busy time.
fn throughput(stats: &EngineSnapshot) -> f64 {
    stats.generated_tokens as f64 * 1e9 / stats.busy_ns.max(1) as f64
}

/// Prometheus text with vLLM's and SGLang's names for what the model has.
fn metrics(endpoint: &Endpoint) -> String {
    if let Kind::Simulated(host) = &endpoint.kind {
        // Brings the published counters up to now.
        host.read(|_| ());
    }
    let stats = endpoint.stats.snapshot();
    let model = &endpoint.model_json;
    let mut out = String::with_capacity(2_048);
    let mut family = |name: &str, kind: &str, labels: &str, value: f64| {
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "# TYPE {name} {kind}\n{name}{{engine=\"0\",model_name={model}{labels}}} {value}\n"
        );
    };
    family("vllm:num_requests_running", "gauge", "", stats.running as f64);
    family("vllm:num_requests_waiting", "gauge", "", stats.waiting as f64);
    family("vllm:kv_cache_usage_perc", "gauge", "", usage(&stats));
    for (name, value) in [
        ("vllm:prefix_cache_queries_total", stats.prompt_tokens),
        ("vllm:prefix_cache_hits_total", stats.cached_tokens),
        ("vllm:prompt_tokens_total", stats.prompt_tokens),
        ("vllm:prompt_tokens_cached_total", stats.cached_tokens),
        ("vllm:generation_tokens_total", stats.generated_tokens),
        ("vllm:num_preemptions_total", stats.preemptions),
    ] {
        family(name, "counter", "", value as f64);
    }
    let finished = stats.finished as f64;
    family("vllm:request_success_total", "counter", ",finished_reason=\"length\"", finished);
    let (blocks, size) = with_profile(endpoint, |p| (p.cache_blocks, p.block_tokens));
    let config = format!(",block_size=\"{size}\",num_gpu_blocks=\"{blocks}\"");
    family("vllm:cache_config_info", "gauge", &config, 1.0);
    family("sglang:num_running_reqs", "gauge", "", stats.running as f64);
    family("sglang:num_queue_reqs", "gauge", "", stats.waiting as f64);
    family("sglang:token_usage", "gauge", "", usage(&stats));
    family("sglang:cache_hit_rate", "gauge", "", hit_share(&stats));
    family("sglang:gen_throughput", "gauge", "", throughput(&stats));
    out
}
