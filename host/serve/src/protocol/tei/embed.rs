//! `POST /embed`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request as HttpRequest;
use schemars::JsonSchema;
use serde::Deserialize;

use super::answered;
use crate::engine::request_context::RequestContext;
use crate::protocol::http::json_list::JsonList;
use crate::protocol::http::response;
use crate::protocol::texts::{self, Encoding, Texts, Vectors};
use crate::{RequestOptions, ServeError, Server};

/// What a client sends. Other fields are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct EmbedRequest {
    inputs: Texts,
    /// whether vectors are scaled to length 1; if not, they are those of the pipeline, which may do so itself
    #[serde(default = "yes")]
    normalize: bool,
    /// `false`: a text that the pipeline would cut is an error
    truncate: Option<bool>,
    /// the first so many numbers of each vector
    #[schemars(range(min = 1))]
    dimensions: Option<usize>,
    /// refused: pipelines have no prompts
    prompt_name: Option<String>,
}

const fn yes() -> bool {
    true
}

pub(super) async fn embed(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    let answer = async {
        let (body, options, _memory) = texts::read::<EmbedRequest>(&server, request).await?;
        vectors(&server, body, options).await
    };
    answered(answer.await)
}

/// A list of vectors.
pub(super) async fn vectors(
    server: &Server,
    body: EmbedRequest,
    options: RequestOptions,
) -> Result<Response, ServeError> {
    if let Some(name) = body.prompt_name {
        return Err(ServeError::invalid(format!("`prompt_name`: there is no prompt `{name}`")));
    }
    let (loaded, endpoint) = texts::find(server, None, "embeddings", |endpoints| endpoints.embeddings.clone())?;
    let vectors = Vectors { encoding: Encoding::Float, dimensions: body.dimensions, normalize: body.normalize };
    let mut list = JsonList::new(server, "[")?;
    let texts = (options, body.inputs.read("inputs")?);
    vectors.collect(server, &loaded, endpoint, texts, &mut list, |_, vector| vector.to_vec()).await?;
    if body.truncate == Some(false) && RequestContext::current().is_some_and(|context| context.truncated() > 0) {
        return Err(ServeError::invalid("a text has more tokens than the pipeline takes, and `truncate` is false"));
    }
    let response = list.into_response("]");
    Ok(match &loaded.info().space {
        Some(space) => {
            let in_answer = space.of_answer(vectors.dimensions, vectors.normalize);
            response::with_space(response, &in_answer, &space.numerics)
        }
        None => response,
    })
}
