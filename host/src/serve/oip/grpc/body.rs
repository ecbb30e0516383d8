//! Requests within the bounds that all bodies have, before they are called.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Request, Response};
use tokio::sync::Mutex;
use tower::Service;

use super::messages::{Encoding, HEAD, Messages};
use crate::serve::Server;
use crate::serve::http::body::SMALL;
use crate::serve::oip::error::status;

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
/// The call whose request is a stream: its messages may come at any time.
const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// The message of an inference, which is read in its turn; the call itself gets an empty one. What it holds
/// is given back when the last of it is dropped.
#[derive(Clone)]
pub(super) struct Message(pub(super) Bytes);

/// The messages of a stream of inferences; the call itself gets none.
#[derive(Clone)]
pub(super) struct Stream(pub(super) Arc<Mutex<Messages>>);

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
            let (mut head, body) = request.into_parts();
            let Some(encoding) = Encoding::of(&head.headers) else {
                // It is refused by its head.
                return service.call(Request::from_parts(head, Body::empty())).await;
            };
            let infers = matches!(head.uri.path(), INFER | STREAM);
            let most = if infers { usize::MAX } else { SMALL }.min(server.settings().max_body);
            let messages = Messages::new(body, encoding, most, &server);
            if head.uri.path() == STREAM {
                head.extensions.insert(Stream(Arc::new(Mutex::new(messages))));
                return service.call(Request::from_parts(head, Body::empty())).await;
            }
            let message = match messages.only().await {
                Ok(message) if infers => {
                    head.extensions.insert(Message(message));
                    Bytes::from_static(&EMPTY)
                }
                Ok(message) => framed(&message),
                Err(error) => return Ok(status(&error).into_http()),
            };
            service.call(Request::from_parts(head, Body::from(message))).await
        })
    }
}

/// An empty message as gRPC sends it.
const EMPTY: [u8; HEAD] = [0; HEAD];

/// A message as gRPC sends it, not compressed.
fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(HEAD + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(message);
    framed.freeze()
}
