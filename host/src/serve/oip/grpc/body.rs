//! Requests within a time: a client that stops sending in the middle of a message must not be waited
//! for. What comes over a stream of requests may come at any time.

use std::convert::Infallible;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tower::Service;

/// The call whose request is a stream.
const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// A service whose requests must be there within `limit`.
#[derive(Clone)]
pub(super) struct Timed<S> {
    service: S,
    limit: Duration,
}

impl<S> Timed<S> {
    pub(super) const fn new(service: S, limit: Duration) -> Self {
        Self { service, limit }
    }
}

impl<S> Service<Request<Body>> for Timed<S>
where
    S: Service<Request<TimedBody>, Response = Response<tonic::body::Body>, Error = Infallible>,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        let limit = (request.uri().path() != STREAM).then(|| Box::pin(sleep(self.limit)));
        self.service.call(request.map(|body| TimedBody { body, limit }))
    }
}

/// A body that ends with an error when its time is over.
pub(super) struct TimedBody {
    body: Body,
    limit: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| Status::cancelled(error.to_string()))));
        }
        let over = self.limit.as_mut().is_some_and(|limit| limit.as_mut().poll(context).is_ready());
        if over {
            let status = Status::deadline_exceeded("the request's message did not come in time");
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
