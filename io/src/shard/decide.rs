//! Decisions: the policy of the request's model, a sticky key before it, and what is counted, logged
//! and explained about the outcome.

use std::borrow::Cow;

use serde_json::json;
use smg_core::fleet::{ModelId, ModelPlacement, WorkerId};
use smg_core::policy::expected_wait::Scorer;
use smg_core::policy::prefix_hash::{self, PrefixRequest};
use smg_core::policy::ring::HashRing;
use smg_core::policy::rotation::passthrough;
use smg_core::policy::sticky::Placement;
use smg_core::policy::{
    Candidates, Choice, Loads, NoWorker, PolicyKind, consistent_hashing, least_load, power_of_two,
    sampling,
};
use tracing::{Level, debug, enabled};

use super::Shard;
use crate::fleet::Fleet;
use crate::messages::Taken;
use crate::metrics::{BranchFamily, ModelLabel, ShardCells};
use crate::owner::{Ask, Decided, Index, Key, RouteError, Session, contenders};
use crate::policies;
use crate::runtime::clock;

/// Target of the debug lines that tools parse.
const CACHE_AWARE: &str = "smg::policies::cache_aware";

impl Shard {
    /// Decides for a request that another shard read; this shard has its part of the
    /// model's index.
    pub fn decide_for(&self, model: ModelId, ask: &Ask<'_>) -> Result<Taken, RouteError> {
        let fleet = self.shared.fleet.load();
        let placed = fleet.placement.models.get(model.0 as usize).ok_or(RouteError::ModelGone)?;
        self.decide(&fleet, placed, ask)
    }

    /// Decides where a request goes. Where the policy needs the model's owner, or the request has a
    /// sticky key, this shard must be the one that [`Parts::decider`](crate::owner::Parts) names.
    pub(super) fn decide(
        &self,
        fleet: &Fleet,
        model: &ModelPlacement,
        ask: &Ask<'_>,
    ) -> Result<Taken, RouteError> {
        let policy = fleet.policy(model.id);
        let loads = self.shared.loads.load();
        let excluded = self.excluded(fleet, model, policy, &loads, ask);
        let candidates = self.candidates(fleet, model, &loads, &excluded);
        let outcome = match ask.session {
            None => self.by_policy(fleet, model, policy, &candidates, ask),
            Some(session) => self.by_session(fleet, model, policy, &candidates, ask, session),
        };
        self.settle(fleet, model, policy, ask, outcome)
    }

    /// Decides where a request goes whose model's owner cannot be asked: on load alone, if its policy
    /// needs the owner. No key keeps it anywhere then.
    pub(super) fn decide_alone(
        &self,
        fleet: &Fleet,
        model: &ModelPlacement,
        ask: &Ask<'_>,
    ) -> Result<Taken, RouteError> {
        let policy = fleet.policy(model.id);
        let loads = self.shared.loads.load();
        let excluded = self.avoided(model, ask.excluded);
        let candidates = self.candidates(fleet, model, &loads, &excluded);
        let outcome = if policy.needs_owner() {
            self.by_load(&Scorer::DEFAULT, &candidates, ask).map(Decided::plain)
        } else {
            self.by_policy(fleet, model, policy, &candidates, ask)
        };
        self.settle(fleet, model, policy, ask, outcome)
    }

