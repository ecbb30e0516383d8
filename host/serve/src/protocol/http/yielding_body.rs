//! Splits compressed bodies into small parts. Decompression may produce no output for long; the task yields between
//! parts.
//!
//! Test: `yields_while_decompressing_empty_output`.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::Frame;

use super::body::COMPRESSED;

/// A body in small parts that yields to other tasks after each.
pub(crate) struct YieldingBody {
    body: Body,
    /// received bytes that are not yet consumed
    buffered: Bytes,
    /// bytes since the task last yielded
    bytes_since_yield: usize,
}

impl YieldingBody {
    pub(crate) const fn new(body: Body) -> Self {
        Self { body, buffered: Bytes::new(), bytes_since_yield: 0 }
    }
}

impl hyper::body::Body for YieldingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.bytes_since_yield >= COMPRESSED {
            self.bytes_since_yield = 0;
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.buffered.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(task)?).map(Frame::into_data) {
                Some(Ok(buffered)) => self.buffered = buffered,
                Some(Err(other)) => return Poll::Ready(Some(Ok(other))),
                None => return Poll::Ready(None),
            }
        }
        let most = COMPRESSED.min(self.buffered.len());
        let part = self.buffered.split_to(most);
        self.bytes_since_yield += most;
        Poll::Ready(Some(Ok(Frame::data(part))))
    }
}
