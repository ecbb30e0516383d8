//! Bounds the memory that responses hold until their clients have read them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Uri, Version};
use hyper::body::{Body as _, Frame, SizeHint};

use super::error_response;
use crate::engine::body_budget::RequestBudget;
use crate::engine::error::ServeError;
use crate::engine::memory_charge::{Charge, attach_permit};
use crate::engine::metrics::ProtocolLabel;
use crate::engine::request_context::RequestContext;
use crate::engine::server::Server;
use crate::protocol::http::compression::Uncompressed;
use gpux_core::MemoryPermit;

/// Overhead of one header, in bytes.
const HEADER: usize = 128;

/// The largest head of an HTTP/2 request, in bytes as HTTP/2 counts them.
const HTTP2_HEAD: usize = 16 << 10;

/// Whether the head of a request exceeds the limit of HTTP/2.
pub(crate) fn is_head_too_large(version: Version, headers: &HeaderMap, uri: &Uri) -> bool {
    // RFC 9113, 6.5.2
    const FIELD: usize = 32;
    let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD);
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    version == Version::HTTP_2 && fields.sum::<usize>() + path > HTTP2_HEAD
}

/// Charges a large request head to the request budget: over HTTP/2 a connection may have as many heads as streams.
pub(crate) fn reserve_request_head(head: &Parts, server: &Server) -> Result<Option<MemoryPermit>, ServeError> {
    if is_head_too_large(head.version, &head.headers, &head.uri) {
        return Err(ServeError::HeadTooLarge(HTTP2_HEAD));
    }
    let headers = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER);
    let bytes = headers.sum::<usize>() + head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    Charge::RequestHead.reserve(bytes, |bytes| server.request_budget().for_context(None).reserve(bytes))
}

/// Charges a large response to the budget; if it does not fit, replaces it by an error. A response of unknown length is
/// charged part by part.
pub(crate) fn charge_response(
    response: Response,
    server: &Server,
    context: &Arc<RequestContext>,
    protocol: ProtocolLabel,
) -> Response {
    // The permit that was reserved for the response may be larger than the response.
    let before = context.take_response_permit();
    let exact = response.body().size_hint().exact();
    let whole = exact.or_else(|| response.extensions().get::<Uncompressed>().map(|Uncompressed(size)| *size));
    let whole = whole.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
    if whole.is_some_and(|size| !Charge::Response.applies_to(size)) {
        return response;
    }
    let budget = server.response_budget().for_context(Some(context.clone()));
    let reservation = match whole.map(|size| permit(&budget, before, size)) {
        None => Reservation::Parts(budget, protocol),
        Some(Ok(permit)) => Reservation::Whole(Arc::new(permit)),
        Some(Err(error)) => return context.within(|| error_response::answer(&error, protocol)),
    };
    response.map(|body| Body::new(BudgetedBody { body, reservation }))
}

/// A permit for a response of this many bytes; `before` may cover some of them already.
fn permit(budget: &RequestBudget, before: Option<MemoryPermit>, bytes: usize) -> Result<MemoryPermit, ServeError> {
    let Some(mut permit) = before else { return budget.reserve(bytes) };
    permit.shrink(bytes);
    let missing = bytes.saturating_sub(permit.bytes());
    if missing > 0 {
        permit.merge(budget.clone().holding(permit.bytes()).reserve(missing)?);
    }
    Ok(permit)
}

enum Reservation {
    /// a permit for the whole response
    Whole(Arc<MemoryPermit>),
    /// each part gets its own permit
    Parts(RequestBudget, ProtocolLabel),
    /// the last part did not fit
    Exhausted,
}

/// A body whose bytes hold their permit until they are dropped.
struct BudgetedBody {
    body: Body,
    reservation: Reservation,
}

impl BudgetedBody {
    /// The bytes with their permit, or the end of the response if they do not fit.
    fn charge_part(&mut self, bytes: Bytes) -> Result<Frame<Bytes>, axum::Error> {
        let permit = match &self.reservation {
            Reservation::Whole(permit) => permit.clone(),
            Reservation::Parts(budget, _) if Charge::Response.applies_to(bytes.len()) => {
                match permit(budget, None, bytes.len()) {
                    Ok(permit) => Arc::new(permit),
                    Err(error) => return self.end(&error),
                }
            }
            Reservation::Parts(..) | Reservation::Exhausted => return Ok(Frame::data(bytes)),
        };
        Ok(Frame::data(attach_permit(bytes, permit)))
    }

    fn end(&mut self, error: &ServeError) -> Result<Frame<Bytes>, axum::Error> {
        let last = match std::mem::replace(&mut self.reservation, Reservation::Exhausted) {
            // Over gRPC, the status follows the messages.
            Reservation::Parts(_, ProtocolLabel::Grpc) => Ok(Frame::trailers(trailers(error))),
            _ => Err(axum::Error::new(error.public_message())),
        };
        self.body = Body::empty();
        last
    }
}

