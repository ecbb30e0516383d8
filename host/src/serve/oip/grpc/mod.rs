//! The protocol over gRPC.

mod answers;
mod body;
mod bounds;
mod contents;
mod fields;
mod health;
mod infer;
mod messages;
mod service;
mod settings;
mod stream;
mod timeout;

use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use tonic::codec::CompressionEncoding;
use tonic_health::pb::health_server::HealthServer;

use crate::serve::Server;

/// The messages, made from `proto/open_inference.proto`.
pub(super) mod proto {
    #![allow(
        clippy::all,
        clippy::pedantic,
        missing_docs,
        unreachable_pub,
        unused_qualifications,
        reason = "made by a generator"
    )]
    tonic::include_proto!("inference");
}

/// Every call. Messages are bounded and decompressed before tonic sees them.
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
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
