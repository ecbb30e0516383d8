//! Encodes the rejection of a request in the form of its protocol.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::json;

use crate::engine::error::ServeError;
use crate::engine::metrics::ProtocolLabel;
use crate::protocol::http::response;
use crate::protocol::http::status::grpc_code;
use crate::protocol::{openai, rerank, tei};

pub(crate) fn answer(error: &ServeError, protocol: ProtocolLabel) -> Response {
    let mut response = match protocol {
        ProtocolLabel::Http => response::error(error),
        ProtocolLabel::OipHttp => response::json_with(error.status(), &json!({ "error": error.public_message() })),
        ProtocolLabel::OpenAi => openai::error(error),
        ProtocolLabel::Rerank => rerank::error(error),
        ProtocolLabel::Tei => tei::error(error),
        ProtocolLabel::Grpc => return grpc(error),
    };
    let headers = response.headers_mut();
    if error.status() == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(after) = error.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    response
}

/// A response with trailers only: the head carries the status.
fn grpc(error: &ServeError) -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(grpc_code(error.status())));
    if let Ok(message) = HeaderValue::from_str(&percent_encoded(&error.public_message())) {
        headers.insert("grpc-message", message);
    }
    if let Some(after) = error.retry_after() {
        headers.insert("grpc-retry-pushback-ms", HeaderValue::from(after.as_millis() as u64));
    }
    response
}

/// Percent-encodes a gRPC message: all bytes but printable ASCII, and `%` itself.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_rejections_per_protocol() {
        let error = ServeError::Unauthorized("the key is not known: 100 % sure\u{2026}".to_owned());
        let plain = answer(&error, ProtocolLabel::Http);
        assert_eq!(
            (plain.status().as_u16(), &plain.headers()[WWW_AUTHENTICATE]),
            (401, &HeaderValue::from_static("Bearer"))
        );
        assert_eq!(answer(&error, ProtocolLabel::OipHttp).status().as_u16(), 401);
        let grpc = answer(&error, ProtocolLabel::Grpc);
        assert_eq!((grpc.status().as_u16(), &grpc.headers()["grpc-status"]), (200, &HeaderValue::from(16)));
        assert_eq!(grpc.headers()["grpc-message"], "the key is not known: 100 %25 sure%E2%80%A6");
    }
}