fn trailers(error: &ServeError) -> HeaderMap<HeaderValue> {
    error_response::answer(error, ProtocolLabel::Grpc)
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

impl hyper::body::Body for BudgetedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Poll::Ready(match ready!(Pin::new(&mut self.body).poll_frame(task)) {
            Some(Ok(frame)) => Some(match frame.into_data() {
                Ok(bytes) => self.charge_part(bytes),
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
    const SMALL: usize = Charge::Response.free_bytes();

    fn server() -> Server {
        Server::new(Settings { max_body: MOST, body_memory: MOST, ..Settings::default() }, LoadOptions::default())
    }

    fn sent(server: &Server, body: Body, protocol: ProtocolLabel) -> Response {
        let context = Arc::new(RequestContext::new("7", None, None));
        charge_response(Response::new(body), server, &context, protocol)
    }

    fn whole(server: &Server, size: usize) -> Response {
        sent(server, Body::from(vec![7; size]), ProtocolLabel::Http)
    }

    /// A body of unknown length, as gRPC responses are.
    fn message(server: &Server, size: usize, protocol: ProtocolLabel) -> Response {
        let message = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(vec![7; size])]);
        sent(server, Body::from_stream(message), protocol)
    }

    #[tokio::test]
    async fn response_holds_memory_until_it_is_sent() {
        let server = server();
        assert_eq!(whole(&server, MOST + 1).status(), StatusCode::BAD_REQUEST, "it never fits");
        let mut first = whole(&server, MOST).into_body();
        let bytes = first.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(bytes.len(), MOST);
        drop(first);
        let refused = whole(&server, SMALL + 1);
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(whole(&server, SMALL).status(), StatusCode::OK, "small ones are not charged");
        let rest = bytes.slice(MOST - 1..);
        drop(bytes);
        assert_eq!(whole(&server, SMALL + 1).status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(rest);
        assert_eq!(whole(&server, SMALL + 1).status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn reserved_memory_shrinks_to_the_response() {
        let server = server();
        let context = Arc::new(RequestContext::new("7", None, None));
        context.keep_response_permit(server.response_budget().for_request().reserve(MOST).unwrap());
        let body = Response::new(Body::from(vec![7; MOST / 2]));
        let first = charge_response(body, &server, &context, ProtocolLabel::Http);
        assert_eq!(first.status(), StatusCode::OK, "it does not wait for room that is its own");
        let second = whole(&server, MOST / 2);
        assert_eq!(second.status(), StatusCode::OK, "what it does not take is given back");
        assert_eq!(whole(&server, SMALL + 1).status(), StatusCode::SERVICE_UNAVAILABLE);
        drop((first, second));
        context.keep_response_permit(server.response_budget().for_request().reserve(MOST / 2).unwrap());
        let more = charge_response(Response::new(Body::from(vec![7; MOST])), &server, &context, ProtocolLabel::Http);
        assert_eq!(more.status(), StatusCode::OK);
        drop(more);
        context.keep_response_permit(server.response_budget().for_request().reserve(MOST).unwrap());
        drop(charge_response(Response::new(Body::from("small")), &server, &context, ProtocolLabel::Http));
        assert_eq!(whole(&server, MOST).status(), StatusCode::OK, "a small one holds nothing");
    }

    #[test]
    fn counts_large_heads_only() {
        let server = server();
        let of = |headers: usize| {
            let request = (0..headers)
                .fold(http::Request::get("/"), |request, number| request.header(format!("x-{number}"), "value"));
            reserve_request_head(&request.body(()).unwrap().into_parts().0, &server)
        };
        assert!(of(20).unwrap().is_none());
        let reservation: Vec<_> = (0..4).map(|_| of(100).unwrap().unwrap()).collect();
        assert!(reservation.iter().all(|permit| permit.bytes() > 100 * HEADER));
        drop(reservation);
        let _all = server.request_budget().for_request().reserve(MOST).unwrap();
        assert_eq!(of(100).unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(of(20).unwrap().is_none());
    }

    #[tokio::test]
    async fn compressed_response_counts_uncompressed_size() {
        let server = server();
        let behind = |size: usize| {
            let bytes = futures_util::stream::pending::<Result<Bytes, std::convert::Infallible>>();
            let mut response = Response::new(Body::from_stream(bytes));
            response.extensions_mut().insert(Uncompressed(size as u64));
            let context = RequestContext::new("7", None, None);
            charge_response(response, &server, &Arc::new(context), ProtocolLabel::Http)
        };
        let first = behind(MOST);
        assert_eq!(behind(SMALL + 1).status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(first);
        assert_eq!(behind(SMALL + 1).status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn streamed_response_ends_when_memory_is_exhausted() {
        let server = server();
        let reservation = message(&server, MOST, ProtocolLabel::Grpc).into_body().collect().await.unwrap();
        let refused = message(&server, SMALL + 1, ProtocolLabel::Grpc).into_body().collect().await.unwrap();
        let trailers = refused.trailers().cloned().unwrap();
        assert_eq!(
            trailers["grpc-status"],
            HeaderValue::from(crate::protocol::http::status::grpc_code(StatusCode::SERVICE_UNAVAILABLE))
        );
        assert!(trailers.keys().all(|name| name.as_str().starts_with("grpc-")));
        assert!(refused.to_bytes().is_empty());
        assert!(message(&server, SMALL + 1, ProtocolLabel::OipHttp).into_body().collect().await.is_err());
        assert!(message(&server, SMALL, ProtocolLabel::Grpc).into_body().collect().await.unwrap().trailers().is_none());
        assert_eq!(reservation.to_bytes().len(), MOST);
        let after = message(&server, SMALL + 1, ProtocolLabel::Grpc).into_body().collect().await.unwrap();
        assert_eq!(after.to_bytes().len(), SMALL + 1);
    }
}
