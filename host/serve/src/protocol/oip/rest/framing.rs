//! The extension `binary_tensor_data`: splits a body into JSON and the raw tensor data after it.
//!
//! Clients send various values of Content-Type, so only `Inference-Header-Content-Length` decides.

use bytes::Bytes;
use http::{HeaderMap, HeaderName};

use crate::ServeError;
use crate::protocol::http::json_text;

/// Length of the JSON before the raw tensor data, in bytes; in requests and responses.
pub(super) const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

/// The parts of a body.
#[derive(Clone)]
pub(super) enum Framing {
    /// JSON, followed by raw tensor data, if any
    Json {
        /// the request
        json: Bytes,
        /// the raw tensor data
        binary: Bytes,
    },
    /// only the raw data of the single input
    Raw(Bytes),
}

impl Framing {
    /// Splits a body.
    pub(super) fn split(headers: &HeaderMap, mut body: Bytes) -> Result<Self, ServeError> {
        let json = |body: Bytes, binary| {
            let json = body.slice_ref(json_text::utf8(&body)?);
            Ok(Self::Json { json, binary })
        };
        let Some(length) = headers.get(&JSON_LENGTH) else { return json(body, Bytes::new()) };
        let length = length.to_str().ok().and_then(|length| length.trim().parse::<usize>().ok());
        match length {
            Some(0) => Ok(Self::Raw(body)),
            Some(length) if length <= body.len() => json(body.split_to(length), body),
            Some(length) => Err(ServeError::invalid(format!(
                "{JSON_LENGTH} is {length}, but the body has only {} bytes",
                body.len()
            ))),
            None => Err(ServeError::invalid(format!("{JSON_LENGTH} is a number of bytes"))),
        }
    }

    /// The JSON of the request; empty if there is none.
    pub(super) fn json(&self) -> &[u8] {
        match self {
            Self::Json { json, .. } => json,
            Self::Raw(_) => &[],
        }
    }

    /// The raw tensor data.
    pub(super) fn raw(&self) -> &[u8] {
        match self {
            Self::Json { binary: raw, .. } | Self::Raw(raw) => raw,
        }
    }
}
