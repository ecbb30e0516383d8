//! Counts, logs and traces each response once it is sent or its client has disconnected.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use hyper::body::{Body as _, Frame, SizeHint};

use super::host_check::{Peer, Sender};
use crate::edge::telemetry::{Outcome, RequestSpan, Telemetry};
use crate::engine::metrics::ProtocolLabel;
use crate::engine::request_context::RequestContext;
use crate::engine::server::Server;
use crate::engine::tenant::Tenant;
use crate::protocol::route::truncated;

/// Counts, logs and traces the response when it is dropped.
pub(crate) struct ResponseRecord {
    server: Arc<Server>,
    context: Arc<RequestContext>,
    protocol: ProtocolLabel,
    started: Instant,
    /// HTTP status or gRPC code; `None` until it is known
    status: Option<u16>,
    bytes: Option<u64>,
    /// time from the request to the head of the response
    to_head: Option<Duration>,
    /// fields that only the log needs
    line: Option<LogFields>,
    span: Option<RequestSpan>,
}

/// Fields of the access log that come from the head of a request.
pub(crate) struct LogFields {
    method: String,
    path: String,
    sender: Option<Sender>,
    /// the proxy that sent it for the sender
    proxy: Option<Peer>,
    /// whose key it is, also if it may not do this
    tenant: Option<Arc<Tenant>>,
}

impl LogFields {
    pub(crate) fn new(head: &Parts, sender: Option<Sender>, peer: Option<Peer>, tenant: Option<Arc<Tenant>>) -> Self {
        // The query may hold a secret and is left out.
        let path = truncated(head.uri.path()).to_owned();
        let proxy = peer.filter(|_| matches!(sender, Some(Sender::Forwarded(_))));
        Self { method: truncated(head.method.as_str()).to_owned(), path, sender, proxy, tenant }
    }
}

impl ResponseRecord {
    pub(crate) fn new(
        server: &Arc<Server>,
        context: Arc<RequestContext>,
        protocol: ProtocolLabel,
        started: Instant,
        line: Option<LogFields>,
        span: Option<RequestSpan>,
    ) -> Self {
        let server = server.clone();
        Self { server, context, protocol, started, status: None, bytes: None, to_head: None, line, span }
    }

    /// Records the head of the response. For gRPC it has the status only if there is no message.
    pub(crate) fn head(&mut self, response: &Response) {
        self.bytes = response.body().size_hint().exact();
        self.to_head = Some(self.started.elapsed());
        self.status = match self.protocol {
            ProtocolLabel::Grpc if response.status().is_success() => grpc_status(response.headers()),
            ProtocolLabel::Grpc => Some(crate::protocol::http::status::grpc_code(response.status())),
            _ => Some(response.status().as_u16()),
        };
    }

    pub(crate) const fn is_complete(&self) -> bool {
        self.status.is_some()
    }

    /// The status for a client that has disconnected: nginx's 499, gRPC's `CANCELLED`.
    const fn gone(&self) -> u16 {
        if matches!(self.protocol, ProtocolLabel::Grpc) { 1 } else { 499 }
    }
}

/// Counts and logs a request whose head hyper could not parse and answered with this status.
pub(crate) fn note_unread(server: &Server, status: u16, peer: Peer) {
    let protocol = ProtocolLabel::Http;
    server.metrics().none().record_response(protocol, status, Duration::ZERO);
    if server.settings().access_log {
        tracing::info!(
            target: "gpux::access",
            protocol = protocol.name(),
            status,
            client = peer.sender.to_string(),
            "answered; the head of the request could not be read"
        );
    }
}

fn grpc_status(headers: &HeaderMap) -> Option<u16> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

impl Drop for ResponseRecord {
    fn drop(&mut self) {
        let time = self.started.elapsed();
        let status = self.status.unwrap_or_else(|| self.gone());
        let pipeline = self.context.pipeline().unwrap_or_else(|| self.server.metrics().none());
        pipeline.record_response(self.protocol, status, self.to_head.unwrap_or(time));
        if let Some(line) = &self.line {
            tracing::info!(
                target: "gpux::access",
                request_id = self.context.id(),
                method = line.method,
                path = line.path,
                protocol = self.protocol.name(),
                status,
                pipeline = pipeline.name(),
                duration_ms = time.as_secs_f64() * 1e3,
                queue_ms = self.context.queued().as_secs_f64() * 1e3,
                bytes = self.bytes,
                key = line.tenant.as_deref().map(Tenant::name),
                client = line.sender.map(|sender| sender.to_string()),
                proxy = line.proxy.map(|peer| peer.sender.to_string()),
                "answered"
            );
        }
        if let Some(span) = self.span.take() {
            let outcome = Outcome {
                protocol: self.protocol,
                status,
                pipeline: pipeline.name(),
                request_id: self.context.id(),
                queued: self.context.queued(),
                truncated: self.context.truncated(),
            };
            Telemetry::end(span, outcome);
        }
    }
}

/// A response body that takes its gRPC status from the trailers, polled within the request's context.
pub(crate) struct RecordedBody {
    body: Body,
    answered: ResponseRecord,
}

impl RecordedBody {
    pub(crate) const fn new(body: Body, answered: ResponseRecord) -> Self {
        Self { body, answered }
    }
}

impl hyper::body::Body for RecordedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { body, answered } = self.get_mut();
        let context = answered.context.clone();
        let frame = context.within(|| Pin::new(&mut *body).poll_frame(task));
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            answered.status = grpc_status(trailers);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
