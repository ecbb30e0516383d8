//! Errors of requests.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::scheduler::Rejection;
use gpux::{ErrorCategory, GpuxError};
use gpux_core::sanitize::{redact_paths, sanitize_for_terminal};
use gpux_core::{RunError, StepFailure, TimeLimit, ValidationError};

/// An error of a request; each protocol encodes it in its own form.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// an error of the pipeline itself
    #[error(transparent)]
    Gpux(#[from] GpuxError),
    /// rejected for lack of time or space
    #[error("{0}")]
    Overload(#[from] Rejection),
    /// the request's time passed while it waited
    #[error("the request's timeout passed before it could run: {0}")]
    Expired(TimeLimit),
    /// the path, pipeline or model does not exist
    #[error("{0}")]
    NotFound(String),
    /// the path does not support this method
    #[error("{0}")]
    Method(String),
    /// temporarily unavailable
    #[error("{0}")]
    NotReady(String),
    /// the pipeline could not be loaded, and is tried again
    #[error("{message}")]
    LoadFailed {
        /// which one, and why
        message: String,
        /// the time until the next attempt
        retry_after: Duration,
    },
    /// the pipeline's files cannot be loaded; clients do not see paths and lines, which only the log has
    #[error("{}", not_loaded(.0.kind()))]
    NotLoaded(Box<ServeError>),
    /// the head is larger than allowed
    #[error("the headers are larger than the {0} bytes that are allowed")]
    HeadTooLarge(usize),
    /// the body is larger than allowed
    #[error("the body is larger than the {0} bytes that are allowed")]
    TooLarge(usize),
    /// the body, or its decoded form, exceeds the memory budget of one request
    #[error(
        "the request takes {needed} bytes with what becomes of it, and one request may hold {limit} (`--body-memory`)"
    )]
    NeverFits {
        /// the bytes that it needs
        needed: usize,
        /// the limit in bytes
        limit: usize,
    },
    /// the response exceeds the memory budget of one response
    #[error(
        "the answer takes up to {needed} bytes while it is made, and one answer may take {limit} (`--body-memory`); \
         ask for it in parts, or in a binary form"
    )]
    ResponseNeverFits {
        /// the bytes that it needs
        needed: usize,
        /// the limit in bytes
        limit: usize,
    },
    /// the body did not arrive in time
    #[error("the request's body did not come within {0:?}")]
    SlowBody(Duration),
    /// the client disconnected before its request was complete
    #[error("the client left before all of its request had come")]
    Gone,
    /// the body's encoding is broken, or it ends within a message
    #[error("the request's body cannot be read: {0}")]
    Body(String),
    /// no input accepts a body of this type
    #[error("{0}")]
    MediaType(String),
    /// the request has no valid credentials
    #[error("{0}")]
    Unauthorized(String),
    /// the key is unknown; the response is delayed by this time, which grows with failed attempts
    #[error("the key is not known")]
    UnknownKey(Duration),
    /// the key does not permit this
    #[error("{0}")]
    Forbidden(String),
    /// it is for another server
    #[error("{0}")]
    Misdirected(String),
    /// more than the key allows
    #[error("{message}; try again in a moment")]
    TooMany {
        /// the exceeded limit
        message: String,
        /// the time until the limit may permit it
        retry_after: Duration,
    },
    /// no output has a media type that the client accepts
    #[error("{0}")]
    NotAcceptable(String),
    /// any of these errors with the trace that the request asked for
    #[error("{0}")]
    Traced(Box<ServeError>, Json),
}

fn not_loaded(kind: &str) -> String {
    match kind {
        "ModelCrashError" => format!("its process ended while it was loaded ({kind}); the server's log says why"),
        _ => format!("its files cannot be loaded ({kind}); the server's log and `gpux build` say why"),
    }
}

impl ServeError {
    /// An invalid request (400).
    pub fn invalid(message: impl Into<String>) -> Self {
        GpuxError::from(ValidationError::request(message)).into()
    }

