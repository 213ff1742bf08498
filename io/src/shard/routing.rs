//! From a request to a worker: read the prompt, ask the policy here or at the model's owner, take the
//! in-flight count.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use smg_core::fleet::{ModelError, ModelId, ModelPlacement, WorkerId};
use smg_core::http1::Known;
use smg_core::policy::consistent_hashing::HashedRequest;
use smg_core::prompt::{Endpoint, PromptError, Want, parse_routing_tokens};

use super::{Shard, keys};
use crate::fleet::Fleet;
use crate::http::answer::{ErrorAnswer, ErrorCode};
use crate::http::exchange::Credentials;
use crate::http::request::Request;
use crate::messages::{Message, OwnedAsk, RouteReply, RouteRequest, Taken};
use crate::offload::LentPrompt;
use crate::owner::{Ask, Key, RouteError};
use crate::runtime::clock;

/// How long to wait for another shard's decision before deciding on load alone.
const OWNER_PATIENCE: Duration = Duration::from_millis(250);
/// The same for a request with a sticky key: its worker is a promise, not a hint.
const STICKY_PATIENCE: Duration = Duration::from_secs(5);

/// What was read out of a request, and how its decision comes about.
pub struct Routing {
    /// The model it is for.
    pub model: ModelId,
    /// It asks for a stream.
    pub stream: bool,
    /// The decision, or where to wait for it.
    pub step: Step,
}

/// A decision now or later.
pub enum Step {
    /// Decided on this shard.
    Decided(Result<Taken, RouteError>),
    /// Asked of the model's owner.
    Asked(Ticket),
}

impl Shard {
    /// Reads what `request` routes on and decides, or asks the model's owner to. A prompt that has been
    /// `read` already is not read again.
    ///
    /// # Errors
    /// An answer for the client when the request cannot be routed at all.
    pub fn begin_routing(
        self: &Rc<Self>,
        endpoint: Endpoint,
        request: &Request,
        credentials: Credentials,
        read: Option<&Arc<LentPrompt>>,
        tried: &[WorkerId],
    ) -> Result<Routing, ErrorAnswer> {
        let fleet = self.shared.fleet.load();
        let config = &self.shared.config;
        let mut tokens = self.tokens.borrow_mut();
        let is_hinted = request
            .header(Known::SmgRoutingTokens)
            .is_some_and(|value| parse_routing_tokens(value, &mut tokens));
        let hinted: &[u32] = if is_hinted { &tokens } else { &[] };
        let mut extractor = self.extractor.borrow_mut();
        let prompt = match read {
            Some(read) => read.prompt(),
            None => match wanted(&fleet, endpoint) {
                Want::Everything => extractor.extract(endpoint, request.body()),
                Want::Head => extractor.extract_head(endpoint, request.body()),
            }
            .map_err(unreadable)?,
        };
        if prompt.model_is_unusable {
            let message = "\"model\" must be a string that names a model";
            return Err(ErrorAnswer::new(ErrorCode::BadRequest, message));
        }
        let model = resolve(&fleet, prompt.model)?;
        let policy = fleet.policy(model.id);
        let session = keys::session(config, policy, request, prompt.rid);
        let routing_key = keys::routing_key(config, policy, request);
        let hashed = keys::hashed(config, policy, request, credentials, prompt.rid);
        // Where a key keeps it a request stays, and where it was sent by name, unless that has failed.
        let has_key = session.is_some() || routing_key.is_some() || hashed.routing_key.is_some();
        let is_held =
            tried.is_empty() && (has_key || hashed.rid.is_some() || hashed.target_worker.is_some());
        let avoided = if is_held { Cow::Borrowed(tried) } else { self.avoided(model, tried) };
        let ask = Ask {
            // A valid header's before the body's own.
            key: if hinted.is_empty() { Key::of(&prompt) } else { Key::Tokens(hinted) },
            namespace: prompt.namespace.map(|namespace| namespace.0),
            excluded: &avoided,
            session,
            routing_key,
            hashed,
            explain: config.enable_explain && request.header(Known::SmgExplain) == Some(b"1"),
        };
        if tried.is_empty()
            && let Some(session) = ask.session
        {
            self.cells().key_sources[usize::from(!session.from_rid)].inc();
        }
        let needs_owner = policy.needs_owner() || ask.session.is_some();
        let decider = match needs_owner {
            true => self.shared.parts.decider(model.owner, policy, &ask),
            false => self.index,
        };
        let step = if decider == self.index {
            Step::Decided(self.decide(&fleet, model, &ask))
        } else {
            let owned = read.filter(|_| hinted.is_empty());
            self.ask_owner(&fleet, model, decider, &ask, owned)
        };
        Ok(Routing { model: model.id, stream: prompt.stream, step })
    }

