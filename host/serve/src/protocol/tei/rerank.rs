//! `POST /rerank`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request as HttpRequest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::answered;
use crate::protocol::http::response;
use crate::protocol::texts;
use crate::{ServeError, Server};

/// What a client sends. Other fields are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct RerankRequest {
    query: String,
    texts: Vec<String>,
    /// whether the results have the texts, too
    #[serde(default)]
    return_text: bool,
    /// refused: scores have a sigmoid
    #[serde(default)]
    raw_scores: bool,
}

/// A text with its score; the best stand first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RerankResult {
    /// its place in `texts`
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// from 0 to 1
    score: f32,
}

pub(super) async fn rerank(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    answered(answer(&server, request).await)
}

async fn answer(server: &Server, request: HttpRequest<Body>) -> Result<Response, ServeError> {
    let (body, options, _memory) = texts::read::<RerankRequest>(server, request).await?;
    if body.raw_scores {
        return Err(ServeError::invalid(
            "`raw_scores` is not given: scores are from 0 to 1; `/predict` has the model's",
        ));
    }
    let (loaded, endpoint) = texts::find(server, None, "rerank", |endpoints| endpoints.rerank.clone())?;
    let ranked = texts::rank(server, &loaded, endpoint, options, body.query, &body.texts).await?;
    let result = |ranked: texts::Ranked| RerankResult {
        index: ranked.index,
        text: body.return_text.then(|| body.texts[ranked.index].clone()),
        score: ranked.score,
    };
    Ok(response::json(&json!(ranked.into_iter().map(result).collect::<Vec<_>>())))
}
