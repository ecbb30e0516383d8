//! Text Embeddings Inference's own paths.
//!
//! Follows its `openapi.json` 1.8, and what the package `huggingface_hub` 2.4 sends: that asks at `/` alone.

mod embed;
mod rerank;
mod similarity;

use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::post;
use serde_json::json;

pub(crate) use embed::EmbedRequest;
pub(crate) use rerank::{RerankRequest, RerankResult};
pub(crate) use similarity::SimilarityRequest;

use super::http::response;
use crate::{ServeError, Server};

/// Every path but `/`.
pub(crate) const PATHS: [&str; 3] = ["/embed", "/rerank", "/similarity"];

pub(crate) fn router(server: Arc<Server>) -> Router {
    let [embed, rerank, similarity] = PATHS;
    let router = Router::new().route(embed, post(embed::embed)).route(rerank, post(rerank::rerank));
    router.route(similarity, post(similarity::similarity)).route("/", post(similarity::any)).with_state(server)
}

/// Whether a path is one of them.
pub(crate) fn is_path(path: &str) -> bool {
    PATHS.contains(&path)
}

/// An error in the form that its clients read.
pub(crate) fn error(error: &ServeError) -> Response {
    let kind = match error.status().as_u16() {
        429 | 503 | 504 => "Overloaded",
        400..=499 => "Validation",
        _ => "Backend",
    };
    response::error_with(error, &json!({ "error": error.public_message(), "error_type": kind }))
}

fn answered(result: Result<Response, ServeError>) -> Response {
    result.unwrap_or_else(|refused| error(&refused))
}
