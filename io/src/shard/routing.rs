//! From a request to a worker: read the prompt, ask the policy here or at the model's owner, take the
//! in-flight count.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use smg_core::fleet::{InFlightGuard, ModelError, ModelId, ModelPlacement, WorkerId};
use smg_core::http1::Known;
use smg_core::policy::rotation::passthrough;
use smg_core::policy::{Candidates, Choice, Loads, least_load, power_of_two, sampling};
use smg_core::prompt::{Endpoint, Prompt, parse_routing_tokens};
use tracing::{Level, debug, enabled};

use super::Shard;
use crate::config::PolicyName;
use crate::fleet::Fleet;
use crate::http::answer::{ErrorAnswer, ErrorCode};
use crate::http::request::Request;
use crate::messages::{Message, OwnedKey, RouteReply, RouteRequest};
use crate::metrics::{Decision, ModelLabel, ShardCells};
use crate::owner::{Decided, Index, Key, RouteError};
use crate::policies;
use crate::runtime::clock;

/// Target of the debug lines that tools parse.
const CACHE_AWARE: &str = "smg::policies::cache_aware";
/// How long to wait for another shard's decision before deciding on load alone.
pub const OWNER_PATIENCE: Duration = Duration::from_millis(250);

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
    Decided(Result<InFlightGuard, RouteError>),
    /// Asked of the model's owner.
    Asked(Ticket),
}

impl Shard {
    /// Reads what `request` routes on and decides, or asks the model's owner to.
    ///
    /// # Errors
    /// An answer for the client when the request cannot be routed at all.
    pub fn begin_routing(
        self: &Rc<Self>,
        endpoint: Endpoint,
        request: &Request,
        excluded: &[WorkerId],
    ) -> Result<Routing, ErrorAnswer> {
        let fleet = self.shared.fleet.load();
        let policy = self.shared.config.policy;
        let mut tokens = self.tokens.borrow_mut();
        let hinted = request
            .header(Known::SmgRoutingTokens)
            .is_some_and(|value| parse_routing_tokens(value, &mut tokens));
        let mut extractor = self.extractor.borrow_mut();
        let prompt = if policy == PolicyName::CacheAware {
            extractor.extract(endpoint, request.body())
        } else {
            extractor.extract_head(endpoint, request.body())
        }
        .map_err(|error| ErrorAnswer::new(ErrorCode::JsonParseError, error.to_string()))?;
        if prompt.model_is_unusable {
            let message = "\"model\" must be a string that names a model";
            return Err(ErrorAnswer::new(ErrorCode::BadRequest, message));
        }
        let model = resolve(&fleet, prompt.model)?;
        let key = key(&prompt, if hinted { &tokens } else { &[] });
        let stream = prompt.stream;
        let namespace = prompt.namespace.map(|namespace| namespace.0);
        let step = if policy != PolicyName::CacheAware {
            Step::Decided(self.decide_here(&fleet, model, policy, key, excluded))
        } else if model.owner == self.index {
            Step::Decided(self.decide_owned(model.id, key, namespace, excluded))
        } else {
            self.ask_owner(&fleet, model, key, namespace, excluded)
        };
        Ok(Routing { model: model.id, stream, step })
    }

    /// A decision over the indexes this shard owns.
    pub fn decide_owned(
        &self,
        model: ModelId,
        key: Key<'_>,
        namespace: Option<u64>,
        excluded: &[WorkerId],
    ) -> Result<InFlightGuard, RouteError> {
        let fleet = self.shared.fleet.load();
        let loads = self.shared.loads.load();
        let placed =
            fleet.placement.models.get(model.0 as usize).ok_or(RouteError::ModelGone)?;
        let candidates = self.candidates(&fleet, placed, &loads, excluded);
        let mut owner = self.owner.borrow_mut();
        let mut rng = self.rng.borrow_mut();
        let decided = owner
            .decide(model, &candidates, key, namespace, &mut rng)
            .map_err(RouteError::NoWorker)?;
        self.count(&decided);
        if enabled!(target: CACHE_AWARE, Level::DEBUG) {
            log_decision(&fleet, placed, &decided, owner.threshold());
        }
        Ok(self.take(placed.id, PolicyName::CacheAware, decided.choice))
    }

    /// A decision that needs no index, or cannot have one: on load alone.
    fn decide_here(
        &self,
        fleet: &Fleet,
        model: &ModelPlacement,
        policy: PolicyName,
        key: Key<'_>,
        excluded: &[WorkerId],
    ) -> Result<InFlightGuard, RouteError> {
        let loads = self.shared.loads.load();
        let candidates = self.candidates(fleet, model, &loads, excluded);
        let tokens = match key {
            Key::Tokens(tokens) => u32::try_from(tokens.len()).ok(),
            Key::Text(_) => None,
        };
        let mut state = self.policy.borrow_mut();
        let mut rng = self.rng.borrow_mut();
        let mut workers = self.workers.borrow_mut();
        let choice = match policy {
            PolicyName::RoundRobin => {
                self.shared.round_robin.choose(model.id, &candidates, &mut workers)
            }
            PolicyName::Random | PolicyName::Bucket => {
                sampling::choose(&candidates, &mut workers, &mut rng)
            }
            PolicyName::PowerOfTwo => power_of_two::choose(&mut state, &candidates, tokens, &mut rng),
            PolicyName::Passthrough => passthrough(&candidates),
            PolicyName::LeastLoad => {
                let scorer = policies::least_load_scorer(&self.shared.config);
                least_load::choose(&scorer, &mut state, &candidates, tokens, &mut rng)
            }
            _ => {
                let scorer = smg_core::policy::expected_wait::Scorer::DEFAULT;
                least_load::choose(&scorer, &mut state, &candidates, tokens, &mut rng)
            }
        };
        Ok(self.take(model.id, policy, choice.map_err(RouteError::NoWorker)?))
    }

