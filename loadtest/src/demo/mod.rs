//! The demonstration: the same chat workload through a gateway under one policy after the other,
//! against engines with real prefix caches, and a table that shows the difference.

mod table;

use std::any::Any;
use std::io::{self, IsTerminal};
use std::time::Duration;

use serde::Serialize;

use crate::blocking;
use crate::engine::Profile;
use crate::load::{
    ConversationOptions, Observer, Progress, Quantiles, Report, Target, TargetError,
    run_conversations,
};
use crate::server::{EngineKind, EngineSnapshot, Fleet, FleetOptions};
use table::Live;

/// What to demonstrate. The default takes about 35 seconds.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    pub engines: usize,
    pub profile: Profile,
    /// Policies in the order they are shown; the last one is compared with the first.
    pub policies: Vec<String>,
    /// Of each policy; they go to its gateway, whatever targets are named here.
    pub conversations: ConversationOptions,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            engines: 4,
            // Known by name, see `Profile::all`.
            profile: Profile::named("demo").unwrap_or_else(|_| Profile::all().remove(0)),
            policies: vec!["round_robin".into(), "cache_aware".into()],
            conversations: ConversationOptions {
                model: "demo-8b".into(),
                warmup: Duration::from_secs(5),
                duration: Duration::from_secs(11),
                ..ConversationOptions::default()
            },
        }
    }
}

/// A running gateway. Dropping it stops the gateway.
pub struct GatewayHandle {
    /// Such as `http://127.0.0.1:30000`.
    pub base_url: String,
    guard: Box<dyn Any>,
}

impl GatewayHandle {
    /// A gateway that stops when `guard` is dropped.
    pub fn new(base_url: impl Into<String>, guard: impl Any) -> Self {
        Self { base_url: base_url.into(), guard: Box::new(guard) }
    }

    /// Stops the gateway now.
    pub fn stop(self) {
        drop(self.guard);
    }
}

/// Why a demonstration broke off.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("cannot start the simulated engines: {0}")]
    Engines(io::Error),
    #[error("cannot start the gateway with policy {policy}: {reason}")]
    Gateway { policy: String, reason: String },
    #[error("the gateway with policy {policy} was not ready within {} s", READY_TIMEOUT.as_secs())]
    NotReady { policy: String },
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("the workload failed: {0}")]
    Load(io::Error),
}

/// What a demonstration found.
#[derive(Debug, Clone, Serialize)]
pub struct DemoReport {
    pub engines: usize,
    pub system_prompts: usize,
    pub arms: Vec<Arm>,
}

/// One policy's result. Engine counts are of the measured time only.
#[derive(Debug, Clone, Serialize)]
pub struct Arm {
    pub policy: String,
    pub answered: u64,
    pub failed: u64,
    /// Cached share of all prompt tokens, by the engines' own count; 0 to 1.
    pub hit_share: f64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub ttft_ms: Quantiles,
    pub whole_answer_ms: Quantiles,
    /// Share of the requests each engine got; adds up to 1.
    pub shares: Vec<f64>,
}

/// How long a gateway may take until it answers its readiness probe.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the demonstration and prints it to stdout: a live table when that is a terminal, else a
/// line per second, and the final table. `start_gateway` is called once per policy with the
/// policy's name and the engines' URLs, and starts a gateway on a port of its choice.
pub fn demo<E: std::fmt::Display>(
    options: &DemoOptions,
    start_gateway: impl FnMut(&str, &[String]) -> Result<GatewayHandle, E>,
) -> Result<DemoReport, DemoError> {
    let terminal = io::stdout().is_terminal();
    demo_on(options, start_gateway, Live::new(&mut io::stdout(), terminal))
}

fn demo_on<E: std::fmt::Display>(
    options: &DemoOptions,
    mut start_gateway: impl FnMut(&str, &[String]) -> Result<GatewayHandle, E>,
    mut live: Live<'_>,
) -> Result<DemoReport, DemoError> {
    let fleet = Fleet::start(&FleetOptions {
        count: options.engines,
        model: options.conversations.model.clone(),
        kind: EngineKind::Simulated(options.profile.clone()),
        ..FleetOptions::default()
    })
    .map_err(DemoError::Engines)?;
    live.show(&options.introduction());
    let mut report = DemoReport {
        engines: options.engines,
        system_prompts: options.conversations.system_prompts,
        arms: Vec::new(),
    };
    for policy in &options.policies {
        fleet.reset_caches().map_err(DemoError::Engines)?;
        let gateway = start_gateway(policy, &fleet.urls()).map_err(|reason| {
            DemoError::Gateway { policy: policy.clone(), reason: reason.to_string() }
        })?;
        let target = Target::parse(&gateway.base_url)?;
        let ready = blocking::wait_until_ok(target.address, "/readiness", READY_TIMEOUT);
        if !ready {
            return Err(DemoError::NotReady { policy: policy.clone() });
        }
        let mut watch = Watch {
            policy,
            fleet: &fleet,
            at_start: fleet.snapshots(),
            at_end: None,
            live: &mut live,
            finished: &report.arms,
        };
        let conversations =
            ConversationOptions { targets: vec![target], ..options.conversations.clone() };
        let result = run_conversations(&conversations, &mut watch);
        let arm = watch.arm(&result.map_err(DemoError::Load)?);
        gateway.stop();
        report.arms.push(arm);
    }
    live.finish(&report);
    Ok(report)
}

