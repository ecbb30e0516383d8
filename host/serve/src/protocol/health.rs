//! `/health`, `/health/live` and `/health/ready`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value as Json, json};

use super::http::response;
use crate::{PipelineState, Server};

/// The health check: 200 while requests are answered; 503 while pipelines are first loaded and during a shutdown.
pub(crate) async fn health(State(server): State<Arc<Server>>) -> Response {
    let slots = server.repository().visible();
    let names: Vec<_> = slots.iter().map(|slot| slot.name().to_owned()).collect();
    let model = if let [only] = names.as_slice() { json!(only) } else { Json::Null };
    let ready = server.is_ready();
    let status = if ready { "healthy" } else { "not ready" };
    let mut document = json!({ "status": status, "model": model, "pipelines": names });
    for (field, is_failed) in [("failed", true), ("not_reloaded", false)] {
        let failing = slots.iter().filter(|slot| (slot.state() == PipelineState::Failed) == is_failed);
        let failing = failing.filter_map(|slot| Some((slot.name().to_owned(), Json::from(slot.public_failure()?))));
        let failing: serde_json::Map<_, _> = failing.collect();
        if !failing.is_empty() {
            document[field] = failing.into();
        }
    }
    with_readiness(ready, document)
}

/// Liveness: the process responds.
pub(crate) async fn live() -> Response {
    response::json(&json!({ "live": true }))
}

/// Readiness: 200 if requests would be answered, else 503.
pub(crate) async fn ready(State(server): State<Arc<Server>>) -> Response {
    let ready = server.is_ready();
    with_readiness(ready, json!({ "ready": ready }))
}

fn with_readiness(ready: bool, document: Json) -> Response {
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    response::json_with(status, &document)
}