    /// Sends the question to the owner. When its mailbox is full the request is decided on load alone.
    fn ask_owner(
        self: &Rc<Self>,
        fleet: &Fleet,
        model: &ModelPlacement,
        key: Key<'_>,
        namespace: Option<u64>,
        excluded: &[WorkerId],
    ) -> Step {
        let ticket = Ticket::new(self.clone(), model.id);
        let question = RouteRequest {
            from: self.index,
            ticket: ticket.number,
            model: model.id,
            key: match key {
                Key::Text(text) => OwnedKey::Text(text.into()),
                Key::Tokens(tokens) => OwnedKey::Tokens(tokens.into()),
            },
            namespace,
            excluded: excluded.to_vec(),
        };
        let message = Message::Route(Box::new(question));
        match self.shared.mesh.send(self.index, model.owner, message) {
            Ok(()) => Step::Asked(ticket),
            Err(_) => {
                self.cells().owner_overloaded.inc();
                let policy = self.shared.config.policy;
                Step::Decided(self.decide_here(fleet, model, policy, key, excluded))
            }
        }
    }

    /// A decision on load alone, after the owner stayed silent.
    pub fn decide_without_owner(
        &self,
        model: ModelId,
        excluded: &[WorkerId],
    ) -> Result<InFlightGuard, RouteError> {
        self.cells().owner_overloaded.inc();
        let fleet = self.shared.fleet.load();
        let placed =
            fleet.placement.models.get(model.0 as usize).ok_or(RouteError::ModelGone)?;
        self.decide_here(&fleet, placed, self.shared.config.policy, Key::Text(""), excluded)
    }

    fn candidates<'a>(
        &'a self,
        fleet: &'a Fleet,
        model: &'a ModelPlacement,
        loads: &'a Loads,
        excluded: &'a [WorkerId],
    ) -> Candidates<'a> {
        Candidates {
            epoch: fleet.placement.epoch,
            ready: &model.ready,
            in_flight: &self.shared.in_flight,
            breakers: &self.shared.breakers,
            loads,
            excluded,
            now_ms: clock::now_ms(),
        }
    }

    /// Counts a selection and takes the in-flight count. From here on the guard is the only thing
    /// that gives it back.
    fn take(&self, model: ModelId, policy: PolicyName, choice: Choice) -> InFlightGuard {
        self.cells().model(ModelLabel::of(model)).selections[policy as usize].inc();
        self.shared.in_flight.begin(choice.worker)
    }

    fn count(&self, decided: &Decided) {
        let label = decided.choice.branch.as_str();
        // INVARIANT: a decision over a tree ends in one of the listed branches.
        let branch = ShardCells::BRANCHES.iter().position(|name| *name == label).unwrap_or(2);
        let decision = Decision { index: decided.index as usize, branch };
        self.cells().decision(decision, decided.ratio.map(f64::from));
    }
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

/// Token IDs before text, and a valid header's before the body's own.
fn key<'a>(prompt: &Prompt<'a>, hinted: &'a [u32]) -> Key<'a> {
    match (hinted, prompt.tokens) {
        ([], []) => Key::Text(prompt.text),
        ([], tokens) => Key::Tokens(tokens),
        (hinted, _) => Key::Tokens(hinted),
    }
}

fn log_decision(fleet: &Fleet, model: &ModelPlacement, decided: &Decided, threshold: f32) {
    let worker = fleet.worker(decided.choice.worker).map_or("none", |worker| worker.url.as_str());
    let branch = decided.choice.branch.as_str();
    let model_id = &*model.name;
    match decided.ratio {
        Some(matched_ratio) => debug!(
            target: "smg::policies::cache_aware",
            index = "tree", branch, worker, model_id, matched_ratio, threshold,
            "Cache-aware selection"
        ),
        None => debug!(
            target: "smg::policies::cache_aware",
            branch, worker, model_id,
            "Cache-aware selection"
        ),
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
    answer: Option<Result<InFlightGuard, RouteError>>,
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
}

impl Ticket {
    fn new(shard: Rc<Shard>, model: ModelId) -> Self {
        let number = shard.waiting.borrow_mut().enter();
        Self { shard, number, model }
    }
}

impl Future for Ticket {
    type Output = Result<InFlightGuard, RouteError>;

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

const _: () = assert!(Index::Token as usize == 1, "positions of ShardCells::INDEXES");
