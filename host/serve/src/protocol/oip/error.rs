//! Errors in the forms of REST and gRPC.

use std::time::Duration;

use axum::response::Response;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use serde_json::json;

use crate::ServeError;
use crate::protocol::http::response;

/// The REST status. A deadline that has passed is 503 here, as in Triton: the client may retry.
pub(super) fn status_code(error: &ServeError) -> StatusCode {
    match error.status() {
        StatusCode::GATEWAY_TIMEOUT => StatusCode::SERVICE_UNAVAILABLE,
        other => other,
    }
}

/// When the client may retry.
pub(super) fn retry_after(error: &ServeError) -> Option<Duration> {
    let unavailable = status_code(error) == StatusCode::SERVICE_UNAVAILABLE;
    error.retry_after().or_else(|| unavailable.then_some(Duration::from_secs(1)))
}

/// `{"error": …}` with this status: the form of every REST response that is not 200.
pub(super) fn with_message(status: StatusCode, message: &str) -> Response {
    response::json_with(status, &json!({ "error": message }))
}

/// The REST response of an error.
pub(super) fn response(error: &ServeError) -> Response {
    let mut response = with_message(status_code(error), &error.public_message());
    if let Some(after) = retry_after(error) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    response
}
