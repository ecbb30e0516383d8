//! Detects clients that send too slowly, or leave responses unread.

pub(super) mod http2_body;
pub(super) mod streamed_body;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{self, AsyncRead, AsyncWrite, ReadBuf};

use super::framing::Framing;

/// What only keeps a connection of HTTP/2 alive (PING, acknowledgements) is shorter than this, in bytes.
const WORTH: usize = 64;

/// Activity of one connection.
#[derive(Debug)]
pub(super) struct Activity {
    start: Instant,
    /// how long the first request may take to come
    first: Duration,
    /// how long nothing may happen after that
    idle: Duration,
    begun: AtomicBool,
    busy: AtomicUsize,
    /// answers over HTTP/2 of which there is more to come
    open: AtomicUsize,
    /// whether the client does not take what is there for it
    blocked: AtomicBool,
    /// whether some of that lies where it is encrypted
    unflushed: AtomicBool,
    /// whether it has taken next to nothing since it first did not
    trickling: AtomicBool,
    /// milliseconds after `start`
    last: AtomicU64,
    /// how many answers there were
    answers: AtomicU64,
    /// of those of which something is there for the client to take, by number
    unread: Mutex<BTreeMap<u64, PendingResponse>>,
    framing: Mutex<Framing>,
}

/// Parts of one response that wait for the client.
#[derive(Debug)]
struct PendingResponse {
    parts: usize,
    /// when one of them was taken, or the first of them was there
    since: Instant,
}

/// An answer that its client takes part by part.
#[derive(Clone, Debug)]
pub(super) struct ResponseTracker {
    activity: Arc<Activity>,
    number: u64,
}

impl ResponseTracker {
    /// A part of it is there for the client, until the result is dropped.
    pub(super) fn wait(&self) -> PendingPart {
        let mut unread = self.activity.unread_responses();
        let answer = unread.entry(self.number).or_insert_with(|| PendingResponse { parts: 0, since: Instant::now() });
        answer.parts += 1;
        PendingPart(self.clone())
    }
}

/// A part of an answer, until the client has room for it. What is thrown away goes with all of its answer, so
/// no other part of that is waited for longer.
#[derive(Debug)]
pub(super) struct PendingPart(ResponseTracker);

impl Drop for PendingPart {
    fn drop(&mut self) {
        let ResponseTracker { activity, number } = &self.0;
        let mut unread = activity.unread_responses();
        let Some(answer) = unread.get_mut(number) else { return };
        answer.parts -= 1;
        answer.since = Instant::now();
        if answer.parts == 0 {
            unread.remove(number);
        }
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<Activity>);

impl RequestGuard {
    /// The connection that it keeps busy.
    pub(super) fn activity(&self) -> Arc<Activity> {
        self.0.clone()
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.touch();
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An answer over HTTP/2 of which there is more to come.
#[derive(Debug)]
pub(super) struct StreamGuard(Arc<Activity>);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
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
            open: AtomicUsize::new(0),
            blocked: AtomicBool::new(false),
            unflushed: AtomicBool::new(false),
            trickling: AtomicBool::new(false),
            last: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            unread: Mutex::default(),
            framing: Mutex::default(),
        }
    }

    /// Where its requests begin and end.
    pub(super) fn framing(&self) -> MutexGuard<'_, Framing> {
        self.framing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unread_responses(&self) -> MutexGuard<'_, BTreeMap<u64, PendingResponse>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer, which its client takes part by part.
    pub(super) fn answer(self: &Arc<Self>) -> ResponseTracker {
        ResponseTracker { activity: self.clone(), number: self.answers.fetch_add(1, Ordering::Relaxed) }
    }

    /// Until when the client may leave the answer where it is that it has left for longest, whatever else it does.
    fn patience(&self) -> Option<Instant> {
        self.unread_responses().values().map(|answer| answer.since).min().map(|since| since + self.idle)
    }

