//! Who could have been chosen, for `x-smg-route`.

use smg_core::fleet::WorkerId;
use smg_core::policy::Candidates;
use smg_core::policy::expected_wait::Scorer;

/// Most workers named in an explanation.
const MOST: usize = 8;

/// A worker that could have been chosen, as it stood before the decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contender {
    /// The worker.
    pub worker: WorkerId,
    /// Its requests in flight.
    pub in_flight: u32,
    /// Seconds of expected wait; requests in flight while nobody reports.
    pub expected_wait: f64,
}

/// The eligible `holders` or, without any, the eligible workers with the lowest expected wait.
/// Call it before the decision, which credits its worker.
pub fn contenders(candidates: &Candidates<'_>, holders: &[WorkerId]) -> Vec<Contender> {
    let eligible = candidates.eligible();
    let all: Vec<WorkerId> = eligible.iter().collect();
    let mut contenders: Vec<Contender> = Scorer::DEFAULT
        .explain(&eligible, &all)
        .into_iter()
        .filter(|scored| holders.is_empty() || holders.contains(&scored.worker))
        .map(|scored| Contender {
            worker: scored.worker,
            in_flight: eligible.in_flight(scored.worker),
            expected_wait: scored.score,
        })
        .collect();
    contenders.sort_by(|a, b| a.expected_wait.total_cmp(&b.expected_wait));
    contenders.truncate(MOST);
    contenders
}
