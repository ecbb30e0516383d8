//! `POST /rerank`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request as HttpRequest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::answered;
use super::timing::Timing;
use crate::protocol::http::response;
use crate::protocol::rerank::rank_documents;
use crate::protocol::texts::{self, Ranking, TextParameters, Wanted};
use crate::{RequestOptions, ServeError, Server};

/// What a client sends. Other fields are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct RerankRequest {
    /// the name of the pipeline, or an alias; not needed where one alone ranks
    model: Option<String>,
    query: String,
    texts: Vec<String>,
    /// whether the results have the texts, too
    return_text: Option<bool>,
    /// whether the scores are the model's own
    raw_scores: Option<bool>,
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
    let timing = Timing::start();
    let answer = async {
        let (body, options, _memory) = texts::read::<Json>(&server, request).await?;
        if body["texts"].is_null() && !body["documents"].is_null() {
            // Clients of vLLM and Infinity send Jina's body to this path.
            return rank_documents(&server, texts::parsed(body)?, options).await;
        }
        ranked(&server, texts::parsed(body)?, options, timing).await
    };
    answered(answer.await)
}

/// The texts in the order of their scores.
pub(super) async fn ranked(
    server: &Server,
    body: RerankRequest,
    options: RequestOptions,
    mut timing: Timing,
) -> Result<Response, ServeError> {
    let model = body.model.as_deref();
    let (loaded, endpoint) = texts::find(server, model, "rerank", |endpoints| endpoints.rerank.clone())?;
    let wanted = Wanted::new(body.parameters, &loaded)?;
    let query = body.query.chars().count();
    timing.count(body.texts.iter().map(|text| query + text.chars().count()));
    let ranking = Ranking { query: body.query, wanted, raw: body.raw_scores == Some(true) };
    let ranked = texts::rank(server, &loaded, endpoint, options, ranking, &body.texts).await?;
    let result = |ranked: texts::Ranked| RerankResult {
        index: ranked.index,
        text: (body.return_text == Some(true)).then(|| body.texts[ranked.index].clone()),
        score: ranked.score,
    };
    let response = response::json(&json!(ranked.into_iter().map(result).collect::<Vec<_>>()));
    Ok(timing.tell(&loaded, response))
}
