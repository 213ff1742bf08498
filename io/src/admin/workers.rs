//! `/workers`: what is registered, and changes to it.

use std::time::Duration;

use serde_json::{Map, Value, json};
use smg_core::http1::Method;

use super::{JSON, spec};
use crate::control::registry::AddError;
use crate::control::{Command, Update, UpdateError};
use crate::fleet::{Worker, WorkerSpec, WorkerState};
use crate::http::answer::ErrorCode;
use crate::http::connection::{Connection, Next};
use crate::http::request::Request;
use crate::shared::Shared;

/// `GET /workers[?model=M]`.
pub async fn list(connection: &mut Connection, request: &Request) -> Next {
    let shared = connection.shard().shared.clone();
    let fleet = shared.fleet.load_full();
    let wanted = model_filter(request);
    let wanted = match &wanted {
        Some(name) => match fleet.placement.names.get(name.as_str()) {
            Some(id) => Some(Some(*id)),
            None => Some(None),
        },
        None => None,
    };
    let workers: Vec<Value> = fleet
        .iter()
        .filter(|worker| wanted.is_none_or(|model| model == Some(worker.model)))
        .map(|worker| info(&shared, worker))
        .collect();
    let total = workers.len();
    let body = json!({
        "workers": workers,
        "total": total,
        "stats": {"prefill_count": 0, "decode_count": 0, "regular_count": total},
    });
    connection.reply(request, 200, JSON, &[], body.to_string().as_bytes()).await
}

/// `POST /workers`.
pub async fn add(connection: &mut Connection, request: &Request) -> Next {
    let spec = match spec::whole(request.body()) {
        Ok(spec) => spec,
        Err(error) => return problem(connection, request, ErrorCode::WorkerRequest, &error).await,
    };
    let url = spec.url.to_string();
    let (reply, answer) = async_channel::bounded(1);
    let added = ask(connection, Command::Add { spec, reply }, answer).await;
    let uuid = match added {
        Some(Ok(uuid)) => uuid,
        Some(Err(AddError::Exists)) => {
            let error = format!(
                "worker {url} is registered already; use PUT or PATCH /workers/{{id}} to change it"
            );
            return problem(connection, request, ErrorCode::WorkerAlreadyExists, &error).await;
        }
        Some(Err(AddError::Leaving(leaves_in))) => {
            let error = format!(
                "worker {url} is being removed; POST it again once GET /workers no longer lists it"
            );
            return leaving(connection, request, &error, leaves_in).await;
        }
        Some(Err(AddError::Full)) => {
            let error = "the gateway has as many workers as it can hold; remove some first";
            return problem(connection, request, ErrorCode::WorkerLimit, error).await;
        }
        None => return unavailable(connection, request).await,
    };
    let location = format!("/workers/{uuid}");
    let body = json!({
        "status": "accepted",
        "worker_id": &*uuid,
        "url": url,
        "location": location,
        "message": "Worker addition queued for background processing",
    });
    let extra = [("location", location.as_bytes())];
    connection.reply(request, 202, JSON, &extra, body.to_string().as_bytes()).await
}

/// `GET`, `PUT`, `PATCH` and `DELETE /workers/{id}`.
pub async fn one(connection: &mut Connection, request: &Request) -> Next {
    let uuid = String::from_utf8_lossy(&request.path()[b"/workers/".len()..]).into_owned();
    if !is_uuid(&uuid) {
        let error = "the worker id must be a UUID, as GET /workers lists them";
        return problem(connection, request, ErrorCode::WorkerRequest, error).await;
    }
    match request.head.method {
        Method::Put => match spec::whole(request.body()) {
            Ok(spec) => update(connection, request, uuid, Update::Replace(spec)).await,
            Err(error) => problem(connection, request, ErrorCode::WorkerRequest, &error).await,
        },
        Method::Patch => match spec::patch(request.body()) {
            Ok(patch) => update(connection, request, uuid, patch).await,
            Err(error) => problem(connection, request, ErrorCode::WorkerRequest, &error).await,
        },
        Method::Delete => remove(connection, request, uuid).await,
        _ => show(connection, request, uuid).await,
    }
}

