//! Request bodies, limited in size, time and memory.
//!
//! axum's `DefaultBodyLimit` knows no time and no memory of all requests together. Tests: `bounds_memory_of_all_bodies`,
//! `rejects_bodies_above_the_limit`.

use std::error::Error;
use std::io;
use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body_util::BodyExt as _;

use super::accept::joined;
use crate::engine::body_budget::RequestBudget;
use crate::engine::memory_charge::{Charge, attach_permit};
use crate::{LoadedPipeline, Priority, RequestOptions, ServeError, Server};
use gpux_core::MemoryPermit;

/// The most bytes that are allocated in advance for a body's declared length, so that most bodies are assembled without
/// reallocation.
const EXPECTED: usize = 1 << 20;

/// Bytes read or inflated before the task yields.
const BYTES_BETWEEN_YIELDS: usize = 256 << 10;

/// Compressed bytes that are decompressed before the task yields. Bytes that produce no output take longest.
pub(crate) const COMPRESSED: usize = 2 << 10;

/// Reads the body of a request for this pipeline, unless its queue would reject it. `timeout` is the request's; if the
/// body may state a priority, `priority` is the highest possible one.
pub(crate) async fn read_for(
    loaded: &LoadedPipeline,
    timeout: Option<Duration>,
    priority: Priority,
    headers: &HeaderMap,
    body: Body,
    server: &Server,
) -> Result<Bytes, ServeError> {
    let (arrived, declared) = (Instant::now(), declared(headers));
    let options = RequestOptions { timeout, priority, body_bytes: declared };
    let read = match server.check(loaded, &options) {
        Ok(()) => read_within(server.settings().max_body, declared, headers, body, server).await,
        Err(error) => Err(error),
    };
    read.inspect_err(|error| {
        if matches!(error, ServeError::Overload(_) | ServeError::TooMany { .. }) {
            loaded.inferences().record_failure(arrived.elapsed());
        }
    })
}

/// The declared `Content-Length`.
fn declared(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok())
}

/// The largest body, in bytes, of a request about the server itself.
pub(crate) const SMALL: usize = 64 << 10;

/// Reads a body that names its pipeline, whose queue can therefore not reject it before.
pub(crate) async fn read_unseen(headers: &HeaderMap, body: Body, server: &Server) -> Result<Bytes, ServeError> {
    read_within(server.settings().max_body, declared(headers), headers, body, server).await
}

/// Reads a small body.
pub(crate) async fn read_small(headers: &HeaderMap, body: Body, server: &Server) -> Result<Bytes, ServeError> {
    read_within(server.settings().max_body.min(SMALL), declared(headers), headers, body, server).await
}

/// Reads a body of at most `most` bytes, also after decompression. A larger declared length is rejected before any byte
/// is read. Memory is reserved for the received bytes, not for the declared ones: a client that announces a large body
/// and sends nothing takes no memory from others. The memory is released when the last of the bytes is dropped.
async fn read_within(
    most: usize,
    declared: Option<usize>,
    headers: &HeaderMap,
    body: Body,
    server: &Server,
) -> Result<Bytes, ServeError> {
    // Supported encodings were removed when the body was decompressed.
    if let Some(encoding) = joined(headers, &CONTENT_ENCODING) {
        let encoding = encoding.to_str().unwrap_or("unreadable");
        let message = format!("the content encoding `{encoding}` is not read; send gzip, deflate or identity");
        return Err(ServeError::MediaType(message));
    }
    let timeout = server.settings().body_timeout;
    let reading =
        collect(body, BodyBuffer::new(|| server.request_budget().for_request(), most, declared.unwrap_or(0))?);
    tokio::time::timeout(timeout, reading).await.map_err(|_| ServeError::SlowBody(timeout))?
}

