//! Responses in JSON, and errors.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::Value as Json;

use crate::engine::error::ServeError;
use crate::engine::request_context::RequestContext;

/// The media type of JSON.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The media type of arbitrary bytes.
pub(crate) const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

const SPACE: HeaderName = HeaderName::from_static("x-gpux-space");
const NUMERICS: HeaderName = HeaderName::from_static("x-gpux-numerics");

/// A response of bytes with this media type.
pub(crate) fn bytes(media_type: HeaderValue, bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

/// A response of JSON.
pub(crate) fn json(json: &Json) -> Response {
    bytes(JSON, json.to_string())
}

/// Says in headers which space the vectors of a response lie in, and what computed them.
pub(crate) fn with_space(mut response: Response, space: &str, numerics: &str) -> Response {
    for (name, value) in [(SPACE, space), (NUMERICS, numerics)] {
        // Names of GPUs may have letters that no header can have.
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// A response of JSON with this status.
pub(crate) fn json_with(status: StatusCode, document: &Json) -> Response {
    let mut response = json(document);
    *response.status_mut() = status;
    response
}

/// `{error, message, details}` with the status of the error.
pub(crate) fn error(error: &ServeError) -> Response {
    let mut document = error.to_json();
    if let Some(context) = RequestContext::current() {
        document["details"]["request_id"] = context.id().into();
    }
    error_with(error, &document)
}

/// This document with the status of the error, and when the client may retry.
pub(crate) fn error_with(error: &ServeError, document: &Json) -> Response {
    let mut response = json_with(error.status(), document);
    if let Some(after) = error.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    response
}
