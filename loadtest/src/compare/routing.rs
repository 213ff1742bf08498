//! What routing is worth: the same conversations through each arm in turn, in front of engines
//! whose prefix caches are too small for all of it. The engines count the hits.

mod measure;
mod result;

use std::time::Duration;
use std::{fmt, io};

use serde::Serialize;

pub use result::{RoutingArm, RoutingResult};

use super::plan::Phase;
use super::{ArmSpec, Bench, Outcome};
use crate::engine::{CHARS_PER_TOKEN, Profile};
use crate::load::{ConversationOptions, Target, TargetError};
use crate::runtime;
use crate::server::{EngineKind, Fleet, FleetOptions};
use measure::{RoutingSample, measure};

/// The engines and the conversations of the routing load.
#[derive(Debug, Clone)]
pub struct RoutingOptions {
    pub engines: usize,
    pub profile: Profile,
    /// Of each run; they go to its arm, whatever targets are named here.
    pub conversations: ConversationOptions,
}

/// The same for the reader of a report; sizes in tokens.
#[derive(Debug, Clone, Serialize)]
pub struct Workload {
    pub engines: usize,
    pub profile: &'static str,
    pub cache_tokens_per_engine: u64,
    pub conversations_per_s: f64,
    pub turns: usize,
    pub system_prompts: usize,
    pub system_prompt_tokens: usize,
    pub question_tokens: usize,
    pub answer_tokens: u32,
    pub think_s: f64,
    pub warmup_s: f64,
    pub measured_s: f64,
    pub seed: u64,
}

impl Default for RoutingOptions {
    /// Eight H100s with 8B parameters, their caches cut to what a few seconds can fill: all system
    /// prompts together fit the fleet and are three times too many for one engine.
    fn default() -> Self {
        // Known by name, see `Profile::all`.
        let profile = Profile::named("8b-h100").unwrap_or_else(|_| Profile::all().remove(0));
        Self {
            engines: 8,
            profile: Profile { cache_blocks: 2_000, ..profile },
            conversations: ConversationOptions {
                model: FleetOptions::default().model,
                arrivals_per_s: 24.0,
                system_prompts: 48,
                think_time: Duration::from_millis(300),
                warmup: Duration::from_secs(2),
                duration: Duration::from_secs(6),
                timeout: Duration::from_secs(20),
                ..ConversationOptions::default()
            },
        }
    }
}

/// What starting and stopping a gateway and waiting for the last answers takes, about.
const AROUND_A_RUN: Duration = Duration::from_millis(1_500);

impl RoutingOptions {
    /// How long one run takes, about.
    pub(super) fn time_of_a_run(&self) -> Duration {
        self.conversations.warmup + self.conversations.duration + AROUND_A_RUN
    }

    pub(super) fn workload(&self) -> Workload {
        let Profile { name, cache_blocks, block_tokens, .. } = self.profile;
        let chats = &self.conversations;
        Workload {
            engines: self.engines,
            profile: name,
            cache_tokens_per_engine: u64::from(cache_blocks) * u64::from(block_tokens),
            conversations_per_s: chats.arrivals_per_s,
            turns: chats.turns,
            system_prompts: chats.system_prompts,
            system_prompt_tokens: chats.system_prompt_chars / CHARS_PER_TOKEN,
            question_tokens: chats.question_chars / CHARS_PER_TOKEN,
            answer_tokens: chats.answer_tokens,
            think_s: chats.think_time.as_secs_f64(),
            warmup_s: chats.warmup.as_secs_f64(),
            measured_s: chats.duration.as_secs_f64(),
            seed: chats.seed,
        }
    }

    fn conversations(
        &self,
        urls: &[String],
        round: usize,
    ) -> Result<ConversationOptions, TargetError> {
        Ok(ConversationOptions {
            targets: urls.iter().map(|url| Target::parse(url)).collect::<Result<_, _>>()?,
            // All arms hear the same in one round, and something else in the next.
            seed: self.conversations.seed + round as u64,
            ..self.conversations.clone()
        })
    }
}

/// An arm of the routing load and what it has been measured at.
struct Entry<'a> {
    spec: &'a ArmSpec,
    name: String,
    policy: Option<&'a str>,
    samples: Vec<RoutingSample>,
    lost: bool,
}