async fn show(connection: &mut Connection, request: &Request, uuid: String) -> Next {
    let shared = connection.shard().shared.clone();
    let registered = shared.fleet.load().iter().find(|worker| *worker.uuid == *uuid).cloned();
    let body = match registered {
        Some(worker) => info(&shared, &worker),
        None => {
            let (reply, answer) = async_channel::bounded(1);
            let command = Command::Pending { uuid: uuid.clone(), reply };
            match ask(connection, command, answer).await {
                Some(Some((spec, error))) => pending(&uuid, &spec, &error),
                Some(None) => return not_found(connection, request).await,
                None => return unavailable(connection, request).await,
            }
        }
    };
    connection.reply(request, 200, JSON, &[], body.to_string().as_bytes()).await
}

async fn update(
    connection: &mut Connection,
    request: &Request,
    uuid: String,
    update: Update,
) -> Next {
    let (reply, answer) = async_channel::bounded(1);
    let command = Command::Update { uuid: uuid.clone(), update, reply };
    match ask(connection, command, answer).await {
        Some(Ok(())) => {
            let body = json!({
                "status": "accepted",
                "worker_id": uuid,
                "message": "Worker update queued for background processing",
            });
            connection.reply(request, 202, JSON, &[], body.to_string().as_bytes()).await
        }
        Some(Err(UpdateError::NotFound)) => not_found(connection, request).await,
        Some(Err(UpdateError::OtherUrl)) => {
            let error = "a worker's url cannot be changed; DELETE it and POST the new one";
            problem(connection, request, ErrorCode::WorkerRequest, error).await
        }
        Some(Err(UpdateError::Leaving(leaves_in))) => {
            let error = "this worker is being removed and cannot be changed; POST it anew once GET \
                         /workers no longer lists it";
            leaving(connection, request, error, leaves_in).await
        }
        None => unavailable(connection, request).await,
    }
}

async fn remove(connection: &mut Connection, request: &Request, uuid: String) -> Next {
    let (reply, answer) = async_channel::bounded(1);
    match ask(connection, Command::Remove { uuid: uuid.clone(), reply }, answer).await {
        Some(true) => {
            let body = json!({
                "status": "accepted",
                "worker_id": uuid,
                "message": "Worker removal queued for background processing",
            });
            connection.reply(request, 202, JSON, &[], body.to_string().as_bytes()).await
        }
        Some(false) => not_found(connection, request).await,
        None => unavailable(connection, request).await,
    }
}

/// `GET /loads` and `/get_loads`: the latest load reports.
pub async fn loads(connection: &mut Connection, request: &Request) -> Next {
    let (reply, answer) = async_channel::bounded(1);
    match ask(connection, Command::Loads { reply }, answer).await {
        Some(body) => connection.reply(request, 200, JSON, &[], &body).await,
        None => unavailable(connection, request).await,
    }
}

/// Sends a command to the control core and waits for its answer; `None` when it is too busy.
async fn ask<T>(
    connection: &Connection,
    command: Command,
    answer: async_channel::Receiver<T>,
) -> Option<T> {
    connection.shard().shared.control.try_send(command).ok()?;
    answer.recv().await.ok()
}

async fn problem(
    connection: &mut Connection,
    request: &Request,
    code: ErrorCode,
    error: &str,
) -> Next {
    connection.fail_with(request, code, JSON, &[], &problem_body(code, error)).await
}

