//! The routes the gateway answers itself.

mod engine_metrics;
pub mod probes;
mod proxy;
pub mod spec;
mod workers;

use smg_core::http1::Method;

use crate::http::connection::{Connection, Next};
use crate::http::request::Request;
use crate::http::route::Own;

const JSON: &str = "application/json";

/// Answers a request to one of the gateway's own routes. The method has been checked.
pub(crate) async fn serve(connection: &mut Connection, own: Own, request: &Request) -> Next {
    match own {
        Own::Health | Own::Liveness | Own::Readiness | Own::Models => {
            let shared = connection.shard().shared.clone();
            match probes::answer(&shared, own.template().as_bytes()) {
                Some((status, content_type, body)) => {
                    connection.reply(request, status, content_type, &[], &body).await
                }
                None => connection.reply(request, 404, JSON, &[], b"{}").await,
            }
        }
        Own::ModelInfo | Own::ServerInfo | Own::HealthGenerate => {
            proxy::any_worker(connection, request, own.template()).await
        }
        Own::EngineMetrics => proxy::engine_metrics(connection, request).await,
        Own::FlushCache => proxy::flush_cache(connection, request).await,
        Own::Workers if request.head.method == Method::Post => {
            workers::add(connection, request).await
        }
        Own::Workers => workers::list(connection, request).await,
        Own::Loads | Own::GetLoads => workers::loads(connection, request).await,
        Own::Worker => workers::one(connection, request).await,
    }
}