async fn collect(mut body: Body, mut buffer: BodyBuffer<impl Fn() -> RequestBudget>) -> Result<Bytes, ServeError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| read_error(&error))?;
        if let Ok(part) = frame.into_data() {
            buffer.push(part).await?;
        }
    }
    Ok(buffer.into_bytes())
}

/// The error of a body that cannot be read to its end.
pub(crate) fn read_error(error: &axum::Error) -> ServeError {
    let mut causes = std::iter::successors(Some(error as &dyn Error), |error| (*error).source());
    // Connection errors are hyper's; decompression errors are not.
    let broke = causes.find(|cause| cause.is::<hyper::Error>()).and_then(Error::source).is_some_and(|cause| {
        let lost = |error: &io::Error| {
            matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
        };
        cause.downcast_ref().is_some_and(lost)
            || cause.downcast_ref().is_some_and(|error: &h2::Error| error.is_remote() || error.is_io())
    });
    if broke { ServeError::Gone } else { ServeError::Body(error.to_string()) }
}

/// Collects the parts of a body, within its limits. A single part is not copied.
pub(crate) struct BodyBuffer<R> {
    /// creates the budget once there are bytes to reserve
    budget: R,
    most: usize,
    declared: usize,
    first: Bytes,
    all: BytesMut,
    permit: Option<MemoryPermit>,
    /// bytes since the task last yielded
    since: usize,
}

