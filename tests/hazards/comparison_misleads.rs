//! A comparison is believed: its page, its JSON and its table must say the same, the engines must be
//! the ones that count, and a policy's worth must be seen.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use smg_loadtest::compare::{
    ArmKind, ArmSpec, CompareOptions, RoutingOptions, Scenario, VersionSource, compare, html,
};
use smg_loadtest::engine::Profile;
use smg_loadtest::load::ConversationOptions;
use smg_loadtest::process::CommandTemplate;
use smg_loadtest::runtime::allowed_cpus;

fn spec(name: &str, kind: ArmKind, policies: &[&str]) -> ArmSpec {
    ArmSpec {
        name: name.into(),
        kind,
        cost_policy: policies.first().map(|policy| policy.to_string()),
        routing_policies: policies.iter().map(|policy| policy.to_string()).collect(),
        version: VersionSource::None,
        how_to_install: "apt-get install it".into(),
    }
}

/// Nobody in between, ours under two policies, and a peer that is not there. Twelve system prompts of
/// 400 tokens over three engines with room for 2,400 tokens each.
fn options() -> CompareOptions {
    let command = format!(
        "'{}' launch --host 127.0.0.1 --port {{port}} --prometheus-host 127.0.0.1 --prometheus-port \
         {{metrics_port}} --policy {{policy}} --shards 1 --log-level warn --worker-urls {{workers}}",
        env!("CARGO_BIN_EXE_smg")
    );
    let command = CommandTemplate::parse(&command).unwrap();
    let nowhere = ArmKind::Haproxy { program: PathBuf::from("/no/such/haproxy") };
    let profile = Profile {
        cache_blocks: 150,
        step_base_ns: 1_000_000,
        decode_request_ns: 1_000,
        prefill_token_ns: 10_000,
        ..Profile::named("8b-h100").unwrap()
    };
    CompareOptions {
        arms: vec![
            spec("direct", ArmKind::Direct, &[]),
            spec("haproxy", nowhere, &[]),
            spec("ours", ArmKind::Gateway { command }, &["cache_aware", "round_robin"]),
        ],
        scenarios: vec![Scenario::Short],
        routing: Some(RoutingOptions {
            engines: 3,
            profile,
            conversations: ConversationOptions {
                arrivals_per_s: 40.0,
                system_prompts: 12,
                system_prompt_chars: 1_600,
                turns: 2,
                answer_tokens: 4,
                think_time: Duration::from_millis(20),
                warmup: Duration::from_millis(300),
                duration: Duration::from_millis(1_500),
                ..RoutingOptions::default().conversations
            },
        }),
        runs: 1,
        time: Duration::from_millis(200),
        gateway_cpus: Vec::new(),
        load_cpus: allowed_cpus(),
        engines: 2,
        directory: std::env::temp_dir().join(format!("smg-misleads-{}", std::process::id())),
        should_stop: || false,
    }
}

#[test]
fn page_json_and_table_say_the_same_and_cache_aware_finds_more_than_round_robin() {
    let options = options();
    let mut said = Vec::new();
    let report = compare(&options, &mut |line| said.push(line.to_owned())).unwrap();
    let _ = std::fs::remove_dir_all(&options.directory);
    let (page, table) = (html(&report), report.to_string());
    let json: Value = serde_json::to_value(&report).unwrap();

    let arms = json["routing"]["arms"].as_array().unwrap();
    let names: Vec<_> = arms.iter().map(|arm| arm["arm"].as_str().unwrap()).collect();
    assert_eq!(names, ["direct", "ours cache_aware", "ours round_robin"], "{said:?}");
    for arm in arms {
        let name = arm["arm"].as_str().unwrap();
        assert_eq!(arm["failed"], 0, "{name}");
        for (key, scale, decimals) in [
            ("hit_share", 100.0, 1),
            ("max_over_mean", 1.0, 2),
            ("ttft_ms.p50", 1.0, 1),
            ("ttft_ms.p99", 1.0, 1),
            ("latency_ms.p50", 1.0, 1),
            ("latency_ms.p99", 1.0, 1),
            ("cpu_us", 1.0, 0),
            ("resident_mib", 1.0, 1),
            ("failed", 1.0, 0),
        ] {
            let number = arm.pointer(&format!("/{}", key.replace('.', "/"))).unwrap().as_f64();
            let cell = number.map_or("-".into(), |number| format!("{:.decimals$}", scale * number));
            assert_same(&page, &table, &format!("routing/{name}/{key}"), &cell);
        }
        // What each engine got is what was answered, but for what was under way at the ends.
        let engines: Vec<_> = arm["engine_requests"].as_array().unwrap().iter().collect();
        assert_eq!(engines.len(), 3, "{name}");
        assert!(arm["answered"].as_u64().unwrap() > 50, "{name}: {arm}");
    }
    let cost = json["scenarios"][0]["arms"].as_array().unwrap();
    let ours = cost.iter().find(|arm| arm["arm"] == "ours").unwrap();
    for (key, decimals) in [("requests_per_s", 0), ("p99_ms", 3), ("cpu_us", 2)] {
        let cell = format!("{:.decimals$}", ours[key].as_f64().unwrap());
        assert_same(&page, &table, &format!("short/ours/{key}"), &cell);
    }

    let hits = |index: usize| arms[index]["hit_share"].as_f64().unwrap();
    assert!(hits(1) > hits(2), "cache_aware {} and round_robin {}", hits(1), hits(2));
    let missing = &json["missing"][0];
    assert_eq!(missing["arm"], "haproxy");
    assert!(missing["reason"].as_str().unwrap().contains("apt-get install it"));
    assert!(page.contains("Without haproxy") && table.contains("without haproxy"));
}

#[track_caller]
fn assert_same(page: &str, table: &str, of: &str, cell: &str) {
    let expected = format!("<td data-of=\"{of}\">{cell}</td>");
    assert!(page.contains(&expected), "{expected} is not on the page");
    assert!(table.contains(cell), "{of}: {cell} is not in\n{table}");
}
