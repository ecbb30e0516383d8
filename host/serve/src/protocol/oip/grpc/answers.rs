//! Encodes inference responses as gRPC messages, on the worker that executes the request.
//!
//! tonic would encode and compress a message of any size on an I/O thread.
//!
//! Test: `compresses_responses_to_compressing_clients`.

use std::convert::Infallible;
use std::io::{self, Write};

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut as _, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use futures_util::{Stream, StreamExt as _, future, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::StreamBody;
use hyper::body::Frame;
use prost::Message;
use tonic::Status;

use super::messages::{Encoding, HEAD};
use crate::{Execution, ServeError};

const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const ACCEPTED: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// Bytes that are compressed between two checks for cancellation.
const PIECE: usize = 256 << 10;

/// Encodes the responses of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseEncoder {
    encoding: Encoding,
}

impl ResponseEncoder {
    /// Compresses responses like the call's requests, if the client accepts that: all clients announce compression, but
    /// few want its cost.
    pub(super) fn to(headers: &HeaderMap, encoding: Encoding) -> Self {
        let mut accepted = headers.get_all(ACCEPTED).iter().filter_map(|value| value.to_str().ok());
        let reads = accepted.any(|list| list.split(',').any(|name| name.trim() == encoding.name()));
        Self { encoding: if reads { encoding } else { Encoding::Identity } }
    }

    /// A framed message, compressed if the call is.
    pub(super) fn message(self, execution: &Execution, message: &impl Message) -> Result<Bytes, ServeError> {
        self.framed(message, || execution.check_cancelled())
    }

    /// A framed small message, outside of an execution.
    pub(super) fn small(self, message: &impl Message) -> Result<Bytes, ServeError> {
        self.framed(message, || Ok(()))
    }

    fn framed(
        self,
        message: &impl Message,
        check_cancelled: impl Fn() -> Result<(), ServeError>,
    ) -> Result<Bytes, ServeError> {
        let mut framed = BytesMut::with_capacity(HEAD + message.encoded_len());
        framed.put_bytes(0, HEAD);
        message.encode(&mut framed).map_err(|error| ServeError::NotAcceptable(error.to_string()))?;
        if self.encoding != Encoding::Identity {
            framed = self.compressed(&framed, check_cancelled)?;
        }
        let length = u32::try_from(framed.len() - HEAD);
        let length = length.map_err(|_| ServeError::NotAcceptable("a message of gRPC has at most 4 GiB".to_owned()))?;
        let (mut head, _) = framed.split_at_mut(HEAD);
        head.put_u8(u8::from(self.encoding != Encoding::Identity));
        head.put_u32(length);
        Ok(framed.freeze())
    }

    /// Compresses the message of a frame, after an empty head.
    fn compressed(
        self,
        framed: &[u8],
        check_cancelled: impl Fn() -> Result<(), ServeError>,
    ) -> Result<BytesMut, ServeError> {
        let (head, message) = framed.split_at(HEAD);
        let sink = BytesMut::from(head).writer();
        let write = |sink: &mut dyn Write| {
            for piece in message.chunks(PIECE) {
                check_cancelled()?;
                sink.write_all(piece).map_err(broken)?;
            }
            Ok::<_, ServeError>(())
        };
        let sink = if self.encoding == Encoding::Gzip {
            let mut encoder = GzEncoder::new(sink, Compression::fast());
            write(&mut encoder)?;
            encoder.finish()
        } else {
            let mut encoder = ZlibEncoder::new(sink, Compression::fast());
            write(&mut encoder)?;
            encoder.finish()
        };
        Ok(sink.map_err(broken)?.into_inner())
    }

    /// The response of a call with a single message.
    pub(super) fn one(self, message: Result<Bytes, Status>) -> Response {
        match message {
            Ok(message) => self.many(stream::once(future::ready(Ok(message)))),
            Err(status) => status.into_http(),
        }
    }

    /// The response of a call with these messages; ends at the first error.
    pub(super) fn many(self, messages: impl Stream<Item = Result<Bytes, Status>> + Send + 'static) -> Response {
        let end = stream::once(future::ready(Err(Status::ok(""))));
        let frames = messages.chain(end).scan(false, |has_ended, message| {
            let frame = (!*has_ended).then(|| message.map_or_else(|status| trailers(&status), Frame::data));
            *has_ended = frame.as_ref().is_none_or(Frame::is_trailers);
            future::ready(frame.map(Ok::<_, Infallible>))
        });
        let mut response = Response::new(Body::new(StreamBody::new(frames)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        if self.encoding != Encoding::Identity {
            headers.insert(ENCODING, HeaderValue::from_static(self.encoding.name()));
        }
        response
    }
}

/// The response to a call whose messages have an unsupported encoding.
pub(super) fn unsupported_encoding(headers: &HeaderMap) -> Response {
    let named = headers.get(ENCODING).and_then(|name| name.to_str().ok()).unwrap_or("?");
    let named: String = named.chars().take(32).collect();
    let message = format!("messages are compressed by `{named}`, which is not read here, but gzip and deflate");
    let mut response: Response = Status::unimplemented(message).into_http();
    response.headers_mut().insert(ACCEPTED, HeaderValue::from_static("identity,gzip,deflate"));
    response
}

fn trailers(status: &Status) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from(13))]);
    }
    Frame::trailers(trailers)
}

fn broken(error: io::Error) -> ServeError {
    ServeError::NotAcceptable(error.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Rejection;
    use crate::protocol::oip::grpc::proto::ModelInferResponse;

    #[test]
    fn stops_compressing_once_cancelled() {
        let raw = vec![7; 4 * PIECE];
        let message = ModelInferResponse { raw_output_contents: vec![raw.into()], ..ModelInferResponse::default() };
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            let looks = Cell::new(0);
            let whole = ResponseEncoder { encoding }.framed(&message, || {
                looks.set(looks.get() + 1);
                Ok(())
            });
            assert!(whole.unwrap().len() < PIECE);
            assert_eq!(looks.replace(0), 5);
            let given_up = ResponseEncoder { encoding }.framed(&message, || {
                looks.set(looks.get() + 1);
                if looks.get() < 3 { Ok(()) } else { Err(Rejection::Expired.into()) }
            });
            assert!(matches!(given_up, Err(ServeError::Overload(Rejection::Expired))));
        }
    }
}
