//! `POST /v1/rerank`, as Jina has it.

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
use crate::protocol::texts::{self, Ranking, Wanted};
use crate::{RequestOptions, ServeError, Server};

/// What a client sends. Other fields are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct JinaRequest {
    /// the name of the pipeline, or an alias; not needed where one alone ranks
    model: Option<String>,
    query: String,
    documents: Vec<Document>,
    /// the best so many alone
    top_n: Option<usize>,
    /// whether the results have the documents, too
    return_documents: Option<bool>,
}

/// A text, or an object that has it.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a document is a text, or an object with `text`")]
enum Document {
    Text(String),
    Object { text: String },
}

/// The documents, the best first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct JinaResults {
    model: String,
    /// `list`
    object: String,
    usage: Usage,
    results: Vec<JinaResult>,
}

#[derive(Serialize, JsonSchema)]
struct Usage {
    /// the tokens that the pipeline made of the texts
    total_tokens: u64,
    prompt_tokens: u64,
}

#[derive(Serialize, JsonSchema)]
struct JinaResult {
    /// its place in `documents`
    index: usize,
    /// from 0 to 1
    relevance_score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Text>,
}

#[derive(Serialize, JsonSchema)]
struct Text {
    text: String,
}

pub(super) async fn rerank(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    answered(answer(&server, request).await)
}

async fn answer(server: &Server, request: HttpRequest<Body>) -> Result<Response, ServeError> {
    let (body, options, _memory) = texts::read::<JinaRequest>(server, request).await?;
    rank_documents(server, body, options).await
}

/// The documents in the order of their scores.
pub(crate) async fn rank_documents(
    server: &Server,
    body: JinaRequest,
    options: RequestOptions,
) -> Result<Response, ServeError> {
    let (loaded, endpoint) =
        texts::find(server, body.model.as_deref(), "rerank", |endpoints| endpoints.rerank.clone())?;
    let text = |document: Document| match document {
        Document::Text(text) | Document::Object { text } => text,
    };
    let documents: Vec<_> = body.documents.into_iter().map(text).collect();
    let ranking = Ranking { query: body.query, wanted: Wanted::default(), raw: false };
    let ranked = texts::rank(server, &loaded, endpoint, options, ranking, &documents).await?;
    let result = |ranked: texts::Ranked| JinaResult {
        index: ranked.index,
        relevance_score: ranked.score,
        document: body.return_documents.unwrap_or(true).then(|| Text { text: documents[ranked.index].clone() }),
    };
    let tokens = texts::tokens();
    Ok(response::json(&json!(JinaResults {
        model: body.model.unwrap_or_else(|| loaded.name().to_owned()),
        object: "list".to_owned(),
        usage: Usage { total_tokens: tokens, prompt_tokens: tokens },
        results: ranked.into_iter().take(body.top_n.unwrap_or(usize::MAX)).map(result).collect(),
    })))
}
