//! Text Embeddings Inference's own paths.
//!
//! Follows its `openapi.json` 1.8, and what the package `huggingface_hub` 2.4 sends: that asks at `/` alone.

mod classify;
mod embed;
mod info;
mod rerank;
mod similarity;
mod timing;
mod tokens;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use http::Request as HttpRequest;
use serde_json::json;

pub(crate) use classify::{Classes, ClassifyRequest};
pub(crate) use embed::{EmbedAllRequest, EmbedRequest};
pub(crate) use info::TeiInfo;
pub(crate) use rerank::{RerankRequest, RerankResult};
pub(crate) use similarity::SimilarityRequest;
pub(crate) use tokens::{DecodeRequest, Token, TokenizeRequest};

use super::http::response;
use crate::{ServeError, Server};

/// Every path but `/`.
pub(crate) const PATHS: [&str; 7] =
    ["/embed", "/rerank", "/similarity", "/embed_all", "/classify", "/tokenize", "/decode"];

pub(crate) fn router(server: Arc<Server>) -> Router {
    let [embed, rerank, similarity, embed_all, classify, tokenize, decode] = PATHS;
    Router::new()
        .route("/", post(similarity::any))
        .route(embed, post(embed::embed))
        .route(embed_all, post(embed::embed_all))
        .route(classify, post(classify::classify))
        .route(rerank, post(rerank::rerank))
        .route(similarity, post(similarity::similarity))
        .route(tokenize, post(tokens::tokenize))
        .route(decode, post(tokens::decode))
        .with_state(server)
}

/// `/predict` of a server that gives this path to these clients.
pub(crate) async fn predict(state: State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    classify::classify(state, request).await
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
