//! The body of a stream: what has come of a message is held to the bounds that all bodies have, until
//! the message is whole.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};
use tonic::Status;

use crate::serve::oip::error::status;
use crate::serve::{ServeError, Server};

/// Bytes of a message that are not worth the counting.
const SMALL: usize = 1 << 10;

/// Passes a body on, and looks at where its messages begin and end.
pub(super) struct Messages {
    body: Body,
    server: Arc<Server>,
    place: Place,
    share: Option<(OwnedSemaphorePermit, usize)>,
    /// when the message that has begun must be whole
    late: Option<Pin<Box<Sleep>>>,
}

/// Where in the frames of gRPC a body is: each message has its length in the last four of five bytes
/// before it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Place {
    head: [u8; 5],
    headed: usize,
    come: usize,
}

impl Place {
    /// Goes on by so many bytes.
    fn pass(&mut self, mut bytes: &[u8]) {
        while let [first, rest @ ..] = bytes {
            if let Some(place) = self.head.get_mut(self.headed) {
                *place = *first;
                self.headed += 1;
                bytes = rest;
            } else {
                let part = (self.length() - self.come).min(bytes.len());
                self.come += part;
                bytes = bytes.get(part..).unwrap_or_default();
            }
            if self.headed == self.head.len() && self.come == self.length() {
                *self = Self::default();
            }
        }
    }

    fn length(&self) -> usize {
        let [_, length @ ..] = self.head;
        u32::from_be_bytes(length) as usize
    }

    const fn is_between(&self) -> bool {
        self.headed == 0
    }
}

impl Messages {
    pub(super) fn new(body: Body, server: Arc<Server>) -> Self {
        Self { body, server, place: Place::default(), share: None, late: None }
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), Status> {
        self.place.pass(bytes);
        if self.place.is_between() {
            (self.share, self.late) = (None, None);
            return Ok(());
        }
        if self.late.is_none() {
            self.late = Some(Box::pin(sleep(self.server.settings().body_timeout)));
        }
        let held = self.share.as_ref().map_or(SMALL, |(_, held)| *held);
        if self.place.come > held {
            let more = self.server.bodies().share(self.place.come - held).map_err(|error| status(&error))?;
            match &mut self.share {
                Some((share, held)) => {
                    share.merge(more);
                    *held = self.place.come;
                }
                None => self.share = Some((more, self.place.come)),
            }
        }
        Ok(())
    }
}

impl hyper::body::Body for Messages {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.late.as_mut().is_some_and(|late| late.poll_unpin(task).is_ready()) {
            let error = ServeError::SlowBody(this.server.settings().body_timeout);
            return Poll::Ready(Some(Err(axum::Error::new(status(&error)))));
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(task));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
            && let Err(status) = this.hold(bytes)
        {
            return Poll::Ready(Some(Err(axum::Error::new(status))));
        }
        Poll::Ready(frame)
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
    use futures_util::{StreamExt as _, stream};
    use http_body_util::BodyExt as _;
    use proptest::prelude::*;

    use super::*;
    use crate::assemble::Operator;
    use crate::serve::Settings;

    fn server() -> Arc<Server> {
        let body_timeout = std::time::Duration::from_millis(50);
        let settings = Settings { body_memory: 6 << 10, body_timeout, ..Settings::default() };
        Arc::new(Server::new(settings, Operator::default()))
    }

    fn body(parts: Vec<Vec<u8>>, server: &Arc<Server>) -> Messages {
        let parts = stream::iter(parts.into_iter().map(Ok::<_, axum::Error>)).chain(stream::pending());
        Messages::new(Body::from_stream(parts), server.clone())
    }

    fn message(length: usize) -> Vec<u8> {
        [&[0], &(length as u32).to_be_bytes()[..], &vec![7; length]].concat()
    }

    #[tokio::test]
    async fn what_is_whole_is_given_back_and_what_is_not_is_held() {
        let server = server();
        let mut many = body(vec![message(6 << 10); 5], &server);
        for _ in 0..5 {
            many.frame().await.unwrap().unwrap();
        }
        let mut first = body(vec![message(6 << 10)[..5 << 10].to_vec()], &server);
        first.frame().await.unwrap().unwrap();
        let mut second = body(vec![message(6 << 10)[..5 << 10].to_vec()], &server);
        let refused = second.frame().await.unwrap().err().unwrap();
        assert!(refused.to_string().contains("hold as much"), "{refused}");
        drop(first);
        let mut third = body(vec![message(6 << 10)[..5 << 10].to_vec()], &server);
        third.frame().await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_message_that_is_begun_and_not_ended_is_late() {
        let server = server();
        let mut body = body(vec![message(10), message(10)[..7].to_vec()], &server);
        body.frame().await.unwrap().unwrap();
        body.frame().await.unwrap().unwrap();
        let late = body.frame().await.unwrap().err().unwrap();
        assert!(late.to_string().contains("did not come within"), "{late}");
    }

    proptest! {
        #[test]
        fn the_place_is_found_however_bytes_come(lengths in prop::collection::vec(0_usize..20, 0..6), cut in 1_usize..9) {
            let all: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
            let mut place = Place::default();
            all.chunks(cut).for_each(|part| place.pass(part));
            prop_assert_eq!(&place, &Place::default());
            place.pass(&message(9)[..8]);
            prop_assert_eq!((place.is_between(), place.come), (false, 3));
        }
    }
}
