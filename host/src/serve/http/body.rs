//! The bytes of a request, within bounds of size and time.

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::serve::{ServeError, Settings};

/// Reads a body. One that says that it is too large is refused before it is read; the bound holds for
/// what comes of decompressing it, too.
pub(in crate::serve) async fn read(headers: &HeaderMap, body: Body, settings: &Settings) -> Result<Bytes, ServeError> {
    // What is known was decompressed on the way here, and is no longer said.
    if let Some(encoding) = headers.get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        let encoding = encoding.to_str().unwrap_or("unreadable");
        let message = format!("the content encoding `{encoding}` is not read; send gzip, deflate or identity");
        return Err(ServeError::MediaType(message));
    }
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
