//! What threads say to each other through the mailboxes.

use std::ops::Deref;
use std::sync::Arc;

use smg_core::fleet::{InFlightGuard, ModelId, WorkerId};
use smg_core::index::Garbage;
use smg_core::policy::consistent_hashing::HashedRequest;
use smg_core::policy::sticky::KeyPermit;

use crate::offload::LentPrompt;
use crate::owner::{Ask, Key, RouteError, Session};

/// A message in a shard's mailbox.
pub enum Message {
    /// Decide where a request goes; the receiver owns the model, or the part of its
    /// trees that the request belongs to.
    Route(Box<RouteRequest>),
    /// The answer to a [`Message::Route`] this shard sent.
    Routed(RouteReply),
    /// A worker was removed: forget it in every index, close its idle connections.
    Forget(WorkerId),
    /// Evict a bounded slice from a model's indexes and report.
    Sweep(Sweep),
    /// What was evicted has been freed: take its memory back, and say so.
    Reclaim(async_channel::Sender<()>),
    /// A permit may be free for the first request that waits here.
    Permit,
    /// The process is closing: end idle connections.
    Close,
}

/// A request to decide on, in owned bytes.
pub struct RouteRequest {
    /// Shard that waits for the reply.
    pub from: usize,
    /// Position in that shard's table of waiting requests.
    pub ticket: u64,
    /// Model whose indexes are asked.
    pub model: ModelId,
    /// What is asked.
    pub ask: OwnedAsk,
}

/// An owned [`Ask`]. `consistent_hashing` needs no owner, so what it reads is left out.
pub struct OwnedAsk {
    key: OwnedKey,
    namespace: Option<u64>,
    excluded: Vec<WorkerId>,
    session: Option<(Box<[u8]>, bool)>,
    routing_key: Option<Box<[u8]>>,
    explain: bool,
}

enum OwnedKey {
    Text(Box<str>),
    Tokens(Box<[u32]>),
    /// Of a prompt that is too large to be copied.
    Prompt(Arc<LentPrompt>),
}

impl OwnedAsk {
    /// Copies what the owner reads, except for the key if that is `prompt`'s.
    pub fn of(ask: &Ask<'_>, prompt: Option<&Arc<LentPrompt>>) -> Self {
        Self {
            key: match (ask.key, prompt) {
                (_, Some(prompt)) => OwnedKey::Prompt(prompt.clone()),
                (Key::Text(text), None) => OwnedKey::Text(text.into()),
                (Key::Tokens(tokens), None) => OwnedKey::Tokens(tokens.into()),
            },
            namespace: ask.namespace,
            excluded: ask.excluded.to_vec(),
            session: ask.session.map(|session| (session.key.into(), session.from_rid)),
            routing_key: ask.routing_key.map(Box::from),
            explain: ask.explain,
        }
    }

    /// The same by reference.
    pub fn as_ask(&self) -> Ask<'_> {
        Ask {
            key: match &self.key {
                OwnedKey::Text(text) => Key::Text(text),
                OwnedKey::Tokens(tokens) => Key::Tokens(tokens),
                OwnedKey::Prompt(prompt) => Key::of(&prompt.prompt()),
            },
            namespace: self.namespace,
            excluded: &self.excluded,
            session: self
                .session
                .as_ref()
                .map(|(key, from_rid)| Session { key, from_rid: *from_rid }),
            routing_key: self.routing_key.as_deref(),
            hashed: HashedRequest::default(),
            explain: self.explain,
        }
    }
}

/// A decision on its way back. The counts are already taken; dropping the reply anywhere gives them
/// back.
pub struct RouteReply {
    /// The waiting request.
    pub ticket: u64,
    /// The chosen worker, counted as in flight.
    pub outcome: Result<Taken, RouteError>,
}

/// A request counted at its worker. Dropping it, on whatever path, is the end of that request.
#[derive(Debug)]
pub struct Taken {
    in_flight: InFlightGuard,
    /// The same for its sticky key.
    _permit: Option<KeyPermit>,
    route: Option<Box<str>>,
}

impl Taken {
    /// Takes over both counts; `route` is the explanation the client asked for.
    pub fn new(
        in_flight: InFlightGuard,
        permit: Option<KeyPermit>,
        route: Option<Box<str>>,
    ) -> Self {
        Self { in_flight, _permit: permit, route }
    }

    /// Value of `x-smg-route`, if the client asked for it.
    pub fn route(&self) -> Option<&str> {
        self.route.as_deref()
    }
}

impl Deref for Taken {
    type Target = InFlightGuard;

    fn deref(&self) -> &InFlightGuard {
        &self.in_flight
    }
}

/// One slice of eviction.
pub struct Sweep {
    /// Model whose indexes are swept.
    pub model: ModelId,
    /// Where the outcome goes.
    pub reply: async_channel::Sender<Swept>,
}

/// Outcome of one slice of eviction.
pub struct Swept {
    /// Sizes after the slice.
    pub report: SweepReport,
    /// Memory to be freed away from the shard.
    pub garbage: Vec<Garbage>,
    /// With the last slice of one of several parts: the workers in it, which may be in others too.
    pub tenants: Option<TreeTenants>,
}

/// Workers in the trees of a model, or in one part of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TreeTenants {
    /// In the string tree.
    pub string: Vec<WorkerId>,
    /// In the token tree.
    pub token: Vec<WorkerId>,
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
