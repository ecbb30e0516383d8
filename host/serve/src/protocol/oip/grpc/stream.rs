//! Streams of inferences, until the client ends the stream, its deadline passes, or the server stops.

use std::future::ready;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tonic::Status;

use super::answers;
use super::answers::ResponseEncoder;
use super::bounds::Head;
use super::messages::{Encoding, Messages};
use super::status::status;
use super::{infer, timeout};
use crate::engine::request_context::RequestContext;
use crate::protocol::oip::grpc::proto::infer_parameter::ParameterChoice;
use crate::protocol::oip::grpc::proto::{InferParameter, ModelInferResponse, ModelStreamInferResponse};
use crate::settings::LAST_CALL;
use crate::{Execution, ServeError, Server};

/// Runs the requests of a stream concurrently, as many as there are workers, and sends their results in order.
pub(super) async fn call(State(server): State<Arc<Server>>, request: Request) -> Response {
    let Some(encoding) = Encoding::from_headers(request.headers()) else {
        return answers::unsupported_encoding(request.headers());
    };
    let answers = ResponseEncoder::to(request.headers(), encoding);
    let deadline = timeout::from_headers(request.headers()).and_then(|timeout| Instant::now().checked_add(timeout));
    let messages = Messages::new(request.into_body(), encoding, server.settings().max_body, &server);
    let (at_once, ending) = (server.settings().workers, StreamEnd::default());
    let requests = Requests::new(messages, &server, deadline, ending.clone());
    let results = requests.map(move |request| {
        let server = server.clone();
        async move { answer(&server, request?, deadline, answers).await.map_err(|error| status(&error)) }
    });
    let last = stream::once(async move { ending.status() }).filter_map(|status| ready(status.map(Err)));
    answers.many(results.buffered(at_once).chain(last))
}

/// One response of a stream. Errors are part of the message, and the stream continues.
async fn answer(
    server: &Server,
    message: Bytes,
    deadline: Option<Instant>,
    answers: ResponseEncoder,
) -> Result<Bytes, ServeError> {
    let counted = RequestContext::current().map_or(Ok(()), |context| context.admit_item(server.metrics()));
    let (id, result) = match (Head::read(&message), counted) {
        (Ok(head), Ok(())) => {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let write = move |execution: &Execution, response| answers.message(execution, &last_of_one(response));
            (head.id.clone(), infer::infer(server, head, message, left, write).await)
        }
        (Ok(head), Err(error)) => (head.id, Err(error)),
        (Err(error), _) => (String::new(), Err(error)),
    };
    result.or_else(|error| {
        answers.small(&ModelStreamInferResponse {
            error_message: error.public_message(),
            infer_response: Some(ModelInferResponse { id, ..ModelInferResponse::default() }),
        })
    })
}

/// Marks a response as final, as clients that expect several responses per request require: here it is the only one.
fn last_of_one(mut response: ModelInferResponse) -> ModelStreamInferResponse {
    let is_final = InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(true)) };
    response.parameters.insert("triton_final_response".to_owned(), is_final);
    ModelStreamInferResponse { error_message: String::new(), infer_response: Some(response) }
}

/// The reason that a stream ended, unless its client ended it.
#[derive(Clone, Default)]
pub(super) struct StreamEnd(Arc<OnceLock<Status>>);

impl StreamEnd {
    /// The status that follows the last response.
    pub(super) fn status(&self) -> Option<Status> {
        self.0.get().cloned()
    }
}

/// The requests of one stream. Once the server stops, it takes only requests that have already arrived: a silent client
/// must not delay the shutdown.
pub(super) struct Requests {
    stream: BoxStream<'static, Result<Bytes, Status>>,
    stopped: BoxFuture<'static, ()>,
    is_stopped: bool,
    late: BoxFuture<'static, ()>,
    ending: StreamEnd,
}

impl Requests {
    /// The requests in `messages`, until `deadline`.
    pub(super) fn new(messages: Messages, server: &Server, deadline: Option<Instant>, ending: StreamEnd) -> Self {
        let mut stopping = server.stopping();
        let stopped = async move {
            // An error means that the server, which alone could stop the stream, is gone.
            let _ = stopping.wait_for(|stopping| *stopping).await;
            tokio::time::sleep(LAST_CALL).await;
        };
        let stream = stream::try_unfold(messages, |mut messages| async {
            let next = messages.next().await.map_err(|error| status(&error))?;
            Ok(next.map(|message| (message, messages)))
        });
        Self {
            stream: stream.boxed(),
            stopped: stopped.boxed(),
            is_stopped: false,
            late: late(deadline).boxed(),
            ending,
        }
    }

    fn end(&self, status: Status) -> Poll<Option<Result<Bytes, Status>>> {
        // The first reason is kept.
        let _ = self.ending.0.set(status);
        Poll::Ready(None)
    }
}

impl Stream for Requests {
    type Item = Result<Bytes, Status>;

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.late.poll_unpin(task).is_ready() {
            return this.end(Status::deadline_exceeded("the stream's deadline has passed"));
        }
        if let Poll::Ready(next) = this.stream.poll_next_unpin(task) {
            return Poll::Ready(next);
        }
        this.is_stopped = this.is_stopped || this.stopped.poll_unpin(task).is_ready();
        if this.is_stopped {
            return this.end(Status::unavailable("the server ends; what it has not answered it has not read"));
        }
        Poll::Pending
    }
}

async fn late(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
