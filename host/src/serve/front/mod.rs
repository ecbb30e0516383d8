//! What every request passes before its protocol sees it, and every answer after: its name, its key,
//! its trace, its line in the log, and what is counted of it.

mod answered;
mod cors;
mod refusal;
mod request_id;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use http::{HeaderValue, Version};

use answered::{Answered, Watched};

use super::context::Context;
use super::metrics::Protocol;
use super::server::Server;
use super::tenants::Tenant;

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The router with everything before it.
pub(super) fn before(router: Router, server: &Arc<Server>) -> Router {
    let router = router.layer(from_fn_with_state(server.clone(), pass));
    match cors::layer(&server.settings().cors) {
        Some(cors) => router.layer(cors),
        None => router,
    }
}

async fn pass(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let (head, body) = request.into_parts();
    let protocol = protocol(&head);
    let id = request_id::of(&head.headers);
    let version = head.version;
    let admitted = server.access().admit(&head).and_then(|tenant| {
        let permit = tenant.as_deref().map(Tenant::enter).transpose().inspect_err(|exceeded| {
            server.metrics().none().refused(exceeded.into());
        })?;
        Ok((tenant, permit))
    });
    let span = server.telemetry().map(|telemetry| telemetry.begin(&head));
    let traced = span.as_ref().is_some_and(super::telemetry::RequestSpan::is_recording);
    let (tenant, permit, refused) = match admitted {
        Ok((tenant, permit)) => (tenant, permit, None),
        Err(error) => (None, None, Some(error)),
    };
    let context = Arc::new(Context::new(id, tenant, traced));
    let mut answered = Answered::new(&server, context.clone(), protocol, started, &head, permit, span);
    let mut response = match refused {
        Some(error) => context.within(|| refusal::answer(&error, protocol)),
        None => context.clone().scope(next.run(Request::from_parts(head, body))).await,
    };
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, context.id().clone());
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(X_FRAME_OPTIONS).or_insert(HeaderValue::from_static("DENY"));
    headers.entry(REFERRER_POLICY).or_insert(HeaderValue::from_static("no-referrer"));
    if version <= Version::HTTP_11 && server.is_closing() {
        // Clients then open no request on a connection that is about to close.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answered.head(&response);
    if protocol == Protocol::Grpc && !answered.is_complete() {
        // Its status follows the body, and a stream runs as long as its body is read.
        return response.map(|body| Body::new(Watched::new(body, answered)));
    }
    response
}

fn protocol(head: &http::request::Parts) -> Protocol {
    let grpc = |value: &HeaderValue| value.as_bytes().starts_with(b"application/grpc");
    let path = head.uri.path();
    if head.headers.get(CONTENT_TYPE).is_some_and(grpc) {
        Protocol::Grpc
    } else if path == "/v2" || path.starts_with("/v2/") {
        Protocol::OipHttp
    } else {
        Protocol::Http
    }
}

#[cfg(test)]
mod tests;
