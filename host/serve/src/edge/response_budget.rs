//! Large answers, which hold memory until their clients have taken them: what all of them hold is bounded,
//! however many streams and connections they wait on.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use hyper::body::{Body as _, Frame, SizeHint};

use super::rejection;
use crate::engine::error::ServeError;
use crate::engine::memory_budget::Room;
use crate::engine::memory_permit::Share;
use crate::engine::metrics::Protocol;
use crate::engine::request_context::Context;
use crate::engine::server::Server;
use crate::protocol::http::compression::Uncompressed;

/// An answer of so many bytes is not worth the counting: a connection may take more for itself.
const SMALL: usize = 4 << 10;

/// A head that takes so many bytes of memory is not worth the counting.
const SMALL_HEAD: usize = 4 << 10;

/// What a header takes beside its name and its value, in bytes.
const HEADER: usize = 128;

/// The share of bodies that the head of a request has, where it is large: over HTTP/2 a connection may have as many
/// heads as streams.
pub(crate) fn head(head: &Parts, server: &Server) -> Result<Option<Share>, ServeError> {
    let headers = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER);
    let bytes = headers.sum::<usize>() + head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    (bytes > SMALL_HEAD).then(|| server.bodies().room_of(None).share(bytes)).transpose()
}

/// Counts an answer if it is large, or has one in its place that says that there is no room for it. One whose
/// length is not known is counted as it comes.
pub(crate) fn hold(response: Response, server: &Server, context: &Arc<Context>, protocol: Protocol) -> Response {
    // What was held before it was made, and is more than it takes now.
    let before = context.take_answer();
    let exact = response.body().size_hint().exact();
    let whole = exact.or_else(|| response.extensions().get::<Uncompressed>().map(|Uncompressed(size)| *size));
    let whole = whole.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
    if whole.is_some_and(|size| size <= SMALL) {
        return response;
    }
    let room = server.answers().room_of(Some(context.clone()));
    let held = match whole.map(|size| share(&room, before, size)) {
        None => Held::Parts(room, protocol),
        Some(Ok(share)) => Held::Whole(Arc::new(share)),
        Some(Err(error)) => return context.within(|| rejection::answer(&error, protocol)),
    };
    response.map(|body| Body::new(Counted { body, held }))
}

/// The share of an answer of so many bytes, some of which may be held already.
fn share(room: &Room, before: Option<Share>, bytes: usize) -> Result<Share, ServeError> {
    let most = room.most();
    if bytes > most {
        return Err(ServeError::AnswerNeverFits { needed: bytes, most });
    }
    let Some(mut share) = before else { return room.share(bytes) };
    share.shrink(bytes);
    let missing = bytes.saturating_sub(share.bytes());
    if missing > 0 {
        share.merge(room.share(missing)?);
    }
    Ok(share)
}

enum Held {
    /// all of it is in memory
    Whole(Arc<Share>),
    /// its parts come one by one
    Parts(Room, Protocol),
    /// there was no room for the last of them
    Over,
}

/// A body whose bytes are counted until the last of them is dropped.
struct Counted {
    body: Body,
    held: Held,
}

