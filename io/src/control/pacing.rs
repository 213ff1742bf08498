//! Eviction pacing: asks the owner of each model, or of each part of its trees, for bounded slices
//! until its indexes are within budget, and keeps their sizes for the exposition.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use smg_core::fleet::{ModelId, WorkerId};
use tracing::{debug, info};

use super::questions::ask;
use super::registry::Registry;
use super::seam::Runtime;
use crate::messages::{Message, Sweep, SweepReport, Swept, TreeTenants};
use crate::shared::Shared;

/// Between two slices of one sweep: lookups go first.
const SLICE_PAUSE: Duration = Duration::from_millis(1);
/// Slices of one sweep of one model; at the limit the rest waits for the next sweep.
const MAX_SLICES: usize = 1 << 16;

/// Sizes of each model's indexes after its last sweep, and what all its sweeps evicted, by model name.
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
        let mut evicted = 0;
        for (id, name, workers) in models {
            let mut total = Total::default();
            let report = sweep(runtime, &shared, id, &name, &mut total).await;
            evicted += total.report.evicted;
            let mut gauges = gauges.borrow_mut();
            let before = gauges.get(&name).map_or(0, |earlier| earlier.evicted);
            let all_evicted = before + total.report.evicted;
            match report {
                Some(report)
                    if workers > 0
                        || report.chars + report.tokens + report.placements as u64 > 0 =>
                {
                    gauges.insert(name, SweepReport { evicted: all_evicted, ..report });
                }
                Some(_) => drop(gauges.remove(&name)),
                // The sizes are not known; what was evicted is.
                None => {
                    if let Some(earlier) = gauges.get_mut(&name) {
                        earlier.evicted = all_evicted;
                    }
                }
            }
        }
        if evicted > 0 {
            (shared.memory.trim)();
        }
        log_memory(&gauges.borrow());
    }
}

/// Sweeps the indexes of one model, part after part. Nothing if an owner does not answer, or if there
/// is more to do than one sweep may.
async fn sweep<R: Runtime>(
    runtime: R,
    shared: &Shared,
    model: ModelId,
    name: &str,
    total: &mut Total,
) -> Option<SweepReport> {
    let owner = shared.fleet.load().placement.models.get(model.0 as usize)?.owner;
    for shard in shared.parts.shards(owner) {
        sweep_part(runtime, shared, model, shard, total).await?;
    }
    let evicted = total.report.evicted;
    if evicted > 0 {
        debug!(target: "smg::policies::cache_aware", model = name, evicted,
            max_size = shared.config.cache.max_tree_size, "tree eviction completed");
    }
    Some(total.finish())
}

/// Asks the shard with one part for slices until its part is within its budget.
async fn sweep_part<R: Runtime>(
    runtime: R,
    shared: &Shared,
    model: ModelId,
    shard: usize,
    total: &mut Total,
) -> Option<()> {
    let mut evicted = 0;
    for _ in 0..MAX_SLICES {
        let question = |reply| Message::Sweep(Sweep { model, reply });
        let Swept { report, garbage, tenants } = ask(runtime, shared, shard, question).await?;
        // The memory a slice frees goes back here and not on the shard's time.
        drop(garbage);
        evicted += report.evicted;
        total.report.evicted += report.evicted;
        if report.done {
            total.add(report, tenants);
            if evicted > 0 {
                // A shard that is too busy for it takes its memory back after another sweep.
                let _ = ask(runtime, shared, shard, Message::Reclaim).await;
            }
            return Some(());
        }
        runtime.sleep(SLICE_PAUSE).await;
    }
    None
}

/// Sums over the parts of a model's indexes.
#[derive(Default)]
struct Total {
    report: SweepReport,
    /// Workers of the parts before, where there are several: one may be in more than one.
    string: HashSet<WorkerId>,
    token: HashSet<WorkerId>,
}

impl Total {
    /// Adds the sizes of a part after its sweep.
    fn add(&mut self, part: SweepReport, tenants: Option<TreeTenants>) {
        let sum = &mut self.report;
        sum.chars += part.chars;
        sum.tokens += part.tokens;
        sum.placements += part.placements;
        sum.string_tenants += part.string_tenants;
        sum.token_tenants += part.token_tenants;
        if let Some(TreeTenants { string, token }) = tenants {
            self.string.extend(string);
            self.token.extend(token);
            sum.string_tenants = self.string.len();
            sum.token_tenants = self.token.len();
        }
    }

    fn finish(&self) -> SweepReport {
        SweepReport { done: true, ..self.report }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(slot: u32) -> WorkerId {
        WorkerId { slot, generation: 0 }
    }

    fn part(chars: u64, string: &[u32], token: &[u32]) -> (SweepReport, TreeTenants) {
        let report = SweepReport {
            done: true,
            chars,
            string_tenants: string.len(),
            token_tenants: token.len(),
            ..SweepReport::default()
        };
        let workers = |slots: &[u32]| slots.iter().copied().map(worker).collect();
        (report, TreeTenants { string: workers(string), token: workers(token) })
    }

    #[test]
    fn a_worker_in_two_parts_counts_once() {
        let mut total = Total::default();
        for (report, tenants) in [part(10, &[0, 1], &[]), part(5, &[1, 2], &[4])] {
            total.add(report, Some(tenants));
        }
        let SweepReport { chars, string_tenants, token_tenants, .. } = total.finish();
        assert_eq!((chars, string_tenants, token_tenants), (15, 3, 1));
    }

    #[test]
    fn the_only_part_is_the_total() {
        let (report, _) = part(10, &[0, 1], &[3]);
        let mut total = Total::default();
        total.add(report, None);
        assert_eq!(total.finish(), report);
    }
}
