//! Eviction pacing: asks each model's owner for bounded slices until its indexes are within budget,
//! and keeps their sizes for the exposition.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use smg_core::fleet::ModelId;
use tracing::{debug, info};

use super::registry::Registry;
use super::seam::Runtime;
use crate::messages::{Message, Sweep, SweepReport};
use crate::shared::Shared;

/// Between two slices of one sweep: lookups go first.
const SLICE_PAUSE: Duration = Duration::from_millis(1);
/// An owner that does not answer within this time is asked again at the next sweep.
const OWNER_PATIENCE: Duration = Duration::from_secs(5);
/// Slices of one sweep of one model; at the limit the rest waits for the next sweep.
const MAX_SLICES: usize = 1 << 16;

/// Sizes of each model's indexes after its last sweep, by model name.
pub type TreeGauges = BTreeMap<Arc<str>, SweepReport>;

/// Sweeps all models every `--eviction-interval`, for ever.
pub async fn run<R: Runtime>(
    runtime: R,
    shared: Arc<Shared>,
    registry: Rc<RefCell<Registry>>,
    gauges: Rc<RefCell<TreeGauges>>,
) {
    let interval = Duration::from_secs(shared.config.cache.eviction_interval_secs);
    loop {
        runtime.sleep(interval).await;
        let models: Vec<(ModelId, Arc<str>, usize)> = registry
            .borrow()
            .models()
            .map(|(id, name, workers)| (id, name.clone(), workers))
            .collect();
        for (id, name, workers) in models {
            let report = sweep(runtime, &shared, id, &name).await;
            let mut gauges = gauges.borrow_mut();
            match report {
                Some(report)
                    if workers > 0
                        || report.chars + report.tokens + report.placements as u64 > 0 =>
                {
                    gauges.insert(name, report);
                }
                Some(_) => drop(gauges.remove(&name)),
                None => {}
            }
        }
        log_memory(&gauges.borrow());
    }
}

async fn sweep<R: Runtime>(
    runtime: R,
    shared: &Shared,
    model: ModelId,
    name: &str,
) -> Option<SweepReport> {
    let owner = shared.fleet.load().placement.models.get(model.0 as usize)?.owner;
    let mut evicted = 0;
    for _ in 0..MAX_SLICES {
        let (reply, answer) = async_channel::bounded(1);
        let message = Message::Sweep(Sweep { model, reply });
        if shared.mesh.send(shared.control_sender(), owner, message).is_err() {
            return None;
        }
        let answer = async { answer.recv().await.ok() };
        let patience = async {
            runtime.sleep(OWNER_PATIENCE).await;
            None
        };
        // The memory a slice frees goes back here and not on the shard's time.
        let (report, garbage) = futures_lite::future::or(answer, patience).await?;
        drop(garbage);
        evicted += report.evicted;
        if report.done {
            if evicted > 0 {
                debug!(target: "smg::policies::cache_aware", model = name, evicted,
                    max_size = shared.config.cache.max_tree_size, "tree eviction completed");
            }
            return Some(report);
        }
        runtime.sleep(SLICE_PAUSE).await;
    }
    None
}

fn log_memory(gauges: &TreeGauges) {
    if gauges.is_empty() {
        return;
    }
    let (mut chars, mut tokens, mut entries) = (0, 0, 0);
    for report in gauges.values() {
        chars += report.chars;
        tokens += report.tokens;
        entries += report.placements;
    }
    let models = gauges.len();
    info!(target: "smg::policies::cache_aware",
        "Tree memory: string_trees={models} models / {chars} chars, token_trees={models} models / \
         {tokens} tokens, hash_index={models} models / {entries} entries");
}
