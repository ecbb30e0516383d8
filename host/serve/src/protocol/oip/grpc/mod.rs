//! The Open Inference Protocol over gRPC.

mod answers;
mod body;
mod bounds;
mod contents;
mod descriptions;
mod fields;
mod health;
mod infer;
mod messages;
mod proto;
mod reflection;
mod service;
mod settings;
mod status;
mod stream;
mod timeout;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::post;
use tonic::Status;
use tonic::codec::CompressionEncoding;
use tonic_health::pb::health_server::HealthServer;

use crate::protocol::http::response;
use crate::protocol::route;
use crate::protocol::route::{is_grpc, truncated};
use crate::{ServeError, Server};

/// Every call. Messages are limited and decompressed before tonic sees them.
pub(super) fn router(server: &Arc<Server>) -> Router {
    let inference =
        proto::grpc_inference_service_server::GrpcInferenceServiceServer::new(service::Service::new(server.clone()))
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Deflate);
    let health = HealthServer::new(health::Health::new(server.clone()));
    Router::new()
        .route("/inference.GRPCInferenceService/ModelInfer", post(infer::call))
        .route("/inference.GRPCInferenceService/ModelStreamInfer", post(stream::call))
        .with_state(server.clone())
        .route_service("/inference.GRPCInferenceService/{call}", body::Bounded::new(inference, server.clone()))
        .route_service("/grpc.health.v1.Health/{call}", body::Bounded::new(health, server.clone()))
        .merge(reflection::router(server))
        .route_layer(middleware::from_fn(check))
}

/// Rejects requests that are not gRPC (415) and unknown calls before any message is read.
async fn check(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !is_grpc(request.headers()) {
        let message = "this is a call of gRPC, whose type is `application/grpc`";
        return response::error(&ServeError::MediaType(message.to_owned()));
    }
    if route::find(path).is_none() {
        return unknown_method(path);
    }
    next.run(request).await
}

/// The response to an unknown call.
pub(crate) fn unknown_method(path: &str) -> Response {
    Status::unimplemented(format!("there is no call `{}`", truncated(path))).into_http()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
