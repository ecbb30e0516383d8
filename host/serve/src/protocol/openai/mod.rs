//! OpenAI's API for embeddings: `/v1`, and `/openai/v1`, where KServe has it.
//!
//! Follows the reference of `platform.openai.com` as the package `openai` 3.57 reads it.

mod embeddings;
mod models;

use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use serde_json::json;

pub(crate) use embeddings::{Embeddings, EmbeddingsRequest};
pub(crate) use models::{Model, Models};

use super::http::response;
use crate::{ServeError, Server};

/// The path without a version.
const ROOT: &str = "/embeddings";

/// Every path of the API.
pub(crate) fn router(server: Arc<Server>) -> Router {
    let mut router = Router::new();
    for prefix in ["/v1", "/openai/v1"] {
        router = router
            .route(&format!("{prefix}/models"), get(models::list))
            .route(&format!("{prefix}/models/{{*model}}"), get(models::one))
            .route(&format!("{prefix}/embeddings"), post(embeddings::embeddings));
    }
    // Where Text Embeddings Inference has it, too.
    router.route(ROOT, post(embeddings::embeddings)).with_state(server)
}

/// Whether a path is one of the API.
pub(crate) fn is_path(path: &str) -> bool {
    let rest = path.strip_prefix("/openai").unwrap_or(path);
    rest == "/v1" || rest.starts_with("/v1/") || path == ROOT
}

/// The error of a path that is none, in the API's form.
pub(crate) fn no_such_path(error: &ServeError) -> Response {
    with_kind(error, "invalid_request_error", None)
}

/// An error in the API's form, which decides on the class of the clients' exception.
pub(crate) fn error(error: &ServeError) -> Response {
    let status = error.status();
    let (kind, code) = match status {
        StatusCode::UNAUTHORIZED => ("invalid_request_error", Some("invalid_api_key")),
        StatusCode::NOT_FOUND => ("invalid_request_error", Some("model_not_found")),
        StatusCode::FORBIDDEN => ("permission_error", None),
        StatusCode::TOO_MANY_REQUESTS => ("requests", Some("rate_limit_exceeded")),
        status if status.is_client_error() => ("invalid_request_error", None),
        _ => ("server_error", None),
    };
    with_kind(error, kind, code)
}

fn with_kind(error: &ServeError, kind: &str, code: Option<&str>) -> Response {
    let body = json!({ "message": error.public_message(), "type": kind, "param": null, "code": code });
    response::error_with(error, &json!({ "error": body }))
}
