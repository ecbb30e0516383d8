//! The Open Inference Protocol, version 2: REST under `/v2`, gRPC on the same port.
//!
//! A request of either becomes an [`infer::InferRequest`], in a turn of the pipeline; `tensors` is the
//! one place where what a client says about a tensor is held against its bytes. What comes of it
//! is written in the way that it was asked for.

mod classification;
mod config;
mod datatype;
mod error;
mod grpc;
mod infer;
mod lookup;
mod metadata;
mod parameters;
mod repository;
mod rest;
mod statistics;
mod tensors;

use std::sync::Arc;

use axum::Router;

pub(super) use rest::{is_path, no_such_method, no_such_path};
pub(super) use statistics::Statistics;

use super::server::Server;

/// Every path of REST and every call of gRPC.
pub(super) fn router(server: &Arc<Server>) -> Router {
    rest::router(server.clone()).merge(grpc::router(server))
}
