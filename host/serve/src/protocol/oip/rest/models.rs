//! Metadata, configuration and statistics of pipelines.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::{PathParameters, answered};
use crate::protocol::http::response;
use crate::protocol::oip::config::ModelConfig;
use crate::protocol::oip::lookup;
use crate::protocol::oip::lookup::Model;
use crate::protocol::oip::metadata::ModelMetadata;
use crate::protocol::oip::statistics::Statistics;
use crate::{ServeError, Server};

/// The names of what is served.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Models {
    models: Vec<String>,
}

/// Whether a pipeline answers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ModelReady {
    name: String,
    ready: bool,
}

fn described<T: Serialize>(server: &Server, named: &PathParameters, describe: impl Fn(&Model) -> T) -> Response {
    let model = lookup::model(server, &named.model, &named.version);
    answered(model.map(|model| response::json(&json!(describe(&model)))))
}

/// `GET /v2/models`, as in KServe's servers.
pub(super) async fn list(State(server): State<Arc<Server>>) -> Response {
    let models = server.repository().visible().iter().map(|slot| slot.name().to_owned()).collect();
    response::json(&json!(Models { models }))
}

/// `GET /v2/models/NAME`.
pub(super) async fn metadata(State(server): State<Arc<Server>>, named: PathParameters) -> Response {
    described(&server, &named, ModelMetadata::new)
}

/// `GET /v2/models/NAME/ready`.
pub(super) async fn ready(State(server): State<Arc<Server>>, named: PathParameters) -> Response {
    let model = lookup::model(&server, &named.model, &named.version).and_then(|model| match model.loaded.crash() {
        None => Ok(ModelReady { name: model.loaded.name().to_owned(), ready: true }),
        Some(reason) => Err(ServeError::NotReady(reason)),
    });
    answered(model.map(|ready| response::json(&json!(ready))))
}

/// `GET /v2/models/NAME/config`.
pub(super) async fn config(State(server): State<Arc<Server>>, named: PathParameters) -> Response {
    described(&server, &named, ModelConfig::new)
}

/// `GET /v2/models/NAME/stats`.
pub(super) async fn statistics(State(server): State<Arc<Server>>, named: PathParameters) -> Response {
    described(&server, &named, |model| Statistics::new(std::slice::from_ref(model)))
}

/// `GET /v2/models/stats`.
pub(super) async fn all_statistics(State(server): State<Arc<Server>>) -> Response {
    response::json(&json!(Statistics::new(&Model::all(&server))))
}
