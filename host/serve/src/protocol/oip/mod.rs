//! The Open Inference Protocol, version 2: REST under `/v2`, gRPC on the same port.
//!
//! Requests of both become an [`infer::InferRequest`] while the pipeline executes. `tensors` alone checks a tensor's
//! description against its bytes. Results are encoded in the form that the request asks for.

mod classification;
mod config;
pub(crate) mod datatype;
mod error;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(not(feature = "grpc"))]
#[path = "no_grpc.rs"]
mod grpc;
mod infer;
mod lookup;
mod metadata;
mod parameters;
mod placement;
mod repository;
mod rest;
mod settings;
mod shared_memory;
mod statistics;
mod tensors;

use std::sync::Arc;

use axum::Router;

pub(crate) use config::ModelConfig;
pub(crate) use grpc::unknown_method;
pub(crate) use metadata::{ModelMetadata, ServerMetadata};
pub(crate) use repository::ModelIndex;
pub(crate) use rest::{
    Live, ModelReady, Models, Ready, RepositoryCall, is_path, no_such_method, no_such_path, request_schema,
};
pub(crate) use statistics::Statistics;
pub(crate) use tensors::tensor_json;

use crate::engine::server::Server;

/// Every path of REST and every call of gRPC.
pub(crate) fn router(server: &Arc<Server>) -> Router {
    rest::router(server.clone()).merge(grpc::router(server))
}
