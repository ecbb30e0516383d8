//! What is known about pipelines.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value as Json, json};

use super::{Named, answered};
use crate::serve::http::answer;
use crate::serve::oip::{config, lookup, metadata, statistics};
use crate::serve::{ServeError, Server};

fn described(server: &Server, named: &Named, describe: impl Fn(&lookup::Model) -> Json) -> Response {
    let model = lookup::model(server, &named.model, &named.version);
    answered(model.map(|model| answer::json(&describe(&model))))
}

/// `GET /v2/models`, which KServe's servers know.
pub(super) async fn list(State(server): State<Arc<Server>>) -> Response {
    let names: Vec<_> = server.repository().visible().iter().map(|entry| entry.name().to_owned()).collect();
    answer::json(&json!({ "models": names }))
}

/// `GET /v2/models/NAME`.
pub(super) async fn metadata(State(server): State<Arc<Server>>, named: Named) -> Response {
    described(&server, &named, metadata::to_json)
}

/// `GET /v2/models/NAME/ready`.
pub(super) async fn ready(State(server): State<Arc<Server>>, named: Named) -> Response {
    described(&server, &named, |model| json!({ "name": model.served.name(), "ready": true }))
}

/// `GET /v2/models/NAME/config`.
pub(super) async fn config(State(server): State<Arc<Server>>, named: Named) -> Response {
    described(&server, &named, config::to_json)
}

/// `GET /v2/models/NAME/stats`.
pub(super) async fn statistics(State(server): State<Arc<Server>>, named: Named) -> Response {
    let statistics: Result<_, ServeError> = statistics::to_json(&server, &named.model, &named.version);
    answered(statistics.map(|json| answer::json(&json)))
}

/// `GET /v2/models/stats`.
pub(super) async fn all_statistics(State(server): State<Arc<Server>>) -> Response {
    answered(statistics::to_json(&server, "", "").map(|json| answer::json(&json)))
}