    /// A request begins, and ends when the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> RequestGuard {
        self.begun.store(true, Ordering::Relaxed);
        self.busy.fetch_add(1, Ordering::AcqRel);
        RequestGuard(self.clone())
    }

    /// There is more to come of an answer over HTTP/2, until the result is dropped.
    pub(super) fn open(self: &Arc<Self>) -> StreamGuard {
        self.open.fetch_add(1, Ordering::AcqRel);
        StreamGuard(self.clone())
    }

    /// Whether no request is under way, and nothing is there for the client.
    pub(super) fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Acquire) == 0
            && self.open.load(Ordering::Acquire) == 0
            && !self.blocked.load(Ordering::Relaxed)
            && !self.unflushed.load(Ordering::Relaxed)
            && self.unread_responses().is_empty()
    }

    fn touch(&self) {
        self.last.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// When something happened last.
    pub(super) fn last(&self) -> Instant {
        self.start + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }

    fn over_at(&self) -> Instant {
        if self.begun.load(Ordering::Relaxed) { self.last() + self.idle } else { self.start + self.first }
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

    /// Notes the result of an attempt to send.
    fn sent(&self, sent: &Poll<io::Result<usize>>) {
        self.blocked.store(sent.is_pending(), Ordering::Relaxed);
        // The first attempt that fails begins the time that the client has. Who takes a few bytes and no more has
        // the same time still.
        let more = match sent {
            Poll::Ready(Ok(WORTH..)) => {
                self.trickling.store(false, Ordering::Relaxed);
                true
            }
            Poll::Ready(_) => false,
            Poll::Pending => !self.trickling.swap(true, Ordering::Relaxed),
        };
        if more {
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
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(task, buffer);
        if let Some(new @ [_, ..]) = buffer.filled().get(before..) {
            self.activity.framing().read(new);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closes_idle_connections_only() {
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
    fn closes_connections_of_clients_that_do_not_read() {
        let activity = Arc::new(Activity::new(Duration::ZERO, Duration::ZERO));
        let _busy = activity.begin();
        activity.sent(&Poll::Pending);
        assert!(activity.is_over());
        activity.sent(&Poll::Ready(Ok(1)));
        assert!(!activity.is_over(), "it takes some of it");
    }

    #[test]
    fn connection_is_idle_without_requests() {
        let activity = Arc::new(Activity::new(Duration::ZERO, Duration::ZERO));
        assert!(activity.is_idle());
        let busy = activity.begin();
        assert!(!activity.is_idle());
        let open = activity.open();
        drop(busy);
        assert!(!activity.is_idle());
        let part = activity.answer().wait();
        drop(open);
        assert!(!activity.is_idle());
        activity.sent(&Poll::Pending);
        drop(part);
        assert!(!activity.is_idle());
        activity.sent(&Poll::Ready(Ok(1)));
        assert!(activity.is_idle());
    }

    #[test]
    fn closes_connections_of_trickling_clients() {
        let activity = Arc::new(Activity::new(Duration::ZERO, Duration::from_mins(1)));
        let _busy = activity.begin();
        let takes = |bytes| {
            std::thread::sleep(Duration::from_millis(5));
            activity.sent(&Poll::Ready(Ok(bytes)));
            activity.sent(&Poll::Pending);
            activity.next_look()
        };
        activity.sent(&Poll::Pending);
        let first = activity.next_look();
        let second = takes(WORTH);
        assert!(second > first, "it takes some of it");
        assert_eq!(takes(WORTH - 1), second, "it takes next to nothing");
        assert_eq!(takes(WORTH - 1), second);
        assert!(takes(WORTH) > second);
    }

    #[test]
    fn unread_responses_close_the_connection() {
        let activity = Arc::new(Activity::new(Duration::ZERO, Duration::from_millis(40)));
        let later = || std::thread::sleep(Duration::from_millis(50));
        let (one, other) = (activity.answer(), activity.answer());
        let (first, second) = (one.wait(), one.wait());
        later();
        let _busy = activity.begin();
        activity.sent(&Poll::Ready(Ok(1 << 20)));
        assert!(activity.is_over() && activity.next_look() <= Instant::now());
        drop(first);
        assert!(!activity.is_over(), "it takes a part");
        later();
        drop(other.wait());
        assert!(activity.is_over(), "it takes another answer");
        drop(second);
        later();
        assert!(!activity.is_over(), "nothing is there");
        let _third = one.wait();
        assert!(!activity.is_over(), "its time begins with it");
    }
}
