//! Bodies that are produced while they are sent, such as compressed ones and streams.
//!
//! Test: `disconnects_clients_that_leave_large_responses_unread`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::{Activity, RequestGuard};

/// A body that marks its connection as busy while its next part is produced. Between parts, the server waits for the
/// client, as with a body that is wholly in memory.
pub(crate) struct StreamedBody {
    body: Body,
    activity: Arc<Activity>,
    busy: Option<RequestGuard>,
}

impl StreamedBody {
    /// Replaces `busy`, the guard of the request, which has its response now.
    pub(crate) fn new(body: Body, busy: RequestGuard) -> Self {
        Self { body, activity: busy.activity(), busy: None }
    }
}

impl hyper::body::Body for StreamedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(task);
        if frame.is_ready() {
            this.busy = None;
        } else if this.busy.is_none() {
            this.busy = Some(this.activity.begin());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use futures_util::{FutureExt as _, StreamExt as _, stream};
    use http_body_util::BodyExt as _;

    use super::*;

    #[test]
    fn streamed_body_keeps_connection_busy_between_parts() {
        let activity = Arc::new(Activity::new(Duration::ZERO, Duration::ZERO));
        let parts = stream::iter([Ok::<_, Infallible>("first")]).chain(stream::pending());
        let mut body = StreamedBody::new(Body::from_stream(parts), activity.begin());
        assert!(activity.is_over(), "nobody has asked for a part of it");
        body.frame().now_or_never().unwrap().unwrap().unwrap();
        assert!(activity.is_over(), "a part is there for the client");
        assert!(body.frame().now_or_never().is_none());
        assert!(!activity.is_over(), "the next part is awaited");
        drop(body);
        assert!(activity.is_over());
    }
}
