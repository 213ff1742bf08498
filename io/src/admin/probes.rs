//! `/health`, `/liveness`, `/readiness` and `/v1/models`: from the published epoch alone.

use serde_json::json;

use crate::shared::{Phase, Shared};

const JSON: &str = "application/json";

/// Status, content type and body of a probe route; `None` for any other path.
pub fn answer(shared: &Shared, path: &[u8]) -> Option<(u16, &'static str, Vec<u8>)> {
    match path {
        b"/health" | b"/liveness" => Some((200, "text/plain; charset=utf-8", b"OK".to_vec())),
        b"/readiness" => Some(readiness(shared)),
        b"/v1/models" => Some(models(shared)),
        _ => None,
    }
}

fn readiness(shared: &Shared) -> (u16, &'static str, Vec<u8>) {
    let fleet = shared.fleet.load();
    let reason = match shared.phase() {
        Phase::Starting => Some("starting"),
        Phase::Running if fleet.ready == 0 => Some("insufficient healthy workers"),
        Phase::Running => None,
        Phase::Settling | Phase::Closing => Some("draining"),
    };
    let (status, mut body) = match reason {
        Some(reason) => (503, json!({"status": "not ready", "reason": reason})),
        None => (200, json!({"status": "ready"})),
    };
    body["healthy_workers"] = fleet.ready.into();
    body["total_workers"] = fleet.total.into();
    (status, JSON, body.to_string().into_bytes())
}

fn models(shared: &Shared) -> (u16, &'static str, Vec<u8>) {
    let fleet = shared.fleet.load();
    let served = fleet.placement.models.iter().filter(|model| !model.members.is_empty());
    let data: Vec<_> = served
        .map(|model| {
            json!({"id": &*model.name, "object": "model", "created": 0, "owned_by": "self_hosted"})
        })
        .collect();
    (200, JSON, json!({"object": "list", "data": data}).to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::config::Config;
    use crate::fleet::Fleet;
    use crate::shared::Memory;
    use crate::tls::Tls;

    #[test]
    fn readiness_waits_for_the_last_shard_and_ends_with_the_first_signal() {
        let (commands, _receiver) = async_channel::bounded(1);
        let config = Config::default();
        let tls = Tls::load(&config).unwrap();
        let shared = Shared::new(
            config,
            tls,
            Memory { reclaim: || {}, trim: || {}, ask_for_small_pages: || {} },
            2,
            commands,
        )
        .unwrap();
        let asked = || {
            let (status, _, body) = answer(&shared, b"/readiness").unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            (status, body["reason"].as_str().map(str::to_owned))
        };
        let because = |reason: &str| (503, Some(reason.to_owned()));
        shared.fleet.store(Arc::new(Fleet { ready: 1, total: 1, ..Fleet::default() }));
        assert_eq!(asked(), because("starting"));
        shared.enter(Phase::Running);
        assert_eq!(asked(), (200, None));
        shared.fleet.store(Arc::default());
        assert_eq!(asked(), because("insufficient healthy workers"));
        shared.enter(Phase::Settling);
        assert_eq!(asked(), because("draining"));
    }
}
