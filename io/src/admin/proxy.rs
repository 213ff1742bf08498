//! Routes answered by asking workers: one of them, or all.

use std::time::Duration;

use serde_json::json;

use super::JSON;
use crate::control::http::{MAX_PAGE, Question, Reply, ask};
use crate::control::on_monoio::Monoio;
use crate::fleet::Worker;
use crate::http::answer::{ErrorAnswer, ErrorCode};
use crate::http::connection::{Connection, Next};
use crate::http::request::Request;
use crate::shared::Shared;

/// For one worker's answer to a question of the gateway.
const PATIENCE: Duration = Duration::from_secs(5);
/// For one worker to flush its cache.
const FLUSH_PATIENCE: Duration = Duration::from_secs(45);

async fn question(
    shared: &Shared,
    worker: &Worker,
    method: &str,
    path: &str,
    limit: Duration,
) -> std::io::Result<Reply> {
    let path = format!("{}{path}", worker.url.base_path());
    let question = Question {
        method,
        addr: worker.addr,
        url: &worker.url,
        tls: &shared.tls.workers,
        path: &path,
        authorization: worker.authorization.as_deref(),
        most: MAX_PAGE,
    };
    ask(Monoio, question, limit).await
}

/// Passes a GET on to some ready worker and its answer back.
pub async fn any_worker(connection: &mut Connection, request: &Request, path: &str) -> Next {
    let shared = connection.shard().shared.clone();
    let worker = shared.fleet.load().any_ready().cloned();
    let Some(worker) = worker else {
        let error =
            ErrorAnswer::new(ErrorCode::NoAvailableWorkers, "no worker is ready").retry_after(1);
        return connection.fail(request, &error).await;
    };
    match question(&shared, &worker, "GET", path, PATIENCE).await {
        Ok(reply) => connection.reply(request, reply.status, JSON, &[], &reply.body).await,
        Err(_) => {
            let message = "the worker asked did not answer; retry";
            let error = ErrorAnswer::new(ErrorCode::UpstreamConnect, message);
            connection.fail(request, &error).await
        }
    }
}

/// Asks every worker to flush its prefix cache.
pub async fn flush_cache(connection: &mut Connection, request: &Request) -> Next {
    let shared = connection.shard().shared.clone();
    let fleet = shared.fleet.load_full();
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for worker in fleet.iter() {
        match question(&shared, worker, "POST", "/flush_cache", FLUSH_PATIENCE).await {
            Ok(reply) if reply.status < 300 => successful.push(worker.url.as_str().to_owned()),
            Ok(reply) => failed.push(json!({
                "worker": worker.url.as_str(), "error": format!("status {}", reply.status)})),
            Err(error) => failed.push(json!({
                "worker": worker.url.as_str(), "error": error.to_string()})),
        }
    }
    let status = if failed.is_empty() { 200 } else { 206 };
    let body = json!({
        "status": if failed.is_empty() { "success" } else { "partial_success" },
        "message": format!("{} of {} caches flushed", successful.len(), fleet.total),
        "workers_flushed": successful.len(),
        "total_http_workers": fleet.total,
        "total_workers": fleet.total,
        "successful": successful,
        "failed": failed,
    });
    connection.reply(request, status, JSON, &[], body.to_string().as_bytes()).await
}

/// The metrics of all workers in one page.
pub async fn engine_metrics(connection: &mut Connection, request: &Request) -> Next {
    let shared = connection.shard().shared.clone();
    let fleet = shared.fleet.load_full();
    let mut pages = Vec::new();
    for worker in fleet.iter() {
        if let Ok(reply) = question(&shared, worker, "GET", "/metrics", PATIENCE).await
            && reply.status == 200
            && let Ok(text) = String::from_utf8(reply.body)
        {
            pages.push((worker.url.as_str().to_owned(), text));
        }
    }
    if pages.is_empty() {
        let error = ErrorAnswer::new(
            ErrorCode::NoAvailableWorkers,
            "no worker answered /metrics; see GET /workers for their state",
        );
        return connection.fail(request, &error).await;
    }
    let page = super::engine_metrics::merged(&pages);
    connection.reply(request, 200, "text/plain; version=0.0.4", &[], page.as_bytes()).await
}
