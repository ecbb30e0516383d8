//! `POST /tokenize` and `/decode`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use futures_util::{Stream, StreamExt as _};
use http::Request as HttpRequest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answered;
use crate::protocol::http::json_list::JsonList;
use crate::protocol::texts::{self, MOST_TEXTS, TextParameters, Wanted};
use crate::{ServeError, Server};

/// What a client sends. Other fields are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct TokenizeRequest {
    /// the name of the pipeline, or an alias; not needed where one alone has a tokenizer
    model: Option<String>,
    inputs: TextList,
    /// whether the tokens that mark start, end and separation are added
    add_special_tokens: Option<bool>,
    /// the name of a prompt of the pipeline
    prompt_name: Option<String>,
}

/// What a client sends. Other fields are ignored.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct DecodeRequest {
    /// the name of the pipeline, or an alias; not needed where one alone has a tokenizer
    model: Option<String>,
    ids: Ids,
    /// whether the tokens that mark something are left out
    skip_special_tokens: Option<bool>,
}

/// One text or several.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "`inputs` is a text or a list of texts")]
enum TextList {
    One(String),
    Several(Vec<String>),
}

/// The tokens of one text or of several.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "`ids` is a list of numbers, or a list of such lists")]
enum Ids {
    One(Vec<u32>),
    Several(Vec<Vec<u32>>),
}

/// A token of a text.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Token {
    id: u32,
    text: String,
    /// whether it marks something
    special: bool,
    /// its first character; `null` for one that marks something
    start: Option<usize>,
    /// one past its last character
    stop: Option<usize>,
}

pub(super) async fn tokenize(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    let answer = async {
        let (body, options, _memory) = texts::read::<TokenizeRequest>(&server, request).await?;
        let (loaded, _) = find(&server, body.model.as_deref())?;
        let prompt = body.prompt_name.clone();
        Wanted::new(TextParameters { prompt_name: body.prompt_name, ..TextParameters::default() }, &loaded)?;
        let texts = match body.inputs {
            TextList::One(text) => vec![text],
            TextList::Several(texts) => texts,
        };
        check_count("inputs", texts.len())?;
        let tokens = (body.add_special_tokens.unwrap_or(true), prompt.as_deref());
        list(&server, texts::tokenize(&server, &loaded, options, texts, tokens)).await
    };
    answered(answer.await)
}

pub(super) async fn decode(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    let answer = async {
        let (body, options, _memory) = texts::read::<DecodeRequest>(&server, request).await?;
        let (loaded, _) = find(&server, body.model.as_deref())?;
        let lists = match body.ids {
            Ids::One(ids) if ids.is_empty() => Vec::new(),
            Ids::One(ids) => vec![ids],
            Ids::Several(lists) => lists,
        };
        check_count("ids", lists.len())?;
        list(&server, texts::decode(&server, &loaded, options, lists, body.skip_special_tokens.unwrap_or(true))).await
    };
    answered(answer.await)
}

fn find(
    server: &Server,
    model: Option<&str>,
) -> Result<(Arc<crate::LoadedPipeline>, gpux::internal::TokenizerEndpoint), ServeError> {
    texts::find(server, model, "tokens of texts", |endpoints| endpoints.tokenizer.clone())
}

fn check_count(field: &str, count: usize) -> Result<(), ServeError> {
    if (1..=MOST_TEXTS).contains(&count) {
        return Ok(());
    }
    Err(ServeError::invalid(format!("`{field}` has {count} texts; 1 to {MOST_TEXTS} are allowed")))
}

async fn list(
    server: &Server,
    results: impl Stream<Item = Result<Vec<u8>, ServeError>>,
) -> Result<Response, ServeError> {
    let mut list = JsonList::new(server, "[")?;
    let mut results = std::pin::pin!(results);
    while let Some(result) = results.next().await {
        list.push(&result?)?;
    }
    Ok(list.into_response("]"))
}
