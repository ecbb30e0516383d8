//! Detects clients that send too slowly, or leave responses unread.
//!
//! hyper times out request heads only. Tests: `server_resilience::slow_readers`, `disconnects_slow_clients`.

pub(super) mod http2_body;
pub(super) mod observed;
pub(super) mod streamed_body;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::io;

use super::connection_memory::StreamPermit;
use super::framing::Framing;

/// Writes shorter than this (bytes) do not count as progress: HTTP/2 keep-alive frames (PING, acknowledgements) are
/// shorter.
const WORTH: usize = 64;

/// Activity of one connection.
#[derive(Debug)]
pub(super) struct Activity {
    start: Instant,
    /// timeout of the first request
    first: Duration,
    /// timeout without activity after that
    idle: Duration,
    begun: AtomicBool,
    busy: AtomicUsize,
    /// HTTP/2 responses that are not sent to their end
    open: AtomicUsize,
    /// whether the last write returned `Pending`: the client does not read
    blocked: AtomicBool,
    /// whether the last flush returned `Pending`: encrypted data is unsent
    unflushed: AtomicBool,
    /// whether a write has returned `Pending` since the last write of at least [`WORTH`] bytes
    trickling: AtomicBool,
    /// time of the last activity, in milliseconds after `start`
    last: AtomicU64,
    /// number of responses so far
    answers: AtomicU64,
    /// by number, the responses with parts that the client has not taken
    unread: Mutex<BTreeMap<u64, PendingResponse>>,
    framing: Mutex<Framing>,
}

/// Parts of one response that wait for the client.
#[derive(Debug)]
struct PendingResponse {
    parts: usize,
    /// when the last part was taken, or else when the first was ready
    since: Instant,
}

/// Identifies a response whose parts wait for the client.
#[derive(Clone, Debug)]
pub(super) struct ResponseTracker {
    activity: Arc<Activity>,
    number: u64,
}

impl ResponseTracker {
    /// Registers a part that is ready for the client, until the result is dropped.
    pub(super) fn wait(&self) -> PendingPart {
        let mut unread = self.activity.unread_responses();
        let answer = unread.entry(self.number).or_insert_with(|| PendingResponse { parts: 0, since: Instant::now() });
        answer.parts += 1;
        PendingPart(self.clone())
    }
}

/// A part of a response that waits for the client; dropped once it is sent. A reset stream drops all parts of its
/// response together, so that drop extends no other part's timeout.
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

/// A request under way.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<Activity>);

impl RequestGuard {
    /// The activity of its connection.
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

/// An HTTP/2 response that is not sent to its end, with its permit.
#[derive(Debug)]
pub(super) struct StreamGuard(Arc<Activity>, Option<StreamPermit>);

impl StreamGuard {
    /// Keeps the permit as long as the stream is open.
    pub(super) fn keep(&mut self, permit: StreamPermit) {
        self.1 = Some(permit);
    }
}

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

    /// The framing of its HTTP/1 requests.
    pub(super) fn framing(&self) -> MutexGuard<'_, Framing> {
        self.framing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unread_responses(&self) -> MutexGuard<'_, BTreeMap<u64, PendingResponse>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a response.
    pub(super) fn answer(self: &Arc<Self>) -> ResponseTracker {
        ResponseTracker { activity: self.clone(), number: self.answers.fetch_add(1, Ordering::Relaxed) }
    }

    /// The deadline of the response that the client has left unread for longest, regardless of other activity.
    fn patience(&self) -> Option<Instant> {
        self.unread_responses().values().map(|answer| answer.since).min().map(|since| since + self.idle)
    }

    /// Registers a request under way, until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> RequestGuard {
        self.begun.store(true, Ordering::Relaxed);
        self.busy.fetch_add(1, Ordering::AcqRel);
        RequestGuard(self.clone())
    }

    /// Registers an HTTP/2 response that is not sent to its end, until the result is dropped.
    pub(super) fn open(self: &Arc<Self>) -> StreamGuard {
        self.open.fetch_add(1, Ordering::AcqRel);
        StreamGuard(self.clone(), None)
    }

    /// Whether no request is under way and no response data waits for the client.
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

    /// Whether a request has come.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// How early an idle connection is evicted, the least first; `None` if it is not: one without a request at this
    /// `age`, others after they were `idle` for this long.
    pub(super) fn eviction_order(&self, age: Duration, idle: Duration) -> Option<(bool, Instant)> {
        let (since, grace) = if self.has_begun() { (self.last(), idle) } else { (self.start, age) };
        (self.is_idle() && since.elapsed() >= grace).then_some((self.has_begun(), since))
    }

    /// The time of the last activity.
    pub(super) fn last(&self) -> Instant {
        self.start + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }

    fn over_at(&self) -> Instant {
        if self.begun.load(Ordering::Relaxed) { self.last() + self.idle } else { self.start + self.first }
    }

    /// Whether the idle timeout is suspended: a request is under way, and the client reads the data that is sent.
    fn may_last(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0 && !self.blocked.load(Ordering::Relaxed)
    }

    /// Whether a timeout has expired.
    pub(super) fn is_over(&self) -> bool {
        let now = Instant::now();
        !self.may_last() && self.over_at() <= now || self.patience().is_some_and(|until| until <= now)
    }

    /// The earliest time at which a timeout can expire.
    pub(super) fn next_look(&self) -> Instant {
        let over = if self.may_last() { Instant::now() + self.idle } else { self.over_at() };
        self.patience().map_or(over, |until| until.min(over))
    }

    /// Records the result of a write.
    fn sent(&self, sent: &Poll<io::Result<usize>>) {
        self.blocked.store(sent.is_pending(), Ordering::Relaxed);
        // The timeout starts at the first write that returns `Pending`. Writes below `WORTH` bytes do not extend it.
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
        const IDLE: Duration = Duration::from_mins(1);
        let activity = Arc::new(Activity::new(Duration::ZERO, IDLE));
        let later = || {
            for answer in activity.unread_responses().values_mut() {
                answer.since = answer.since.checked_sub(IDLE).unwrap();
            }
        };
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
