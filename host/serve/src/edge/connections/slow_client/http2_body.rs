//! HTTP/2 response bodies, sent in parts to detect responses that a client leaves unread.
//!
//! Test: `disconnects_http2_clients_that_leave_responses_unread`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::{Activity, PendingPart, ResponseTracker, StreamGuard};

/// Bytes of one part: HTTP/2's default frame size.
const PART: usize = 16 << 10;

/// A body in parts, each of which waits for the client's flow-control window.
pub(crate) struct Http2Body {
    body: Body,
    /// the unsent rest of the last frame
    rest: Bytes,
    taken: ResponseTracker,
    _open: StreamGuard,
}

/// Bytes that are dropped once they are sent.
struct Part {
    bytes: Bytes,
    _waiting: PendingPart,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Http2Body {
    pub(crate) fn new(body: Body, activity: &Arc<Activity>, open: StreamGuard) -> Self {
        Self { body, rest: Bytes::new(), taken: activity.answer(), _open: open }
    }
}

impl hyper::body::Body for Http2Body {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(task)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        let bytes = this.rest.split_to(this.rest.len().min(PART));
        let part = Part { bytes, _waiting: this.taken.wait() };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, more) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(more.lower().saturating_add(rest));
        if let Some(upper) = more.upper().and_then(|upper| upper.checked_add(rest)) {
            hint.set_upper(upper);
        }
        hint
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use http::HeaderMap;
    use http_body_util::BodyExt as _;
    use hyper::body::Body as _;

    use super::*;

    #[test]
    fn splits_http2_bodies_into_parts() {
        let activity = Arc::new(Activity::new(Duration::ZERO, Duration::ZERO));
        // With a request under way, only an unread part lets the connection time out.
        let _busy = activity.begin();
        let bytes: Vec<u8> = (0..PART + 7).map(|number| number as u8).collect();
        let mut body = Http2Body::new(Body::from(bytes.clone()), &activity, activity.open());
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        let mut next = || body.frame().now_or_never().unwrap().map(|frame| frame.unwrap().into_data().unwrap());
        let (first, second) = (next().unwrap(), next().unwrap());
        assert_eq!((&first[..], &second[..]), bytes.split_at(PART));
        drop(first);
        assert!(activity.is_over());
        drop(second);
        assert!(!activity.is_over(), "all of it is taken");
        assert!(next().is_none());
        assert!(body.is_end_stream());
    }

    #[test]
    fn forwards_trailers() {
        let trailers = HeaderMap::from_iter([(http::header::AGE, http::HeaderValue::from(7))]);
        let body = http_body_util::Full::from("bytes").with_trailers(std::future::ready(Some(Ok(trailers.clone()))));
        let activity = Arc::new(Activity::new(Duration::ZERO, Duration::ZERO));
        let collected =
            Http2Body::new(Body::new(body), &activity, activity.open()).collect().now_or_never().unwrap().unwrap();
        assert_eq!(collected.trailers(), Some(&trailers));
        assert_eq!(collected.to_bytes(), "bytes");
    }
}
