//! A request on its way to a worker: route, dispatch, retry, relay, settle.

use std::sync::Arc;
use std::time::Duration;

use smg_core::breaker::{Admission, Outcome};
use smg_core::fleet::{ModelId, WorkerId};
use smg_core::http1::{Known, find};
use smg_core::policy::NoWorker;
use smg_core::prompt::Endpoint;
use smg_core::retry::{AttemptFailure, GiveUp, Retries, RetryPermit, parse_retry_after_ms};
use tracing::debug;

use crate::control::Command;
use crate::fleet::Worker;
use crate::http::answer::{ErrorAnswer, ErrorCode};
use crate::http::client::Interrupt;
use crate::http::connection::{Connection, Next};
use crate::http::exchange::{Answer, Credentials, ExchangeError, dispatch};
use crate::http::lent::{Unread, read_prompt};
use crate::http::meter::Meter;
use crate::http::relay::{Ending, Relay};
use crate::http::request::Request;
use crate::messages::Taken;
use crate::metrics::{ErrorKind, ModelLabel, WorkerErrorKind};
use crate::offload::LentPrompt;
use crate::owner::RouteError;
use crate::runtime::{clock, descriptors};
use crate::shard::Step;

/// Workers whose breaker may turn a request away, one after the other, before it is answered 503.
const MAX_REFUSED_ADMISSIONS: usize = 16;

/// One inference request from its decision to its last byte.
struct Flight<'a> {
    connection: &'a mut Connection,
    endpoint: Endpoint,
    request: &'a mut Request,
    credentials: Credentials,
    /// Workers that were tried or whose breaker refused.
    tried: Vec<WorkerId>,
    retries: Retries,
    /// Held while an attempt after the first is under way.
    permit: Option<RetryPermit>,
    model: Option<ModelId>,
}

/// A worker that will be sent the request.
struct Chosen {
    worker: Arc<Worker>,
    in_flight: Taken,
    admission: Admission,
}

/// What an attempt led to.
enum Verdict {
    /// The client has its answer.
    Done(Next),
    /// Another attempt, after this pause.
    Again(Duration),
}

impl Connection {
    /// Serves one inference request.
    pub(super) async fn infer(
        &mut self,
        endpoint: Endpoint,
        request: &mut Request,
        credentials: Credentials,
    ) -> Next {
        self.shard.retry_budget.borrow_mut().note_request(clock::now_ms());
        let mut flight = Flight {
            connection: self,
            endpoint,
            request,
            credentials,
            tried: Vec::new(),
            retries: Retries::new(),
            permit: None,
            model: None,
        };
        loop {
            let chosen = match flight.choose().await {
                Ok(chosen) => chosen,
                Err(next) => return next,
            };
            match flight.attempt(chosen).await {
                Verdict::Done(next) => return next,
                Verdict::Again(pause) => {
                    let sleep = monoio::time::sleep(pause);
                    let client = &mut flight.connection.client;
                    client.set_deadline(pause + Duration::from_secs(1));
                    // On the heap, because it is large and rare.
                    if Box::pin(client.watch(sleep)).await == Err(Interrupt::ClientGone) {
                        return Next::Close;
                    }
                }
            }
        }
    }
}

