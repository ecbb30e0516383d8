//! Texts become tokens, and tokens texts, by the pipeline's own tokenizer.

use std::sync::Arc;

use futures_util::Stream;
use serde_json::{Value as Json, json};

use super::{branch, run_each, unfit};
use crate::{Execution, LoadedPipeline, RequestOptions, ServeError, Server};
use gpux_core::{Outputs, Request, TokenizerRequest, Value, encoded_size};

/// What the tokenizer answers.
pub(super) fn ask(execution: &Execution, request: &TokenizerRequest) -> Result<Json, ServeError> {
    answer(execution.infer(inputs(request), None)?)
}

fn inputs(request: &TokenizerRequest) -> Request {
    let name = TokenizerRequest::NAME;
    vec![branch(name), (name.to_owned(), json!(request).into())]
}

fn answer(outputs: Outputs) -> Result<Json, ServeError> {
    match outputs.into_iter().next() {
        Some((_, Value::Json(answer))) => Ok(Arc::unwrap_or_clone(answer)),
        _ => Err(unfit("its tokenizer gave nothing".to_owned())),
    }
}

/// The answers to several requests, as JSON, in order.
fn ask_each<'a>(
    server: &'a Server,
    loaded: &'a Arc<LoadedPipeline>,
    options: RequestOptions,
    requests: Vec<TokenizerRequest>,
) -> impl Stream<Item = Result<Vec<u8>, ServeError>> + 'a {
    let prepare = |_: &Execution, request: TokenizerRequest| Ok((inputs(&request), ()));
    run_each(server, loaded, options, requests, prepare, |execution, (), outputs| {
        let answer = Value::from(answer(outputs)?);
        execution.reserve_response([&answer].into_iter(), || encoded_size::json(&answer))?;
        let mut text = Vec::new();
        gpux_core::write_json(&answer, &mut text);
        Ok(text)
    })
}

/// The tokens of each text.
pub(crate) fn tokenize<'a>(
    server: &'a Server,
    loaded: &'a Arc<LoadedPipeline>,
    options: RequestOptions,
    texts: Vec<String>,
    (add_special_tokens, prompt): (bool, Option<&str>),
) -> impl Stream<Item = Result<Vec<u8>, ServeError>> + use<'a> {
    let prompt = prompt.map(str::to_owned);
    let request = |text| TokenizerRequest::Tokenize { text, add_special_tokens, prompt: prompt.clone() };
    ask_each(server, loaded, options, texts.into_iter().map(request).collect())
}

/// The text of each list of tokens.
pub(crate) fn decode<'a>(
    server: &'a Server,
    loaded: &'a Arc<LoadedPipeline>,
    options: RequestOptions,
    lists: Vec<Vec<u32>>,
    skip_special_tokens: bool,
) -> impl Stream<Item = Result<Vec<u8>, ServeError>> + use<'a> {
    let request = |ids| TokenizerRequest::Decode { ids, skip_special_tokens };
    ask_each(server, loaded, options, lists.into_iter().map(request).collect())
}