/// Bytes with their share.
struct Part {
    bytes: Bytes,
    _share: Arc<Share>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Counted {
    /// The bytes with what they hold, or the end of the answer.
    fn counted(&mut self, bytes: Bytes) -> Result<Frame<Bytes>, axum::Error> {
        let share = match &self.held {
            Held::Whole(share) => share.clone(),
            Held::Parts(room, _) if bytes.len() > SMALL => match share(room, None, bytes.len()) {
                Ok(share) => Arc::new(share),
                Err(error) => return self.end(&error),
            },
            Held::Parts(..) | Held::Over => return Ok(Frame::data(bytes)),
        };
        Ok(Frame::data(Bytes::from_owner(Part { bytes, _share: share })))
    }

    fn end(&mut self, error: &ServeError) -> Result<Frame<Bytes>, axum::Error> {
        let last = match std::mem::replace(&mut self.held, Held::Over) {
            // Over gRPC the status follows the messages.
            Held::Parts(_, Protocol::Grpc) => Ok(Frame::trailers(trailers(error))),
            _ => Err(axum::Error::new(error.told())),
        };
        self.body = Body::empty();
        last
    }
}

fn trailers(error: &ServeError) -> HeaderMap<HeaderValue> {
    rejection::answer(error, Protocol::Grpc)
        .into_parts()
        .0
        .headers
        .into_iter()
        .filter_map(|(name, value)| {
            let name = name.filter(|name| name.as_str().starts_with("grpc-"))?;
            Some((name, value))
        })
        .collect()
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Poll::Ready(match ready!(Pin::new(&mut self.body).poll_frame(task)) {
            Some(Ok(frame)) => Some(match frame.into_data() {
                Ok(bytes) => self.counted(bytes),
                Err(other) => Ok(other),
            }),
            end => end,
        })
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
    use http::StatusCode;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::settings::Settings;
    use gpux::LoadOptions;

    const MOST: usize = 128 << 10;

    fn server() -> Server {
        Server::new(Settings { max_body: MOST, body_memory: MOST, ..Settings::default() }, LoadOptions::default())
    }

    fn sent(server: &Server, body: Body, protocol: Protocol) -> Response {
        let context = Arc::new(Context::new("7", None, None));
        hold(Response::new(body), server, &context, protocol)
    }

    fn whole(server: &Server, size: usize) -> Response {
        sent(server, Body::from(vec![7; size]), Protocol::Http)
    }

    /// As gRPC's answers are: nobody says how long they become.
    fn message(server: &Server, size: usize, protocol: Protocol) -> Response {
        let message = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(vec![7; size])]);
        sent(server, Body::from_stream(message), protocol)
    }

    #[tokio::test]
    async fn an_answer_is_counted_until_the_last_of_it_is_taken() {
        let server = server();
        assert_eq!(whole(&server, MOST + 1).status(), StatusCode::BAD_REQUEST, "it never fits");
        let mut first = whole(&server, MOST).into_body();
        let bytes = first.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(bytes.len(), MOST);
        drop(first);
        let refused = whole(&server, SMALL + 1);
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(whole(&server, SMALL).status(), StatusCode::OK, "small ones are not counted");
        let rest = bytes.slice(MOST - 1..);
        drop(bytes);
        assert_eq!(whole(&server, SMALL + 1).status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(rest);
        assert_eq!(whole(&server, SMALL + 1).status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn what_was_held_before_it_was_made_becomes_what_it_takes() {
        let server = server();
        let context = Arc::new(Context::new("7", None, None));
        context.keep_answer(server.answers().room().share(MOST).unwrap());
        let body = Response::new(Body::from(vec![7; MOST / 2]));
        let first = hold(body, &server, &context, Protocol::Http);
        assert_eq!(first.status(), StatusCode::OK, "it does not wait for room that is its own");
        let second = whole(&server, MOST / 2);
        assert_eq!(second.status(), StatusCode::OK, "what it does not take is given back");
        assert_eq!(whole(&server, SMALL + 1).status(), StatusCode::SERVICE_UNAVAILABLE);
        drop((first, second));
        context.keep_answer(server.answers().room().share(MOST / 2).unwrap());
        let more = hold(Response::new(Body::from(vec![7; MOST])), &server, &context, Protocol::Http);
        assert_eq!(more.status(), StatusCode::OK);
        drop(more);
        context.keep_answer(server.answers().room().share(MOST).unwrap());
        drop(hold(Response::new(Body::from("small")), &server, &context, Protocol::Http));
        assert_eq!(whole(&server, MOST).status(), StatusCode::OK, "a small one holds nothing");
    }

    #[test]
    fn only_large_heads_are_counted() {
        let server = server();
        let of = |headers: usize| {
            let request = (0..headers)
                .fold(http::Request::get("/"), |request, number| request.header(format!("x-{number}"), "value"));
            head(&request.body(()).unwrap().into_parts().0, &server)
        };
        assert!(of(20).unwrap().is_none());
        let held: Vec<_> = (0..4).map(|_| of(100).unwrap().unwrap()).collect();
        assert!(held.iter().all(|share| share.bytes() > 100 * HEADER));
        drop(held);
        let _all = server.bodies().room().share(MOST).unwrap();
        assert_eq!(of(100).unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(of(20).unwrap().is_none());
    }

    #[tokio::test]
    async fn one_that_is_compressed_counts_as_what_lies_behind_it() {
        let server = server();
        let behind = |size: usize| {
            let bytes = futures_util::stream::pending::<Result<Bytes, std::convert::Infallible>>();
            let mut response = Response::new(Body::from_stream(bytes));
            response.extensions_mut().insert(Uncompressed(size as u64));
            let context = Context::new("7", None, None);
            hold(response, &server, &Arc::new(context), Protocol::Http)
        };
        let first = behind(MOST);
        assert_eq!(behind(SMALL + 1).status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(first);
        assert_eq!(behind(SMALL + 1).status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn what_comes_part_by_part_ends_where_there_is_no_room() {
        let server = server();
        let held = message(&server, MOST, Protocol::Grpc).into_body().collect().await.unwrap();
        let refused = message(&server, SMALL + 1, Protocol::Grpc).into_body().collect().await.unwrap();
        let trailers = refused.trailers().cloned().unwrap();
        assert_eq!(
            trailers["grpc-status"],
            HeaderValue::from(crate::protocol::http::status::grpc_code(StatusCode::SERVICE_UNAVAILABLE))
        );
        assert!(trailers.keys().all(|name| name.as_str().starts_with("grpc-")));
        assert!(refused.to_bytes().is_empty());
        assert!(message(&server, SMALL + 1, Protocol::OipHttp).into_body().collect().await.is_err());
        assert!(message(&server, SMALL, Protocol::Grpc).into_body().collect().await.unwrap().trailers().is_none());
        assert_eq!(held.to_bytes().len(), MOST);
        let after = message(&server, SMALL + 1, Protocol::Grpc).into_body().collect().await.unwrap();
        assert_eq!(after.to_bytes().len(), SMALL + 1);
    }
}
