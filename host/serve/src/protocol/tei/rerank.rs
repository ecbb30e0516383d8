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
use super::timing::Timing;
use crate::protocol::http::response;
use crate::protocol::texts::{self, Ranking, TextParameters, Wanted};
use crate::{ServeError, Server};

/// What a client sends. Other fields are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct RerankRequest {
    /// the name of the pipeline, or an alias; not needed where one alone ranks
    model: Option<String>,
    query: String,
    texts: Vec<String>,
    /// whether the results have the texts, too
    #[serde(default)]
    return_text: bool,
    /// whether the scores are the model's own
    #[serde(default)]
    raw_scores: bool,
    #[serde(flatten)]
    parameters: TextParameters,
}

/// A text with its score; the best stand first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RerankResult {
    /// its place in `texts`
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// from 0 to 1, unless raw ones are wanted
    score: f32,
}

pub(super) async fn rerank(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    answered(answer(&server, request).await)
}

async fn answer(server: &Server, request: HttpRequest<Body>) -> Result<Response, ServeError> {
    let mut timing = Timing::start();
    let (body, options, _memory) = texts::read::<RerankRequest>(server, request).await?;
    let model = body.model.as_deref();
    let (loaded, endpoint) = texts::find(server, model, "rerank", |endpoints| endpoints.rerank.clone())?;
    let wanted = Wanted::new(body.parameters, &loaded)?;
    let query = body.query.chars().count();
    timing.count(body.texts.iter().map(|text| query + text.chars().count()));
    let ranking = Ranking { query: body.query, wanted, raw: body.raw_scores };
    let ranked = texts::rank(server, &loaded, endpoint, options, ranking, &body.texts).await?;
    let result = |ranked: texts::Ranked| RerankResult {
        index: ranked.index,
        text: body.return_text.then(|| body.texts[ranked.index].clone()),
        score: ranked.score,
    };
    let response = response::json(&json!(ranked.into_iter().map(result).collect::<Vec<_>>()));
    Ok(timing.tell(&loaded, response))
}
