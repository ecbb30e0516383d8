//! The Open Inference Protocol, version 2: REST under `/v2`, gRPC on the same port.
//!
//! A request of either becomes an [`infer::InferRequest`], in a turn of the pipeline; `tensors` is the
//! one place where what a client says about a tensor is held against its bytes. What comes of it
//! is written in the way that it was asked for.

mod classification;
mod config;
pub(super) mod datatype;
mod error;
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

pub(super) use config::ModelConfig;
pub(super) use grpc::no_such_call;
pub(super) use lookup::version_number;
pub(super) use metadata::{ModelMetadata, ServerMetadata};
pub(super) use repository::Indexed;
pub(super) use rest::{
    Asked, Live, ModelReady, Models, Ready, answer_infer, is_path, no_such_method, no_such_path, request_schema,
};
pub(super) use statistics::Statistics;
pub(super) use tensors::tensor_json;

use super::server::Server;

/// Every path of REST and every call of gRPC.
pub(super) fn router(server: &Arc<Server>) -> Router {
    rest::router(server.clone()).merge(grpc::router(server))
}
