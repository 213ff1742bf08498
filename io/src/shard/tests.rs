//! Decisions while hosts are silent.

use std::rc::Rc;
use std::sync::Arc;

use smg_core::fleet::{ModelId, ModelPlacement, Placement, WorkerId};
use smg_core::policy::PolicyKind;
use smg_core::policy::consistent_hashing::HashedRequest;
use smg_core::retry::RetryBudget;

use super::Shard;
use crate::config::Config;
use crate::fleet::{Fleet, ModelPolicy};
use crate::http::stalls::Stall;
use crate::owner::{Ask, Key, Session};
use crate::shared::{Memory, Shared};
use crate::tls::Tls;

const MODEL: ModelId = ModelId(0);

fn worker(slot: u32) -> WorkerId {
    WorkerId { slot, generation: 0 }
}

/// A shard of a gateway with three workers that nothing is known of.
fn shard(policy: PolicyKind) -> Rc<Shard> {
    let (commands, _) = async_channel::bounded(1);
    let config = Config::default();
    let tls = Tls::load(&config).unwrap();
    let memory = Memory { reclaim: || {}, trim: || {}, ask_for_small_pages: || {} };
    let shared = Arc::new(Shared::new(config, tls, memory, 2, commands).unwrap());
    let workers: Vec<WorkerId> = (0..3).map(worker).collect();
    let model = ModelPlacement {
        id: MODEL,
        name: "m".into(),
        owner: 0,
        members: workers.clone(),
        ready: workers,
    };
    shared.fleet.store(Arc::new(Fleet {
        placement: Placement { epoch: 1, models: vec![model], ..Placement::default() },
        policies: vec![ModelPolicy::new(policy)],
        ..Fleet::default()
    }));
    Shard::new(0, shared, RetryBudget::default())
}

fn ask<'a>(session: Option<&'a [u8]>, routing_key: Option<&'a [u8]>) -> Ask<'a> {
    Ask {
        key: Key::Text("a prompt"),
        namespace: None,
        excluded: &[],
        session: session.map(|key| Session { key, from_rid: false }),
        routing_key,
        hashed: HashedRequest::default(),
        explain: false,
    }
}

#[test]
fn who_decides_without_the_owner_avoids_silent_hosts_too() {
    for policy in [PolicyKind::CacheAware, PolicyKind::Manual, PolicyKind::RoundRobin] {
        let shard = shard(policy);
        let _silent = Stall::begin(&shard.shared, worker(1));
        let fleet = shard.shared.fleet.load();
        let model = &fleet.placement.models[0];
        for _ in 0..12 {
            // Idle workers are all alike: without a reason each is chosen now and then.
            let tried = [worker(0)];
            let taken = shard.decide_without_owner(MODEL, &tried).unwrap();
            assert_eq!(taken.worker(), worker(2), "{policy:?}");
            let taken = shard.decide_alone(&fleet, model, &ask(Some(b"key"), None)).unwrap();
            assert_ne!(taken.worker(), worker(1), "{policy:?}");
        }
        // Where only silent ones are left they are better than those that failed.
        let tried = [worker(0), worker(2)];
        let taken = shard.decide_without_owner(MODEL, &tried).unwrap();
        assert_eq!(taken.worker(), worker(1), "{policy:?}");
    }
}

#[test]
fn a_new_key_avoids_silent_hosts_and_one_that_is_there_stays() {
    for (policy, is_session) in [
        (PolicyKind::Manual, false),
        (PolicyKind::CacheAware, true),
        (PolicyKind::RoundRobin, true),
    ] {
        let shard = shard(policy);
        let decide = |key: &[u8]| {
            let ask = if is_session { ask(Some(key), None) } else { ask(None, Some(key)) };
            shard.decide_for(MODEL, &ask).unwrap().worker()
        };
        let home = decide(b"old");
        let silent = Stall::begin(&shard.shared, home);
        for key in 0..12u8 {
            assert_ne!(decide(&[b'n', key]), home, "{policy:?}");
        }
        assert_eq!(decide(b"old"), home, "{policy:?}");
        drop(silent);
        // Nobody is silent any more, and all keys are where they were.
        assert_eq!(decide(b"old"), home);
        assert_ne!(decide(&[b'n', 0]), home);
    }
}