    /// The name of its kind in the HTTP API.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Gpux(error) => error.kind(),
            Self::Traced(error, _) | Self::NotLoaded(error) => error.kind(),
            Self::Overload(_) | Self::Expired(_) => "OverloadError",
            Self::NotFound(_) => "NotFoundError",
            Self::NotReady(_) | Self::LoadFailed { .. } => "NotReadyError",
            Self::Unauthorized(_) | Self::UnknownKey(_) => "AuthenticationError",
            Self::Forbidden(_) | Self::Misdirected(_) => "PermissionError",
            Self::TooMany { .. } => "RateLimitError",
            Self::HeadTooLarge(_)
            | Self::TooLarge(_)
            | Self::NeverFits { .. }
            | Self::ResponseNeverFits { .. }
            | Self::SlowBody(_)
            | Self::Body(_)
            | Self::Gone
            | Self::MediaType(_)
            | Self::Method(_)
            | Self::NotAcceptable(_) => "ValidationError",
        }
    }

    /// Whether the request is invalid.
    pub(crate) fn is_invalid(&self) -> bool {
        match self {
            Self::Gpux(GpuxError::Validation(_)) => true,
            Self::Traced(error, _) => error.is_invalid(),
            _ => false,
        }
    }

    /// Why a pipeline cannot be loaded, as an error of the pipeline.
    pub(crate) fn into_cause(self) -> GpuxError {
        match self {
            Self::Gpux(error) => error,
            Self::NotLoaded(error) => error.into_cause(),
            other => gpux_worker::environment_error(other.to_string()),
        }
    }

    /// Whether there was no result by the deadline.
    pub(crate) fn is_timeout(&self) -> bool {
        match self {
            Self::Gpux(GpuxError::Step(error)) => error.failure == StepFailure::Timeout,
            Self::Overload(Rejection::Expired) | Self::Expired(_) => true,
            _ => false,
        }
    }

    /// Says of a timeout which limit the request had, unless that was said before.
    pub(crate) fn explain_timeout(self, limit: impl FnOnce() -> TimeLimit) -> Self {
        match self {
            Self::Gpux(error) => error.explain_timeout(limit).into(),
            Self::Overload(Rejection::Expired) => Self::Expired(limit()),
            Self::Traced(error, trace) => Self::Traced(Box::new(error.explain_timeout(limit)), trace),
            other => other,
        }
    }

    /// Whether the run ended since nobody waits for it any more.
    pub(crate) fn is_given_up(&self) -> bool {
        match self {
            Self::Gpux(GpuxError::Step(error)) => {
                matches!(error.failure, StepFailure::Timeout | StepFailure::Cancelled)
            }
            _ => false,
        }
    }

    /// When the client may retry, if that can help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overload(rejection) => Some(rejection.retry_after()),
            Self::Expired(_) => Some(Rejection::Expired.retry_after()),
            Self::NotReady(_) => Some(Duration::from_secs(1)),
            // Whole seconds are the resolution of `Retry-After`.
            Self::TooMany { retry_after, .. } | Self::LoadFailed { retry_after, .. } => {
                Some(Duration::from_secs(retry_after.as_secs_f64().ceil() as u64))
            }
            Self::Traced(error, _) => error.retry_after(),
            _ => None,
        }
    }

    /// The message for clients: shortened, as it may quote the request, and without the server's paths and control
    /// characters.
    pub fn public_message(&self) -> String {
        match self {
            Self::Gpux(error) if error.category() != ErrorCategory::Request => {
                short(redact_paths(&sanitize_for_terminal(&self.to_string())))
            }
            Self::Traced(error, _) => error.public_message(),
            _ => short(sanitize_for_terminal(&self.to_string())),
        }
    }

    /// `{error, message, details}`.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Gpux(error) => {
                let mut json = error.to_json();
                json["message"] = self.public_message().into();
                if let Some(Json::String(text)) = json.pointer_mut("/details/field") {
                    *text = short(std::mem::take(text));
                }
                json
            }
            Self::Traced(error, trace) => {
                let mut json = error.to_json();
                json["details"]["trace"] = trace.clone();
                json
            }
            _ => json!({ "error": self.kind(), "message": self.public_message(), "details": {} }),
        }
    }
}

/// The longest message, in bytes: gRPC clients accept at most 16 KiB of headers, where percent-encoding may triple each
/// byte.
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
