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
    let (status, mut body) = if shared.phase() != Phase::Running {
        (503, json!({"status": "not ready", "reason": "draining"}))
    } else if fleet.ready == 0 {
        (503, json!({"status": "not ready", "reason": "insufficient healthy workers"}))
    } else {
        (200, json!({"status": "ready"}))
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
