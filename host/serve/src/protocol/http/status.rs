//! Statuses of HTTP and gRPC.

use http::StatusCode;

use crate::{Rejection, ServeError};
use gpux::{ErrorCategory, GpuxError};
use gpux_core::StepFailure;

impl ServeError {
    /// The HTTP status of the error.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Gpux(GpuxError::Step(error)) if error.failure == StepFailure::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Gpux(GpuxError::Step(error)) if error.failure == StepFailure::Cancelled => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Gpux(error) if error.category() == ErrorCategory::Request => StatusCode::BAD_REQUEST,
            Self::Gpux(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Overload(Rejection::Expired) | Self::Expired(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::Overload(_) | Self::NotReady(_) | Self::LoadFailed { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge(_) | Self::NeverFits { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::HeadTooLarge(_) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::SlowBody(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Body(_) | Self::ResponseNeverFits { .. } => StatusCode::BAD_REQUEST,
            // The client has gone; only metrics and logs see nginx's code.
            Self::Gone => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
            Self::MediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NotAcceptable(_) => StatusCode::NOT_ACCEPTABLE,
            Self::Unauthorized(_) | Self::UnknownKey(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Misdirected(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Traced(error, _) | Self::NotLoaded(error) => error.status(),
        }
    }
}

/// The gRPC code of an HTTP status (gRPC's own table, plus 413, 429, 431, 499, 504).
pub(crate) fn grpc_code(status: StatusCode) -> u16 {
    match status.as_u16() {
        200..=299 => 0,
        404 => 5,
        400 | 405 | 406 | 415 | 422 => 3,
        401 => 16,
        403 | 421 => 7,
        408 | 504 => 4,
        413 | 429 | 431 => 8,
        499 => 1,
        501 => 12,
        503 => 14,
        _ => 13,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_http_statuses_to_grpc_codes() {
        let code = |status: u16| grpc_code(StatusCode::from_u16(status).unwrap_or_default());
        assert_eq!(
            [200, 400, 404, 401, 403, 421, 429, 431, 503, 504, 500].map(code),
            [0, 3, 5, 16, 7, 7, 8, 8, 14, 4, 13]
        );
    }
}