    /// Whom the request does not go to. Who asks for a request with a key leaves silent hosts in, for
    /// those that have the key already; one that is to be placed goes elsewhere.
    fn excluded<'a>(
        &self,
        fleet: &Fleet,
        model: &ModelPlacement,
        policy: PolicyKind,
        loads: &Loads,
        ask: &Ask<'a>,
    ) -> Cow<'a, [WorkerId]> {
        let is_manual = policy == PolicyKind::Manual;
        let of_session = ask.session.map(|session| session.key);
        let Some(key) = of_session.or(ask.routing_key.filter(|_| is_manual)) else {
            return Cow::Borrowed(ask.excluded);
        };
        let avoided = self.avoided(model, ask.excluded);
        let is_placed = || {
            let candidates = self.candidates(fleet, model, loads, ask.excluded);
            let mut owner = self.owner.borrow_mut();
            owner.is_placed(model.id, &candidates, key, of_session.is_some())
        };
        match avoided {
            // Asked only while there are stalls.
            Cow::Owned(_) if is_placed() => Cow::Borrowed(ask.excluded),
            avoided => avoided,
        }
    }

    /// Tells the gauge how many sticky keys this shard keeps.
    pub(super) fn count_pinned_keys(&self) {
        self.cells().pinned_keys.set(self.owner.borrow().pinned_keys() as i64);
    }

    fn by_policy(
        &self,
        fleet: &Fleet,
        model: &ModelPlacement,
        policy: PolicyKind,
        candidates: &Candidates<'_>,
        ask: &Ask<'_>,
    ) -> Result<Decided, NoWorker> {
        match policy {
            PolicyKind::CacheAware => {
                let mut rng = self.rng.borrow_mut();
                let decided =
                    self.owner.borrow_mut().decide(model.id, candidates, ask, &mut rng)?;
                self.count_cache_aware(&decided);
                if enabled!(target: CACHE_AWARE, Level::DEBUG) {
                    log_cache_aware(fleet, model, &decided, self.owner.borrow().threshold());
                }
                Ok(decided)
            }
            PolicyKind::Manual => {
                let mut rng = self.rng.borrow_mut();
                let key = ask.routing_key;
                let outcome =
                    self.owner.borrow_mut().choose_manually(model.id, candidates, key, &mut rng);
                self.count_branch(BranchFamily::Manual, outcome.as_ref().map(|d| &d.choice));
                self.count_pinned_keys();
                outcome
            }
            _ => {
                let contenders = match ask.explain {
                    true => contenders(candidates, &[]),
                    false => Vec::new(),
                };
                let choice = self.without_index(fleet, model, policy, candidates, ask)?;
                Ok(Decided { contenders, ..Decided::plain(choice) })
            }
        }
    }

    /// The policies that remember nothing of earlier requests.
    fn without_index(
        &self,
        fleet: &Fleet,
        model: &ModelPlacement,
        policy: PolicyKind,
        candidates: &Candidates<'_>,
        ask: &Ask<'_>,
    ) -> Result<Choice, NoWorker> {
        match policy {
            PolicyKind::RoundRobin => self.shared.round_robin.choose(model.id, candidates),
            PolicyKind::Passthrough => passthrough(candidates),
            PolicyKind::PowerOfTwo => {
                let (mut state, mut rng) = (self.policy.borrow_mut(), self.rng.borrow_mut());
                power_of_two::choose(&mut state, candidates, ask.key.tokens(), &mut rng)
            }
            PolicyKind::LeastLoad => {
                let scorer = policies::least_load_scorer(&self.shared.config);
                let choice = self.by_load(&scorer, candidates, ask);
                if let Ok(choice) = &choice {
                    log_least_load(fleet, candidates, choice);
                }
                choice
            }
            PolicyKind::PrefixHash => self.by_prefix(fleet, model, candidates, ask),
            PolicyKind::ConsistentHashing => {
                let (mut state, mut rng) = (self.policy.borrow_mut(), self.rng.borrow_mut());
                let none = HashRing::default();
                let ring = fleet.ring(model.id).unwrap_or(&none);
                let hashed = &ask.hashed;
                let outcome =
                    consistent_hashing::choose(ring, &mut state, candidates, hashed, &mut rng);
                self.count_branch(BranchFamily::ConsistentHashing, outcome.as_ref());
                outcome
            }
            // The other two are decided before.
            PolicyKind::Random
            | PolicyKind::Bucket
            | PolicyKind::CacheAware
            | PolicyKind::Manual => {
                let (mut workers, mut rng) = (self.workers.borrow_mut(), self.rng.borrow_mut());
                sampling::choose(candidates, &mut workers, &mut rng)
            }
        }
    }

    fn by_load(
        &self,
        scorer: &Scorer,
        candidates: &Candidates<'_>,
        ask: &Ask<'_>,
    ) -> Result<Choice, NoWorker> {
        let (mut state, mut rng) = (self.policy.borrow_mut(), self.rng.borrow_mut());
        least_load::choose(scorer, &mut state, candidates, ask.key.tokens(), &mut rng)
    }

    fn by_prefix(
        &self,
        fleet: &Fleet,
        model: &ModelPlacement,
        candidates: &Candidates<'_>,
        ask: &Ask<'_>,
    ) -> Result<Choice, NoWorker> {
        let (mut state, mut rng) = (self.policy.borrow_mut(), self.rng.borrow_mut());
        let (tokens, text) = match ask.key {
            Key::Tokens(tokens) => (Some(tokens), None),
            Key::Text(text) => (None, Some(text)),
        };
        let request = PrefixRequest { routing_key: ask.routing_key, tokens, text };
        let none = HashRing::default();
        let ring = fleet.ring(model.id).unwrap_or(&none);
        let config = &self.prefix_hash;
        let outcome = prefix_hash::choose(config, ring, &mut state, candidates, &request, &mut rng);
        self.count_branch(BranchFamily::PrefixHash, outcome.as_ref().map(|found| &found.choice));
        let found = outcome?;
        debug!(
            target: "smg::policies::prefix_hash",
            branch = found.choice.branch.as_str(),
            level = found.level,
            worker = url(fleet, found.choice.worker),
            model_id = &*model.name,
            "Prefix-hash selection"
        );
        Ok(found.choice)
    }

    /// A pinned worker, or the policy's choice, which is pinned then.
    fn by_session(
        &self,
        fleet: &Fleet,
        model: &ModelPlacement,
        policy: PolicyKind,
        candidates: &Candidates<'_>,
        ask: &Ask<'_>,
        session: Session<'_>,
    ) -> Result<Decided, NoWorker> {
        let key = session.key;
        let placement = {
            let mut rng = self.rng.borrow_mut();
            self.owner.borrow_mut().placement(model.id, candidates, key, &mut rng)
        };
        let outcome = placement.and_then(|placement| match placement {
            Placement::Decided(choice, permit) => {
                let contenders = match ask.explain {
                    true => contenders(candidates, &[choice.worker]),
                    false => Vec::new(),
                };
                Ok((choice.branch, Decided { permit, contenders, ..Decided::plain(choice) }))
            }
            Placement::Delegated(branch) => {
                let mut decided = self.by_policy(fleet, model, policy, candidates, ask)?;
                let worker = decided.choice.worker;
                let mut owner = self.owner.borrow_mut();
                let permit = owner.pin(model.id, key, worker, branch, candidates.now_ms);
                decided.permit = Some(permit);
                Ok((branch, decided))
            }
        });
        self.count_pinned_keys();
        let branch = match &outcome {
            Ok((branch, _)) => *branch,
            Err(error) => error.branch(),
        };
        self.cells().branch(BranchFamily::Manual, branch);
        let (branch, decided) = outcome?;
        debug!(
            target: "smg::policies::sticky",
            source = if session.from_rid { "rid" } else { "header" },
            key = ?String::from_utf8_lossy(key),
            branch = branch.as_str(),
            worker = url(fleet, decided.choice.worker),
            model_id = &*model.name,
            "Sticky routing decision"
        );
        Ok(decided)
    }

    /// Counts a decision and takes the in-flight count. From here on the guard is the only thing that
    /// gives it back.
    fn settle(
        &self,
        fleet: &Fleet,
        model: &ModelPlacement,
        policy: PolicyKind,
        ask: &Ask<'_>,
        outcome: Result<Decided, NoWorker>,
    ) -> Result<Taken, RouteError> {
        match outcome {
            Ok(decided) => {
                let route = ask.explain.then(|| explanation(fleet, policy, &decided));
                let label = ModelLabel::of(model.id);
                self.cells().model(label).selections[policy as usize].inc();
                let in_flight = self.shared.in_flight.begin(decided.choice.worker);
                Ok(Taken::new(in_flight, decided.permit, route))
            }
            Err(error) => {
                if error == NoWorker::Overloaded {
                    self.cells().sheds[0].inc();
                    debug!(target: "smg::policies", branch = "all_overloaded_shed",
                        model_id = &*model.name, "Overload shed");
                }
                Err(RouteError::NoWorker(error))
            }
        }
    }

    fn candidates<'a>(
        &'a self,
        fleet: &'a Fleet,
        model: &'a ModelPlacement,
        loads: &'a Loads,
        excluded: &'a [WorkerId],
    ) -> Candidates<'a> {
        Candidates {
            epoch: fleet.placement.epoch,
            ready: &model.ready,
            in_flight: &self.shared.in_flight,
            breakers: &self.shared.breakers,
            loads,
            excluded,
            now_ms: clock::now_ms(),
        }
    }

    fn count_cache_aware(&self, decided: &Decided) {
        if let Some(index) = decided.index {
            let ratio = decided.ratio.map(f64::from);
            self.cells().decision(index as usize, decided.choice.branch, ratio);
        }
    }

    fn count_branch(&self, family: BranchFamily, outcome: Result<&Choice, &NoWorker>) {
        let branch = outcome.map_or_else(|error| error.branch(), |choice| choice.branch);
        self.cells().branch(family, branch);
    }
}