/// What a worker that is being removed, and gone after `leaves_in`, answers to.
async fn leaving(
    connection: &mut Connection,
    request: &Request,
    error: &str,
    leaves_in: Duration,
) -> Next {
    let code = ErrorCode::WorkerBeingRemoved;
    // Rounded up: at that time it has gone.
    let secs = (leaves_in.as_secs() + 1).to_string();
    let extra = [("retry-after", secs.as_bytes())];
    connection.fail_with(request, code, JSON, &extra, &problem_body(code, error)).await
}

fn problem_body(code: ErrorCode, error: &str) -> Vec<u8> {
    json!({"error": error, "code": code.code()}).to_string().into_bytes()
}

async fn not_found(connection: &mut Connection, request: &Request) -> Next {
    let error = "no worker has this id; GET /workers lists them";
    problem(connection, request, ErrorCode::WorkerNotFound, error).await
}

async fn unavailable(connection: &mut Connection, request: &Request) -> Next {
    let error = "the control core is busy; retry";
    problem(connection, request, ErrorCode::ControlBusy, error).await
}

fn info(shared: &Shared, worker: &Worker) -> Value {
    let mut body = spec_fields(&worker.spec);
    body.insert("id".into(), json!(&*worker.uuid));
    body.insert("model_id".into(), json!(&*worker.model_name));
    body.insert("is_healthy".into(), json!(worker.state == WorkerState::Ready));
    body.insert("status".into(), json!(worker.state.label()));
    body.insert("load".into(), json!(shared.in_flight.get(worker.id)));
    Value::Object(body)
}

fn pending(uuid: &str, spec: &WorkerSpec, error: &str) -> Value {
    let mut body = spec_fields(spec);
    body.insert("id".into(), json!(uuid));
    body.insert("is_healthy".into(), json!(false));
    body.insert("status".into(), json!("pending"));
    body.insert("load".into(), json!(0));
    body.insert(
        "job_status".into(),
        json!({
            "job_type": "AddWorker",
            "worker_url": spec.url.as_str(),
            "status": "processing",
            "message": error,
        }),
    );
    Value::Object(body)
}

/// The fields of a spec that may be shown; its key may not.
fn spec_fields(spec: &WorkerSpec) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("url".into(), json!(spec.url.as_str()));
    body.insert("worker_type".into(), json!("regular"));
    body.insert("connection_mode".into(), json!("http"));
    body.insert("runtime_type".into(), json!(spec.runtime.as_deref().unwrap_or("unspecified")));
    body.insert("priority".into(), json!(spec.priority));
    body.insert("cost".into(), json!(spec.cost));
    body.insert("labels".into(), json!(spec.labels));
    let overload = spec.overload;
    if overload.waiting_requests.is_some() || overload.token_usage.is_some() {
        let block = json!({
            "waiting_requests": overload.waiting_requests,
            "token_usage": overload.token_usage,
        });
        body.insert("overload".into(), block);
    }
    body
}

fn model_filter(request: &Request) -> Option<String> {
    let query = request.query()?;
    query.split(|&byte| byte == b'&').find_map(|pair| {
        let value = pair.strip_prefix(b"model=")?;
        Some(percent_decoded(value))
    })
}

fn percent_decoded(value: &[u8]) -> String {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, tail @ ..] = rest {
        let hex = |digit: u8| char::from(digit).to_digit(16);
        match (first, tail) {
            (b'%', [high, low, tail @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                let byte = hex(*high).unwrap_or(0) * 16 + hex(*low).unwrap_or(0);
                out.push(byte as u8);
                rest = tail;
            }
            (b'+', _) => {
                out.push(b' ');
                rest = tail;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids() {
        assert!(is_uuid("123e4567-e89b-42d3-a456-426614174000"));
        for text in ["", "123e4567e89b42d3a456426614174000", "123e4567-e89b-42d3-a456-42661417400g"]
        {
            assert!(!is_uuid(text), "{text}");
        }
    }

    #[test]
    fn percent_decoding() {
        assert_eq!(percent_decoded(b"a%2Fb+c%zz%4"), "a/b c%zz%4");
    }
}
