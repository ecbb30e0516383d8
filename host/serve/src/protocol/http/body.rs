//! Request bodies, limited in size, time and memory.

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
use crate::engine::memory_budget::RequestBudget;
use crate::{LoadedPipeline, Priority, RequestOptions, ServeError, Server};
use gpux_core::MemoryPermit;

/// A body of so many bytes, the size of a packet, is not worth the counting.
const SMALLEST: usize = 1 << 10;

/// As much as a body is believed to bring before it has come, in bytes: so most are put together without
/// being moved.
const EXPECTED: usize = 1 << 20;

/// Bytes read or inflated before the task yields.
const BREATH: usize = 256 << 10;

/// So many compressed bytes are inflated before others have their turn: nothing may come of them, and that
/// takes longest.
pub(crate) const COMPRESSED: usize = 2 << 10;

/// A body with its share.
struct BudgetedBytes {
    bytes: Bytes,
    _permit: Option<MemoryPermit>,
}

impl AsRef<[u8]> for BudgetedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads the body of a request of the pipeline, which has so long, unless there would be no turn for it. Where the
/// body says how urgent it is, `priority` is the most that it may say.
pub(crate) async fn read_for(
    loaded: &LoadedPipeline,
    timeout: Option<Duration>,
    priority: Priority,
    headers: &HeaderMap,
    body: Body,
    server: &Server,
) -> Result<Bytes, ServeError> {
    let (arrived, said) = (Instant::now(), said(headers));
    let options = RequestOptions { timeout, priority, body_bytes: said };
    let read = match server.check(loaded, &options) {
        Ok(()) => read_within(server.settings().max_body, said, headers, body, server).await,
        Err(error) => Err(error),
    };
    read.inspect_err(|error| {
        if matches!(error, ServeError::Overload(_) | ServeError::TooMany { .. }) {
            loaded.inferences().failed(arrived.elapsed());
        }
    })
}

/// The declared `Content-Length`.
fn said(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok())
}

/// The largest body of a request that asks something of the server itself.
pub(crate) const SMALL: usize = 64 << 10;

/// Reads a body that is to be small.
pub(crate) async fn read_small(headers: &HeaderMap, body: Body, server: &Server) -> Result<Bytes, ServeError> {
    read_within(server.settings().max_body.min(SMALL), said(headers), headers, body, server).await
}

/// Reads a body. One that says that it is too large is refused before it is read; the bound holds for
/// what comes of decompressing it, too. It holds what has come of it, whatever it says: who says much and
/// sends nothing takes nothing from others. That is given back when the last of its bytes is dropped.
async fn read_within(
    most: usize,
    said: Option<usize>,
    headers: &HeaderMap,
    body: Body,
    server: &Server,
) -> Result<Bytes, ServeError> {
    // Known encodings were removed when the body was decompressed.
    if let Some(encoding) = joined(headers, &CONTENT_ENCODING) {
        let encoding = encoding.to_str().unwrap_or("unreadable");
        let message = format!("the content encoding `{encoding}` is not read; send gzip, deflate or identity");
        return Err(ServeError::MediaType(message));
    }
    let timeout = server.settings().body_timeout;
    let reading = collect(body, Parts::new(|| server.request_budget().for_request(), most, said.unwrap_or(0))?);
    tokio::time::timeout(timeout, reading).await.map_err(|_| ServeError::SlowBody(timeout))?
}

async fn collect(mut body: Body, mut parts: Parts<impl Fn() -> RequestBudget>) -> Result<Bytes, ServeError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| read_error(&error))?;
        if let Ok(part) = frame.into_data() {
            parts.push(part).await?;
        }
    }
    Ok(parts.whole())
}

/// Why a body cannot be read to its end.
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

/// Parts of a body, within its bounds. One part alone is not copied.
pub(crate) struct Parts<R> {
    /// asked for once there is something to hold
    budget: R,
    most: usize,
    said: usize,
    first: Bytes,
    all: BytesMut,
    permit: Option<MemoryPermit>,
    /// bytes since the task last yielded
    since: usize,
}

impl<R: Fn() -> RequestBudget> Parts<R> {
    /// For `most` bytes, of which it is said how many will come.
    pub(crate) fn new(budget: R, most: usize, said: usize) -> Result<Self, ServeError> {
        if said > most {
            return Err(ServeError::TooLarge(most));
        }
        if said > SMALLEST {
            budget().check(said)?;
        }
        let (first, all) = (Bytes::new(), BytesMut::new());
        Ok(Self { budget, most, said, first, all, permit: None, since: 0 })
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    /// Adds a part. Now and then others have their turn first: who decompresses always has more, and would
    /// keep the thread for as long as the body is large.
    pub(crate) async fn push(&mut self, part: Bytes) -> Result<(), ServeError> {
        let length = part.len();
        self.reserve(length)?;
        if self.len() == 0 {
            self.first = part;
        } else {
            self.append(&part);
        }
        self.breathe(length).await;
        Ok(())
    }

    /// The same of a part that is somebody else's.
    #[cfg(feature = "grpc")]
    pub(crate) async fn copy(&mut self, part: &[u8]) -> Result<(), ServeError> {
        self.reserve(part.len())?;
        self.append(part);
        self.breathe(part.len()).await;
        Ok(())
    }

    /// Takes the share of so many bytes more.
    fn reserve(&mut self, more: usize) -> Result<(), ServeError> {
        let length = self.len() + more;
        if length > self.most {
            return Err(ServeError::TooLarge(self.most));
        }
        let held = self.permit.as_ref().map_or(SMALLEST, MemoryPermit::bytes);
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
            self.all.reserve(self.said.clamp(length, length.max(EXPECTED)));
            self.all.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.all.extend_from_slice(part);
    }

    async fn breathe(&mut self, length: usize) {
        self.since += length;
        if self.since >= BREATH {
            self.since = 0;
            tokio::task::yield_now().await;
        }
    }

    /// All of them, with what they hold.
    pub(crate) fn whole(self) -> Bytes {
        let bytes = if self.all.is_empty() { self.first } else { self.all.freeze() };
        if self.permit.is_none() { bytes } else { Bytes::from_owner(BudgetedBytes { bytes, _permit: self.permit }) }
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
        read_within(server.settings().max_body, said(headers), headers, body, server).await
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
        // Not all of it would find room, so none of it is read.
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
