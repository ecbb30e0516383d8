//! Whether anything happens on a connection.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{self, AsyncRead, AsyncWrite, ReadBuf};

/// What only keeps a connection of HTTP/2 alive (PING, acknowledgements) is shorter than this, in bytes.
const WORTH: usize = 64;

/// What happened last on a connection.
#[derive(Debug)]
pub(super) struct Activity {
    start: Instant,
    /// how long the first request may take to come
    first: Duration,
    /// how long nothing may happen after that
    idle: Duration,
    begun: AtomicBool,
    busy: AtomicUsize,
    /// whether the client does not take what is there for it
    blocked: AtomicBool,
    /// milliseconds after `start`
    last: AtomicU64,
    unread: Mutex<Unread>,
}

/// What is there for the client to take.
#[derive(Debug)]
struct Unread {
    parts: usize,
    /// when one of them was taken, or the first of them was there
    since: Instant,
}

/// A part of an answer, until the client has room for it.
#[derive(Debug)]
pub(super) struct Waiting(Arc<Activity>);

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut unread = self.0.unread();
        unread.parts -= 1;
        unread.since = Instant::now();
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct Busy(Arc<Activity>);

impl Busy {
    /// The connection that it keeps busy.
    pub(super) fn activity(&self) -> Arc<Activity> {
        self.0.clone()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.touch();
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Activity {
    pub(super) fn new(first: Duration, idle: Duration) -> Self {
        Self {
            start: Instant::now(),
            first,
            idle,
            begun: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            blocked: AtomicBool::new(false),
            last: AtomicU64::new(0),
            unread: Mutex::new(Unread { parts: 0, since: Instant::now() }),
        }
    }

    fn unread(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A part of an answer is there for the client, until the result is dropped.
    pub(super) fn wait(self: &Arc<Self>) -> Waiting {
        let mut unread = self.unread();
        if unread.parts == 0 {
            unread.since = Instant::now();
        }
        unread.parts += 1;
        Waiting(self.clone())
    }

    /// Until when the client may leave its answers where they are, whatever else it does.
    fn patience(&self) -> Option<Instant> {
        let unread = self.unread();
        (unread.parts > 0).then(|| unread.since + self.idle)
    }

    /// A request begins, and ends when the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.begun.store(true, Ordering::Relaxed);
        self.busy.fetch_add(1, Ordering::AcqRel);
        Busy(self.clone())
    }

    fn touch(&self) {
        self.last.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn over_at(&self) -> Instant {
        if self.begun.load(Ordering::Relaxed) {
            self.start + Duration::from_millis(self.last.load(Ordering::Relaxed)) + self.idle
        } else {
            self.start + self.first
        }
    }

    /// Whether it may take as long as it takes. Not where a client keeps the server waiting, even if the
    /// server is at work for it elsewhere.
    fn may_last(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0 && !self.blocked.load(Ordering::Relaxed)
    }

    /// Whether nothing has happened for too long.
    pub(super) fn is_over(&self) -> bool {
        let now = Instant::now();
        !self.may_last() && self.over_at() <= now || self.patience().is_some_and(|until| until <= now)
    }

    /// When it could be over at the earliest.
    pub(super) fn next_look(&self) -> Instant {
        let over = if self.may_last() { Instant::now() + self.idle } else { self.over_at() };
        self.patience().map_or(over, |until| until.min(over))
    }

    /// What came of an attempt to send.
    fn sent(&self, sent: &Poll<io::Result<usize>>) {
        // The first attempt that fails begins the time that the client has.
        let was_blocked = self.blocked.swap(sent.is_pending(), Ordering::Relaxed);
        if matches!(sent, Poll::Ready(Ok(WORTH..))) || sent.is_pending() && !was_blocked {
            self.touch();
        }
    }
}

/// A stream whose client takes what is sent.
pub(super) struct Observed<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Observed<S> {
    pub(super) const fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }

    fn sent(&self, sent: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.activity.sent(&sent);
        sent
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(task, buffer)
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
        Pin::new(&mut self.stream).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_over_when_nothing_happens_and_not_while_something_does() {
        let none = Activity::new(Duration::ZERO, Duration::from_mins(1));
        assert!(none.is_over(), "no first request");
        let first = Arc::new(Activity::new(Duration::from_mins(1), Duration::ZERO));
        assert!(!first.is_over());
        let busy = first.begin();
        assert!(!first.is_over(), "a request is under way");
        drop(busy);
        assert!(first.is_over(), "no second request");
    }

    #[test]
    fn a_client_that_does_not_take_what_is_there_is_not_waited_for() {
        let activity = Arc::new(Activity::new(Duration::ZERO, Duration::ZERO));
        let _busy = activity.begin();
        activity.sent(&Poll::Pending);
        assert!(activity.is_over());
        activity.sent(&Poll::Ready(Ok(1)));
        assert!(!activity.is_over(), "it takes some of it");
    }
    #[test]
    fn answers_that_lie_unread_end_a_connection_whatever_else_it_does() {
        let activity = Arc::new(Activity::new(Duration::ZERO, Duration::from_millis(40)));
        let later = || std::thread::sleep(Duration::from_millis(50));
        let (first, second) = (activity.wait(), activity.wait());
        later();
        let _busy = activity.begin();
        activity.sent(&Poll::Ready(Ok(1 << 20)));
        assert!(activity.is_over() && activity.next_look() <= Instant::now());
        drop(first);
        assert!(!activity.is_over(), "it takes one");
        later();
        assert!(activity.is_over());
        drop(second);
        later();
        assert!(!activity.is_over(), "nothing is there");
        let _third = activity.wait();
        assert!(!activity.is_over(), "its time begins with it");
    }
}
