//! Extracts the name in a path.

use axum::extract::{FromRequestParts, Path};
use axum::response::Response;
use http::request::Parts;

use super::response;
use crate::ServeError;

/// The only variable segment of a path. A segment that is not UTF-8 is rejected in the server's error format.
pub(crate) struct PathName(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(name)| Self(name))
            .map_err(|rejection| response::error(&ServeError::invalid(rejection.body_text())))
    }
}
