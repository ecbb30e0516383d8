//! The Open Inference Protocol over REST.

mod administration;
mod bounded_fields;
mod early_parameters;
mod framing;
mod generate;
mod infer;
mod models;
mod object;
mod request;
mod response;
mod server;

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;

pub(crate) use models::{ModelReady, Models};
pub(crate) use request::schema as request_schema;
pub(crate) use server::{Live, Ready, RepositoryCall};

use super::error;
use crate::protocol::rerank;
use crate::{ServeError, Server};

/// Every path under `/v2`.
pub(super) fn router(server: Arc<Server>) -> Router {
    let model = |rest: &str| {
        [format!("/v2/models/{{model}}{rest}"), format!("/v2/models/{{model}}/versions/{{version}}{rest}")]
    };
    let mut router = Router::new()
        .route("/v2", get(server::metadata))
        .route("/v2/", get(server::metadata))
        .route("/v2/health/live", get(server::live))
        .route("/v2/health/ready", get(server::ready))
        .route("/v2/models", get(models::list))
        .route("/v2/models/stats", get(models::all_statistics))
        .route("/v2/repository/index", post(server::index))
        .route("/v2/repository/models/{model}/load", post(server::load))
        .route("/v2/repository/models/{model}/unload", post(server::unload));
    for path in model("") {
        router = router.route(&path, get(models::metadata));
    }
    for path in model("/ready") {
        router = router.route(&path, get(models::ready));
    }
    for path in model("/config") {
        router = router.route(&path, get(models::config));
    }
    for path in model("/stats") {
        router = router.route(&path, get(models::statistics));
    }
    for path in model("/infer") {
        router = router.route(&path, post(infer::infer));
    }
    for path in model("/generate") {
        router = router.route(&path, post(generate::generate));
    }
    for path in model("/generate_stream") {
        router = router.route(&path, post(generate::generate_stream));
    }
    for memory in ["/v2/systemsharedmemory", "/v2/cudasharedmemory"] {
        router = router
            .route(&format!("{memory}/status"), get(administration::regions))
            .route(&format!("{memory}/region/{{region}}/status"), get(administration::regions))
            .route(&format!("{memory}/region/{{region}}/register"), post(administration::register))
            .route(&format!("{memory}/unregister"), post(administration::unregister))
            .route(&format!("{memory}/region/{{region}}/unregister"), post(administration::unregister));
    }
    for path in ["/v2/trace/setting", "/v2/models/{model}/trace/setting"] {
        router = router.route(path, get(administration::tracing).post(administration::set_tracing));
    }
    router.route("/v2/logging", get(administration::logging).post(administration::set_logging)).with_state(server)
}

/// Names in a path: a pipeline and its version (by default the loaded one), or a shared memory region. Absent names are
/// empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PathParameters {
    model: String,
    version: String,
    region: String,
}

impl<S: Send + Sync> FromRequestParts<S> for PathParameters {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let path = Path::<Self>::from_request_parts(parts, state).await;
        path.map(|Path(named)| named)
            .map_err(|rejection| error::with_message(rejection.status(), &rejection.body_text()))
    }
}

/// The response, or the error in the protocol's form.
fn answered(result: Result<Response, ServeError>) -> Response {
    result.unwrap_or_else(|fault| error::response(&fault))
}

/// Whether a path is one of the protocol.
pub(crate) fn is_path(path: &str) -> bool {
    (path == "/v2" || path.starts_with("/v2/")) && !rerank::is_path(path)
}

/// The response to an unknown path of the protocol; `None` for other paths.
pub(crate) fn no_such_path(path: &str) -> Option<Response> {
    let message = || format!("there is nothing at `{path}`");
    is_path(path).then(|| error::with_message(StatusCode::NOT_FOUND, &message()))
}

/// The response to a method that a path of the protocol does not support; `None` for other paths.
pub(crate) fn no_such_method(path: &str, method: &http::Method) -> Option<Response> {
    let message = || format!("`{path}` does not take {method}");
    is_path(path).then(|| error::with_message(StatusCode::METHOD_NOT_ALLOWED, &message()))
}
