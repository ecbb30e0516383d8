//! Replaces `grpc` in builds without the feature `grpc`: no call exists.

use std::sync::Arc;

use axum::Router;
use axum::response::Response;

use crate::protocol::http::response;
use crate::{ServeError, Server};

pub(super) fn router(_server: &Arc<Server>) -> Router {
    Router::new()
}

/// The response to every call.
pub(crate) fn unknown_method(_path: &str) -> Response {
    response::error(&ServeError::NotFound("this gpux was built without gRPC".to_owned()))
}
