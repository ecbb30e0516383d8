//! Compression of bodies: gzip and deflate, both ways.
//!
//! Layers of a router would box and copy every request and answer, most of which are too small to be compressed:
//! so each is looked at first, and passes a layer only if that will do something.

use std::convert::Infallible;
use std::future::ready;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use hyper::body::Body as _;
use tower::util::MapRequestLayer;
use tower::{Layer as _, Service as _, service_fn};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::decompression::RequestDecompressionLayer;

use super::morsels::Morsels;

/// Answers smaller than this, in bytes, are sent faster than they are compressed.
const SMALL: u64 = 1024;

/// What a client accepts.
pub(in crate::serve) struct Accepted(Option<HeaderValue>);

impl Accepted {
    /// What the head of a request says.
    pub(in crate::serve) fn of(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(ACCEPT_ENCODING).iter();
        let joined = |first: &HeaderValue, others: Vec<&HeaderValue>| {
            let all = [&[first], others.as_slice()].concat();
            HeaderValue::from_bytes(&all.iter().map(|value| value.as_bytes()).collect::<Vec<_>>().join(&b','))
        };
        Self(values.next().and_then(|first| match values.next() {
            None => Some(first.clone()),
            Some(second) => joined(first, std::iter::once(second).chain(values).collect()).ok(),
        }))
    }

    /// Compresses a result for a client that asks for it by naming one encoding alone, as NVIDIA's do: whatever
    /// it is. Errors stay readable for clients that ask, but look only at results.
    pub(in crate::serve) async fn result(self, response: Response) -> Response {
        match self.0 {
            _ if response.status() != StatusCode::OK => response,
            Some(accepted) if is_one(&accepted) => compressed(accepted, response).await,
            _ => self.large(response).await,
        }
    }

    /// Compresses an answer for a client that accepts it: small ones stay as they are, and so do pictures and
    /// streams of events. Most clients list all that they know, unasked: for those, bytes of tensors stay as they
    /// are too, which take longer to compress than to send, and become hardly smaller.
    pub(super) async fn large(self, response: Response) -> Response {
        let small = response.body().size_hint().exact().is_some_and(|size| size < SMALL);
        match self.0 {
            Some(accepted) if !small && (is_one(&accepted) || !is_binary(&response)) => {
                compressed(accepted, response).await
            }
            _ => response,
        }
    }
}

fn is_one(accepted: &HeaderValue) -> bool {
    !accepted.as_bytes().contains(&b',')
}

fn is_binary(response: &Response) -> bool {
    let media_type = response.headers().get(CONTENT_TYPE);
    media_type.is_some_and(|name| name == "application/octet-stream" || name == "application/x-npy")
}

/// How large an answer is that is compressed as it is sent, in bytes: until the end of it, all of it is held.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) struct Uncompressed(pub(in crate::serve) u64);

/// Boxed, as a future that few answers need should not make those of all others large.
fn compressed(accepted: HeaderValue, mut response: Response) -> BoxFuture<'static, Response> {
    if let Some(size) = response.body().size_hint().exact() {
        response.extensions_mut().insert(Uncompressed(size));
    }
    Box::pin(async {
        let mut request = Request::new(());
        request.headers_mut().insert(ACCEPT_ENCODING, accepted);
        let mut response = Some(response);
        let answer = service_fn(|_| ready(Ok::<_, Infallible>(response.take().unwrap_or_default())));
        let Ok(response) = CompressionLayer::new().quality(CompressionLevel::Fastest).layer(answer).call(request).await;
        response.map(Body::new)
    })
}

/// Whether the body of a request has to be decompressed.
pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_ENCODING)
}

/// Decompresses requests as they are read. Another encoding is left for the handler to refuse.
pub(super) fn decompressed(router: Router) -> Router {
    let decompressed = router.layer(RequestDecompressionLayer::new().pass_through_unaccepted(true));
    decompressed.layer(MapRequestLayer::new(prepared))
}

fn prepared(request: Request<Body>) -> Request<Body> {
    in_lower_case(request).map(|body| Body::new(Morsels::of(body)))
}

/// Encodings have their names in any case; the layer knows them in one.
fn in_lower_case(mut request: Request<Body>) -> Request<Body> {
    if let Some(encoding) = request.headers_mut().get_mut(CONTENT_ENCODING)
        && let Ok(lower) = HeaderValue::try_from(encoding.as_bytes().to_ascii_lowercase())
    {
        *encoding = lower;
    }
    request
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::serve::http::body::COMPRESSED;

    /// How an answer of this type and size goes to who accepts this.
    async fn sent(accepted: &'static str, media_type: &'static str, size: usize, result: bool) -> Option<HeaderValue> {
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
        let response = crate::serve::http::answer::bytes(HeaderValue::from_static(media_type), vec![b'7'; size]);
        let accepted = Accepted::of(&headers);
        let response = if result { accepted.result(response).await } else { accepted.large(response).await };
        response.headers().get(CONTENT_ENCODING).cloned()
    }

    #[tokio::test]
    async fn what_is_worth_it_is_compressed_and_what_is_asked_for() {
        const LIST: &str = "gzip, compress, deflate, br";
        const BYTES: &str = "application/octet-stream";
        for (accepted, media_type, size, result, expected) in [
            (LIST, "application/json", 2000, false, Some("gzip")),
            (LIST, "application/json", 1000, false, None),
            (LIST, "application/json", 2000, true, Some("gzip")),
            (LIST, BYTES, 2000, false, None),
            (LIST, BYTES, 2000, true, None),
            ("gzip", BYTES, 100, true, Some("gzip")),
            ("deflate", BYTES, 2000, false, Some("deflate")),
            ("gzip", BYTES, 100, false, None),
            ("br", "application/json", 2000, true, None),
            ("identity", "application/json", 2000, false, None),
            (LIST, "image/png", 2000, false, None),
        ] {
            let found = sent(accepted, media_type, size, result).await;
            assert_eq!(
                found.as_ref().map(|value| value.to_str().unwrap_or("?")),
                expected,
                "{accepted} {media_type} {size}"
            );
        }
    }

    async fn length(request: Request<Body>) -> String {
        let body = request.into_body().collect().await;
        body.map_or_else(|error| error.to_string(), |body| body.to_bytes().len().to_string())
    }

    #[tokio::test]
    async fn what_inflates_to_nothing_lets_others_go_first() {
        // Blocks that are empty, and the last of them.
        let blocks = [[0, 0, 0, 0xff, 0xff].repeat(200_000), vec![1, 0, 0, 0xff, 0xff]].concat();
        let gzip = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff][..], &blocks, &[0; 8]].concat();
        let sent = gzip.len();
        let request = Request::post("/").header(CONTENT_ENCODING, "GZIP").body(Body::from(gzip)).unwrap_or_default();
        let mut answering = decompressed(Router::new().route("/", axum::routing::post(length))).oneshot(request);
        let mut turns = 1;
        let answer = poll_fn(|task| {
            let polled = answering.poll_unpin(task);
            turns += usize::from(polled.is_pending());
            polled
        });
        let Ok(answer) = answer.await;
        let answer = answer.into_body().collect().await.map(http_body_util::Collected::to_bytes);
        assert_eq!(answer.ok().as_deref(), Some(&b"0"[..]));
        assert!(turns >= sent / COMPRESSED, "{turns} turns for {sent} bytes");
    }
}
