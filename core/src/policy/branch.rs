//! The ways a decision can come about: label values of the branch counters and of the debug lines.

/// How a decision came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Branch {
    /// The policy has no branches (`round_robin`, `random`, …).
    Plain,

    // cache_aware, trees
    /// The match is above the threshold and the chosen worker holds it.
    TreeMatch,
    /// The match is above the threshold and the chosen worker does not hold it.
    Spill,
    /// Nothing matched well enough: lowest expected wait. Also in hash mode.
    ExpectedWaitFallback,
    /// Nothing was selected. Part of the counter's label set; no decision here ends with it.
    FirstHealthyFallback,
    /// Affinity was skipped because a KV cache is too full.
    KvPressureExpectedWait,

    // cache_aware, KV-event index
    EventHit,
    EventSpill,
    EventMiss,

    // cache_aware, hash index
    HashHit,
    HashSpill,
    /// No boundary is as short as the request.
    ShortRequest,

    // prefix_hash
    RingHit,
    LoadBalanceWalk,
    NoRoutingKey,
    FallbackLeastLoad,

    // consistent_hashing
    TargetWorkerHit,
    TargetWorkerMiss,
    RoutingKeyHit,
    RandomFallback,

    // manual and sticky sessions
    OccupiedHit,
    OccupiedMiss,
    Vacant,
    NoRoutingId,
    CapRespill,

    /// Nothing was selected (`prefix_hash`, `consistent_hashing`, `manual`).
    NoHealthyWorkers,
}

impl Branch {
    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::TreeMatch => "tree_match",
            Self::Spill => "spill",
            Self::ExpectedWaitFallback => "expected_wait_fallback",
            Self::FirstHealthyFallback => "first_healthy_fallback",
            Self::KvPressureExpectedWait => "kv_pressure_expected_wait",
            Self::EventHit => "event_hit",
            Self::EventSpill => "event_spill",
            Self::EventMiss => "event_miss",
            Self::HashHit => "hash_hit",
            Self::HashSpill => "hash_spill",
            Self::ShortRequest => "short_request",
            Self::RingHit => "ring_hit",
            Self::LoadBalanceWalk => "load_balance_walk",
            Self::NoRoutingKey => "no_routing_key",
            Self::FallbackLeastLoad => "fallback_least_load",
            Self::TargetWorkerHit => "target_worker_hit",
            Self::TargetWorkerMiss => "target_worker_miss",
            Self::RoutingKeyHit => "routing_key_hit",
            Self::RandomFallback => "random_fallback",
            Self::OccupiedHit => "occupied_hit",
            Self::OccupiedMiss => "occupied_miss",
            Self::Vacant => "vacant",
            Self::NoRoutingId => "no_routing_id",
            Self::CapRespill => "cap_respill",
            Self::NoHealthyWorkers => "no_healthy_workers",
        }
    }
}
