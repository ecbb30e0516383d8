//! Requests within the bounds that all bodies have: of size, of time, and of what they hold together.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use tower::Service;

use super::messages::Messages;
use crate::serve::Server;
use crate::serve::http::body;
use crate::serve::oip::error::status;

/// The call whose request is a stream: its messages may come at any time, and are bounded one by one.
const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// The body of a request; what it holds is given back when the last of it is dropped.
#[derive(Clone)]
pub(super) struct Held {
    _bytes: Bytes,
}

/// A service whose requests are read before they are called.
#[derive(Clone)]
pub(super) struct Bounded<S> {
    service: S,
    server: Arc<Server>,
}

impl<S> Bounded<S> {
    pub(super) const fn new(service: S, server: Arc<Server>) -> Self {
        Self { service, server }
    }
}

impl<S> Service<Request<Body>> for Bounded<S>
where
    S: Service<Request<Body>, Response = Response<tonic::body::Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut service, server) = (self.service.clone(), self.server.clone());
        Box::pin(async move {
            if request.uri().path() == STREAM {
                return service.call(request.map(|body| Body::new(Messages::new(body, server)))).await;
            }
            let (mut head, body) = request.into_parts();
            match body::read(&head.headers, body, &server).await {
                Ok(bytes) => {
                    head.extensions.insert(Held { _bytes: bytes.clone() });
                    service.call(Request::from_parts(head, Body::from(bytes))).await
                }
                Err(error) => Ok(status(&error).into_http()),
            }
        })
    }
}