impl<R: Fn() -> RequestBudget> BodyBuffer<R> {
    /// Accepts at most `most` bytes, of which the head of the request declares `declared`.
    pub(crate) fn new(budget: R, most: usize, declared: usize) -> Result<Self, ServeError> {
        if declared > most {
            return Err(ServeError::TooLarge(most));
        }
        if Charge::RequestBody.applies_to(declared) {
            budget().check(declared)?;
        }
        let (first, all) = (Bytes::new(), BytesMut::new());
        Ok(Self { budget, most, declared, first, all, permit: None, since: 0 })
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    /// Adds a part. Yields to other tasks now and then: decompression always has another part ready, and would occupy
    /// the thread until the end of a large body.
    pub(crate) async fn push(&mut self, part: Bytes) -> Result<(), ServeError> {
        let length = part.len();
        self.reserve(length)?;
        if self.len() == 0 {
            self.first = part;
        } else {
            self.append(&part);
        }
        self.yield_now_and_then(length).await;
        Ok(())
    }

    /// Adds a copy of a part. Yields as [`Self::push`] does.
    #[cfg(feature = "grpc")]
    pub(crate) async fn copy(&mut self, part: &[u8]) -> Result<(), ServeError> {
        self.reserve(part.len())?;
        self.append(part);
        self.yield_now_and_then(part.len()).await;
        Ok(())
    }

    /// Reserves memory for this many more bytes.
    fn reserve(&mut self, more: usize) -> Result<(), ServeError> {
        let length = self.len() + more;
        if length > self.most {
            return Err(ServeError::TooLarge(self.most));
        }
        let held = self.permit.as_ref().map_or(Charge::RequestBody.free_bytes(), MemoryPermit::bytes);
        if length > held {
            let kept = self.permit.as_ref().map_or(0, MemoryPermit::bytes);
            let more = (self.budget)().holding(kept).reserve(length - held)?;
            match &mut self.permit {
                Some(permit) => permit.merge(more),
                None => self.permit = Some(more),
            }
        }
        Ok(())
    }

    fn append(&mut self, part: &[u8]) {
        if self.all.is_empty() {
            let length = self.len() + part.len();
            self.all.reserve(self.declared.clamp(length, length.max(EXPECTED)));
            self.all.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.all.extend_from_slice(part);
    }

    async fn yield_now_and_then(&mut self, length: usize) {
        self.since += length;
        if self.since >= BYTES_BETWEEN_YIELDS {
            self.since = 0;
            tokio::task::yield_now().await;
        }
    }

    /// All bytes with their permit.
    pub(crate) fn into_bytes(self) -> Bytes {
        let bytes = if self.all.is_empty() { self.first } else { self.all.freeze() };
        match self.permit {
            Some(permit) => attach_permit(bytes, permit),
            None => bytes,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use futures_util::{FutureExt as _, stream};

    use super::*;
    use crate::{Rejection, Settings};
    use gpux::LoadOptions;

    fn server() -> Server {
        let settings = Settings { max_body: 8 << 10, body_memory: 10 << 10, ..Settings::default() };
        Server::new(settings, LoadOptions::default())
    }

    fn parts(sizes: &[usize]) -> Body {
        let parts: Vec<_> = sizes.iter().map(|size| Ok::<_, std::convert::Infallible>(vec![7_u8; *size])).collect();
        Body::from_stream(stream::iter(parts))
    }

    async fn read(headers: &HeaderMap, body: Body, server: &Server) -> Result<Bytes, ServeError> {
        read_within(server.settings().max_body, declared(headers), headers, body, server).await
    }

    async fn read_parts(sizes: &[usize], server: &Server) -> Result<Bytes, ServeError> {
        read(&HeaderMap::new(), parts(sizes), server).await
    }

    #[tokio::test]
    async fn joins_parts_of_a_body() {
        let server = server();
        for sizes in [&[][..], &[10], &[3000], &[1000, 3000, 1]] {
            let read = read_parts(sizes, &server).await.unwrap();
            assert_eq!(read, vec![7; sizes.iter().sum()]);
        }
    }

    #[tokio::test]
    async fn rejects_bodies_above_the_limit() {
        let server = server();
        assert!(matches!(read_parts(&[5000, 5000], &server).await, Err(ServeError::TooLarge(8192))));
        let headers = HeaderMap::from_iter([(CONTENT_LENGTH, http::HeaderValue::from(9000))]);
        assert!(matches!(read(&headers, parts(&[]), &server).await, Err(ServeError::TooLarge(8192))));
    }

    #[tokio::test]
    async fn yields_while_reading_a_large_body() {
        let server = Server::new(Settings::default(), LoadOptions::default());
        assert!(read_parts(&[1 << 10; 100], &server).now_or_never().is_some());
        assert!(read_parts(&[1 << 10; 300], &server).now_or_never().is_none());
        assert_eq!(read_parts(&[1 << 10; 300], &server).await.unwrap().len(), 300 << 10);
    }

    #[tokio::test]
    async fn declared_length_reserves_nothing() {
        let server = server();
        let headers = HeaderMap::from_iter([(CONTENT_LENGTH, http::HeaderValue::from(8000))]);
        let silent: Vec<_> = (0..16)
            .map(|_| {
                let mut reading = Box::pin(read(&headers, Body::from_stream(pending()), &server));
                assert!(reading.as_mut().now_or_never().is_none());
                reading
            })
            .collect();
        let other = read_parts(&[4000, 4000], &server).await.unwrap();
        // The budget cannot hold the declared length, so the body is not read.
        let refused = read(&headers, Body::from_stream(pending()), &server).await;
        assert!(matches!(refused, Err(ServeError::Overload(Rejection::Memory))), "{refused:?}");
        drop((silent, other));
    }

    fn pending() -> stream::Pending<Result<Bytes, std::convert::Infallible>> {
        stream::pending()
    }

    #[tokio::test]
    async fn bounds_memory_of_all_bodies() {
        let server = server();
        let first = read_parts(&[4000, 4000], &server).await.unwrap();
        let refused = read_parts(&[4000], &server).await;
        assert!(matches!(refused, Err(ServeError::Overload(Rejection::Memory))), "{refused:?}");
        let part = first.slice(10..20);
        drop(first);
        assert!(read_parts(&[4000], &server).await.is_err(), "a part of the first is still held");
        drop(part);
        assert!(read_parts(&[4000], &server).await.is_ok());
        assert!(read_parts(&[500], &server).await.is_ok());
    }
}