fn url(fleet: &Fleet, worker: WorkerId) -> &str {
    fleet.worker(worker).map_or("none", |worker| worker.url.as_str())
}

fn log_cache_aware(fleet: &Fleet, model: &ModelPlacement, decided: &Decided, threshold: f32) {
    let worker = url(fleet, decided.choice.worker);
    let branch = decided.choice.branch.as_str();
    let model_id = &*model.name;
    match (decided.index, decided.ratio) {
        (Some(Index::Hash), _) => debug!(
            target: CACHE_AWARE,
            index = "hash", branch, level = decided.level, worker, model_id,
            "Cache-aware selection"
        ),
        (_, Some(matched_ratio)) => debug!(
            target: CACHE_AWARE,
            index = "tree", branch, worker, model_id, matched_ratio, threshold,
            "Cache-aware selection"
        ),
        (_, None) => debug!(
            target: CACHE_AWARE,
            branch, worker, model_id,
            "Cache-aware selection"
        ),
    }
}

fn log_least_load(fleet: &Fleet, candidates: &Candidates<'_>, choice: &Choice) {
    debug!(
        target: "smg::policies::least_load",
        "least_load selected {} (score {:.4}, in_flight {})",
        url(fleet, choice.worker),
        choice.score.unwrap_or(0.0),
        candidates.in_flight.get(choice.worker),
    );
}

