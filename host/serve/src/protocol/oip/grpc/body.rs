//! Reads requests of calls other than inference, within limits.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Request, Response};
use tower::Service;

use super::messages::{Encoding, HEAD, Messages};
use super::status::status;
use crate::Server;
use crate::protocol::http::body::SMALL;

/// A service whose requests are read, within limits, before it is called.
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
            let (head, body) = request.into_parts();
            let Some(encoding) = Encoding::from_headers(&head.headers) else {
                // The service rejects the encoding.
                return service.call(Request::from_parts(head, Body::empty())).await;
            };
            let most = SMALL.min(server.settings().max_body);
            match Messages::new(body, encoding, most, &server).single().await {
                Ok(message) => service.call(Request::from_parts(head, Body::from(framed(&message)))).await,
                Err(error) => Ok(status(&error).into_http()),
            }
        })
    }
}

/// A framed, uncompressed message.
fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(HEAD + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(message);
    framed.freeze()
}
