//! What all connections of one engine's port share.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::fault::Faults;
use super::host::Host;
use super::instant::Instant;
use super::stats::EngineStats;

pub(super) struct Endpoint {
    pub model: String,
    /// The model's name as a JSON string, quotes included.
    pub model_json: String,
    pub kind: Kind,
    pub stats: Arc<EngineStats>,
    pub faults: Faults,
    /// Unix seconds.
    pub started: u64,
    /// Keeps the identities of requests of several engines apart.
    id_seed: u64,
    next_id: Cell<u64>,
}

pub(super) enum Kind {
    Simulated(Rc<Host>),
    Instant(Instant),
}

impl Endpoint {
    /// The endpoint of the engine with this index in its fleet.
    pub fn new(index: usize, model: &str, kind: Kind, stats: Arc<EngineStats>) -> Self {
        Self {
            id_seed: crate::clock::now_ns().wrapping_add(index as u64),
            model: model.to_owned(),
            model_json: serde_json::Value::from(model).to_string(),
            kind,
            stats,
            faults: Faults::default(),
            started: crate::clock::unix_seconds(),
            next_id: Cell::new(0),
        }
    }

    /// The identity of a request: its `x-request-id` if that is short and plain, as vLLM does it,
    /// else a new one of 16 hex digits.
    pub fn request_id(&self, header: Option<&[u8]>) -> String {
        let plain = |id: &&[u8]| {
            (1..=128).contains(&id.len())
                && id.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
        };
        if let Some(id) = header.filter(plain) {
            return id.iter().map(|byte| char::from(*byte)).collect();
        }
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        format!("{:016x}", xxhash_rust::xxh3::xxh3_64_with_seed(&id.to_le_bytes(), self.id_seed))
    }
}
