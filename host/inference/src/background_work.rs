//! Sessions that are being made or let go of on other threads, and the end of a process that runs exit
//! handlers: they take a native library down, and one that is at work then crashes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest that anybody waits for them.
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

/// A session that is being made.
pub(crate) struct Maker(());

impl Maker {
    pub(crate) fn begin() -> Self {
        at_work().making += 1;
        Self(())
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        at_work().making -= 1;
        CHANGED.notify_all();
    }
}

/// Waits for those that are being made.
pub(crate) fn wait() {
    wait_while(|at_work| at_work.making > 0);
}

/// Models that another thread lets go of, so that nobody else waits for it.
pub struct Closing(());

impl Closing {
    /// From here on until it is dropped.
    pub fn begin() -> Self {
        at_work().closing += 1;
        Self(())
    }

    /// Waits until all of them are gone.
    pub fn wait() {
        wait_while(|at_work| at_work.closing > 0);
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        at_work().closing -= 1;
        CHANGED.notify_all();
    }
}
