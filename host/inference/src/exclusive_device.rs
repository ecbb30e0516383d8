//! The lock of devices whose provider is not thread-safe: one thread of the process uses them at a time.
//!
//! Waiting for the lock ends at the request's deadline. Dropping a value never waits: while another
//! thread holds the lock, that thread drops the value before it unlocks.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::background_work::PendingDrop;
use gpux_core::DeadlineExceeded;

/// One lock for all sessions that need exclusive access.
static DEVICE_LOCK: ExclusiveLock = ExclusiveLock::new();

thread_local! {
    /// Whether this thread holds the lock.
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// Holds the lock until it is dropped.
pub(super) struct ExclusiveGuard {
    lock: &'static ExclusiveLock,
    /// the thread that locks unlocks
    not_send: PhantomData<*const ()>,
}

/// Locks if `exclusive`; `None` where no lock is needed or the thread holds it already.
pub(super) fn acquire(exclusive: bool, deadline: Option<Instant>) -> Result<Option<ExclusiveGuard>, DeadlineExceeded> {
    if exclusive { DEVICE_LOCK.acquire(deadline) } else { Ok(None) }
}

struct ExclusiveLock {
    state: Mutex<State>,
    free: Condvar,
}

struct State {
    taken: bool,
    /// values that other threads dropped meanwhile; process exit waits for them
    deferred: Vec<(Box<dyn Any + Send>, PendingDrop)>,
}

impl ExclusiveLock {
    const fn new() -> Self {
        Self { state: Mutex::new(State { taken: false, deferred: Vec::new() }), free: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn guard(&'static self) -> ExclusiveGuard {
        HELD.set(true);
        ExclusiveGuard { lock: self, not_send: PhantomData }
    }

    fn acquire(&'static self, deadline: Option<Instant>) -> Result<Option<ExclusiveGuard>, DeadlineExceeded> {
        if HELD.get() {
            return Ok(None);
        }
        let mut state = self.state();
        while state.taken {
            state = match deadline {
                None => self.free.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(DeadlineExceeded);
                    }
                    self.free.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.taken = true;
        drop(state);
        let guard = self.guard();
        // Acquired after the deadline: unlock for the next thread.
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Err(DeadlineExceeded)
        } else {
            Ok(Some(guard))
        }
    }

    fn drop_exclusively(&'static self, value: Box<dyn Any + Send>) {
        let mut state = self.state();
        if state.taken && !HELD.get() {
            state.deferred.push((value, PendingDrop::begin()));
            return;
        }
        state.taken = true;
        drop(state);
        let _guard = (!HELD.get()).then(|| self.guard());
        drop(value);
    }
}

impl Drop for ExclusiveGuard {
    fn drop(&mut self) {
        loop {
            let mut state = self.lock.state();
            if state.deferred.is_empty() {
                state.taken = false;
                break;
            }
            let deferred = std::mem::take(&mut state.deferred);
            drop(state);
            drop(deferred);
        }
        HELD.set(false);
        self.lock.free.notify_one();
    }
}

/// A value that is dropped under the lock if it is `exclusive`.
pub(super) struct ExclusiveValue<T: Send + 'static> {
    inner: Option<T>,
    exclusive: bool,
}

impl<T: Send + 'static> ExclusiveValue<T> {
    pub(super) fn new(inner: T, exclusive: bool) -> Self {
        Self { inner: Some(inner), exclusive }
    }

    /// The value; the caller holds the lock if one is needed.
    pub(super) fn get(&self) -> Option<&T> {
        self.inner.as_ref()
    }

    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        self.inner.as_mut()
    }
}

impl<T: Send + 'static> Drop for ExclusiveValue<T> {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take().filter(|_| self.exclusive) {
            DEVICE_LOCK.drop_exclusively(Box::new(inner));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    fn far() -> Option<Instant> {
        Instant::now().checked_add(Duration::from_mins(1))
    }

    #[test]
    fn waits_until_unlocked_or_deadline() {
        static DEVICE_LOCK: ExclusiveLock = ExclusiveLock::new();
        let (taken, is_taken) = channel();
        let (end, ends) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _guard = DEVICE_LOCK.acquire(None).unwrap().unwrap();
                // Its own turn is no hindrance.
                assert!(DEVICE_LOCK.acquire(None).unwrap().is_none());
                taken.send(()).unwrap();
                let _ = ends.recv();
            });
            is_taken.recv().unwrap();
            let start = Instant::now();
            assert!(DEVICE_LOCK.acquire(start.checked_add(Duration::from_millis(20))).is_err());
            assert!(start.elapsed() >= Duration::from_millis(20));
            let waiting = scope.spawn(|| DEVICE_LOCK.acquire(far()).is_ok());
            drop(end);
            assert!(waiting.join().unwrap());
        });
        assert!(DEVICE_LOCK.acquire(Some(Instant::now())).is_err(), "late, though nobody has the turn");
        assert!(DEVICE_LOCK.acquire(far()).is_ok(), "who was late has passed it on");
    }

    #[test]
    fn excludes_concurrent_threads() {
        static DEVICE_LOCK: ExclusiveLock = ExclusiveLock::new();
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (inside, done) = (&inside, &done);
                scope.spawn(move || {
                    for _ in 0..500 {
                        // One thread gives up often; the others continue.
                        let patience = Duration::from_micros(if thread == 0 { 1 } else { 60_000_000 });
                        let Ok(_guard) = DEVICE_LOCK.acquire(Instant::now().checked_add(patience)) else { continue };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        done.fetch_add(usize::from(thread > 0), Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.load(Ordering::SeqCst), 1500);
    }

    /// Sends the id of the thread that drops it.
    struct DropSpy(std::sync::mpsc::Sender<std::thread::ThreadId>);

    impl Drop for DropSpy {
        fn drop(&mut self) {
            let _ = self.0.send(std::thread::current().id());
        }
    }

    #[test]
    fn process_exit_waits_for_deferred_drops() {
        static DEVICE_LOCK: ExclusiveLock = ExclusiveLock::new();
        let (sender, receiver) = channel();
        let guard = DEVICE_LOCK.acquire(None).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| DEVICE_LOCK.drop_exclusively(Box::new(DropSpy(sender)))).join().unwrap();
            let waited = scope.spawn(move || {
                PendingDrop::wait();
                receiver.try_recv().is_ok()
            });
            std::thread::sleep(Duration::from_millis(20));
            drop(guard);
            assert!(waited.join().unwrap());
        });
    }

    #[test]
    fn dropping_never_blocks() {
        static DEVICE_LOCK: ExclusiveLock = ExclusiveLock::new();
        let (sender, receiver) = channel();
        let not_send = std::thread::current().id();
        DEVICE_LOCK.drop_exclusively(Box::new(DropSpy(sender.clone())));
        assert_eq!(receiver.try_recv(), Ok(not_send), "nobody has the turn");
        let guard = DEVICE_LOCK.acquire(None).unwrap();
        DEVICE_LOCK.drop_exclusively(Box::new(DropSpy(sender.clone())));
        assert_eq!(receiver.try_recv(), Ok(not_send), "who has the turn need not wait for it");
        std::thread::scope(|scope| {
            scope.spawn(|| DEVICE_LOCK.drop_exclusively(Box::new(DropSpy(sender.clone())))).join().unwrap();
        });
        assert!(receiver.try_recv().is_err(), "another has the turn");
        drop(guard);
        assert_eq!(receiver.try_recv(), Ok(not_send), "who had the turn has let go of it");
    }
}
