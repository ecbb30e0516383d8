//! `POST /v1/embeddings`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request as HttpRequest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::error;
use crate::protocol::http::json_list::JsonList;
use crate::protocol::http::response;
use crate::protocol::texts::{self, Encoding, TextParameters, Texts, Vectors, Wanted};
use crate::{ServeError, Server};

/// What a client sends. Other fields are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct EmbeddingsRequest {
    /// the name of the pipeline, or an alias
    model: String,
    input: Texts,
    #[serde(default)]
    encoding_format: Option<Encoding>,
    /// the first so many numbers of each vector, scaled to length 1 again
    #[schemars(range(min = 1))]
    dimensions: Option<usize>,
    /// the name of a prompt of the pipeline; OpenAI has no such field
    prompt_name: Option<String>,
}

/// The vectors. The document of the API alone is made of this: the texts are written one by one.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Embeddings {
    /// `list`
    object: String,
    data: Vec<Embedding>,
    model: String,
    usage: Usage,
    /// which vectors can lie in one index: those of equal `space`
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<String>,
    /// what computed them: engine, provider, precision, processor
    #[serde(skip_serializing_if = "Option::is_none")]
    numerics: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Embedding {
    /// `embedding`
    object: String,
    /// the place of its text in `input`
    index: usize,
    #[serde(rename = "embedding")]
    numbers: Numbers,
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "written one by one")]
enum Numbers {
    Float(Vec<f32>),
    Base64(String),
}

#[derive(Serialize, JsonSchema)]
struct Usage {
    /// the tokens that the pipeline made of the texts
    prompt_tokens: u64,
    total_tokens: u64,
}

pub(super) async fn embeddings(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    answer(&server, request).await.unwrap_or_else(|refused| error(&refused))
}

async fn answer(server: &Server, request: HttpRequest<Body>) -> Result<Response, ServeError> {
    let (body, options, _memory) = texts::read::<EmbeddingsRequest>(server, request).await?;
    let find = texts::find(server, Some(&body.model), "embeddings", |endpoints| endpoints.embeddings.clone());
    let (loaded, endpoint) = find?;
    let vectors =
        Vectors { encoding: body.encoding_format.unwrap_or_default(), dimensions: body.dimensions, normalize: false };

    let texts = body.input.read("input", &loaded.info().endpoints)?;
    let parameters = TextParameters { prompt_name: body.prompt_name, ..TextParameters::default() };
    let wanted = Wanted::new(parameters, &loaded)?;
    let mut list = JsonList::new(server, r#"{"object":"list","data":["#)?;
    let write = |index: usize, vector: &[u8]| {
        let opening = format!(r#"{{"object":"embedding","index":{index},"embedding":"#);
        [opening.as_bytes(), vector, b"}"].concat()
    };
    vectors.collect(server, &loaded, endpoint, (options, texts, &wanted), &mut list, write).await?;

    let tokens = texts::tokens();
    let usage = json!(Usage { prompt_tokens: tokens, total_tokens: tokens });
    let end = format!(r#"],"model":{},"usage":{usage}"#, json!(body.model));
    let Some(space) = &loaded.info().space else { return Ok(list.into_response(&(end + "}"))) };
    let (space, numerics) = (space.for_answer(vectors.dimensions, vectors.normalize), &space.numerics);
    let end = format!(r#"{end},"space":"{space}","numerics":{}}}"#, json!(numerics));
    Ok(response::with_space(list.into_response(&end), &space, numerics))
}
