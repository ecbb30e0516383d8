//! `POST /predict`.

pub(crate) mod info;
mod input;
pub(crate) mod output;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use http::{Request as HttpRequest, Uri};
use schemars::JsonSchema;
use serde::Deserialize;

use super::http::accept::Accept;
use super::http::body;
use super::http::json_list::JsonList;
use super::http::path_name::PathName;
use super::http::response;
use crate::engine::body_budget::RequestBudget;
use crate::engine::execution::Prepared;
use crate::engine::memory_charge::Charge;
use crate::engine::request_context::RequestContext;
use crate::{Execution, LoadedPipeline, Priority, Rejection, RequestOptions, ServeError, Server};
use gpux::GpuxError;
use gpux_core::MemoryPermit;
use gpux_core::{Outputs, Request, ValidationError, Value};
use gpux_worker::Trace;
use input::{MediaType, Requests};
use output::EncodedOutput;

/// What the query of a request may say.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueryOptions {
    /// seconds that it may take; the pipeline's own timeout where that is shorter
    #[schemars(extend("exclusiveMinimum" = 0))]
    timeout: Option<f64>,
    /// how urgent it is among the requests of its pipeline
    priority: Option<Priority>,
    /// the output to give, where one is given alone
    output: Option<String>,
    /// whether to tell what each step did
    trace: Option<bool>,
}

impl QueryOptions {
    fn from_uri(uri: &Uri) -> Result<Self, ServeError> {
        if uri.query().is_none() {
            return Ok(Self::default());
        }
        let Query(options) = Query::<Self>::try_from_uri(uri).map_err(|rejection| {
            let text = rejection.body_text();
            let reason = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
            ServeError::invalid(format!("the query of the URL: {reason}"))
        })?;
        Ok(options)
    }

    fn timeout(&self) -> Result<Option<Duration>, ServeError> {
        let wrong = || ServeError::invalid("`timeout` is a number of seconds above 0");
        self.timeout
            .map(|seconds| Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero()).ok_or_else(wrong))
            .transpose()
    }
}

/// Runs the only pipeline.
pub(crate) async fn default_pipeline(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    respond(&server, server.repository().only_pipeline("predict"), request).await
}

/// Runs the pipeline of this name.
pub(crate) async fn by_name(
    State(server): State<Arc<Server>>,
    PathName(name): PathName,
    request: HttpRequest<Body>,
) -> Response {
    respond(&server, server.repository().get(&name), request).await
}

/// Runs the pipeline, if there is one that the request may use.
async fn respond(
    server: &Server,
    loaded: Result<Arc<LoadedPipeline>, ServeError>,
    request: HttpRequest<Body>,
) -> Response {
    let answer = match loaded {
        Ok(loaded) => predict(server, &loaded, request).await,
        Err(error) => Err(error),
    };
    answer.unwrap_or_else(|error| response::error(&error))
}

/// Whether the request asks for a trace. Fails if the operator has disabled traces or the client does not accept JSON.
fn is_traced(server: &Server, options: &QueryOptions, write: &output::ResponseFormat) -> Result<bool, ServeError> {
    let traced = options.trace.unwrap_or_default();
    if traced && !server.settings().trace {
        return Err(ServeError::invalid("this server gives no traces; leave `trace` out"));
    }
    if traced && !write.takes_json() {
        return Err(ServeError::NotAcceptable("a result with its trace is given as application/json only".to_owned()));
    }
    Ok(traced)
}

fn values(outputs: &Outputs) -> impl Iterator<Item = &Value> {
    outputs.iter().map(|(_, value)| value)
}

/// Runs the request with a trace, which errors include, too.
fn traced(
    execution: &Execution,
    request: Request,
    read: Duration,
    write: &output::ResponseFormat,
) -> Result<EncodedOutput, ServeError> {
    let mut trace = Trace::new(execution.queued(), read);
    let result = execution.infer(request, Some(&mut trace)).and_then(|outputs| {
        // Appending the trace copies the response.
        execution.reserve_response(values(&outputs), || 2 * write.size(&outputs))?;
        Ok(write.write_json(&outputs))
    });
    match result {
        Ok(written) => Ok(written.with_trace(&trace)),
        Err(error) => Err(ServeError::Traced(Box::new(error), serde_json::json!(trace))),
    }
}

/// The result of one execution.
enum Outcome {
    Answer(EncodedOutput),
    /// the body is a list: each of its requests is executed on its own
    List(Vec<Result<Request, ValidationError>>, Option<MemoryPermit>),
}

