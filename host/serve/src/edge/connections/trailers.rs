//! Trailers of HTTP/2 requests, which must have no pseudo-header fields (RFC 9113, 8.1).
//!
//! h2 drops such fields from trailers and passes on the others. Empty trailers held nothing but such fields, or
//! nothing.
//!
//! Test: `rejects_pseudo_headers_in_trailers`.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};

/// A body that fails if its trailers are malformed.
pub(super) struct CheckedTrailers<B>(pub(super) B);

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for CheckedTrailers<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll_frame(task)) {
            Some(Ok(frame)) if frame.trailers_ref().is_some_and(HeaderMap::is_empty) => {
                Some(Err("its trailers hold pseudo-header fields, or nothing".into()))
            }
            other => other.map(|frame| frame.map_err(Into::into)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
