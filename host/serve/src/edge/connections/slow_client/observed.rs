//! Records the reads and writes of a connection as activity, and reads no more than there is memory for.

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::io::{self, AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{AcquireError, OwnedSemaphorePermit};

use super::super::connection_memory::{MemoryShare, READ, TransportPermits};
use super::Activity;

/// Waits for a permit.
type Waiting = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// A stream that records its reads and writes as activity.
pub(crate) struct Observed<S> {
    stream: S,
    activity: Arc<Activity>,
    memory: Arc<MemoryShare>,
    permits: TransportPermits,
    waiting: Option<Waiting>,
}

impl<S> Observed<S> {
    pub(crate) fn new(stream: S, activity: Arc<Activity>, memory: Arc<MemoryShare>) -> Self {
        Self { stream, activity, memory, permits: TransportPermits::default(), waiting: None }
    }

    /// Waits for the memory that the next read needs.
    fn poll_memory(&mut self, task: &mut Context<'_>) -> Poll<()> {
        let need = self.activity.framing().need();
        if self.permits.has(need) {
            return Poll::Ready(());
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(self.memory.wait(need)));
        let Poll::Ready(permit) = waiting.as_mut().poll(task) else {
            self.memory.note_waiting(need);
            return Poll::Pending;
        };
        self.waiting = None;
        self.permits.put(need, permit.ok(), &self.memory);
        Poll::Ready(())
    }

    fn sent(&self, sent: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.activity.sent(&sent);
        sent
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
    fn poll_read(self: Pin<&mut Self>, task: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_memory(task));
        let before = buffer.filled().len();
        if this.permits.allows_long_reads() {
            let read = Pin::new(&mut this.stream).poll_read(task, buffer);
            if let Some(new @ [_, ..]) = buffer.filled().get(before..) {
                this.activity.framing().read(new);
            }
            return read;
        }
        // A read into the buffer itself cannot be bounded without `unsafe`.
        let mut space = [MaybeUninit::uninit(); READ];
        let mut part = ReadBuf::uninit(&mut space[..READ.min(buffer.remaining())]);
        let read = Pin::new(&mut this.stream).poll_read(task, &mut part);
        let new = part.filled();
        if !new.is_empty() {
            buffer.put_slice(new);
            this.activity.framing().read(new);
        }
        if new.len() == READ {
            this.permits.try_buffer(&this.memory);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Observed<S> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(task, bytes);
        self.sent(sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(task, slices);
        self.sent(sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(task);
        self.activity.unflushed.store(flushed.is_pending(), Ordering::Relaxed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(task)
    }
}