async fn predict(
    server: &Server,
    loaded: &Arc<LoadedPipeline>,
    request: HttpRequest<Body>,
) -> Result<Response, ServeError> {
    let (head, body) = request.into_parts();
    RequestContext::note_pipeline(loaded.metrics());
    let mut options = QueryOptions::from_uri(&head.uri)?;
    let write = output::ResponseFormat::new(
        Accept::from_headers(&head.headers),
        options.output.take(),
        loaded.signature().outputs(),
    )?;

    let is_traced = is_traced(server, &options, &write)?;
    let media_type = MediaType::from_headers(&head.headers)?;
    let (timeout, priority) = (options.timeout()?, options.priority.unwrap_or_default());

    let body = body::read_for(loaded, timeout, priority, &head.headers, body, server).await?;
    // A trace reads every value, which takes long: a traced request never runs inline.
    let body_bytes = (!is_traced).then_some(body.len());
    let options = RequestOptions { timeout, priority, body_bytes };

    let budget =
        Charge::DecodedBody.applies_to(body.len()).then(|| server.request_budget().for_request().holding(body.len()));

    let prepare = {
        let write = write.clone();
        move |execution: &Execution| {
            let start = is_traced.then(Instant::now);
            let signature = execution.loaded().signature();
            let media_type = media_type.or_guess(&body);
            let becomes = |budget: &RequestBudget| match media_type {
                MediaType::Json => budget.reserve_requests(&body, signature),
                MediaType::Table(_) => budget.reserve(input::table_bytes(&body, signature)),
                // All others are copied.
                MediaType::Form(_) | MediaType::Npy | MediaType::File | MediaType::Text | MediaType::Unstated => {
                    budget.reserve(body.len())
                }
            };

            let permit = budget.as_ref().map(becomes).transpose()?;
            match Requests::read(signature, &media_type, &body, budget.as_ref())? {
                Requests::One(request) => {
                    if let Some(start) = start {
                        let answer = traced(execution, request, start.elapsed(), &write)?;
                        return Ok(Prepared::Done(Outcome::Answer(answer)));
                    }
                    Ok(Prepared::Input(request, permit))
                }
                Requests::List(_) if is_traced => {
                    Err(ServeError::invalid("a trace is of one request; send a list without `trace`"))
                }
                Requests::List(requests) => Ok(Prepared::Done(Outcome::List(requests, permit))),
            }
        }
    };
    let finish = {
        let write = write.clone();
        move |execution: &Execution, _permit: Option<MemoryPermit>, outputs: Outputs| {
            execution.reserve_response(values(&outputs), || write.size(&outputs))?;
            write.write(&outputs).map(Outcome::Answer)
        }
    };

    let response = match server.run_parts(loaded, options, prepare, finish).await? {
        Outcome::Answer(written) => written.into_response(),
        Outcome::List(requests, _permit) => Box::pin(list(server, loaded, options, write, requests)).await,
    };
    match &loaded.info().space {
        Some(space) => response.map(|response| response::with_space(response, &space.digest, &space.numerics)),
        None => response,
    }
}

/// Runs the requests of a list concurrently, and returns their results in order. A failed request has its error in its
/// place.
async fn list(
    server: &Server,
    loaded: &Arc<LoadedPipeline>,
    options: RequestOptions,
    write: output::ResponseFormat,
    requests: Vec<Result<Request, ValidationError>>,
) -> Result<Response, ServeError> {
    if !write.takes_json() {
        return Err(ServeError::NotAcceptable("the results of a list are given as application/json only".to_owned()));
    }

    let at_once = loaded.info().concurrency.max(server.settings().workers);
    // A list of cheap requests would still block the I/O thread.
    let options = RequestOptions { body_bytes: None, ..options };
    let each = |request: Result<Request, ValidationError>| {
        let write = write.clone();
        async move {
            if let Some(context) = RequestContext::current() {
                context.admit_item(server.metrics())?;
            }
            let request = request.map_err(GpuxError::from)?;
            let run = move |execution: &Execution| {
                let outputs = execution.infer(request, None)?;
                execution.reserve_response(values(&outputs), || write.size(&outputs))?;
                Ok(write.write_json(&outputs))
            };
            server.run(loaded, options, run).await
        }
    };

    let mut results = stream::iter(requests).map(each).buffered(at_once);
    let mut list = JsonList::new(server, "[")?;
    while let Some(result) = results.next().await {
        match result {
            Ok(written) => list.push(&written.bytes)?,
            // The budget rejects the list as a whole.
            Err(error @ (ServeError::Overload(Rejection::Memory) | ServeError::ResponseNeverFits { .. })) => {
                return Err(error);
            }
            Err(error) => list.push(error.to_json().to_string().as_bytes())?,
        }
    }
    Ok(list.into_response("]"))
}