impl DemoOptions {
    fn introduction(&self) -> String {
        let ConversationOptions { system_prompts, system_prompt_chars, turns, .. } =
            self.conversations;
        let blocks = u64::from(self.profile.cache_blocks);
        let cache_tokens = blocks * u64::from(self.profile.block_tokens);
        let prompt_tokens = system_prompt_chars / crate::engine::CHARS_PER_TOKEN;
        let all_prompts = (prompt_tokens * system_prompts) as u64;
        let fits = if all_prompts <= cache_tokens {
            "every engine could cache them all"
        } else if all_prompts <= cache_tokens * self.engines as u64 {
            "too many for one engine's cache, not for the fleet's"
        } else {
            "too many for all caches together"
        };
        let each = self.conversations.warmup + self.conversations.duration;
        let seconds = each.as_secs() * self.policies.len() as u64;
        format!(
            "{} simulated engines, each with a prefix cache of {cache_tokens} tokens.\n\
             Chats of {turns} turns over {system_prompts} system prompts of {prompt_tokens} tokens: \
             {all_prompts} in all, {fits}.\n\
             The same chats go through the gateway under {}: {seconds} seconds.\n",
            self.engines,
            self.policies.join(", then "),
        )
    }
}

/// Follows one policy's run.
struct Watch<'a, 'b> {
    policy: &'a str,
    fleet: &'a Fleet,
    at_start: Vec<EngineSnapshot>,
    /// Set when the measured time is over.
    at_end: Option<Vec<EngineSnapshot>>,
    live: &'a mut Live<'b>,
    finished: &'a [Arm],
}

impl Watch<'_, '_> {
    fn arm(&self, report: &Report) -> Arm {
        let measured = (report.succeeded, report.failed);
        self.build(measured, report.first_byte_ms, report.latency_ms)
    }

    fn build(&self, (answered, failed): (u64, u64), ttft: Quantiles, whole: Quantiles) -> Arm {
        let now = self.at_end.clone().unwrap_or_else(|| self.fleet.snapshots());
        let since = |count: fn(&EngineSnapshot) -> u64| -> Vec<u64> {
            let pairs = now.iter().zip(&self.at_start);
            pairs.map(|(now, start)| count(now).saturating_sub(count(start))).collect()
        };
        let received = since(|engine| engine.received);
        let total = received.iter().sum::<u64>().max(1) as f64;
        let prompt_tokens: u64 = since(|engine| engine.prompt_tokens).iter().sum();
        let cached_tokens: u64 = since(|engine| engine.cached_tokens).iter().sum();
        Arm {
            policy: self.policy.to_owned(),
            answered,
            failed,
            hit_share: cached_tokens as f64 / prompt_tokens.max(1) as f64,
            prompt_tokens,
            cached_tokens,
            ttft_ms: ttft,
            whole_answer_ms: whole,
            shares: received.iter().map(|count| *count as f64 / total).collect(),
        }
    }
}

impl Observer for Watch<'_, '_> {
    fn measuring(&mut self) {
        self.at_start = self.fleet.snapshots();
    }

    fn measured(&mut self) {
        self.at_end = Some(self.fleet.snapshots());
    }

    fn tick(&mut self, progress: &Progress<'_>) {
        let recorder = progress.recorder;
        let arm = self.build(
            (recorder.succeeded, recorder.failed()),
            Quantiles::of(&recorder.first_byte),
            Quantiles::of(&recorder.latency),
        );
        self.live.tick(self.finished, &arm, progress.elapsed, progress.warming_up);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No gateway: the first engine answers everything.
    #[test]
    fn a_demo_reports_each_policy_from_the_engines_counters() {
        let options = DemoOptions {
            engines: 2,
            profile: Profile {
                step_base_ns: 1_000_000,
                decode_request_ns: 1_000,
                prefill_token_ns: 1_000,
                ..Profile::named("demo").unwrap()
            },
            conversations: ConversationOptions {
                system_prompts: 2,
                answer_tokens: 4,
                arrivals_per_s: 30.0,
                think_time: Duration::from_millis(10),
                warmup: Duration::from_millis(300),
                duration: Duration::from_millis(700),
                ..DemoOptions::default().conversations
            },
            ..DemoOptions::default()
        };
        let mut started = Vec::new();
        let mut printed = Vec::new();
        let report = demo_on(
            &options,
            |policy, engines: &[String]| {
                assert_eq!(engines.len(), 2);
                started.push(policy.to_owned());
                Ok::<_, String>(GatewayHandle::new(engines[0].clone(), ()))
            },
            Live::new(&mut printed, false),
        );
        let report = report.unwrap();
        let printed = String::from_utf8(printed).unwrap();
        assert!(printed.contains("2 simulated engines") && printed.contains("requests answered"));
        assert_eq!(started, ["round_robin", "cache_aware"]);
        for arm in &report.arms {
            assert!(arm.answered > 0, "{arm:?}");
            assert_eq!(arm.failed, 0);
            assert_eq!(arm.shares, [1.0, 0.0]);
            assert!((0.0..=1.0).contains(&arm.hit_share));
            assert!(arm.cached_tokens > 0 && arm.cached_tokens < arm.prompt_tokens);
        }
    }

    #[test]
    fn a_gateway_that_does_not_start_is_named() {
        let options = DemoOptions { engines: 1, ..DemoOptions::default() };
        let mut nowhere = io::sink();
        let live = Live::new(&mut nowhere, false);
        let error = demo_on(&options, |_, _| Err("port 1 is in use"), live).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("round_robin") && error.contains("port 1 is in use"), "{error}");
    }
}
