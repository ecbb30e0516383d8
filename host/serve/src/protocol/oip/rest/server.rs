//! Server metadata, health and the model repository.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::bounded_fields::ParsedParameters;
use super::object::Object;
use super::{PathParameters, answered};
use crate::protocol::http::{body, response};
use crate::protocol::oip::metadata::ServerMetadata;
use crate::protocol::oip::parameters::Parameters;
use crate::protocol::oip::repository;
use crate::{ServeError, Server};

/// Whether the process answers at all.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Live {
    live: bool,
}

/// Whether requests would be answered.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Ready {
    ready: bool,
    /// why not
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
}

/// `GET /v2`.
pub(super) async fn metadata() -> Response {
    response::json(&json!(ServerMetadata::new()))
}

/// `GET /v2/health/live`.
pub(super) async fn live() -> Response {
    response::json(&json!(Live { live: true }))
}

/// `GET /v2/health/ready`.
pub(super) async fn ready(State(server): State<Arc<Server>>) -> Response {
    if server.is_ready() {
        return response::json(&json!(Ready { ready: true, error: None }));
    }
    let ready = Ready { ready: false, error: Some("pipelines are being loaded, or none can be") };
    response::json_with(StatusCode::SERVICE_UNAVAILABLE, &json!(ready))
}

/// What the body of a repository call may say.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "RepositoryCall")]
pub(crate) struct RepositoryCall {
    /// of an index: only those that are ready
    #[serde(default)]
    ready: bool,
    #[serde(default)]
    #[schemars(with = "Parameters")]
    parameters: ParsedParameters,
}

impl RepositoryCall {
    async fn read(server: &Server, request: HttpRequest<Body>) -> Result<Self, ServeError> {
        let (head, body) = request.into_parts();
        let body = body::read_small(&head.headers, body, server).await?;
        if body.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        let asked = serde_json::from_slice::<Object<Self>>(&body);
        asked.map(|asked| asked.0).map_err(|error| ServeError::invalid(format!("not a repository call: {error}")))
    }
}

/// `POST /v2/repository/index`.
pub(super) async fn index(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    let index = RepositoryCall::read(&server, request).await;
    answered(index.map(|asked| response::json(&json!(repository::index(&server, asked.ready)))))
}

/// `POST /v2/repository/models/NAME/load`.
pub(super) async fn load(
    State(server): State<Arc<Server>>,
    named: PathParameters,
    request: HttpRequest<Body>,
) -> Response {
    let loaded = async {
        let asked = RepositoryCall::read(&server, request).await?;
        repository::reject_config_override(asked.parameters.0.keys())?;
        repository::load(&server, named.model).await?;
        Ok(Response::default())
    };
    answered(loaded.await)
}

/// `POST /v2/repository/models/NAME/unload`.
pub(super) async fn unload(
    State(server): State<Arc<Server>>,
    named: PathParameters,
    request: HttpRequest<Body>,
) -> Response {
    let unloaded = async {
        // Read only so that the connection can be reused.
        RepositoryCall::read(&server, request).await?;
        repository::unload(&server, &named.model).await?;
        Ok(Response::default())
    };
    answered(unloaded.await)
}
