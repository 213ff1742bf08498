//! What the engines themselves say of a run: who received what, and how much at once.

use std::time::Duration;

use smg_loadtest::blocking;
use smg_loadtest::load::{EngineView, Target};
use smg_loadtest::server::EngineSnapshot;

use crate::cli::Failure;

const PATH: &str = "/sim/stats";
const PATIENCE: Duration = Duration::from_secs(5);

/// Engines that are asked before and after.
pub(super) struct Witnesses(Vec<Witness>);

struct Witness {
    url: String,
    target: Target,
    before: EngineSnapshot,
}

impl Witnesses {
    /// Has each engine count anew.
    pub fn summon(urls: &[String]) -> Result<Self, Failure> {
        let summon = |url: &String| {
            let target = Target::parse(url).map_err(Failure::usage)?;
            let before = asked(url, &target, true)?;
            Ok(Witness { url: url.clone(), target, before })
        };
        urls.iter().map(summon).collect::<Result<_, _>>().map(Self)
    }

    /// What they counted since.
    pub fn hear(&self) -> Result<Vec<EngineView>, Failure> {
        let view = |witness: &Witness| {
            let now = asked(&witness.url, &witness.target, false)?;
            Ok(EngineView {
                url: witness.url.clone(),
                received: now.received.saturating_sub(witness.before.received),
                most_open: now.most_open,
            })
        };
        self.0.iter().map(view).collect()
    }
}

fn asked(url: &str, target: &Target, anew: bool) -> Result<EngineSnapshot, Failure> {
    let path = format!("{}{PATH}", target.base_path);
    let answer = match anew {
        true => blocking::post(target.address, &path, PATIENCE),
        false => blocking::get(target.address, &path, PATIENCE),
    };
    let not_one = || {
        Failure::Run(format!(
            "{url} does not answer {PATH}: --engines takes the engines of `smg-loadtest engines` themselves"
        ))
    };
    let answer = answer.map_err(|_| not_one())?;
    serde_json::from_slice(&answer.body).map_err(|_| not_one())
}
