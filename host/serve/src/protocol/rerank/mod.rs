//! Documents ranked for a query: Jina's `/v1/rerank` and Cohere's `/v2/rerank`.
//!
//! Follows Jina's reference, and what the package `cohere` 7.3 reads.

mod cohere;
mod jina;

use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::post;
use serde_json::json;

pub(crate) use cohere::{CohereRequest, CohereResults};
pub(crate) use jina::{JinaRequest, JinaResults, rank_documents};

use super::http::response;
use crate::{ServeError, Server};

/// Both paths.
pub(crate) const PATHS: [&str; 2] = ["/v1/rerank", "/v2/rerank"];

pub(crate) fn router(server: Arc<Server>) -> Router {
    let [jina, cohere] = PATHS;
    Router::new().route(jina, post(jina::rerank)).route(cohere, post(cohere::rerank)).with_state(server)
}

/// Whether a path is one of them.
pub(crate) fn is_path(path: &str) -> bool {
    PATHS.contains(&path)
}

/// An error in a form that both services' clients read: Cohere's `message`, Jina's `detail`.
pub(crate) fn error(error: &ServeError) -> Response {
    let message = error.public_message();
    response::error_with(error, &json!({ "message": message, "detail": message }))
}

fn answered(result: Result<Response, ServeError>) -> Response {
    result.unwrap_or_else(|refused| error(&refused))
}
