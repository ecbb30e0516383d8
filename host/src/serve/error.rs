//! Why a request was not answered with a result, and what its client is told.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value as Json, json};

use super::schedule::Refusal;
use crate::error::{Fault, GpuxError};
use crate::pipeline::{RunError, StepFailure, ValidationError};

/// What every protocol makes its own error of.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// the pipeline's own
    #[error(transparent)]
    Gpux(#[from] GpuxError),
    /// there is no time or no room for it now
    #[error("{0}")]
    Overload(#[from] Refusal),
    /// what was asked for is not served
    #[error("{0}")]
    NotFound(String),
    /// the path does not take this method
    #[error("{0}")]
    Method(String),
    /// it is served, but not now
    #[error("{0}")]
    NotReady(String),
    /// the body is larger than allowed
    #[error("the body is larger than the {0} bytes that are allowed")]
    TooLarge(usize),
    /// the body did not come in time
    #[error("the request's body did not come within {0:?}")]
    SlowBody(Duration),
    /// the client left before all of its request had come
    #[error("the client left before all of its request had come")]
    Gone,
    /// the body's encoding is broken, or it ends within a message
    #[error("the request's body cannot be read: {0}")]
    Body(String),
    /// no input takes a body of this type
    #[error("{0}")]
    MediaType(String),
    /// whose request it is cannot be known
    #[error("{0}")]
    Unauthorized(String),
    /// nobody has the key that it carries; the answer waits for so long, for whoever tries many
    #[error("the key is not known")]
    UnknownKey(Duration),
    /// it is known whose request it is, and that it may not
    #[error("{0}")]
    Forbidden(String),
    /// it is for another server
    #[error("{0}")]
    Misdirected(String),
    /// more than the key allows
    #[error("{message}; try again in a moment")]
    TooMany {
        /// more than what
        message: String,
        /// when there may be room
        retry_after: Duration,
    },
    /// no output can be given in a type that is accepted
    #[error("{0}")]
    NotAcceptable(String),
    /// any of these, of a request whose trace was asked for, with that trace
    #[error("{0}")]
    Traced(Box<ServeError>, Json),
}

impl ServeError {
    /// A request that does not fit.
    pub fn invalid(message: impl Into<String>) -> Self {
        GpuxError::from(ValidationError::request(message)).into()
    }

    /// The name of its kind, as the HTTP API says it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Gpux(error) => error.kind(),
            Self::Traced(error, _) => error.kind(),
            Self::Overload(_) => "OverloadError",
            Self::NotFound(_) => "NotFoundError",
            Self::NotReady(_) => "NotReadyError",
            Self::Unauthorized(_) | Self::UnknownKey(_) => "AuthenticationError",
            Self::Forbidden(_) | Self::Misdirected(_) => "PermissionError",
            Self::TooMany { .. } => "RateLimitError",
            Self::TooLarge(_)
            | Self::SlowBody(_)
            | Self::Body(_)
            | Self::Gone
            | Self::MediaType(_)
            | Self::Method(_)
            | Self::NotAcceptable(_) => "ValidationError",
        }
    }

    /// The status of HTTP that says it.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Gpux(GpuxError::Step(error)) if error.failure == StepFailure::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Gpux(GpuxError::Step(error)) if error.failure == StepFailure::Cancelled => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Gpux(error) if error.fault() == Fault::Request => StatusCode::BAD_REQUEST,
            Self::Gpux(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Overload(Refusal::Expired) => StatusCode::GATEWAY_TIMEOUT,
            Self::Overload(_) | Self::NotReady(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlowBody(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Body(_) => StatusCode::BAD_REQUEST,
            // Nobody reads it, but those who count: nginx's number.
            Self::Gone => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
            Self::MediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NotAcceptable(_) => StatusCode::NOT_ACCEPTABLE,
            Self::Unauthorized(_) | Self::UnknownKey(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Misdirected(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Traced(error, _) => error.status(),
        }
    }

    /// Whether the request does not fit.
    pub(super) fn is_invalid(&self) -> bool {
        match self {
            Self::Gpux(GpuxError::Validation(_)) => true,
            Self::Traced(error, _) => error.is_invalid(),
            _ => false,
        }
    }

    /// When the client may try again, where that would help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overload(refusal) => Some(refusal.retry_after()),
            Self::NotReady(_) => Some(Duration::from_secs(1)),
            // Whole seconds are the finest that HTTP can say.
            Self::TooMany { retry_after, .. } => Some(Duration::from_secs(retry_after.as_secs_f64().ceil() as u64)),
            Self::Traced(error, _) => error.retry_after(),
            _ => None,
        }
    }

    /// Its message, as long as it is worth reading: it may quote what the client sent.
    pub fn told(&self) -> String {
        short(self.to_string())
    }

    /// `{error, message, details}`.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Gpux(error) => {
                let mut json = error.to_json();
                for text in ["/message", "/details/field"] {
                    if let Some(Json::String(text)) = json.pointer_mut(text) {
                        *text = short(std::mem::take(text));
                    }
                }
                json
            }
            Self::Traced(error, trace) => {
                let mut json = error.to_json();
                json["details"]["trace"] = trace.clone();
                json
            }
            _ => json!({ "error": self.kind(), "message": self.told(), "details": {} }),
        }
    }
}

/// The longest that a message may be, in bytes: gRPC's clients take no more than 16 KiB of headers, where
/// each letter may be three.
const LONGEST: usize = 4 << 10;

fn short(mut text: String) -> String {
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('\u{2026}');
    }
    text
}

impl From<RunError> for ServeError {
    fn from(error: RunError) -> Self {
        Self::Gpux(error.into())
    }
}

impl From<ValidationError> for ServeError {
    fn from(error: ValidationError) -> Self {
        Self::Gpux(error.into())
    }
}
