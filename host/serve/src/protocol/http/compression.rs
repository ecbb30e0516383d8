//! Compression of bodies: gzip and deflate, in both directions.
//!
//! Layers of a router would box and copy every request and response, most of which are too small to be compressed. So
//! each is examined first, and passes a layer only if that will change it.
//!
//! Test: `compresses_large_responses_only`.

use std::convert::Infallible;
use std::future::ready;

use async_compression::tokio::bufread::{GzipDecoder, ZlibDecoder};
use axum::body::Body;
use axum::response::Response;
use futures_util::TryStreamExt as _;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use hyper::body::Body as _;
use tokio::io::AsyncBufRead;
use tokio_util::io::{ReaderStream, StreamReader};
use tower::{Layer as _, Service as _, service_fn};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;

use super::accept::joined;
use super::compressed_members::CompressedMembers;
use super::yielding_body::YieldingBody;

/// Responses smaller than this, in bytes, are sent faster than they are compressed.
const SMALL: u64 = 1024;

/// The content encodings that a client accepts.
pub(crate) struct AcceptedEncodings(Option<HeaderValue>);

impl AcceptedEncodings {
    /// From the `Accept-Encoding` header.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        Self(joined(headers, &ACCEPT_ENCODING))
    }

    /// Compresses a result. If the client names a single encoding, as NVIDIA's clients do, small and binary results are
    /// compressed, too. Errors are not: some of these clients decompress only results.
    pub(crate) async fn result(self, response: Response) -> Response {
        match self.0 {
            _ if response.status() != StatusCode::OK => response,
            Some(accepted) if is_one(&accepted) => compressed(accepted, response).await,
            _ => self.large(response).await,
        }
    }

    /// Compresses a response if the client accepts that, except small ones, images and event streams. Most clients list
    /// all encodings by default; for those, raw tensors stay uncompressed, too: they take longer to compress than to
    /// send, and hardly shrink.
    pub(crate) async fn large(self, response: Response) -> Response {
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

/// The size of a response before compression, in bytes. All of it is held until the response is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uncompressed(pub(crate) u64);

/// Compresses a response. Boxed: few responses need this future, and it would enlarge the futures of all others.
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
pub(crate) fn is_encoded(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_ENCODING)
}

/// Decompresses a request's body as it is read. Other encodings, or several, are left for the handler to reject.
pub(crate) fn decompressed(request: Request<Body>) -> Request<Body> {
    let (mut head, body) = request.into_parts();
    let encoding = joined(&head.headers, &CONTENT_ENCODING).map(|encoding| encoding.as_bytes().to_ascii_lowercase());
    let body = match encoding.as_deref() {
        Some(b"gzip" | b"x-gzip") => {
            let members = CompressedMembers::new(compressed_bytes(body), GzipDecoder::new, GzipDecoder::into_inner);
            Body::from_stream(ReaderStream::new(members))
        }
        Some(b"deflate") => {
            let members = CompressedMembers::new(compressed_bytes(body), ZlibDecoder::new, ZlibDecoder::into_inner);
            Body::from_stream(ReaderStream::new(members))
        }
        Some(b"" | b"identity") => {
            head.headers.remove(CONTENT_ENCODING);
            return Request::from_parts(head, body);
        }
        _ => return Request::from_parts(head, body),
    };
    head.headers.remove(CONTENT_ENCODING);
    head.headers.remove(CONTENT_LENGTH);
    Request::from_parts(head, body)
}

