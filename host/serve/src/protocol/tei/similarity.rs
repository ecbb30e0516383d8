//! `POST /similarity`, and `POST /`, which is that, [`embed`](super::embed) or [`classify`](super::classify) by its inputs.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use futures_util::StreamExt as _;
use http::Request as HttpRequest;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::answered;
use super::classify::classes;
use super::embed::vectors;
use super::rerank::ranked;
use super::timing::Timing;
use crate::protocol::http::response;
use crate::protocol::texts::{self, MOST_TEXTS, TextInput, TextParameters, Wanted};
use crate::{RequestOptions, ServeError, Server};
use gpux::internal::Endpoints;

/// What a client sends. Other fields are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct SimilarityRequest {
    /// the name of the pipeline, or an alias; not needed where one alone embeds
    model: Option<String>,
    inputs: Sentences,
    parameters: Option<TextParameters>,
}

#[derive(Deserialize, JsonSchema)]
struct Sentences {
    source_sentence: String,
    /// those that are compared with it
    sentences: Vec<String>,
}

pub(super) async fn similarity(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    let timing = Timing::start();
    let answer = async {
        let (body, options, _memory) = texts::read::<SimilarityRequest>(&server, request).await?;
        similarities(&server, body, options, timing).await
    };
    answered(answer.await)
}

pub(super) async fn any(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    let timing = Timing::start();
    let answer = async {
        let (body, options, _memory) = texts::read::<Json>(&server, request).await?;
        if body["inputs"].is_object() {
            return similarities(&server, texts::parsed(body)?, options, timing).await;
        }
        if body["query"].is_string() {
            return ranked(&server, texts::parsed(body)?, options, timing).await;
        }
        let has = |able: fn(&Endpoints) -> bool| texts::is_any(&server, body["model"].as_str(), able);
        // The client's tasks differ in nothing else.
        let is_classified = body["parameters"].is_object() || !has(|endpoints| endpoints.embeddings.is_some());
        if is_classified && has(|endpoints| endpoints.classify.is_some()) {
            classes(&server, texts::parsed(body)?, options, timing, true).await
        } else {
            vectors(&server, texts::parsed(body)?, options, timing).await
        }
    };
    answered(answer.await)
}

/// The cosines between the first sentence and the others.
async fn similarities(
    server: &Server,
    SimilarityRequest { model, inputs, parameters }: SimilarityRequest,
    options: RequestOptions,
    mut timing: Timing,
) -> Result<Response, ServeError> {
    let Sentences { source_sentence, sentences } = inputs;
    if sentences.is_empty() || sentences.len() > MOST_TEXTS {
        let message = format!("`sentences` has {} texts; 1 to {MOST_TEXTS} are allowed", sentences.len());
        return Err(ServeError::invalid(message));
    }
    let model = model.as_deref();
    let (loaded, endpoint) = texts::find(server, model, "embeddings", |endpoints| endpoints.embeddings.clone())?;
    let wanted = Wanted::new(parameters.unwrap_or_default(), &loaded)?;
    let all: Vec<_> = std::iter::once(source_sentence).chain(sentences).map(TextInput::Text).collect();
    timing.count(all.iter().map(TextInput::characters));
    let mut results = std::pin::pin!(texts::vectors(server, &loaded, &endpoint, (options, all, &wanted)));
    let (mut first, mut cosines) = (None, Vec::new());
    while let Some(vector) = results.next().await {
        let vector = vector?;
        match &first {
            None => first = Some(vector),
            Some(first) => cosines.push(cosine(first, &vector)),
        }
    }
    wanted.check()?;
    Ok(timing.tell(&loaded, response::json(&json!(cosines))))
}

fn cosine(one: &[f32], other: &[f32]) -> f32 {
    let dot = |one: &[f32], other: &[f32]| {
        one.iter().zip(other).map(|(one, other)| f64::from(*one) * f64::from(*other)).sum::<f64>()
    };
    let lengths = (dot(one, one) * dot(other, other)).sqrt();
    if lengths > 0.0 { (dot(one, other) / lengths) as f32 } else { 0.0 }
}