    /// Whom a request that no key keeps anywhere does not go to: who was tried, and whose host is silent.
    pub(super) fn avoided<'a>(
        &self,
        model: &ModelPlacement,
        tried: &'a [WorkerId],
    ) -> Cow<'a, [WorkerId]> {
        // Asked only while there are stalls.
        let usable = |id| {
            !self.shared.loads.load().overloaded(id)
                && self.shared.breakers.allows(id, clock::now_ms())
        };
        self.shared.stalls.avoid(&model.ready, tried, usable)
    }

    /// Sends the question to the shard `owner`. When its mailbox is full the request is decided without it.
    fn ask_owner(
        self: &Rc<Self>,
        fleet: &Fleet,
        model: &ModelPlacement,
        owner: usize,
        ask: &Ask<'_>,
        owned: Option<&Arc<LentPrompt>>,
    ) -> Step {
        let sticky = ask.session.is_some() || ask.routing_key.is_some();
        let patience = if sticky { STICKY_PATIENCE } else { OWNER_PATIENCE };
        let ticket = Ticket::new(self.clone(), model.id, patience);
        let question = RouteRequest {
            from: self.index,
            ticket: ticket.number,
            model: model.id,
            ask: OwnedAsk::of(ask, owned),
        };
        let message = Message::Route(Box::new(question));
        match self.shared.mesh.send(self.index, owner, message) {
            Ok(()) => Step::Asked(ticket),
            Err(_) => {
                self.cells().owner_overloaded.inc();
                Step::Decided(self.decide_alone(fleet, model, ask))
            }
        }
    }

    /// How much of a request to `endpoint` is to be read.
    pub fn wanted(&self, endpoint: Endpoint) -> Want {
        wanted(&self.shared.fleet.load(), endpoint)
    }

    /// A decision on load alone, after the owner stayed silent.
    pub fn decide_without_owner(
        &self,
        model: ModelId,
        excluded: &[WorkerId],
    ) -> Result<Taken, RouteError> {
        self.cells().owner_overloaded.inc();
        let fleet = self.shared.fleet.load();
        let placed = fleet.placement.models.get(model.0 as usize).ok_or(RouteError::ModelGone)?;
        let ask = Ask {
            key: Key::Text(""),
            namespace: None,
            excluded,
            session: None,
            routing_key: None,
            hashed: HashedRequest::default(),
            explain: false,
        };
        self.decide_alone(&fleet, placed, &ask)
    }
}

fn wanted(fleet: &Fleet, endpoint: Endpoint) -> Want {
    let tokens_only = fleet.wants.tokens && endpoint == Endpoint::Generate;
    if fleet.wants.prompt || tokens_only { Want::Everything } else { Want::Head }
}

/// The answer to a body that no prompt can be read from.
pub fn unreadable(error: PromptError) -> ErrorAnswer {
    ErrorAnswer::new(ErrorCode::JsonParseError, error.to_string())
}

fn resolve<'a>(fleet: &'a Fleet, name: Option<&str>) -> Result<&'a ModelPlacement, ErrorAnswer> {
    fleet.placement.resolve(name).map_err(|error| match (error, name) {
        _ if fleet.total == 0 => ErrorAnswer::new(
            ErrorCode::NoAvailableWorkers,
            "no worker is registered yet; retry when /readiness answers 200",
        )
        .retry_after(1),
        (ModelError::Ambiguous, _) => ErrorAnswer::new(
            ErrorCode::MissingModel,
            "this gateway serves several models: name one in \"model\" (GET /v1/models lists them)",
        ),
        (ModelError::Unknown, Some(name)) => ErrorAnswer::new(
            ErrorCode::ModelNotFound,
            format!(
                "No worker available for model '{}'; GET /v1/models lists the models served",
                shorten(name)
            ),
        ),
        (ModelError::Unknown, None) => ErrorAnswer::new(
            ErrorCode::NoAvailableWorkers,
            "no worker is registered; retry when /readiness answers 200",
        )
        .retry_after(1),
    })
}

/// A client's text in an error message: bounded.
fn shorten(name: &str) -> &str {
    const LONGEST: usize = 200;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => &name[..end],
        None => name,
    }
}

/// Requests of this shard that wait for another shard's decision.
#[derive(Default)]
pub struct Waiting {
    places: Vec<Place>,
    free: Vec<usize>,
    count: usize,
}

#[derive(Default)]
struct Place {
    /// Tells the requests that used this place apart.
    turn: u32,
    waker: Option<Waker>,
    answer: Option<Result<Taken, RouteError>>,
}

impl Waiting {
    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn enter(&mut self) -> u64 {
        self.count += 1;
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        (u64::from(self.places[at].turn) << 32) | at as u64
    }

    fn place(&mut self, number: u64) -> Option<&mut Place> {
        let place = self.places.get_mut((number & 0xffff_ffff) as usize)?;
        (u64::from(place.turn) == number >> 32).then_some(place)
    }

    fn leave(&mut self, number: u64) {
        if let Some(place) = self.place(number) {
            place.turn = place.turn.wrapping_add(1);
            place.waker = None;
            place.answer = None;
            self.count -= 1;
            self.free.push((number & 0xffff_ffff) as usize);
        }
    }

    /// Hands an answer to whoever waits for it. Nobody may any more: the count it carries is given
    /// back by its drop.
    pub fn answer(&mut self, reply: RouteReply) {
        if let Some(place) = self.place(reply.ticket) {
            place.answer = Some(reply.outcome);
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
        }
    }
}

/// A question on its way; dropping it gives the place back.
pub struct Ticket {
    shard: Rc<Shard>,
    /// Names the place and the turn.
    pub number: u64,
    /// The model asked about.
    pub model: ModelId,
    /// How long the answer is worth waiting for.
    pub patience: Duration,
}

impl Ticket {
    fn new(shard: Rc<Shard>, model: ModelId, patience: Duration) -> Self {
        let number = shard.waiting.borrow_mut().enter();
        Self { shard, number, model, patience }
    }
}

impl Future for Ticket {
    type Output = Result<Taken, RouteError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waiting = self.shard.waiting.borrow_mut();
        let Some(place) = waiting.place(self.number) else {
            return Poll::Ready(Err(RouteError::OwnerSilent));
        };
        match place.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                place.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.shard.waiting.borrow_mut().leave(self.number);
    }
}
