//! The bytes of a request, within bounds of size and time.

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::serve::{ServeError, Settings};

/// Reads a body. One that says that it is too large is refused before it is read.
pub(in crate::serve) async fn read(headers: &HeaderMap, body: Body, settings: &Settings) -> Result<Bytes, ServeError> {
    let said = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|said| said > settings.max_body as u64) {
        return Err(ServeError::TooLarge(settings.max_body));
    }
    let reading = Limited::new(body, settings.max_body).collect();
    let read = tokio::time::timeout(settings.body_timeout, reading).await;
    match read.map_err(|_| ServeError::SlowBody(settings.body_timeout))? {
        Ok(read) => Ok(read.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ServeError::TooLarge(settings.max_body)),
        Err(error) => Err(ServeError::Body(error.to_string())),
    }
}
