//! What a decision costs: a whole one of `cache_aware` as the owner makes it (look up, choose,
//! record), its choice alone, and the other policies at fleet scale.
//!
//! Bars: a whole hit among 8 workers with a prompt of 2 kB takes at most 1.5 µs, a miss over 4,000
//! workers at most 12 µs.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

use smg_core::breaker::Breakers;
use smg_core::fleet::{InFlight, InFlightGuard, ModelId, WorkerId};
use smg_core::index::{Limits, TextTree};
use smg_core::policy::cache_aware::{self, CacheAwareConfig, TreeMatch};
use smg_core::policy::load_report::{LoadReport, OverloadThresholds, RankLoad};
use smg_core::policy::rotation::RoundRobin;
use smg_core::policy::{Branch, Candidates, LoadTable, Loads, PolicyState, power_of_two, sampling};
use smg_core::rng::Rng;

criterion_group!(benches, whole, hit, miss, other_policies);
criterion_main!(benches);

/// Who reports load, and how alike the fleet is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reports {
    /// Nobody, and everybody is idle: every worker ties.
    NobodyAllIdle,
    /// Nobody, and requests in flight differ.
    Nobody,
    /// Everybody, with different queues.
    All,
    /// Every second worker.
    Half,
}

struct Fleet {
    ready: Vec<WorkerId>,
    in_flight: InFlight,
    breakers: Breakers,
    loads: Loads,
    _held: Vec<InFlightGuard>,
}

impl Fleet {
    fn new(workers: u32, reports: Reports) -> Self {
        let ready: Vec<_> = (0..workers).map(|slot| WorkerId { slot, generation: 1 }).collect();
        let (in_flight, breakers) = (InFlight::default(), Breakers::default());
        let (mut table, mut rng, mut held) = (LoadTable::default(), Rng::new(1), Vec::new());
        for &worker in &ready {
            breakers.reset(worker);
            if reports != Reports::NobodyAllIdle {
                held.extend((0..1 + rng.below(20)).map(|_| in_flight.begin(worker)));
            }
            if reports == Reports::All || (reports == Reports::Half && worker.slot % 2 == 0) {
                let rank = RankLoad {
                    waiting_uncached_tokens: rng.below(50_000) as f64,
                    gen_throughput: 1000.0 + rng.below(2000) as f64,
                    token_usage: rng.unit() * 0.9,
                    ..RankLoad::default()
                };
                let report = LoadReport { ranks: vec![rank] };
                table.enter(worker, report, &OverloadThresholds::default());
            }
        }
        Self { ready, in_flight, breakers, loads: table.publish(), _held: held }
    }

    fn candidates(&self) -> Candidates<'_> {
        Candidates {
            epoch: 1,
            ready: &self.ready,
            in_flight: &self.in_flight,
            breakers: &self.breakers,
            loads: &self.loads,
            excluded: &[],
            now_ms: 1000,
        }
    }

    /// Decides about requests that matched `matched` of 2,000 characters on `holders`.
    fn decide<'f>(
        &'f self,
        matched: u64,
        holders: &'f [WorkerId],
        margin: u32,
    ) -> impl FnMut() -> WorkerId + 'f {
        let mut config = CacheAwareConfig::default();
        config.spill.abs = margin;
        let (mut state, mut rng) = (PolicyState::default(), Rng::new(2));
        move || {
            let found = TreeMatch {
                matched_units: matched,
                total_units: 2000,
                holders: black_box(holders),
                units_are_chars: true,
            };
            // No tokens: the credit is written but the fleet stays as it was set up.
            let choice = cache_aware::choose(
                &config,
                &mut state,
                &self.candidates(),
                &found,
                |worker| holders.contains(&worker),
                Some(0),
                &mut rng,
            );
            choice.expect("everybody is eligible").worker
        }
    }
}

/// A hit as the owner makes it: 500 conversations of 2,000 characters, a quarter of it shared by all,
/// asked for in turn; 8 workers, all of whom come to hold the shared part.
fn whole(criterion: &mut Criterion) {
    let fleet = Fleet::new(8, Reports::All);
    let mut rng = Rng::new(4);
    let mut text = |length: usize| -> String {
        (0..length).map(|_| char::from(b'a' + rng.below(26) as u8)).collect()
    };
    let shared = text(500);
    let prompts: Vec<String> = (0..500).map(|_| format!("{shared}{}", text(1500))).collect();
    let mut tree = TextTree::new(Limits::new(1 << 26));
    let config = CacheAwareConfig::default();
    let (mut state, mut rng) = (PolicyState::default(), Rng::new(5));
    let mut touch = 0;
    let mut decide = |prompt: &str| {
        let candidates = fleet.candidates();
        let eligibility = state.eligibility(&candidates);
        let found = tree.find(None, prompt, |worker| eligibility.allows(worker));
        let matched = TreeMatch {
            matched_units: found.matched_units,
            total_units: found.total_units,
            holders: found.holders(),
            units_are_chars: true,
        };
        let holds = |worker| tree.is_holder(&found, worker);
        let choice =
            cache_aware::choose(&config, &mut state, &candidates, &matched, holds, None, &mut rng);
        let choice = choice.expect("everybody is eligible");
        touch += 1;
        tree.record(&found, prompt, choice.worker, touch);
        choice
    };
    for prompt in &prompts {
        decide(prompt);
    }
    let mut turn = (0..prompts.len()).cycle();
    criterion.bench_function("decision/whole/hit_8_workers_2kB", |b| {
        b.iter(|| {
            let at = turn.next().unwrap_or_default();
            let choice = decide(black_box(&prompts[at]));
            assert_eq!(choice.branch, Branch::TreeMatch);
        });
    });
}

fn hit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decision/hit");
    for (workers, holders) in [(8, 1), (8, 8), (4000, 1), (4000, 8)] {
        let fleet = Fleet::new(workers, Reports::All);
        let holders = &fleet.ready[..holders];
        let name = format!("{workers}_workers");
        group.bench_function(BenchmarkId::new(name, format!("{}_holders", holders.len())), |b| {
            b.iter(fleet.decide(1900, holders, 64));
        });
    }
    // A holder above the absolute margin: the gate needs the mean of the fleet.
    let fleet = Fleet::new(4000, Reports::All);
    group.bench_function("4000_workers_gate_reads_mean", |b| {
        b.iter(fleet.decide(1900, &fleet.ready[..8], 0));
    });
    group.finish();
}

fn miss(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decision/miss");
    for reports in [Reports::NobodyAllIdle, Reports::Nobody, Reports::All, Reports::Half] {
        for workers in [8, 4000] {
            let fleet = Fleet::new(workers, reports);
            group.bench_function(BenchmarkId::new(format!("{reports:?}"), workers), |b| {
                b.iter(fleet.decide(0, &[], 64));
            });
        }
    }
    group.finish();
}

fn other_policies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decision/other");
    let fleet = Fleet::new(4000, Reports::All);
    let (mut rng, mut scratch) = (Rng::new(3), Vec::new());
    group.bench_function("random_4000", |b| {
        b.iter(|| sampling::choose(&fleet.candidates(), &mut scratch, &mut rng));
    });
    let robin = RoundRobin::default();
    group.bench_function("round_robin_4000", |b| {
        b.iter(|| robin.choose(ModelId(0), &fleet.candidates()));
    });
    let mut state = PolicyState::default();
    group.bench_function("power_of_two_4000", |b| {
        b.iter(|| power_of_two::choose(&mut state, &fleet.candidates(), Some(0), &mut rng));
    });
    group.finish();
}