/// Runs the load with every arm. Returns early, with what was measured, when asked to stop.
pub(super) fn run_all(bench: &mut Bench<'_>) -> io::Result<()> {
    let Some(options) = &bench.options.routing else { return Ok(()) };
    if bench.stopped() {
        return Ok(());
    }
    let fleet = Fleet::start(&FleetOptions {
        count: options.engines,
        kind: EngineKind::Simulated(options.profile.clone()),
        cpus: bench.options.load_cpus.clone(),
        ..FleetOptions::default()
    })?;
    runtime::pin_to(&bench.options.load_cpus)?;
    let mut entries = entries(bench);
    for round in 0..bench.options.runs {
        for turn in 0..entries.len() {
            let index = (round + turn) % entries.len();
            if entries[index].lost {
                bench.plan.skip(Phase::Routing, 1);
            } else if !bench.stopped() {
                run_one(bench, options, &fleet, &mut entries[index], round)?;
            }
        }
    }
    let arms = entries.iter().filter(|entry| !entry.samples.is_empty());
    let arms: Vec<_> = arms.map(|entry| RoutingArm::of(&entry.name, &entry.samples)).collect();
    if !arms.is_empty() {
        bench.report.routing = Some(RoutingResult { workload: options.workload(), arms });
    }
    Ok(())
}

/// Every policy of every peer that has not failed yet.
fn entries<'a>(bench: &Bench<'a>) -> Vec<Entry<'a>> {
    let mut entries = Vec::new();
    for spec in &bench.options.arms {
        if bench.is_missing(&spec.name) {
            continue;
        }
        let arms = spec.routing_arms();
        entries.extend(arms.into_iter().map(|(name, policy)| Entry {
            spec,
            name,
            policy,
            samples: Vec::new(),
            lost: false,
        }));
    }
    entries
}

/// One arm, once: a new process in front of empty caches.
fn run_one(
    bench: &mut Bench<'_>,
    options: &RoutingOptions,
    fleet: &Fleet,
    entry: &mut Entry<'_>,
    round: usize,
) -> io::Result<()> {
    bench.announce(Phase::Routing, &format!("routing  {}", entry.name));
    let (spec, policy) = (entry.spec, entry.policy);
    match bench.unless_void(|bench| attempt(bench, options, fleet, (spec, policy), round))? {
        Outcome::Measured(sample) => entry.samples.push(sample),
        Outcome::Stopped | Outcome::Void(_) => {}
        Outcome::Died(reason) => {
            entry.lost = true;
            bench.lose(&entry.name, &reason);
        }
    }
    Ok(())
}

fn attempt(
    bench: &mut Bench<'_>,
    options: &RoutingOptions,
    fleet: &Fleet,
    (spec, policy): (&ArmSpec, Option<&str>),
    round: usize,
) -> io::Result<Outcome<RoutingSample>> {
    fleet.reset_caches()?;
    let mut arm = match spec.start(policy, &fleet.urls(), bench.options) {
        Ok(arm) => arm,
        Err(_) if bench.stopped() => return Ok(Outcome::Stopped),
        Err(reason) => return Ok(Outcome::Died(reason)),
    };
    if round == 0 {
        let command = arm.command_or("none: the client takes the engines in turn");
        bench.started(spec).note_routing(policy, command, arm.configuration.as_deref());
    }
    let conversations = options.conversations(&arm.urls, round).map_err(io::Error::other)?;
    let outcome = measure(&mut arm, fleet, &conversations, bench.options.should_stop)?;
    arm.kill();
    Ok(outcome)
}

impl Workload {
    /// How the system prompts compare with the caches.
    pub(super) fn what_fits(&self) -> &'static str {
        let all = (self.system_prompts * self.system_prompt_tokens) as u64;
        if all <= self.cache_tokens_per_engine {
            "every engine could cache them all"
        } else if all <= self.cache_tokens_per_engine * self.engines as u64 {
            "too many for one engine's cache, not for the caches of all together"
        } else {
            "too many for all caches together"
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/s new chats of {} turns over {} system prompts of {} tokens;\n{} engines {}, each with a \
             cache of {} tokens; {} s measured after {} s",
            self.conversations_per_s,
            self.turns,
            self.system_prompts,
            self.system_prompt_tokens,
            self.engines,
            self.profile,
            self.cache_tokens_per_engine,
            self.measured_s,
            self.warmup_s,
        )
    }
}