impl Flight<'_> {
    /// Decides on a worker and gets past its breaker. `Err`: the client has been answered.
    async fn choose(&mut self) -> Result<Chosen, Next> {
        let prompt = self.lend().await?;
        for _ in 0..MAX_REFUSED_ADMISSIONS {
            let in_flight = match self.decide(prompt.as_ref()).await? {
                Ok(in_flight) => in_flight,
                Err(error) => return Err(self.no_worker(error).await),
            };
            let shared = &self.connection.shard.shared;
            let id = in_flight.worker();
            if shared.loads.load().overloaded(id) {
                // Since the decision. One that was made on its report is not made again.
                self.tried.push(id);
                if self.all_others_are_overloaded() {
                    drop(in_flight);
                    return Err(self.shed_at_dispatch().await);
                }
                continue;
            }
            let worker = shared.fleet.load().worker(id).cloned();
            let admission = shared.breakers.admit(id, clock::now_ms());
            if let (Some(worker), Some(admission)) = (worker, admission) {
                return Ok(Chosen { worker, in_flight, admission });
            }
            // Removed, or its one probe taken, since the decision.
            self.tried.push(id);
        }
        Err(self.no_worker(RouteError::NoWorker(NoWorker::Unavailable)).await)
    }

    /// Has the prompt read elsewhere if that takes long; anew for a retry, since to keep it would double
    /// what a large request holds while it runs. `Err`: the client has been answered.
    async fn lend(&mut self) -> Result<Option<Arc<LentPrompt>>, Next> {
        let connection = &mut *self.connection;
        let client = &mut connection.client;
        match read_prompt(&connection.shard, client, self.endpoint, self.request).await {
            Ok(prompt) => Ok(prompt),
            Err(Unread::ClientGone) => Err(Next::Close),
            Err(Unread::Refused(answer)) => Err(connection.fail(self.request, &answer).await),
        }
    }

    async fn decide(
        &mut self,
        read: Option<&Arc<LentPrompt>>,
    ) -> Result<Result<Taken, RouteError>, Next> {
        let shard = self.connection.shard.clone();
        let routing = match shard.begin_routing(
            self.endpoint,
            self.request,
            self.credentials,
            read,
            &self.tried,
        ) {
            Ok(routing) => routing,
            Err(error) => return Err(self.connection.fail(self.request, &error).await),
        };
        if routing.stream {
            self.connection.client.expect_little();
        }
        if self.model.replace(routing.model).is_none() {
            let cells = shard.cells().model(ModelLabel::of(routing.model));
            cells.requests[self.endpoint as usize][usize::from(routing.stream)].inc();
        }
        match routing.step {
            Step::Decided(outcome) => Ok(outcome),
            Step::Asked(ticket) => {
                let client = &mut self.connection.client;
                client.set_deadline(ticket.patience);
                match client.watch(ticket).await {
                    Ok(outcome) => Ok(outcome),
                    Err(Interrupt::ClientGone) => Err(Next::Close),
                    Err(Interrupt::Deadline) => {
                        Ok(shard.decide_without_owner(routing.model, &self.tried))
                    }
                }
            }
        }
    }

    /// Whether no worker of the model is left but those that overload protection spares.
    fn all_others_are_overloaded(&self) -> bool {
        let loads = self.connection.shard.shared.loads.load();
        !self.any_ready(|id| !self.tried.contains(&id) && !loads.overloaded(id))
    }

    async fn shed_at_dispatch(&mut self) -> Next {
        self.connection.shard.cells().sheds[1].inc();
        debug!(target: "smg::policies", branch = "overloaded_at_dispatch", "Overload shed");
        self.no_worker(RouteError::NoWorker(NoWorker::Overloaded)).await
    }

    async fn no_worker(&mut self, error: RouteError) -> Next {
        self.count_error(ErrorKind::NoWorkers);
        let config = &self.connection.shard.shared.config;
        let answer = match error {
            RouteError::NoWorker(NoWorker::Overloaded) => ErrorAnswer::new(
                ErrorCode::WorkerOverloadProtectionShed,
                "every worker of this model is overloaded; retry after the time given",
            )
            .retry_after(config.load_monitor.interval_secs.max(1)),
            _ => ErrorAnswer::new(
                ErrorCode::NoAvailableWorkers,
                "no worker of this model takes requests now (unhealthy, draining, or its circuit \
                 breaker is open); retry shortly",
            )
            .retry_after(1),
        };
        self.connection.fail(self.request, &answer).await
    }

    /// Sends the request to the chosen worker and sees it through.
    async fn attempt(&mut self, chosen: Chosen) -> Verdict {
        let Chosen { worker, in_flight, admission } = chosen;
        let connection = &mut *self.connection;
        let answered = dispatch(
            &connection.shard,
            &mut connection.client,
            &worker,
            self.request,
            self.credentials,
            &connection.client_addr,
        )
        .await;
        connection.outcome.attempts = self.retries.attempts();
        let verdict = match answered {
            Ok(answer) => match self.judge(&answer, worker.id, admission) {
                Some(pause) => Verdict::Again(pause),
                None => Verdict::Done(self.relay(answer, &worker, in_flight).await),
            },
            Err(error) => {
                drop(in_flight);
                self.failed(error, &worker, admission).await
            }
        };
        self.connection.outcome.worker = Some(worker);
        verdict
    }

    /// Notes what an answer's head says about its worker; the pause before another attempt if the answer
    /// is not for the client.
    fn judge(
        &mut self,
        answer: &Answer,
        worker: WorkerId,
        admission: Admission,
    ) -> Option<Duration> {
        let shard = self.connection.shard.clone();
        let status = answer.head.status;
        shard.cells().upstream_response(status);
        let now_ms = clock::now_ms();
        let retry_after_ms = find(&answer.headers, Known::RetryAfter)
            .and_then(|header| parse_retry_after_ms(header.value.of(&answer.buf)));
        let outcome = Outcome::of_status(status);
        shard.cells().workers.count_outcome(worker, outcome);
        admission.settle(&shard.shared.breakers, outcome, now_ms);
        // Leaving the only worker alone would turn its own answer into one of ours.
        if matches!(status, 429 | 503)
            && let Some(retry_after_ms) = retry_after_ms
            && self.has_another_worker(worker)
        {
            shard.shared.breakers.skip_for(worker, retry_after_ms, now_ms);
        }
        let failure = AttemptFailure::Status { status, retry_after_ms };
        let pause = failure.is_retryable().then(|| self.retry(failure, worker)).flatten();
        if pause.is_none() {
            self.permit = None;
        }
        pause
    }

    async fn relay(&mut self, answer: Answer, worker: &Worker, in_flight: Taken) -> Next {
        let status = answer.head.status;
        let connection = &mut *self.connection;
        let shard = connection.shard.clone();
        connection.observe_duration(self.request);
        shard.cells().response(self.request.route, status, None);
        if let Some(model) = self.model
            && status < 500
        {
            let seconds = self.request.started.elapsed().as_secs_f64();
            shard.cells().model_duration(ModelLabel::of(model), self.endpoint, seconds);
        }
        let close = connection.closes(self.request);
        let (events, asked) = (answer.head.event_stream, self.request.started);
        let meter = self.model.filter(|_| matches!(status, 200..300)).map(|model| {
            Meter::new(shard.clone(), ModelLabel::of(model), self.endpoint, asked, events)
        });
        let relay = Relay {
            shard: &shard,
            client: &mut connection.client,
            writer: &mut connection.writer,
            request: self.request,
            worker,
            close,
            meter,
        };
        let (ending, bytes) = relay.run(answer, in_flight).await;
        if ending == Ending::WorkerDied {
            shard.cells().worker_errors[WorkerErrorKind::Reset as usize].inc();
            self.count_error(ErrorKind::BackendError);
        }
        let outcome = &mut self.connection.outcome;
        (outcome.status, outcome.ending, outcome.response_bytes) = (status, Some(ending), bytes);
        if ending == Ending::Complete { Next::Request } else { Next::Close }
    }

    async fn failed(
        &mut self,
        error: ExchangeError,
        worker: &Worker,
        admission: Admission,
    ) -> Verdict {
        let shard = self.connection.shard.clone();
        let blame = match &error {
            ExchangeError::ClientGone => {
                // Says nothing about the worker; dropping the admission gives a probe back.
                drop(admission);
                return Verdict::Done(Next::Close);
            }
            // The same, and no other worker would be reached either.
            ExchangeError::Shortage(_) => None,
            ExchangeError::Connect(_) => {
                Some((WorkerErrorKind::Connect, Some(AttemptFailure::Connect)))
            }
            ExchangeError::Closed => {
                Some((WorkerErrorKind::Reset, Some(AttemptFailure::ClosedEarly)))
            }
            ExchangeError::Protocol(_) => Some((WorkerErrorKind::Protocol, None)),
            ExchangeError::Timeout => {
                Some((WorkerErrorKind::Timeout, Some(AttemptFailure::Timeout)))
            }
        };
        debug!(target: "smg::http", worker = %worker.url, %error, "attempt failed");
        if let Some((kind, failure)) = blame {
            shard.cells().workers.count_outcome(worker.id, Outcome::Failure);
            admission.settle(&shard.shared.breakers, Outcome::Failure, clock::now_ms());
            shard.cells().worker_errors[kind as usize].inc();
            if kind == WorkerErrorKind::Connect {
                // The control core learns it from its own probes too if its queue is full.
                let _ = shard.shared.control.try_send(Command::Suspect(worker.id));
            }
            if let Some(pause) = failure.and_then(|failure| self.retry(failure, worker.id)) {
                return Verdict::Again(pause);
            }
        }
        self.permit = None;
        let timeout = matches!(error, ExchangeError::Timeout);
        self.count_error(if timeout { ErrorKind::Timeout } else { ErrorKind::BackendError });
        let answer = upstream_failure(&error);
        let ending = if blame.is_some() { Ending::WorkerDied } else { Ending::NotSent };
        self.connection.outcome.ending = Some(ending);
        Verdict::Done(self.connection.fail(self.request, &answer).await)
    }

    /// The pause before another attempt, if there may be one.
    fn retry(&mut self, failure: AttemptFailure, worker: WorkerId) -> Option<Duration> {
        let shard = &self.connection.shard;
        self.tried.push(worker);
        let others = self.any_ready(|id| !self.tried.contains(&id));
        self.permit = None;
        let outcome = self.retries.next(
            &shard.retry_config,
            &mut shard.retry_budget.borrow_mut(),
            failure,
            !others,
            clock::now_ms(),
            &mut shard.rng.borrow_mut(),
        );
        match outcome {
            Ok(retry) => {
                shard.cells().retries[self.endpoint as usize].inc();
                let attempt = self.retries.attempts() as usize;
                shard.cells().backoff(attempt, retry.after_ms as f64 / 1000.0);
                self.permit = Some(retry.permit);
                Some(Duration::from_millis(retry.after_ms))
            }
            Err(GiveUp::Exhausted) => {
                shard.cells().retries_exhausted[self.endpoint as usize].inc();
                None
            }
            Err(GiveUp::NotRetryable | GiveUp::BudgetSpent) => None,
        }
    }

    fn has_another_worker(&self, worker: WorkerId) -> bool {
        self.any_ready(|id| id != worker)
    }

    /// Whether a ready worker of the request's model satisfies `wanted`.
    fn any_ready(&self, wanted: impl Fn(WorkerId) -> bool) -> bool {
        self.model.is_some_and(|model| {
            let fleet = self.connection.shard.shared.fleet.load();
            let placed = fleet.placement.models.get(model.0 as usize);
            placed.is_some_and(|placed| placed.ready.iter().any(|&id| wanted(id)))
        })
    }

    fn count_error(&self, kind: ErrorKind) {
        if let Some(model) = self.model {
            let cells = self.connection.shard.cells().model(ModelLabel::of(model));
            cells.errors[self.endpoint as usize][kind as usize].inc();
        }
    }
}

fn upstream_failure(error: &ExchangeError) -> ErrorAnswer {
    match error {
        ExchangeError::Connect(_) => ErrorAnswer::new(
            ErrorCode::UpstreamConnect,
            "the worker cannot be reached; retry, and see GET /workers for its state",
        ),
        ExchangeError::Shortage(error) => ErrorAnswer::new(
            ErrorCode::ConnectionLimit,
            format!("the gateway cannot open a connection: {error}{}", descriptors::remedy(error)),
        )
        .retry_after(1),
        ExchangeError::Closed | ExchangeError::ClientGone => ErrorAnswer::new(
            ErrorCode::UpstreamReset,
            "the worker closed the connection before it answered; retry",
        ),
        ExchangeError::Protocol(what) => ErrorAnswer::new(
            ErrorCode::UpstreamProtocol,
            format!("the worker's answer is not valid HTTP: {what}"),
        ),
        ExchangeError::Timeout => ErrorAnswer::new(
            ErrorCode::UpstreamTimeout,
            "the worker did not answer within --request-timeout-secs; it may still be working on \
             the prompt, so it was not sent again",
        ),
    }
}
