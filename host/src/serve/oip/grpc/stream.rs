//! The requests of a stream, until it ends: by its client, at its deadline, or with the server.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tokio::sync::Mutex;
use tonic::Status;

use super::messages::Messages;
use crate::serve::Server;
use crate::serve::connections::LAST_CALL;
use crate::serve::oip::error::status;

/// Why a stream ended, if not because its client had nothing more to ask.
#[derive(Clone, Default)]
pub(super) struct Ending(Arc<OnceLock<Status>>);

impl Ending {
    /// The status that follows the last answer.
    pub(super) fn status(&self) -> Option<Status> {
        self.0.get().cloned()
    }
}

/// What clients ask on one stream. Once the server ends, only what has come by then is taken: a client
/// that says nothing more must not hold up the end.
pub(super) struct Requests {
    stream: BoxStream<'static, Result<Bytes, Status>>,
    stopped: BoxFuture<'static, ()>,
    is_stopped: bool,
    late: BoxFuture<'static, ()>,
    ending: Ending,
}

impl Requests {
    /// Those of `messages`, whose caller waits until `deadline` at most.
    pub(super) fn new(
        messages: Arc<Mutex<Messages>>,
        server: &Server,
        deadline: Option<Instant>,
        ending: Ending,
    ) -> Self {
        let mut stopping = server.stopping();
        let stopped = async move {
            // Without a server there is nobody who could stop it.
            let _ = stopping.wait_for(|stopping| *stopping).await;
            tokio::time::sleep(LAST_CALL).await;
        };
        let stream = stream::try_unfold(messages, |messages| async {
            let next = messages.lock().await.next().await.map_err(|error| status(&error))?;
            Ok(next.map(|message| (message, messages)))
        });
        Self {
            stream: stream.boxed(),
            stopped: stopped.boxed(),
            is_stopped: false,
            late: late(deadline).boxed(),
            ending,
        }
    }

    fn end(&self, status: Status) -> Poll<Option<Result<Bytes, Status>>> {
        // The first reason is the one that is told.
        let _ = self.ending.0.set(status);
        Poll::Ready(None)
    }
}

impl Stream for Requests {
    type Item = Result<Bytes, Status>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.late.poll_unpin(task).is_ready() {
            return this.end(Status::deadline_exceeded("the stream's deadline has passed"));
        }
        if let Poll::Ready(next) = this.stream.poll_next_unpin(task) {
            return Poll::Ready(next);
        }
        this.is_stopped = this.is_stopped || this.stopped.poll_unpin(task).is_ready();
        if this.is_stopped {
            return this.end(Status::unavailable("the server ends; what it has not answered it has not read"));
        }
        Poll::Pending
    }
}

async fn late(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
