//! What the endpoints of other servers' clients share: they name a pipeline in the body, and send texts.

mod classes;
mod inputs;
mod pace;
mod scores;
mod tokens;
mod vectors;

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::Request as HttpRequest;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::http::{body, json_text};
use crate::engine::body_budget::RequestBudget;
use crate::engine::execution::Prepared;
use crate::engine::memory_charge::Charge;
use crate::engine::request_context::RequestContext;
use crate::{Execution, LoadedPipeline, RequestOptions, ServeError, Server};
use gpux::internal::Endpoints;
use gpux_core::{BRANCH, MemoryPermit, Outputs, Request, StepError, StepFailure, Tensor, Value, json_decoded_size};

use pace::ListPace;

pub(crate) use classes::{Class, Sequence, classify};
pub(crate) use inputs::{TextInput, TextParameters, Texts, Wanted};
pub(crate) use scores::{Ranked, Ranking, rank};
pub(crate) use tokens::{decode, tokenize};
pub(crate) use vectors::{Encoding, Vectors, token_vectors, vectors};

/// The most texts of a request, as at OpenAI.
pub(crate) const MOST_TEXTS: usize = 2048;

/// Holds the memory of a request's body until the request is answered.
pub(crate) struct BodyMemory {
    _permit: Option<MemoryPermit>,
    _bytes: Bytes,
}

/// Reads a body of JSON, of which unknown fields are ignored, as these clients expect. Returns how its requests run, too,
/// and what is dropped once they have.
pub(crate) async fn read<T: DeserializeOwned + Send + 'static>(
    server: &Server,
    request: HttpRequest<Body>,
) -> Result<(T, RequestOptions, BodyMemory), ServeError> {
    let (head, body) = request.into_parts();
    let bytes = body::read_unseen(&head.headers, body, server).await?;
    let options = RequestOptions { body_bytes: Some(bytes.len()), ..RequestOptions::default() };
    let budget = server.request_budget().for_request().holding(bytes.len());
    let (body, memory) = if Charge::DecodedBody.applies_to(bytes.len()) {
        // It would block the I/O thread.
        let parsing = tokio::task::spawn_blocking(move || parse(bytes, Some(&budget)));
        parsing.await.map_err(|error| ServeError::NotReady(format!("the body could not be read: {error}")))??
    } else {
        parse(bytes, None)?
    };
    Ok((body, options, memory))
}

fn parse<T: DeserializeOwned>(bytes: Bytes, budget: Option<&RequestBudget>) -> Result<(T, BodyMemory), ServeError> {
    let text = json_text::utf8(&bytes)?;
    // Forms of a field are told apart in a tree of their own.
    let needed = || json_decoded_size::tree_bytes(text).saturating_mul(2);
    let permit = budget.map(|budget| budget.reserve(needed())).transpose()?;
    let body = serde_json::from_slice(text).map_err(|error| ServeError::invalid(format!("the body: {error}")))?;
    Ok((body, BodyMemory { _permit: permit, _bytes: bytes }))
}

/// The same of a body that was read as a tree, since more than one form may be meant.
pub(crate) fn parsed<T: DeserializeOwned>(body: Json) -> Result<T, ServeError> {
    serde_json::from_value(body).map_err(|error| ServeError::invalid(format!("the body: {error}")))
}

/// The pipeline that a request calls `model`, by its name or an alias, with what `endpoint` finds of it. Without a name,
/// the only pipeline that has the endpoint.
pub(crate) fn find<T>(
    server: &Server,
    model: Option<&str>,
    what: &str,
    endpoint: impl Fn(&Endpoints) -> Option<T>,
) -> Result<(Arc<LoadedPipeline>, T), ServeError> {
    let found = |loaded: Arc<LoadedPipeline>| {
        let endpoint = endpoint(&loaded.info().endpoints)?;
        RequestContext::note_pipeline(loaded.metrics());
        Some((loaded, endpoint))
    };
    if let Some(name) = model {
        let loaded = server.repository().by_name_or_alias(name)?;
        let lacks = || {
            ServeError::invalid(format!(
                "`{name}` gives no {what}; its gpux.yml can name the endpoint in `serving.endpoints`"
            ))
        };
        return found(loaded).ok_or_else(lacks);
    }
    let visible = server.repository().visible();
    let mut able = visible.iter().filter_map(|slot| found(slot.loaded()?));
    match (able.next(), able.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(ServeError::NotFound(format!("no pipeline that is loaded gives {what}"))),
        (Some(_), Some(_)) => Err(ServeError::invalid(format!("several pipelines give {what}; name one in `model`"))),
    }
}

