//! `POST /predict`.

pub(crate) mod info;
mod input;
pub(crate) mod output;
pub(crate) mod trace;

use std::cell::Cell;
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
use super::http::path_name::Name;
use super::http::response;
use crate::engine::decoded_size;
use crate::engine::memory_budget::Room;
use crate::engine::memory_permit::Share;
use crate::engine::request_context::Context;
use crate::protocol::predict::trace::Trace;
use crate::{Ask, Priority, Refusal, ServeError, Served, Server, Turn};
use gpux::GpuxError;
use gpux_core::{Outputs, Request, ValidationError, Value};
use input::{MediaType, Requests};
use output::Written;

/// The results of one list, in bytes: a request of a few bytes may ask for megabytes.
const MAX_RESULTS: usize = 256 << 20;

/// Of those, as many as are counted at once. Fewer are not worth it.
const GATHERED: usize = 64 << 10;

/// What the query of a request may say.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
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

impl Options {
    fn of(uri: &Uri) -> Result<Self, ServeError> {
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
pub(crate) async fn only(State(server): State<Arc<Server>>, request: HttpRequest<Body>) -> Response {
    respond(&server, server.repository().only("predict"), request).await
}

/// Runs the pipeline of this name.
pub(crate) async fn named(State(server): State<Arc<Server>>, Name(name): Name, request: HttpRequest<Body>) -> Response {
    respond(&server, server.repository().get(&name), request).await
}

/// Runs the pipeline, if there is one that the request may use.
async fn respond(server: &Server, served: Result<Arc<Served>, ServeError>, request: HttpRequest<Body>) -> Response {
    let answer = match served {
        Ok(served) => predict(server, &served, request).await,
        Err(error) => Err(error),
    };
    answer.unwrap_or_else(|error| response::error(&error))
}

/// Whether a trace is asked for. It is of one request, told in JSON, where the operator lets it be.
fn is_traced(server: &Server, options: &Options, write: &output::Wanted) -> Result<bool, ServeError> {
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

/// Runs the request and tells what each step did, whether it fails or not.
fn traced(turn: &Turn, request: Request, read: Duration, write: &output::Wanted) -> Result<Written, ServeError> {
    let mut trace = Trace::of(turn.queued(), read);
    let result = turn.infer(request, Some(&mut trace)).and_then(|outputs| {
        // The trace is put behind a copy.
        turn.hold_answer(values(&outputs), || 2 * write.size(&outputs))?;
        Ok(write.write_json(&outputs))
    });
    match result {
        Ok(written) => Ok(written.with_trace(&trace)),
        Err(error) => Err(ServeError::Traced(Box::new(error), serde_json::json!(trace))),
    }
}

/// What one turn of the pipeline gives.
enum Turned {
    Answer(Written),
    /// the body is a list: each of its requests has a turn of its own
    List(Vec<Result<Request, ValidationError>>, Option<Share>),
}

async fn predict(server: &Server, served: &Arc<Served>, request: HttpRequest<Body>) -> Result<Response, ServeError> {
    let (head, body) = request.into_parts();
    Context::note(served.metrics());
    let mut options = Options::of(&head.uri)?;
    let write = output::Wanted::new(Accept::of(&head.headers), options.output.take(), served.plan().outputs())?;
    let is_traced = is_traced(server, &options, &write)?;
    let media_type = MediaType::of(&head.headers)?;
    let (timeout, priority) = (options.timeout()?, options.priority.unwrap_or_default());
    let body = body::read_for(served, timeout, priority, &head.headers, body, server).await?;
    // Looking at every value takes its time: a traced request is never short.
    let bytes = if is_traced { usize::MAX } else { body.len() };
    let ask = Ask { timeout, priority, bytes };
    let room = decoded_size::is_counted(&body).then(|| server.bodies().room().holding(body.len()));
    let turned = server.run(served, ask, {
        let write = write.clone();
        move |turn| {
            let start = is_traced.then(Instant::now);
            let plan = turn.served().plan();
            let becomes = |room: &Room| match media_type {
                MediaType::Json => decoded_size::requests(&body, room, plan),
                // All others are copied.
                MediaType::Form(_) | MediaType::Npy | MediaType::File => room.share(body.len()),
            };
            let share = room.as_ref().map(becomes).transpose()?;
            match Requests::read(plan, &media_type, &body)? {
                Requests::One(request) => {
                    if let Some(start) = start {
                        return traced(turn, request, start.elapsed(), &write).map(Turned::Answer);
                    }
                    let outputs = turn.infer(request, None)?;
                    turn.hold_answer(values(&outputs), || write.size(&outputs))?;
                    write.write(&outputs).map(Turned::Answer)
                }
                Requests::List(_) if is_traced => {
                    Err(ServeError::invalid("a trace is of one request; send a list without `trace`"))
                }
                Requests::List(requests) => Ok(Turned::List(requests, share)),
            }
        }
    });
    match turned.await? {
        Turned::Answer(written) => written.into_response(),
        Turned::List(requests, _share) => Box::pin(list(server, served, ask, write, requests)).await,
    }
}

/// Runs requests side by side, as many as run together, and gives their results in order; one that
/// fails has its error in its place.
async fn list(
    server: &Server,
    served: &Arc<Served>,
    ask: Ask,
    write: output::Wanted,
    requests: Vec<Result<Request, ValidationError>>,
) -> Result<Response, ServeError> {
    if !write.takes_json() {
        return Err(ServeError::NotAcceptable("the results of a list are given as application/json only".to_owned()));
    }
    let at_once = served.pipeline().at_once().max(server.settings().workers);
    // However short each is, many of them would keep the connection's thread.
    let ask = Ask { bytes: usize::MAX, ..ask };
    let each = |request: Result<Request, ValidationError>| {
        let write = write.clone();
        async move {
            if let Some(context) = Context::current() {
                context.item(server.metrics())?;
            }
            let request = Cell::new(request.map_err(GpuxError::from)?);
            let run = move |turn: &Turn| {
                let outputs = turn.infer(request.take(), None)?;
                turn.hold_answer(values(&outputs), || write.size(&outputs))?;
                Ok(write.write_json(&outputs))
            };
            server.run(served, ask, run).await
        }
    };
    let mut results = stream::iter(requests).map(each).buffered(at_once);
    // What is gathered here counts as the answer that it becomes.
    let room = server.answers().room();
    let (mut text, mut share) = (vec![b'['], room.share(0)?);
    while let Some(result) = results.next().await {
        if text.len() > 1 {
            text.push(b',');
        }
        match result {
            Ok(written) => text.extend_from_slice(&written.bytes),
            // It is the list that finds no room.
            Err(error @ (ServeError::Overload(Refusal::Memory) | ServeError::AnswerNeverFits { .. })) => {
                return Err(error);
            }
            Err(error) => text.extend_from_slice(error.to_json().to_string().as_bytes()),
        }
        if text.len() > MAX_RESULTS.min(room.most()) {
            let most = MAX_RESULTS.min(room.most()) >> 20;
            let message = format!("the results of the list take more than {most} MiB; send it in parts");
            return Err(ServeError::invalid(message));
        }
        let more = text.len().saturating_sub(share.bytes());
        if more > 0 && text.len() > GATHERED {
            share.merge(room.share(more.max(GATHERED))?);
        }
    }
    text.push(b']');
    if let Some(context) = Context::current() {
        context.keep_list(share);
    }
    Ok(response::bytes(response::JSON, text))
}
