//! `POST /classify`, which Text Embeddings Inference has at `/predict`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use futures_util::StreamExt as _;
use http::Request as HttpRequest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answered;
use super::timing::Timing;
use crate::protocol::http::json_list::JsonList;
use crate::protocol::http::response;
use crate::protocol::texts::{self, Class, MOST_TEXTS, Sequence, TextParameters, Wanted};
use crate::{RequestOptions, ServeError, Server};

/// What a client sends. Other fields are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ClassifyRequest {
    /// the name of the pipeline, or an alias; not needed where one alone classifies
    model: Option<String>,
    inputs: Sequences,
    /// whether the scores are the model's own
    raw_scores: Option<bool>,
    #[serde(flatten)]
    texts: TextParameters,
    /// what `huggingface_hub` sends
    parameters: Option<ClassifyParameters>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct ClassifyParameters {
    /// the best so many classes alone
    top_k: Option<usize>,
    /// `none`: the scores are the model's own; others: those of the pipeline
    function_to_apply: Option<String>,
}

/// A text, a pair of texts, or a list of either.
#[derive(Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "`inputs` is a text, a pair of texts `[one, other]`, or a list of lists of one or two texts"
)]
enum Sequences {
    Text(String),
    Pair(#[schemars(length(min = 1, max = 2))] Vec<String>),
    Several(#[schemars(length(min = 1), inner(length(min = 1, max = 2)))] Vec<Vec<String>>),
}

/// The classes of a text, or of each.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "written one by one")]
pub(crate) enum Classes {
    One(Vec<Class>),
    Several(Vec<Vec<Class>>),
}

pub(super) async fn classify(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    let timing = Timing::start();
    let answer = async {
        let (body, options, _memory) = texts::read::<ClassifyRequest>(&server, request).await?;
        classes(&server, body, options, timing, false).await
    };
    answered(answer.await)
}

fn sequence(mut texts: Vec<String>) -> Result<Sequence, ServeError> {
    let pair = if texts.len() == 2 { texts.pop() } else { None };
    match (texts.pop(), texts.is_empty()) {
        (Some(text), true) if !text.is_empty() => Ok(Sequence { text, pair }),
        (Some(_), true) => Err(ServeError::invalid("`inputs` has an empty text")),
        _ => Err(ServeError::invalid("`inputs`: a list is one text, or a pair; each of several is a list of its own")),
    }
}

/// In JSON, with the shortest digits that are the same 32-bit float.
fn text(classes: &[Class]) -> Result<Vec<u8>, ServeError> {
    serde_json::to_vec(classes).map_err(|error| ServeError::invalid(error.to_string()))
}

/// The classes of the texts; `is_nested` if those of a single text are a list in a list, too.
pub(super) async fn classes(
    server: &Server,
    body: ClassifyRequest,
    options: RequestOptions,
    mut timing: Timing,
    is_nested: bool,
) -> Result<Response, ServeError> {
    let model = body.model.as_deref();
    let (loaded, endpoint) = texts::find(server, model, "classes", |endpoints| endpoints.classify.clone())?;
    let wanted = Wanted::new(body.texts, &loaded)?;
    let (sequences, is_list) = match body.inputs {
        Sequences::Text(text) => (vec![sequence(vec![text])?], false),
        Sequences::Pair(texts) => (vec![sequence(texts)?], false),
        Sequences::Several(lists) => (lists.into_iter().map(sequence).collect::<Result<_, _>>()?, true),
    };
    if sequences.is_empty() || sequences.len() > MOST_TEXTS {
        let message = format!("`inputs` has {} texts; 1 to {MOST_TEXTS} are allowed", sequences.len());
        return Err(ServeError::invalid(message));
    }
    let characters = |text: &String| text.chars().count();
    timing.count(sequences.iter().map(|one| characters(&one.text) + one.pair.as_ref().map_or(0, characters)));

    let parameters = body.parameters.as_ref();
    let function = parameters.and_then(|parameters| parameters.function_to_apply.as_deref());
    let raw = body.raw_scores == Some(true) || function == Some("none");
    let most = parameters.and_then(|parameters| parameters.top_k).unwrap_or(usize::MAX);
    let results = texts::classify(server, &loaded, endpoint, options, sequences, (wanted.clone(), raw));
    let mut results = std::pin::pin!(results);
    if !is_list && !is_nested {
        let mut classes = results.next().await.transpose()?.unwrap_or_default();
        wanted.check()?;
        classes.truncate(most);
        return Ok(timing.tell(&loaded, response::bytes(response::JSON, text(&classes)?)));
    }
    let mut list = JsonList::new(server, "[")?;
    while let Some(classes) = results.next().await {
        let mut classes = classes?;
        classes.truncate(most);
        list.push(&text(&classes)?)?;
    }
    wanted.check()?;
    Ok(timing.tell(&loaded, list.into_response("]")))
}