/// Whether a pipeline that the request may use, the one called `model` if it names one, has such endpoints.
pub(crate) fn is_any(server: &Server, model: Option<&str>, able: impl Fn(&Endpoints) -> bool) -> bool {
    if let Some(name) = model {
        return server.repository().by_name_or_alias(name).is_ok_and(|loaded| able(&loaded.info().endpoints));
    }
    let visible = server.repository().visible();
    visible.iter().filter_map(|slot| slot.loaded()).any(|loaded| able(&loaded.info().endpoints))
}

/// Runs each of the requests as one of its own, several at a time: `prepare` makes inputs of it, and what `finish` makes
/// of their outputs is given in the order of the requests.
pub(crate) fn run_each<'a, R: Clone + Send + 'static, S: Send + 'static, T: Send + 'static>(
    server: &'a Server,
    loaded: &'a Arc<LoadedPipeline>,
    options: RequestOptions,
    requests: Vec<R>,
    prepare: impl Fn(&Execution, R) -> Result<(Request, S), ServeError> + Clone + Send + 'a + 'static,
    finish: impl Fn(&Execution, S, Outputs) -> Result<T, ServeError> + Clone + Send + 'a + 'static,
) -> impl Stream<Item = Result<T, ServeError>> + 'a {
    // A list of cheap requests would still block the I/O thread.
    let body_bytes = options.body_bytes.filter(|_| requests.len() == 1);
    let options = RequestOptions { body_bytes, ..options };
    let at_once = loaded.info().concurrency.max(server.settings().workers);
    let timeout = options.timeout.map_or(loaded.timeout(), |timeout| timeout.min(loaded.timeout()));
    let pace = Arc::new(ListPace::new(loaded, timeout));
    let each = move |request: R| {
        let (prepare, finish, pace) = (prepare.clone(), finish.clone(), pace.clone());
        async move {
            if let Some(context) = RequestContext::current() {
                context.admit_item(server.metrics())?;
            }
            let mut tries = 0;
            loop {
                let running = pace.begin(loaded).await;
                let (prepare, finish, request) = (prepare.clone(), finish.clone(), request.clone());
                let prepare = move |execution: &Execution| {
                    let (inputs, state) = prepare(execution, request)?;
                    Ok(Prepared::Input(inputs, state))
                };
                tries += 1;
                match server.run_parts(loaded, options, prepare, finish).await {
                    Err(error) if running.may_repeat(&error, tries) => {}
                    result => return result,
                }
            }
        }
    };
    stream::iter(requests).map(each).buffered(at_once)
}

/// Tokens that the request's texts had so far.
pub(crate) fn tokens() -> u64 {
    RequestContext::current().map_or(0, |context| context.tokens())
}

/// The error of a pipeline whose result is not what its endpoint promises.
fn unfit(message: String) -> ServeError {
    gpux_core::RunError::from(Box::new(StepError::of_pipeline(StepFailure::Failed(message)))).into()
}

/// The numbers of an output.
fn floats(outputs: Outputs, name: &str) -> Result<Tensor, ServeError> {
    let output = outputs.into_iter().find(|(output, _)| output == name);
    let Some((_, Value::Tensor(tensor))) = output else { return Err(unfit(format!("`{name}` is no tensor"))) };
    tensor.cast(gpux_core::ElementType::Float32).map_err(|error| unfit(format!("`{name}`: {error}")))
}

/// A branch of the pipeline, as a value of a request.
fn branch(name: &str) -> (String, Value) {
    (BRANCH.to_owned(), Value::from(name))
}

/// Texts as a list in JSON.
fn json_list(texts: impl IntoIterator<Item = String>) -> Value {
    Value::from(Json::Array(texts.into_iter().map(Json::String).collect()))
}
