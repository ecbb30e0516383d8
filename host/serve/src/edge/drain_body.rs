//! Reads and drops the body of a request that is rejected by its head.
//!
//! Most clients send the whole request before they read the response. Over HTTP/1 the server would close the connection
//! early, and unread data in its receive buffer makes the kernel reset it, which discards the response. Over HTTP/2
//! some clients lose a response that arrives with a stream reset (`NO_ERROR`). So the rest is read and dropped, within
//! the limits below.
//!
//! Tests: `rejection_waits_for_the_request_body`, `drains_unread_bodies`.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Version};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};

use crate::protocol::route::is_grpc;

/// The most that is read and dropped, in bytes.
const MOST: u64 = 8 << 20;
/// The longest time that the drain takes.
const LONGEST: Duration = Duration::from_secs(1);

/// A request body as it arrives from a connection.
pub(crate) trait RequestBody:
    hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static
{
}

impl<B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static> RequestBody for B {}

/// Takes back the body if it is dropped before its end.
type SharedBody<B> = Arc<Mutex<Option<B>>>;

/// The unread rest of a request's body.
pub(crate) struct UnreadBody<B>(Option<SharedBody<B>>);

/// Wraps the body so that its unread rest can be drained after the response is ready.
pub(crate) fn lend<B: RequestBody>(request: Request<B>) -> (Request<Body>, UnreadBody<B>) {
    let headers = request.headers();
    // gRPC clients read while they send, and a stream may never end.
    if is_grpc(headers) || request.body().is_end_stream() {
        return (request.map(Body::new), UnreadBody(None));
    }
    let shared = SharedBody::default();
    // A client that sent `Expect: 100-continue` sends nothing before the body is polled.
    let comes = request.version() > Version::HTTP_11 || !headers.contains_key(EXPECT);
    let lent = |body| Body::new(LentBody { body: Some(body), comes, shared: shared.clone() });
    (request.map(lent), UnreadBody(Some(shared)))
}

impl<B: RequestBody> UnreadBody<B> {
    /// The rest of the body, unless it is known to exceed the limit.
    pub(crate) fn body(self) -> Option<B> {
        let left = self.0.and_then(|shared| shared.lock().unwrap_or_else(PoisonError::into_inner).take());
        left.filter(|body| body.size_hint().lower() <= MOST)
    }
}

/// Reads the rest of the body and drops it. Stops after [`MOST`] bytes or [`LONGEST`].
pub(crate) async fn drain<B: RequestBody>(mut body: B) {
    let read = async {
        let mut come = 0;
        while let Some(Ok(frame)) = body.frame().await {
            come += frame.data_ref().map_or(0, |data| data.len() as u64);
            if come > MOST {
                return;
            }
        }
    };
    // The result does not matter: the response is ready.
    let _ = tokio::time::timeout(LONGEST, read).await;
}

/// A body that goes back to `shared` if it is dropped before its end.
struct LentBody<B: RequestBody> {
    body: Option<B>,
    /// whether the client sends the body: without `Expect`, or since the first poll sent `100 Continue`
    comes: bool,
    shared: SharedBody<B>,
}

impl<B: RequestBody> hyper::body::Body for LentBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.comes = true;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(task);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), B::size_hint)
    }
}

impl<B: RequestBody> Drop for LentBody<B> {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| self.comes && !body.is_end_stream()) {
            *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::stream;

    use super::*;

    const PART: usize = 64 << 10;

    async fn drop_left(unread: UnreadBody<Body>) {
        if let Some(body) = unread.body() {
            drain(body).await;
        }
    }

    /// A body of `count` parts, and the number of parts that were read.
    fn parts(count: usize) -> (Body, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let given = read.clone();
        let part = move |_| {
            given.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Bytes::from(vec![0; PART]))
        };
        (Body::from_stream(stream::iter((0..count).map(part))), read)
    }

    #[tokio::test]
    async fn drains_unread_bodies() {
        let (body, read) = parts(9);
        let (request, unread) = lend(Request::new(body));
        let mut body = request.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), PART);
        drop(body);
        drop_left(unread).await;
        assert_eq!(read.load(Ordering::Relaxed), 9);
    }

    #[tokio::test]
    async fn does_not_drain_large_bodies() {
        let most = MOST as usize / PART;
        let (body, read) = parts(4 * most);
        let (request, unread) = lend(Request::new(body));
        drop(request);
        drop_left(unread).await;
        assert_eq!(read.load(Ordering::Relaxed), most + 1);
    }

    #[tokio::test]
    async fn does_not_send_100_continue_on_rejection() {
        let (body, read) = parts(9);
        let (request, unread) = lend(Request::builder().header(EXPECT, "100-continue").body(body).unwrap());
        drop(request);
        drop_left(unread).await;
        assert_eq!(read.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn drains_bodies_after_100_continue() {
        let (body, read) = parts(9);
        let (request, unread) = lend(Request::builder().header(EXPECT, "100-continue").body(body).unwrap());
        let mut body = request.into_body();
        assert!(body.frame().await.unwrap().is_ok());
        drop(body);
        drop_left(unread).await;
        assert_eq!(read.load(Ordering::Relaxed), 9);
    }

    #[tokio::test]
    async fn stops_draining_after_a_timeout() {
        let body = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let (request, unread) = lend(Request::new(body));
        drop(request);
        drop_left(unread).await;
    }
}
