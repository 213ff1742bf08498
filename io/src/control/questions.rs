//! Questions of the control plane to shards.

use std::time::Duration;

use super::seam::Runtime;
use crate::messages::Message;
use crate::shared::Shared;

/// A shard that does not answer within this time is asked again another time.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends a question to a shard. Nothing when its mailbox is full or its answer does not come in time.
pub(super) async fn ask<R: Runtime, T>(
    runtime: R,
    shared: &Shared,
    shard: usize,
    question: impl FnOnce(async_channel::Sender<T>) -> Message,
) -> Option<T> {
    let (reply, answer) = async_channel::bounded(1);
    shared.mesh.send(shared.control_sender(), shard, question(reply)).ok()?;
    let answer = async { answer.recv().await.ok() };
    let patience = async {
        runtime.sleep(PATIENCE).await;
        None
    };
    futures_lite::future::or(answer, patience).await
}
