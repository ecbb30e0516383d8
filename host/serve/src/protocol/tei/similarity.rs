//! `POST /similarity`, and `POST /`, which is that or [`embed`](super::embed) by its inputs.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use futures_util::StreamExt as _;
use http::Request as HttpRequest;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::answered;
use super::embed::{EmbedRequest, vectors};
use crate::protocol::http::response;
use crate::protocol::texts::{self, MOST_TEXTS};
use crate::{RequestOptions, ServeError, Server};

/// What a client sends. Other fields are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct SimilarityRequest {
    inputs: Sentences,
}

#[derive(Deserialize, JsonSchema)]
struct Sentences {
    source_sentence: String,
    /// those that are compared with it
    sentences: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`inputs` is a text, a list of texts, or `source_sentence` and `sentences`")]
enum Any {
    Similarity(SimilarityRequest),
    Embed(EmbedRequest),
}

pub(super) async fn similarity(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    let answer = async {
        let (body, options, _memory) = texts::read::<SimilarityRequest>(&server, request).await?;
        similarities(&server, body, options).await
    };
    answered(answer.await)
}

pub(super) async fn any(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    let answer = async {
        let (body, options, _memory) = texts::read::<Any>(&server, request).await?;
        match body {
            Any::Similarity(body) => similarities(&server, body, options).await,
            Any::Embed(body) => vectors(&server, body, options).await,
        }
    };
    answered(answer.await)
}

/// The cosines between the first sentence and the others.
async fn similarities(
    server: &Server,
    SimilarityRequest { inputs }: SimilarityRequest,
    options: RequestOptions,
) -> Result<Response, ServeError> {
    let Sentences { source_sentence, sentences } = inputs;
    if sentences.is_empty() || sentences.len() > MOST_TEXTS {
        let message = format!("`sentences` has {} texts; 1 to {MOST_TEXTS} are allowed", sentences.len());
        return Err(ServeError::invalid(message));
    }
    let (loaded, endpoint) = texts::find(server, None, "embeddings", |endpoints| endpoints.embeddings.clone())?;
    let all = std::iter::once(source_sentence).chain(sentences).collect();
    let mut results = std::pin::pin!(texts::vectors(server, &loaded, &endpoint, options, all));
    let (mut first, mut cosines) = (None, Vec::new());
    while let Some(vector) = results.next().await {
        let vector = vector?;
        match &first {
            None => first = Some(vector),
            Some(first) => cosines.push(cosine(first, &vector)),
        }
    }
    Ok(response::json(&json!(cosines)))
}

fn cosine(one: &[f32], other: &[f32]) -> f32 {
    let dot = |one: &[f32], other: &[f32]| {
        one.iter().zip(other).map(|(one, other)| f64::from(*one) * f64::from(*other)).sum::<f64>()
    };
    let lengths = (dot(one, one) * dot(other, other)).sqrt();
    if lengths > 0.0 { (dot(one, other) / lengths) as f32 } else { 0.0 }
}
