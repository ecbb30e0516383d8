//! The HTTP API: `/health`, `/info`, `/predict`, and the same for each of several pipelines.

mod accept;
pub(in crate::serve) mod answer;
mod body;
mod health;
mod info;
mod input;
mod metrics;
mod output;
mod predict;

use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};

pub(super) use self::body::Bodies;
use super::error::ServeError;
use super::server::Server;

/// Every path there is.
pub(super) fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/health", get(health::health))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/info", get(info::only))
        .route("/metrics", get(metrics::metrics))
        .route("/predict", post(predict::only))
        .route("/pipelines", get(info::all))
        .route("/pipelines/{name}/info", get(info::named))
        .route("/pipelines/{name}/predict", post(predict::named))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(server)
}

async fn unknown(uri: http::Uri) -> Response {
    answer::error(&ServeError::NotFound(format!("there is nothing at `{}`", uri.path())))
}

async fn wrong_method(method: http::Method, uri: http::Uri) -> Response {
    let message = format!("`{}` does not take {method}", uri.path());
    answer::json_with(
        http::StatusCode::METHOD_NOT_ALLOWED,
        &serde_json::json!({ "error": "ValidationError", "message": message, "details": {} }),
    )
}
