//! What threads say to each other through the mailboxes.

use smg_core::fleet::{InFlightGuard, ModelId, WorkerId};

use crate::owner::{Key, RouteError};

/// A message in a shard's mailbox.
pub enum Message {
    /// Decide where a request goes; the receiver owns the model.
    Route(Box<RouteRequest>),
    /// The answer to a [`Message::Route`] this shard sent.
    Routed(RouteReply),
    /// A worker was removed: forget it in every index, close its idle connections.
    Forget(WorkerId),
    /// Evict a bounded slice from a model's indexes and report.
    Sweep(Sweep),
    /// The process is closing: end idle connections.
    Close,
}

/// A request to decide on, in refcounted or owned bytes.
pub struct RouteRequest {
    /// Shard that waits for the reply.
    pub from: usize,
    /// Position in that shard's table of waiting requests.
    pub ticket: u64,
    /// Model whose indexes are asked.
    pub model: ModelId,
    /// What the request routes on.
    pub key: OwnedKey,
    /// Cache partition.
    pub namespace: Option<u64>,
    /// Workers already tried for this request.
    pub excluded: Vec<WorkerId>,
}

/// An owned [`Key`].
pub enum OwnedKey {
    /// Text of the prompt.
    Text(Box<str>),
    /// Token IDs of the prompt.
    Tokens(Box<[u32]>),
}

impl OwnedKey {
    /// The key by reference.
    pub fn as_key(&self) -> Key<'_> {
        match self {
            Self::Text(text) => Key::Text(text),
            Self::Tokens(tokens) => Key::Tokens(tokens),
        }
    }
}

/// A decision on its way back. The in-flight count is already taken; dropping the reply anywhere
/// gives it back.
pub struct RouteReply {
    /// The waiting request.
    pub ticket: u64,
    /// The chosen worker, counted as in flight.
    pub outcome: Result<InFlightGuard, RouteError>,
}

/// One slice of eviction.
pub struct Sweep {
    /// Model whose indexes are swept.
    pub model: ModelId,
    /// Where the totals go.
    pub reply: async_channel::Sender<SweepReport>,
}

/// State of a model's indexes after a slice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Nothing is over budget any more.
    pub done: bool,
    /// Characters in the string tree.
    pub chars: u64,
    /// Tokens in the token tree.
    pub tokens: u64,
    /// Workers in the string tree.
    pub string_tenants: usize,
    /// Workers in the token tree.
    pub token_tenants: usize,
    /// Keys in the hash index.
    pub placements: usize,
    /// Entries this slice evicted.
    pub evicted: usize,
}
