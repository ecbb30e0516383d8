//! Bounds the runs of a pipeline that go on at the same time, as the server's workers do: more would only slow each
//! other down, until they miss the time limits of their steps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpux_core::WaitObserver;

/// Time between two looks at whether a run that waits was cancelled.
const INTERVAL: Duration = Duration::from_millis(50);

/// Counts the runs that may still begin.
pub(crate) struct RunQueue {
    free: Mutex<usize>,
    released: Condvar,
}

/// The permission to run. Dropped, the next run begins.
pub(crate) struct RunPermit(Arc<RunQueue>);

impl RunQueue {
    /// A queue of as many runs at the same time as there are cores, or as the pipeline's models can use.
    pub(crate) fn new(concurrency: usize) -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Self { free: Mutex::new(cores.max(concurrency)), released: Condvar::new() })
    }

    /// Waits for a permit; `None` if the run is cancelled before.
    pub(crate) fn acquire(self: &Arc<Self>, cancelled: Option<&AtomicBool>) -> Option<RunPermit> {
        let is_cancelled = || cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed));
        let mut free = self.lock();
        while *free == 0 && !is_cancelled() {
            free = self.released.wait_timeout(free, INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        *free = free.checked_sub(1)?;
        drop(free);
        Some(RunPermit(self.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self) {
        *self.lock() += 1;
        self.released.notify_one();
    }
}

/// While a run waits for others, in a batch say, the next begins.
impl WaitObserver for RunQueue {
    fn begin(&self) {
        self.release();
    }

    fn end(&self, _: Duration) {
        let mut free = self.lock();
        while *free == 0 {
            free = self.released.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        self.0.release();
    }
}
