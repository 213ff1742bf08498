//! Flags of SMG that this version does not have. Each is refused with what to do instead, on the
//! command line and in the configuration file; none is accepted and ignored.

use super::error::ConfigError;

/// Flag and what to do instead. A name that ends in `*` stands for every flag that begins so.
///
/// When a feature lands, its lines go and its flags are defined in a group. A flag that is defined
/// in a group and listed here is refused and left out of `--help`.
pub const NOT_BUILT: &[(&str, &str)] = &[
    // HTTP/2 to workers
    ("--upstream-http2", "leave it out, workers are spoken to in HTTP/1.1"),
    // Bodies and threads
    ("--max-buffered-request-bytes", "leave it out, bodies are read up to --max-payload-size"),
    ("--stream-request-bodies-over", "leave it out, bodies are read up to --max-payload-size"),
    ("--runtime-worker-threads", "use --shards"),
    // Disaggregated serving, DP ranks
    ("--pd-disaggregation", PD_INSTEAD),
    ("--epd-disaggregation", PD_INSTEAD),
    ("--prefill", PD_INSTEAD),
    ("--decode", PD_INSTEAD),
    ("--encode", PD_INSTEAD),
    ("--prefill-policy", "use --policy"),
    ("--decode-policy", "use --policy"),
    ("--encode-policy", "use --policy"),
    ("--pd-admission-wait-secs", PD_INSTEAD),
    ("--bucket-adjust-interval-secs", PD_INSTEAD),
    ("--dp-aware", "list the workers by URL, each engine balances its own ranks"),
    ("--dp-minimum-tokens-scheduler", "leave it out, each engine balances its own ranks"),
    // KV events
    ("--kv-index*", "leave it out, prefixes are indexed in trees bounded by --max-tree-size"),
    // gRPC, ZMQ and cloud workers, tokenizers, parsers
    ("--backend", "leave it out, the engine is recognised when a worker registers"),
    ("--runtime", "leave it out, the engine is recognised when a worker registers"),
    ("--zmq-*", "list the engines' http:// ports with --worker-urls"),
    ("--model", MODEL_INSTEAD),
    ("--model-path", MODEL_INSTEAD),
    ("--chat-template", MODEL_INSTEAD),
    ("--tokenizer-*", MODEL_INSTEAD),
    ("--disable-tokenizer-autoload", "leave it out, no tokenizer is loaded"),
    ("--reasoning-parser", "set the parser on the engine"),
    ("--tool-call-parser", "set the parser on the engine"),
    ("--multimodal-*", "leave it out, bodies reach workers as the client sent them"),
    ("--enable-token-usage-details", "set it on the engine"),
    ("--webrtc-*", "leave it out, realtime sessions are not relayed"),
    // Registration and discovery
    ("--worker-startup-delay", "use --worker-startup-check-interval"),
    ("--job-queue-capacity", "leave it out, registrations are bounded by the gateway itself"),
    ("--job-queue-concurrency", "leave it out, registrations are bounded by the gateway itself"),
    ("--remove-unhealthy-workers", REMOVE_INSTEAD),
    ("--worker-auto-recovery", REMOVE_INSTEAD),
    ("--service-discovery*", DISCOVERY_INSTEAD),
    ("--selector", DISCOVERY_INSTEAD),
    ("--prefill-selector", DISCOVERY_INSTEAD),
    ("--decode-selector", DISCOVERY_INSTEAD),
    ("--encode-selector", DISCOVERY_INSTEAD),
    ("--router-selector", DISCOVERY_INSTEAD),
    ("--model-id-from", DISCOVERY_INSTEAD),
    ("--enable-mesh", MESH_INSTEAD),
    ("--mesh-*", MESH_INSTEAD),
    // Tenants, identity, priorities
    ("--tenant-*", "use --api-key, or authenticate in a proxy in front of the gateway"),
    ("--trust-tenant-header", "use --api-key, or authenticate in a proxy in front of the gateway"),
    ("--jwt-*", "use --admin-api-key, or authenticate in a proxy in front of the gateway"),
    ("--control-plane-api-keys", "use --admin-api-key"),
    ("--control-plane-audit-enabled", "leave it out, admin requests appear in the access log"),
    ("--disable-audit-logging", "leave it out, admin requests appear in the access log"),
    ("--priority-scheduler-*", "use --max-concurrent-requests and --queue-size"),
    // Logs and traces
    ("--log-dir", "logs go to standard output, redirect it"),
    ("--enable-trace", "leave it out, traceparent headers pass through to workers"),
    ("--otlp-traces-endpoint", "leave it out, traceparent headers pass through to workers"),
    // Plugins and stores
    ("--mcp-config-path", "leave it out, tools are called by the client"),
    ("--enable-wasm", "leave it out, there are no plugins"),
    ("--history-backend", HISTORY_INSTEAD),
    ("--oracle-*", HISTORY_INSTEAD),
    ("--postgres-*", HISTORY_INSTEAD),
    ("--redis-*", HISTORY_INSTEAD),
    ("--schema-config", HISTORY_INSTEAD),
    ("--storage-*", HISTORY_INSTEAD),
];

const PD_INSTEAD: &str = "list workers that run prefill and decode with --worker-urls";
const MODEL_INSTEAD: &str = "leave it out, models are learned from the workers";
const REMOVE_INSTEAD: &str =
    "leave it out, an unhealthy worker is probed until it returns; DELETE /workers/{id} removes it";
const DISCOVERY_INSTEAD: &str = "list workers with --worker-urls or POST /workers";
const MESH_INSTEAD: &str =
    "run gateways independently and keep a client on one of them in the load balancer";
const HISTORY_INSTEAD: &str = "leave it out, responses and conversations are kept by the worker";

/// What to do instead of `flag` (with its dashes), if it is not built.
pub fn instead_of(flag: &str) -> Option<&'static str> {
    let names = |entry: &str| match entry.strip_suffix('*') {
        Some(prefix) => flag.starts_with(prefix),
        None => flag == entry,
    };
    NOT_BUILT.iter().find(|(entry, _)| names(entry)).map(|(_, instead)| *instead)
}

/// Refuses a command line with a flag that is not built. It looks before clap does, which knows
/// nothing of these flags: no value of a flag begins with two dashes.
pub fn check_command_line<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<(), ConfigError> {
    for argument in arguments.take_while(|argument| *argument != "--") {
        let flag = argument.split_once('=').map_or(argument, |(flag, _)| flag);
        if flag.starts_with("--") {
            check_flag(flag)?;
        }
    }
    Ok(())
}

/// Refuses `flag` if it is not built.
pub fn check_flag(flag: &str) -> Result<(), ConfigError> {
    match instead_of(flag) {
        Some(instead) => Err(ConfigError::NotAvailable { flag: flag.to_owned(), instead }),
        None => Ok(()),
    }
}
