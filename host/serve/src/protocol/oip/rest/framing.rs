//! The extension `binary_tensor_data`: where JSON ends in a body, and whose bytes follow.
//!
//! Clients are free with Content-Type, so only `Inference-Header-Content-Length` decides.

use bytes::Bytes;
use http::{HeaderMap, HeaderName};

use crate::ServeError;

/// Length of the JSON before the bytes of tensors, in bytes; both ways.
pub(super) const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

/// The parts of a body.
#[derive(Clone)]
pub(super) enum Framing {
    /// JSON, then the bytes of tensors, if any
    Json {
        /// the request
        json: Bytes,
        /// what follows it
        binary: Bytes,
    },
    /// nothing but the bytes of the only input
    Raw(Bytes),
}

impl Framing {
    /// Takes a body apart.
    pub(super) fn split(headers: &HeaderMap, mut body: Bytes) -> Result<Self, ServeError> {
        let Some(length) = headers.get(&JSON_LENGTH) else {
            return Ok(Self::Json { json: body, binary: Bytes::new() });
        };
        let length = length.to_str().ok().and_then(|length| length.trim().parse::<usize>().ok());
        match length {
            Some(0) => Ok(Self::Raw(body)),
            Some(length) if length <= body.len() => Ok(Self::Json { json: body.split_to(length), binary: body }),
            Some(length) => Err(ServeError::invalid(format!(
                "{JSON_LENGTH} is {length}, but the body has only {} bytes",
                body.len()
            ))),
            None => Err(ServeError::invalid(format!("{JSON_LENGTH} is a number of bytes"))),
        }
    }

    /// The JSON of the request, if there is any.
    pub(super) fn json(&self) -> &[u8] {
        match self {
            Self::Json { json, .. } => json,
            Self::Raw(_) => &[],
        }
    }

    /// The bytes of tensors.
    pub(super) fn raw(&self) -> &[u8] {
        match self {
            Self::Json { binary: raw, .. } | Self::Raw(raw) => raw,
        }
    }
}
