//! Documents ranked for a query: Jina's `/v1/rerank`, Cohere's `/v2/rerank` and `/rerank` of Text Embeddings Inference.
//!
//! Follows what the packages `cohere` 7.3 and `huggingface_hub` read, and Jina's reference.

mod cohere;
mod jina;
mod tei;

use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::post;
use http::HeaderValue;
use http::header::RETRY_AFTER;
use serde_json::json;

pub(crate) use cohere::{CohereRequest, CohereResults};
pub(crate) use jina::{JinaRequest, JinaResults};
pub(crate) use tei::{TeiRequest, TeiResult};

use super::http::response;
use crate::{ServeError, Server};

/// The three paths.
pub(crate) const PATHS: [&str; 3] = ["/v1/rerank", "/v2/rerank", "/rerank"];

pub(crate) fn router(server: Arc<Server>) -> Router {
    let [jina, cohere, tei] = PATHS;
    let router = Router::new();
    let router =
        router.route(jina, post(jina::rerank)).route(cohere, post(cohere::rerank)).route(tei, post(tei::rerank));
    router.with_state(server)
}

/// Whether a path is one of them.
pub(crate) fn is_path(path: &str) -> bool {
    PATHS.contains(&path)
}

/// An error in a form that each of the clients reads: Cohere's has `message`, Jina's `detail`, that of Text Embeddings
/// Inference `error` and `error_type`.
pub(crate) fn error(error: &ServeError) -> Response {
    let (status, message) = (error.status(), error.public_message());
    let kind = match status.as_u16() {
        429 | 503 | 504 => "Overloaded",
        400..=499 => "Validation",
        _ => "Backend",
    };
    let body = json!({ "message": message, "detail": message, "error": message, "error_type": kind });
    let mut response = response::json_with(status, &body);
    if let Some(after) = error.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    response
}

fn answered(result: Result<Response, ServeError>) -> Response {
    result.unwrap_or_else(|refused| error(&refused))
}
