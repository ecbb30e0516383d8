//! `POST /embed` and `/embed_all`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use futures_util::StreamExt as _;
use http::Request as HttpRequest;
use schemars::JsonSchema;
use serde::Deserialize;

use super::answered;
use super::timing::Timing;
use crate::protocol::http::json_list::JsonList;
use crate::protocol::http::response;
use crate::protocol::texts::{self, Encoding, TextInput, TextParameters, Texts, Vectors, Wanted};
use crate::{RequestOptions, ServeError, Server};

/// What a client sends. Other fields are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct EmbedRequest {
    /// the name of the pipeline, or an alias; not needed where one alone embeds
    model: Option<String>,
    inputs: Texts,
    /// whether vectors are scaled to length 1; if not, they are those of the pipeline, which may do so itself
    ///
    /// By default, they are scaled.
    normalize: Option<bool>,
    /// the first so many numbers of each vector
    #[schemars(range(min = 1))]
    dimensions: Option<usize>,
    #[serde(flatten)]
    parameters: TextParameters,
}

pub(super) async fn embed(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    let timing = Timing::start();
    let answer = async {
        let (body, options, _memory) = texts::read::<EmbedRequest>(&server, request).await?;
        vectors(&server, body, options, timing).await
    };
    answered(answer.await)
}

/// A list of vectors.
pub(super) async fn vectors(
    server: &Server,
    body: EmbedRequest,
    options: RequestOptions,
    mut timing: Timing,
) -> Result<Response, ServeError> {
    let model = body.model.as_deref();
    let (loaded, endpoint) = texts::find(server, model, "embeddings", |endpoints| endpoints.embeddings.clone())?;
    let wanted = Wanted::new(body.parameters, &loaded)?;
    let texts = body.inputs.read("inputs", &loaded.info().endpoints)?;
    timing.count(texts.iter().map(TextInput::characters));
    let vectors =
        Vectors { encoding: Encoding::Float, dimensions: body.dimensions, normalize: body.normalize.unwrap_or(true) };
    let mut list = JsonList::new(server, "[")?;
    vectors
        .collect(server, &loaded, endpoint, (options, texts, &wanted), &mut list, |_, vector| vector.to_vec())
        .await?;
    let response = timing.tell(&loaded, list.into_response("]"));
    Ok(match &loaded.info().space {
        Some(space) => {
            let in_answer = space.for_answer(vectors.dimensions, vectors.normalize);
            response::with_space(response, &in_answer, &space.numerics)
        }
        None => response,
    })
}

/// The vectors of all tokens, as the model gives them.
pub(super) async fn embed_all(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    let mut timing = Timing::start();
    let answer = async {
        let (body, options, _memory) = texts::read::<EmbedAllRequest>(&server, request).await?;
        let able = |endpoints: &gpux::internal::Endpoints| {
            endpoints.embeddings.clone().filter(|endpoint| endpoint.has_token_vectors)
        };
        let what = "vectors of tokens (a step such as `mean-pool` must make one of them)";
        let (loaded, endpoint) = texts::find(&server, body.model.as_deref(), what, able)?;
        let wanted = Wanted::new(body.parameters, &loaded)?;
        let texts = body.inputs.read("inputs", &loaded.info().endpoints)?;
        timing.count(texts.iter().map(TextInput::characters));
        let mut list = JsonList::new(&server, "[")?;
        let results = texts::token_vectors(&server, &loaded, &endpoint, (options, texts, &wanted));
        let mut results = std::pin::pin!(results);
        while let Some(vectors) = results.next().await {
            list.push(&vectors?)?;
        }
        wanted.check()?;
        Ok(timing.tell(&loaded, list.into_response("]")))
    };
    answered(answer.await)
}

/// What a client sends. Other fields are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct EmbedAllRequest {
    /// the name of the pipeline, or an alias; not needed where one alone embeds
    model: Option<String>,
    inputs: Texts,
    #[serde(flatten)]
    parameters: TextParameters,
}
