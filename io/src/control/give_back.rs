//! What a burst of bodies leaves behind: shards' allocators keep freed memory, and give it back only while
//! they are used.

use std::sync::Arc;
use std::time::Duration;

use super::questions::ask;
use super::seam::Runtime;
use crate::messages::Message;
use crate::shared::Shared;

/// How often it looks.
const LOOK: Duration = Duration::from_secs(1);
/// Bytes of bodies that are worth it.
const WORTHWHILE: usize = 16 << 20;
/// Looks in a row at which far less was held: what comes back by the second keeps its memory.
const CALM_LOOKS: u32 = 5;

/// Has the shards give memory back after bursts, until the process ends.
pub async fn run<R: Runtime>(runtime: R, shared: Arc<Shared>) {
    let mut burst = Burst::default();
    loop {
        runtime.sleep(LOOK).await;
        if !burst.is_over(shared.body_memory.take_peak()) {
            continue;
        }
        for shard in 0..shared.shards() {
            // One that is too busy for it has use for its memory.
            let _ = ask(runtime, &shared, shard, Message::Reclaim).await;
        }
        (shared.memory.trim)();
    }
}

/// What was held of late.
#[derive(Default)]
struct Burst {
    peak: usize,
    calm: u32,
}

impl Burst {
    /// Whether one is over, said once. `held` is the most since the last look.
    fn is_over(&mut self, held: usize) -> bool {
        self.peak = self.peak.max(held);
        let is_calm = self.peak >= WORTHWHILE && held <= self.peak / 4;
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        let is_over = self.calm == CALM_LOOKS;
        if is_over {
            *self = Self { peak: held, calm: 0 };
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_over_once_it_has_been_calm_for_a_while() {
        let over = |held: &[usize]| {
            let mut burst = Burst::default();
            let at = held.iter().position(|mib| burst.is_over(mib << 20));
            (at, held.iter().filter(|mib| burst.is_over(**mib << 20)).count())
        };
        assert_eq!(over(&[100, 0, 0, 0, 0, 0, 0]).0, Some(5));
        assert_eq!(over(&[100, 25, 0, 26, 0, 0, 0, 0, 0]).0, Some(8));
        assert_eq!(over(&[15, 0, 0, 0, 0, 0, 0]), (None, 0), "small");
        assert_eq!(over(&[20, 4, 20, 4, 20, 4, 20, 4, 20]), (None, 0), "it comes and goes");
    }
}
