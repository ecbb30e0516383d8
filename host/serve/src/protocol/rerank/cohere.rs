//! `POST /v2/rerank`, as Cohere has it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request as HttpRequest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::answered;
use crate::engine::request_context::RequestContext;
use crate::protocol::http::response;
use crate::protocol::texts::{self, Ranking, Wanted};
use crate::{ServeError, Server};

/// What a client sends. Other fields are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct CohereRequest {
    /// the name of the pipeline, or an alias
    model: String,
    query: String,
    documents: Vec<String>,
    /// the best so many alone
    top_n: Option<usize>,
    /// a document's tokens after these are left out
    #[schemars(range(min = 1))]
    max_tokens_per_doc: Option<usize>,
}

/// The documents, the best first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CohereResults {
    /// the request's
    id: String,
    results: Vec<CohereResult>,
    meta: Meta,
}

#[derive(Serialize, JsonSchema)]
struct CohereResult {
    /// its place in `documents`
    index: usize,
    /// from 0 to 1
    relevance_score: f32,
}

#[derive(Serialize, JsonSchema)]
struct Meta {
    tokens: Tokens,
}

#[derive(Serialize, JsonSchema)]
struct Tokens {
    /// those that the pipeline made of the texts
    input_tokens: u64,
}

pub(super) async fn rerank(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    answered(answer(&server, request).await)
}

async fn answer(server: &Server, request: HttpRequest<Body>) -> Result<Response, ServeError> {
    let (body, options, _memory) = texts::read::<CohereRequest>(server, request).await?;
    let (loaded, endpoint) = texts::find(server, Some(&body.model), "rerank", |endpoints| endpoints.rerank.clone())?;
    let wanted = Wanted::documents(body.max_tokens_per_doc, &loaded, &endpoint.documents)?;
    let ranking = Ranking { query: body.query, wanted, raw: false };
    let ranked = texts::rank(server, &loaded, endpoint, options, ranking, &body.documents).await?;
    let result = |ranked: texts::Ranked| CohereResult { index: ranked.index, relevance_score: ranked.score };
    Ok(response::json(&json!(CohereResults {
        id: RequestContext::current().map(|context| context.id().to_owned()).unwrap_or_default(),
        results: ranked.into_iter().take(body.top_n.unwrap_or(usize::MAX)).map(result).collect(),
        meta: Meta { tokens: Tokens { input_tokens: texts::tokens() } },
    })))
}