/// The value of `x-smg-route`.
fn explanation(fleet: &Fleet, policy: PolicyKind, decided: &Decided) -> Box<str> {
    let index = decided.index.map_or("none", |index| ShardCells::INDEXES[index as usize]);
    let candidates: Vec<_> = decided
        .contenders
        .iter()
        .map(|contender| {
            json!({
                "worker": url(fleet, contender.worker),
                "in_flight": contender.in_flight,
                "expected_wait": rounded(contender.expected_wait),
            })
        })
        .collect();
    let route = json!({
        "policy": policy.as_str(),
        "index": index,
        "branch": decided.choice.branch.as_str(),
        "matched": decided.matched,
        "length": decided.length,
        "candidates": candidates,
        "worker": url(fleet, decided.choice.worker),
    });
    route.to_string().into()
}

/// To a tenth of a millisecond: a header is read by people.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Contender;

    #[test]
    fn indexes_are_positions_of_the_counters() {
        assert_eq!(ShardCells::INDEXES[Index::String as usize], "string");
        assert_eq!(ShardCells::INDEXES[Index::Token as usize], "token");
        assert_eq!(ShardCells::INDEXES[Index::Hash as usize], "hash");
    }

    #[test]
    fn an_explanation_is_one_line_of_json() {
        let worker = WorkerId { slot: 0, generation: 0 };
        let choice =
            Choice { worker, branch: smg_core::policy::Branch::TreeMatch, score: Some(0.5) };
        let decided = Decided {
            index: Some(Index::String),
            matched: 30,
            length: 40,
            contenders: vec![Contender { worker, in_flight: 2, expected_wait: 0.123_456 }],
            ..Decided::plain(choice)
        };
        let route = explanation(&Fleet::default(), PolicyKind::CacheAware, &decided);
        let value: serde_json::Value = serde_json::from_str(&route).unwrap();
        assert_eq!(
            (value["index"].as_str(), value["branch"].as_str()),
            (Some("string"), Some("tree_match"))
        );
        assert_eq!((value["matched"].as_u64(), value["length"].as_u64()), (Some(30), Some(40)));
        assert_eq!(value["candidates"][0]["expected_wait"], 0.1235);
        assert_eq!(value["worker"], "none", "a worker that left meanwhile");
        assert!(smg_core::http1::is_field_value(route.as_bytes()));
    }
}