fn compressed_bytes(body: Body) -> impl AsyncBufRead + Unpin {
    StreamReader::new(Body::new(YieldingBody::new(body)).into_data_stream().map_err(std::io::Error::other))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;

    use flate2::write::{GzEncoder, ZlibEncoder};
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::protocol::http::body::COMPRESSED;
    use crate::protocol::http::compressed_members;

    /// The `Content-Encoding` of a response of this type and size, for a client with this `Accept-Encoding`.
    async fn sent(accepted: &'static str, media_type: &'static str, size: usize, result: bool) -> Option<HeaderValue> {
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
        let response = crate::protocol::http::response::bytes(HeaderValue::from_static(media_type), vec![b'7'; size]);
        let accepted = AcceptedEncodings::from_headers(&headers);
        let response = if result { accepted.result(response).await } else { accepted.large(response).await };
        response.headers().get(CONTENT_ENCODING).cloned()
    }

    #[tokio::test]
    async fn compresses_large_responses_only() {
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

    async fn inflated(encoding: &'static str, body: Vec<u8>) -> Result<Vec<u8>, String> {
        let request = Request::post("/").header(CONTENT_ENCODING, encoding).body(Body::from(body)).unwrap_or_default();
        let body = decompressed(request).into_body().collect().await;
        body.map(|body| body.to_bytes().to_vec()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn decompresses_all_members() {
        let packed = |text: &str| {
            let mut packed = GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(text.as_bytes()).and_then(|()| packed.finish()).unwrap_or_default()
        };
        let mut zlib = ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        let zlib = zlib.write_all(b"hello").and_then(|()| zlib.finish()).unwrap_or_default();
        let both = [packed("hello "), packed("world")].concat();
        assert_eq!(inflated("x-gzip", packed("hello")).await.as_deref(), Ok(&b"hello"[..]));
        assert_eq!(inflated("gzip", both.clone()).await.as_deref(), Ok(&b"hello world"[..]));
        assert_eq!(inflated("Deflate", zlib.clone()).await.as_deref(), Ok(&b"hello"[..]));
        assert_eq!(inflated("identity", b"hello".to_vec()).await.as_deref(), Ok(&b"hello"[..]));
        for (encoding, wrong) in [
            ("gzip", [packed("hello").as_slice(), b"garbage"].concat()),
            ("gzip", both[..both.len() - 3].to_vec()),
            ("deflate", [&zlib[..], b"garbage"].concat()),
            ("deflate", zlib[..5].to_vec()),
        ] {
            assert!(inflated(encoding, wrong).await.is_err(), "{encoding}");
        }
    }

    #[tokio::test]
    async fn bounds_the_members_of_a_body() {
        let packed = |text: &[u8]| {
            let mut packed = GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(text).and_then(|()| packed.finish()).unwrap_or_default()
        };
        let zlib = {
            let mut packed = ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(b"x").and_then(|()| packed.finish()).unwrap_or_default()
        };
        let most = compressed_members::MOST as usize + 1;
        for (encoding, member, gives) in [("gzip", packed(b""), 0), ("gzip", packed(b"x"), 1), ("deflate", zlib, 1)] {
            let all = inflated(encoding, member.repeat(most)).await;
            assert_eq!(all.map(|body| body.len()), Ok(gives * most), "{encoding}");
            let refused = inflated(encoding, member.repeat(most + 1)).await.unwrap_err();
            assert!(refused.contains("more than 4096 compressed members"), "{encoding}: {refused}");
        }
    }

    #[tokio::test]
    async fn yields_while_decompressing_empty_output() {
        // Empty blocks, and the final block.
        let blocks = [[0, 0, 0, 0xff, 0xff].repeat(200_000), vec![1, 0, 0, 0xff, 0xff]].concat();
        let gzip = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff][..], &blocks, &[0; 8]].concat();
        let sent = gzip.len();
        let request = Request::post("/").header(CONTENT_ENCODING, "GZIP").body(Body::from(gzip)).unwrap_or_default();
        let mut reading = std::pin::pin!(decompressed(request).into_body().collect());
        let mut turns = 1;
        let body = poll_fn(|task| {
            let polled = reading.poll_unpin(task);
            turns += usize::from(polled.is_pending());
            polled
        });
        assert_eq!(body.await.ok().map(|body| body.to_bytes().len()), Some(0));
        assert!(turns >= sent / COMPRESSED, "{turns} turns for {sent} bytes");
    }
}
