//! A semaphore that bounds the number of sandboxes. A request waits for a free slot, for
//! example when a model's batch ends and many guests begin at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The free slots. Acquiring a free slot and releasing it take no lock.
pub(super) struct SlotPool {
    free: AtomicUsize,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    freed: Condvar,
}

impl SlotPool {
    pub(super) fn new(slots: usize) -> Self {
        Self { free: slots.into(), waiting: AtomicUsize::new(0), lock: Mutex::default(), freed: Condvar::new() }
    }

    /// Takes a slot, or waits for one until the deadline; `false` if none was free by then.
    pub(super) fn take(&self, deadline: Option<Instant>) -> bool {
        self.take_free() || self.wait(deadline)
    }

    /// Gives a slot back, once the sandbox in it is gone.
    pub(super) fn give_back(&self) {
        self.free.fetch_add(1, Ordering::SeqCst);
        // A waiting caller either sees the slot or is seen here.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.freed.notify_one();
        }
    }

    fn take_free(&self) -> bool {
        let take = |free: usize| free.checked_sub(1);
        self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
    }

    #[cold]
    fn wait(&self, deadline: Option<Instant>) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        let waited = self.freed.wait_timeout_while(lock, left, |()| !self.take_free());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_waiting_thread_gets_a_slot() {
        let (slots, inside) = (SlotPool::new(2), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        assert!(slots.take(None));
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                        std::hint::spin_loop();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        slots.give_back();
                    }
                });
            }
        });
        assert_eq!((slots.free.into_inner(), slots.waiting.into_inner()), (2, 0));
    }

    #[test]
    fn a_wait_ends_at_the_deadline() {
        let slots = SlotPool::new(1);
        assert!(slots.take(None));
        let begun = Instant::now();
        assert!(!slots.take(Some(begun + Duration::from_millis(20))));
        assert!(begun.elapsed() >= Duration::from_millis(20));
        slots.give_back();
        assert!(slots.take(Some(begun)), "one that is free is no wait");
    }
}
