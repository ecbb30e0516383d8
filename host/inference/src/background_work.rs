//! Counts sessions that other threads load or drop. Process exit waits for them: exit handlers unload
//! native libraries, and a library in use then crashes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest wait for them.
const PATIENCE: Duration = Duration::from_secs(10);

static AT_WORK: Mutex<AtWork> = Mutex::new(AtWork { making: 0, closing: 0 });
static CHANGED: Condvar = Condvar::new();

struct AtWork {
    making: usize,
    closing: usize,
}

fn at_work() -> MutexGuard<'static, AtWork> {
    AT_WORK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_while(holds: impl Fn(&AtWork) -> bool) {
    let waited = CHANGED.wait_timeout_while(at_work(), PATIENCE, |at_work| holds(at_work));
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

/// A session that is being loaded, until this is dropped.
pub(crate) struct BackgroundLoad(());

impl BackgroundLoad {
    pub(crate) fn begin() -> Self {
        at_work().making += 1;
        Self(())
    }
}

impl Drop for BackgroundLoad {
    fn drop(&mut self) {
        at_work().making -= 1;
        CHANGED.notify_all();
    }
}

/// Waits until no session is loading.
pub(crate) fn wait() {
    wait_while(|at_work| at_work.making > 0);
}

/// Models that a background thread drops, until this is dropped.
pub struct PendingDrop(());

impl PendingDrop {
    /// Begins counting.
    pub fn begin() -> Self {
        at_work().closing += 1;
        Self(())
    }

    /// Waits until all of them are gone.
    pub fn wait() {
        wait_while(|at_work| at_work.closing > 0);
    }
}

impl Drop for PendingDrop {
    fn drop(&mut self) {
        at_work().closing -= 1;
        CHANGED.notify_all();
    }
}
